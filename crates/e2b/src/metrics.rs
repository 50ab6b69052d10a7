//! Resource usage of sandboxes: now, and in the last hour.
//!
//! ```text
//!   GET …/metrics ─► one sample now ─┐
//!   GET …/metrics ─► one sample now ─┐
//!                 └► every 5 s from then on ─► ring of 720 samples ─► those of the requested time range
//!
//! A sandbox is sampled from the first request for its metrics until an hour after the last one, or until it stops
//! running. Sandboxes whose metrics are never requested are not sampled. Sampling does not count as activity and wakes
//! no sandbox.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use burrow_catalog::SandboxRow;
use burrow_engine::Guest;
use burrow_guest::protocol::{MachineStats, Request};
use burrow_model::{SandboxId, State as SandboxState};
use serde_json::{Value, json};

use super::body::E2bExtractor;
use super::error::Refusal;
use super::sandbox_path::Path;
use super::show;
use burrow_http::app::{App, Part};
use burrow_http::auth::{Caller, Reader};
use burrow_http::input::{Segments, pairs};

/// E2B's interval.
const EVERY: Duration = Duration::from_secs(5);

/// One hour of samples.
const SAMPLES_MAX: usize = 720;

/// How long a sandbox is sampled after the last request.
const ASKED_MS: u64 = 60 * 60 * 1000;

/// Maximum number of sandboxes that are sampled. For others, only the current usage is returned.
const SAMPLED_MAX: usize = 1_000;

/// Samples between two measurements of the disk: each makes the pool flush its pending writes.
const DISK_EVERY: usize = 6;

/// Interval for measuring CPU usage.
const CPU_LOOK: Duration = Duration::from_millis(100);

/// Maximum number of sandboxes in one request.
const METRICS_OF_MAX: usize = 100;

/// What a sandbox used at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    at_ms: u64,
    /// Percentage of one CPU; above 100 with several CPUs.
    cpu_percent: f32,
    ram_bytes: u64,
    disk_bytes: u64,
}

impl Sample {
    fn between(before: &MachineStats, now: &MachineStats, at_ms: u64, disk_bytes: u64) -> Self {
        let spent_us = now.cpu_us.saturating_sub(before.cpu_us) as f32;
        let passed_us = now.uptime_ms.saturating_sub(before.uptime_ms) as f32 * 1000.0;
        let cpu_percent = if passed_us > 0.0 { 100.0 * spent_us / passed_us } else { 0.0 };
        Self { at_ms, cpu_percent, ram_bytes: now.ram_bytes, disk_bytes }
    }

    fn shown(&self, row: &SandboxRow) -> Value {
        let limits = &row.spec.limits;
        let of_all = f64::from(self.cpu_percent) / (f64::from(limits.cpu_millis) / 1000.0);
        json!({
            "timestamp": show::time(self.at_ms),
            "timestampUnix": self.at_ms / 1000,
            "cpuCount": limits.cpu_millis.div_ceil(1000),
            "cpuUsedPct": (of_all.min(100.0) * 100.0).round() / 100.0,
            "memUsed": self.ram_bytes,
            "memTotal": u64::from(limits.ram_mib) * burrow_model::MIB,
            "memCache": 0,
            "diskUsed": self.disk_bytes,
            "diskTotal": u64::from(limits.disk_mib) * burrow_model::MIB,
        })
    }
}

/// The histories of all sandboxes whose metrics were requested.
#[derive(Debug, Default)]
pub(crate) struct Histories(Mutex<HashMap<SandboxId, Arc<History>>>);

#[derive(Debug, Default)]
struct History {
    samples: Mutex<VecDeque<Sample>>,
    asked_ms: AtomicU64,
    is_sampled: AtomicBool,
}

impl Part for Histories {
    fn new(_: &App) -> Self {
        Self::default()
    }
}

