//! Periodic work: imports the spool, retries waiting events, syncs the log, removes old event bodies.

use std::sync::Arc;
use std::time::Duration;

use burrow_audit::{Action, Event, Outcome};

use burrow_http::app::App;
use burrow_http::audit::Audit;

/// Interval between imports of spool and journal: the delay until clients that follow the log see an event.
const ROUND: Duration = Duration::from_millis(200);

/// Imports between two syncs: one second.
const SYNC_ROUNDS: u64 = 5;

/// Imports between two runs of the retention: one hour.
const RETAIN_ROUNDS: u64 = 18_000;

/// Records the start, imports what an earlier daemon left, and runs until the daemon ends.
pub(crate) fn spawn(app: &Arc<App>) {
    let work_app = app.clone();
    app.tasks.spawn(async move {
        let draining = work_app.draining.clone();
        draining.run_until_cancelled(run(&work_app)).await;
        // Calls that end later leave their events in the journal, for the next start.
        let _ = work_app.audit.store.sync().await;
    });
}

async fn run(app: &App) {
    let tenant = app.engine.catalog().default_tenant();
    let started = Event {
        actor: Some("daemon".into()),
        target: Some(env!("CARGO_PKG_VERSION").into()),
        ..Event::new(app.engine.now_ms(), tenant, Action::DaemonStart, Outcome::Done)
    };
    app.audited(started).await;
    let mut failing = false;
    for round in 0u64.. {
        failing = import(app, failing).await;
        if round.is_multiple_of(SYNC_ROUNDS) {
            app.metrics.audit.waiting(app.audit.retry(app.engine.now_ms()).await);
            // A failure here is reported with the next event that is written.
            let _ = app.audit.store.sync().await;
        } else {
            let _ = app.audit.store.settle().await;
        }
        if round.is_multiple_of(RETAIN_ROUNDS) {
            retain(&app.audit, app.engine.now_ms()).await;
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// Returns whether it failed. Only the first of consecutive failures is logged.
async fn import(app: &App, failed_before: bool) -> bool {
    let home = app.engine.catalog().default_tenant();
    match app.audit.spool.import(app.engine.now_ms(), &home, |tenant| *tenant == home).await {
        Ok(taken) => {
            app.metrics.audit.imported(&taken);
            false
        }
        Err(error) => {
            app.metrics.audit.failed();
            if !failed_before {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not import the audit spool; retrying"
                );
            }
            true
        }
    }
}

async fn retain(audit: &Audit, now_ms: u64) {
    let Some(keep_ms) = audit.config.keep_ms else { return };
    match audit.store.retain(now_ms.saturating_sub(keep_ms), now_ms).await {
        Ok(0) => {}
        Ok(removed) => {
            tracing::info!(removed, "removed old event bodies from the audit log; their hashes are kept")
        }
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not remove old event bodies from the audit log"
        ),
    }
}
