//! Measures how long a machine takes to boot, pause, resume and end, with 60 ms between boots: back to back, the
//! kernel's deferred work overlaps and the figures look better than in practice. Also measures dump and restore, for
//! one machine and for twenty at once.
//!
//! `cargo bench -p burrow-runtime`. Needs root and CRIU. Figures are medians and 95th percentiles, in milliseconds.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up has failed")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Write as _;
use std::time::{Duration, Instant};

use burrow_model::Limits;
use burrow_runtime::{DumpOptions, RestoreOptions, Runtime as _};
use support::{Host, LIMITS, Plot, later, options};

const ROUNDS: usize = 60;
const SPACING: Duration = Duration::from_millis(60);

/// Dumps and restores of one machine, and machines of one dump at once.
const KEEPS: usize = 20;
const CHILDREN: usize = 20;

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
        let root = if prepared { "root prepared with its image" } else { "root not prepared" };
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
    for mib in [1, 64] {
        let times = runtime.block_on(measure_keeping(mib));
        let mut out = std::io::stdout().lock();
        writeln!(out, "kept with {mib} MiB: p50 / p95 of {KEEPS}").unwrap();
        for (name, values) in times {
            let (median, tail) = percentiles(values);
            writeln!(out, "  {name:<14} {median:7.1} / {tail:7.1} ms").unwrap();
        }
    }
}

/// With this much RAM in use, in MiB.
async fn measure_keeping(mib: u32) -> Vec<(&'static str, Vec<f64>)> {
    let host = Host::keeping();
    let plot = host.plot();
    let limits = Limits { ram_mib: 128 + mib, ..LIMITS };
    let keep = format!("keep {mib}");
    let mut machine = host.runtime.boot(&plot.id, options(&plot, limits, &[&keep])).await.unwrap();
    let (mut dumps, mut pauses, mut restores) = (Vec::new(), Vec::new(), Vec::new());
    let restored = |plot: &Plot, images: &std::path::Path, about: &str| RestoreOptions {
        root: plot.root.clone(),
        images: images.to_owned(),
        about: about.to_owned(),
        attachment: later(),
        limits,
        hostname: None,
        mounts: Vec::new(),
        introduce: None,
        trial: false,
    };
    let mut last = None;
    for _ in 0..KEEPS {
        let images = host.images();
        let dump =
            DumpOptions { machine, root: plot.root.clone(), images: images.clone(), mounts: Vec::new() };
        let start = Instant::now();
        let dumped = host.runtime.dump(&plot.id, dump).await.unwrap();
        dumps.push(start.elapsed().as_secs_f64() * 1000.0);
        pauses.push(dumped.paused_us as f64 / 1000.0);
        host.runtime.destroy(&plot.id).await.unwrap();
        let start = Instant::now();
        machine = host.runtime.restore(&plot.id, restored(&plot, &images, &dumped.about)).await.unwrap();
        restores.push(start.elapsed().as_secs_f64() * 1000.0);
        host.runtime.resume(&plot.id).await.unwrap();
        last = Some((images, dumped.about));
        tokio::time::sleep(SPACING).await;
    }
    host.runtime.destroy(&plot.id).await.unwrap();
    let (images, about) = last.unwrap();
    let children: Vec<Plot> = (0..CHILDREN).map(|_| host.plot()).collect();
    for child in &children {
        host.runtime.prepare_image(&child.root).await.unwrap();
        for name in ["count", "count.new"] {
            let _ = std::fs::copy(plot.root.join(name), child.root.join(name));
        }
    }
    let start = Instant::now();
    let all: Vec<_> = children
        .iter()
        .map(|child| {
            let (runtime, id) = (std::sync::Arc::clone(&host.runtime), child.id.clone());
            let options = restored(child, &images, &about);
            tokio::spawn(async move { runtime.restore(&id, options).await.unwrap() })
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    let at_once = vec![start.elapsed().as_secs_f64() * 1000.0];
    vec![("dump", dumps), ("paused", pauses), ("restore", restores), ("20 at once", at_once)]
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
