//! Periodic work: adds missing vectors, closes idle spaces, removes unreferenced artifacts, consolidates old memory.
//!
//! One task, one step at a time: none of this is urgent, and all of it shares a disk and CPUs with sandboxes. Work that
//! is interrupted by the end of the daemon is continued by the next one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::{CatalogError, PageRequest};
use burrow_memory::{Budget, WorkReport};
use burrow_model::{MemoryRef, TenantId};
use tokio::time::Instant;

use burrow_config::ConsolidateConfig;
use burrow_http::app::App;
use burrow_http::convert;
use burrow_http::memory::{Plan, folder};

/// Interval of rounds when there is no other reason for one; idle spaces are closed in them.
const ROUND_MAX: Duration = Duration::from_secs(5);

/// Minimum interval: writes that arrive together are embedded together.
const ROUND_MIN: Duration = Duration::from_millis(50);

/// Maximum rows per round. With five milliseconds per text, a round takes a second or two.
const ROWS_PER_ROUND: usize = 256;

/// Interval of sweeps of artifacts, and of the check whether consolidation is due.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Runs until the daemon ends.
pub(crate) fn spawn(app: &Arc<App>) {
    let work_app = app.clone();
    app.tasks.spawn(async move {
        let draining = work_app.draining.clone();
        draining.run_until_cancelled(run(&work_app)).await;
    });
}

async fn run(app: &App) {
    let schedule = Schedule::open(app);
    let (mut swept, mut looked) = (Instant::now(), Instant::now());
    loop {
        let worked = work(app).await;
        if swept.elapsed() >= SWEEP_EVERY {
            sweep(app).await;
            swept = Instant::now();
        }
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            if schedule.is_due(app.engine.now_ms()) {
                consolidate_all(app).await;
                schedule.done(app.engine.now_ms());
            }
        }
        // If more rows wait, the next round begins at once.
        if worked.embedded < ROWS_PER_ROUND as u64 {
            tokio::select! {
                () = tokio::time::sleep(ROUND_MAX) => {}
                () = app.engine.memory().wait_for_work() => tokio::time::sleep(ROUND_MIN).await,
            }
        }
    }
}

/// One round: adds vectors, and closes idle spaces.
pub(crate) async fn work(app: &App) -> WorkReport {
    let worked = app.engine.memory().work(Budget { rows: ROWS_PER_ROUND }).await;
    app.metrics.memory.pending(worked.pending);
    if let Some(why) = &worked.failed {
        tracing::debug!(why, pending = worked.pending, "vectors are filled in later");
    }
    worked
}

async fn sweep(app: &App) {
    match app.engine.memory().sweep(false).await {
        Ok(swept) if swept.blobs + swept.unfinished > 0 => {
            tracing::info!(blobs = swept.blobs, bytes = swept.bytes, "removed unreferenced artifacts");
        }
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not search for unreferenced artifacts"
            );
        }
    }
}

/// Consolidates every branch that is in use.
pub(crate) async fn consolidate_all(app: &App) {
    let branches = match branches(app).await {
        Ok(branches) => branches,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not list the branches to consolidate"
            );
            return;
        }
    };
    let plan = plan(&app.config.memory.consolidate);
    for branch in branches {
        let view = app.engine.memory().view(&branch);
        match app.memory.consolidate(&view, &plan).await {
            Ok(done) => app.metrics.memory.consolidated(done.joined + done.cooled),
            Err(error) => {
                tracing::warn!(
                    space = %branch.space,
                    error = &error as &dyn std::error::Error,
                    "could not consolidate memory"
                );
            }
        }
    }
}

fn plan(config: &ConsolidateConfig) -> Plan {
    let nothing_said = burrow_api::memory::ConsolidateMemory::default();
    convert::consolidate_plan(&nothing_said, config)
        .expect("the limits of the configuration are within those of requests")
}

/// Only branches of spaces that have a file: others are empty.
async fn branches(app: &App) -> Result<Vec<MemoryRef>, CatalogError> {
    let catalog = app.engine.catalog();
    let written: BTreeSet<_> = app.engine.memory().spaces().await.unwrap_or_default().into_iter().collect();
    let mut tenants: BTreeSet<TenantId> = BTreeSet::from([catalog.default_tenant()]);
    let mut branches = Vec::new();
    for row in catalog.all_sandboxes().await? {
        branches.push(row.memory());
        tenants.insert(row.tenant);
    }
    for tenant in tenants {
        let mut page = PageRequest { cursor: None, limit: burrow_catalog::PAGE_LIMIT_MAX };
        loop {
            let spaces = catalog.list_spaces(&tenant, page.clone()).await?;
            branches.extend(spaces.rows.iter().map(|row| MemoryRef::main(&row.id)));
            let Some(cursor) = spaces.next_cursor else { break };
            page.cursor = Some(cursor);
        }
    }
    branches.retain(|branch| written.contains(&branch.space));
    Ok(branches)
}

/// The time of the last consolidation, stored across restarts.
#[derive(Debug)]
struct Schedule {
    file: PathBuf,
    every_ms: Option<u64>,
}

impl Schedule {
    fn open(app: &App) -> Self {
        Self {
            file: folder(&app.config).join("consolidated"),
            every_ms: app.config.memory.consolidate.every_ms,
        }
    }

    fn is_due(&self, now_ms: u64) -> bool {
        let Some(every_ms) = self.every_ms else { return false };
        let last_ms = fs::read_to_string(&self.file).ok().and_then(|text| text.trim().parse::<u64>().ok());
        match last_ms {
            Some(last_ms) => now_ms.saturating_sub(last_ms) >= every_ms,
            // The first interval starts now.
            None => {
                self.done(now_ms);
                false
            }
        }
    }

    /// If the time cannot be stored, the next consolidation is too early, which is harmless.
    fn done(&self, now_ms: u64) {
        let partial = self.file.with_extension("partial");
        let written =
            fs::write(&partial, format!("{now_ms}\n")).and_then(|()| fs::rename(&partial, &self.file));
        if let Err(error) = written
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "could not store the time of the last consolidation");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consolidation_is_due_once_per_interval_across_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let schedule = |every_ms| Schedule { file: folder.path().join("consolidated"), every_ms };
        assert!(!schedule(None).is_due(u64::MAX));
        assert!(!schedule(Some(1_000)).is_due(10_000), "the first interval starts now");
        assert!(!schedule(Some(1_000)).is_due(10_999));
        assert!(schedule(Some(1_000)).is_due(11_000));
        schedule(Some(1_000)).done(11_000);
        assert!(!schedule(Some(1_000)).is_due(11_500));
    }
}