impl Histories {
    fn of(&self, sandbox: &SandboxId) -> Option<Arc<History>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(sandbox).cloned()
    }

    /// The history of a sandbox; creates one if there is none. `exists` decides which sandboxes exist.
    fn begin(&self, sandbox: &SandboxId, exists: impl Fn(&SandboxId) -> bool) -> Option<Arc<History>> {
        let mut histories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(history) = histories.get(sandbox) {
            return Some(history.clone());
        }
        histories.retain(|known, _| exists(known));
        if histories.len() >= SAMPLED_MAX {
            return None;
        }
        Some(histories.entry(sandbox.clone()).or_default().clone())
    }
}

impl History {
    fn add(&self, sample: Sample) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The samples of a time range, oldest first.
    fn within(&self, time: Time, now_ms: u64) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |sample: &&Sample| time.holds(sample.at_ms) && sample.at_ms + ASKED_MS >= now_ms;
        samples.iter().filter(wanted).copied().collect()
    }
}

/// A range of seconds, inclusive.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    start: Option<u64>,
    end: Option<u64>,
}

impl Time {
    fn of(uri: &http::Uri) -> Result<Self, Refusal> {
        let mut time = Self::default();
        for (name, value) in pairs(uri)? {
            let place = match name.as_str() {
                "start" => &mut time.start,
                "end" => &mut time.end,
                _ => continue,
            };
            let seconds = value
                .parse()
                .map_err(|_| Refusal::invalid(format!("`{name}` must be a number of seconds since 1970")))?;
            *place = Some(seconds);
        }
        match (time.start, time.end) {
            (Some(start), Some(end)) if start > end => Err(Refusal::invalid("`start` is after `end`")),
            _ => Ok(time),
        }
    }

    fn holds(self, at_ms: u64) -> bool {
        let at = at_ms / 1000;
        self.start.is_none_or(|start| at >= start) && self.end.is_none_or(|end| at <= end)
    }
}

pub(super) async fn of_one(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
    uri: http::Uri,
) -> Result<Json<Value>, Refusal> {
    let time = Time::of(&uri)?;
    let row = path.row(&app, &caller).await?;
    let now = measured(&app, &caller, &row).await?;
    let mut samples = match app.part::<Histories>().of(&row.id) {
        Some(history) => history.within(time, app.engine.now_ms()),
        None => Vec::new(),
    };
    samples.extend(now.filter(|now| time.holds(now.at_ms)));
    Ok(Json(samples.iter().map(|sample| sample.shown(&row)).collect()))
}

