//! What goes on by itself: vectors are filled in, idle spaces closed, bytes that nobody refers to removed, old memory made
//! smaller.
//!
//! One task, one thing at a time: none of it is urgent, and all of it shares a disk and two cores with sandboxes. What the
//! end of the daemon cuts off, the next one goes on with.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use burrow_catalog::{CatalogError, PageRequest};
use burrow_memory::{Budget, Worked};
use burrow_model::{MemoryRef, TenantId};

use super::{Plan, folder};
use crate::config::ConsolidateConfig;
use crate::convert;
use crate::rest::App;

/// Between two rounds when nothing calls for one: spaces that nobody uses are closed in them.
const ROUND_MAX: Duration = Duration::from_secs(5);

/// Writes that come together are embedded together.
const ROUND_MIN: Duration = Duration::from_millis(50);

/// Rows of one round. An embedder of five milliseconds a text is busy for a second or two.
const ROWS_PER_ROUND: usize = 256;

/// Between two sweeps of artifacts, and between two looks at whether it is time to consolidate.
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
        // With more at hand there is no reason to wait.
        if worked.embedded < ROWS_PER_ROUND as u64 {
            tokio::select! {
                () = tokio::time::sleep(ROUND_MAX) => {}
                () = app.engine.memory().wait_for_work() => tokio::time::sleep(ROUND_MIN).await,
            }
        }
    }
}

/// One round of filling in and closing.
pub(crate) async fn work(app: &App) -> Worked {
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
            tracing::info!(
                blobs = swept.blobs,
                bytes = swept.bytes,
                "removed artifacts that nobody has any more"
            );
        }
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not look for artifacts that nobody has"
            );
        }
    }
}

/// One run over every branch that somebody remembers on.
pub(crate) async fn consolidate_all(app: &App) {
    let branches = match branches(app).await {
        Ok(branches) => branches,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not list whose memory is to be consolidated"
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
        .expect("the configuration's own bounds are within a request's")
}

/// Those of spaces that have a file: others have nothing to be made smaller.
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

/// When memory was last consolidated, over restarts.
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
            // The first time counts from here.
            None => {
                self.done(now_ms);
                false
            }
        }
    }

    /// What cannot be written down is done again too early, which does no harm.
    fn done(&self, now_ms: u64) {
        let partial = self.file.with_extension("partial");
        let written =
            fs::write(&partial, format!("{now_ms}\n")).and_then(|()| fs::rename(&partial, &self.file));
        if let Err(error) = written
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "could not write down when memory was consolidated");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consolidation_is_due_once_per_interval_over_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let schedule = |every_ms| Schedule { file: folder.path().join("consolidated"), every_ms };
        assert!(!schedule(None).is_due(u64::MAX));
        assert!(!schedule(Some(1_000)).is_due(10_000), "the first time counts from here");
        assert!(!schedule(Some(1_000)).is_due(10_999));
        assert!(schedule(Some(1_000)).is_due(11_000));
        schedule(Some(1_000)).done(11_000);
        assert!(!schedule(Some(1_000)).is_due(11_500));
    }
}
