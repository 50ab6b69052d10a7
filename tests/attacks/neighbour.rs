//! A sandbox that works normally while others are attacked, and its latency during that time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::canaries::Canaries;
use crate::ground::Ground;
use crate::harness::Daemon;
use crate::report::{RowFailure, ensure};
use crate::wire::Wire;

/// The pause between two execs of the watch.
const PACE: Duration = Duration::from_millis(40);

/// Number of execs without an attack, for comparison.
const AT_REST: usize = 50;

pub(crate) struct Neighbour {
    url: String,
    key: String,
    rest: Mutex<Vec<Duration>>,
    /// By row: its 99th percentile and the number of execs.
    rows: Mutex<Vec<(&'static str, Duration, usize)>>,
}

impl Neighbour {
    pub(crate) fn new(daemon: &Daemon) -> Self {
        Self { url: daemon.url(), key: daemon.key(), rest: Mutex::default(), rows: Mutex::default() }
    }

    /// Measures the latency while nothing else runs.
    pub(crate) fn rest(&self) {
        let mut wire = Wire::open(&self.url, &self.key);
        let measured = (0..AT_REST).map(|_| exec(&mut wire).unwrap()).collect();
        *self.rest.lock().unwrap() = measured;
    }

    pub(crate) fn note(&self, row: &'static str, latencies: &[Duration]) {
        if !latencies.is_empty() {
            self.rows.lock().unwrap().push((row, percentile(latencies, 99), latencies.len()));
        }
    }

    /// It still answers, and still has its secret.
    pub(crate) fn check(&self, canaries: &Canaries) -> Result<(), RowFailure> {
        let mut wire = Wire::open(&self.url, &self.key);
        exec(&mut wire).map_err(|why| RowFailure::Failed(format!("the neighbour does not answer: {why}")))?;
        let target = format!("/v1/sandboxes/neighbour/files?path={}", Canaries::NEIGHBOUR_FILE);
        let answer = wire.ask("GET", target.as_bytes(), "", b"").map_err(|error| error.to_string())?;
        ensure(answer.body == canaries.secret().as_bytes(), || {
            format!("the neighbour's secret is now {} {:?}", answer.status, answer.text())
        })
    }

    /// Reported, not asserted: other programs use this machine, too.
    pub(crate) fn summary(&self) -> String {
        let rest = percentile(&self.rest.lock().unwrap(), 99);
        let rows = self.rows.lock().unwrap();
        let Some((row, worst, count)) = rows.iter().max_by_key(|(_, latency, _)| *latency) else {
            return "not measured".to_owned();
        };
        let execs: usize = rows.iter().map(|(_, _, count)| count).sum();
        let within = rows.iter().filter(|(_, latency, _)| *latency <= rest * 2).count();
        format!(
            "exec p99 {:.1} ms at rest; within twice that during {within} of {} rows; worst {:.1} ms during {row} \
             ({count} execs); {execs} execs in all, none failed",
            rest.as_secs_f64() * 1e3,
            rows.len(),
            worst.as_secs_f64() * 1e3,
        )
    }
}

/// Uses the neighbour for the duration of an attack.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Watch {
    pub(crate) fn begin(ground: &Ground) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (url, key) = (ground.daemon.url(), ground.daemon.key());
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut wire = Wire::open(&url, &key);
            let mut latencies = Vec::new();
            while !seen.load(Ordering::SeqCst) {
                latencies.push(exec(&mut wire).expect("the neighbour answers while others are attacked"));
                std::thread::sleep(PACE);
            }
            latencies
        });
        Self { stop, thread }
    }

    /// The duration of each exec. Panics if one failed, which fails the row.
    pub(crate) fn end(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

fn exec(wire: &mut Wire) -> Result<Duration, String> {
    let body = json!({ "argv": ["/bin/true"], "wait": true }).to_string();
    let begun = Instant::now();
    let answer = wire
        .ask("POST", b"/v1/sandboxes/neighbour/execs", "application/json", body.as_bytes())
        .map_err(|error| error.to_string())?;
    let took = begun.elapsed();
    let good = answer.status == 200 && answer.json()["exec"]["outcome"]["exit_code"] == 0;
    if good { Ok(took) } else { Err(format!("{} {}", answer.status, answer.text())) }
}

fn percentile(latencies: &[Duration], percent: usize) -> Duration {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}