/// The current usage of several sandboxes.
pub(super) async fn of_many(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    uri: http::Uri,
) -> Result<Json<Value>, Refusal> {
    let asked = pairs(&uri)?.into_iter().filter(|(name, _)| name == "sandbox_ids");
    let ids: Vec<String> =
        asked.flat_map(|(_, value)| value.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    if ids.len() > METRICS_OF_MAX {
        return Err(Refusal::invalid(format!("`sandbox_ids` names more than {METRICS_OF_MAX} sandboxes")));
    }
    let mut figures = serde_json::Map::new();
    for text in ids {
        let row = Path::to(text).row(&app, &caller).await?;
        if let Some(now) = measured(&app, &caller, &row).await? {
            figures.insert(row.id.to_string(), now.shown(&row));
        }
    }
    Ok(Json(json!({ "sandboxes": figures })))
}

/// The current usage of a sandbox, which is sampled from now on; `None` if it is stopped.
async fn measured(app: &Arc<App>, caller: &Caller, row: &SandboxRow) -> Result<Option<Sample>, Refusal> {
    if matches!(row.state, SandboxState::Stopped | SandboxState::Stopping | SandboxState::Failed) {
        return Ok(None);
    }
    let (_, before, _, _) = app.engine.stats(caller.tenant(), &row.id).await?;
    tokio::time::sleep(CPU_LOOK).await;
    let (_, stats, _, disk) = app.engine.stats(caller.tenant(), &row.id).await?;
    let sample = Sample::between(&before, &stats, app.engine.now_ms(), disk);
    if row.state == SandboxState::Running {
        keep_sampling(app, caller, row, stats).await;
    }
    Ok(Some(sample))
}

/// Starts sampling a sandbox, or extends the sampling.
async fn keep_sampling(app: &Arc<App>, caller: &Caller, row: &SandboxRow, stats: MachineStats) {
    let exists = |id: &SandboxId| app.engine.owner(id).is_some();
    let Some(history) = app.part::<Histories>().begin(&row.id, exists) else { return };
    history.asked_ms.store(app.engine.now_ms(), Ordering::Relaxed);
    if history.is_sampled.swap(true, Ordering::AcqRel) {
        return;
    }
    match app.engine.guest(caller.tenant(), &row.id).await {
        Ok(guest) => {
            let (app, guest) = (app.clone(), guest.without_lease());
            app.tasks.clone().spawn(async move { sample(&app, &guest, &history, stats).await });
        }
        Err(_) => history.is_sampled.store(false, Ordering::Release),
    }
}

/// Samples a sandbox until it stops running, or until its metrics have not been requested for [`ASKED_MS`].
async fn sample(app: &App, guest: &Guest, history: &History, mut before: MachineStats) {
    let row = guest.sandbox();
    let mut disk = app.engine.disk_used(guest).await.unwrap_or(0);
    for count in 1.. {
        tokio::select! {
            () = app.draining.cancelled() => break,
            () = tokio::time::sleep(EVERY) => {}
        }
        let now_ms = app.engine.now_ms();
        let is_wanted = now_ms.saturating_sub(history.asked_ms.load(Ordering::Relaxed)) < ASKED_MS;
        if !is_wanted || app.engine.running(&row.tenant, &row.id) != Some(row.generation) {
            break;
        }
        let Ok(stats) = guest.call::<MachineStats>(&Request::Stats).await else { break };
        if count % DISK_EVERY == 0 {
            disk = app.engine.disk_used(guest).await.unwrap_or(disk);
        }
        history.add(Sample::between(&before, &stats, now_ms, disk));
        before = stats;
    }
    history.is_sampled.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Sample {
        Sample { at_ms: seconds * 1000, cpu_percent: 50.0, ram_bytes: 1, disk_bytes: 2 }
    }

    fn time(query: &str) -> Result<Time, Refusal> {
        Time::of(&format!("/sandboxes/x/metrics?{query}").parse().unwrap())
    }

    #[test]
    fn a_history_covers_an_hour_and_returns_the_requested_range() {
        let history = History::default();
        for number in 0..1_000 {
            history.add(at(number * 5));
        }
        let seconds = |query: &str, now: u64| -> Vec<u64> {
            let found = history.within(time(query).unwrap(), now * 1000);
            found.iter().map(|sample| sample.at_ms / 1000).collect()
        };
        assert_eq!(seconds("", 4_995).len(), SAMPLES_MAX);
        assert_eq!(seconds("start=4980&end=4990", 4_995), [4_980, 4_985, 4_990]);
        assert_eq!(seconds("start=4994", 4_995), [4_995]);
        assert_eq!(seconds("end=1400", 4_995), [1_400]);
        assert_eq!(seconds("", 4_995 + 3_595), [4_990, 4_995], "samples older than an hour are removed");
        assert!(time("start=2&end=1").is_err() && time("start=x").is_err() && time("end=-1").is_err());
    }

    #[test]
    fn the_number_of_sampled_sandboxes_is_limited() {
        let histories = Histories::default();
        let first = SandboxId::generate();
        assert!(histories.of(&first).is_none(), "not sampled before the first request");
        assert!(histories.begin(&first, |_| true).is_some());
        for _ in 1..SAMPLED_MAX {
            assert!(histories.begin(&SandboxId::generate(), |_| true).is_some());
        }
        assert!(histories.begin(&SandboxId::generate(), |_| true).is_none());
        assert!(histories.begin(&first, |_| true).is_some(), "existing histories stay");
        assert!(histories.begin(&SandboxId::generate(), |known| *known != first).is_some());
        assert!(histories.of(&first).is_none());
    }
}
