//! How long a machine takes to boot, pause, resume and end, with 60 ms between boots: back to back, the kernel's
//! deferred work overlaps and the figures look better than anybody will see them.
//!
//! `cargo bench -p burrow-runtime`. Needs root. Figures are medians and 95th percentiles, in milliseconds.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up has failed")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Write as _;
use std::time::{Duration, Instant};

use burrow_runtime::Runtime as _;
use support::{Host, LIMITS, options};

const ROUNDS: usize = 60;
const SPACING: Duration = Duration::from_millis(60);

#[derive(Default)]
struct Times {
    boot: Vec<f64>,
    pause: Vec<f64>,
    resume: Vec<f64>,
    destroy: Vec<f64>,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for prepared in [true, false] {
        let times = runtime.block_on(measure(prepared));
        let root = if prepared { "root prepared with its image" } else { "root never seen before" };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{root}: p50 / p95 of {ROUNDS}").unwrap();
        for (name, values) in [
            ("boot", times.boot),
            ("pause", times.pause),
            ("resume", times.resume),
            ("destroy", times.destroy),
        ] {
            let (median, tail) = percentiles(values);
            writeln!(out, "  {name:<8} {median:7.3} / {tail:7.3} ms").unwrap();
        }
    }
}

async fn measure(prepared: bool) -> Times {
    let host = Host::new();
    let mut times = Times::default();
    for _ in 0..ROUNDS {
        let plot = host.plot();
        if prepared {
            host.runtime.prepare_image(&plot.root).await.unwrap();
        }
        let options = options(&plot, LIMITS, &[]);
        tokio::time::sleep(SPACING).await;
        times.boot.push(timed(host.runtime.boot(&plot.id, options)).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
        times.pause.push(timed(host.runtime.pause(&plot.id)).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
        times.resume.push(timed(host.runtime.resume(&plot.id)).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
        times.destroy.push(timed(host.runtime.destroy(&plot.id)).await);
    }
    times
}

async fn timed<T, E: std::fmt::Debug>(work: impl Future<Output = Result<T, E>>) -> f64 {
    let start = Instant::now();
    work.await.unwrap();
    start.elapsed().as_secs_f64() * 1000.0
}

fn percentiles(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() * 95 / 100])
}
