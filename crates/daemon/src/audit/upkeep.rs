//! What goes on by itself: the spool is emptied, what waits is tried again, the log is synced, old bodies are removed.

use std::sync::Arc;
use std::time::Duration;

use burrow_audit::{Action, Event, Outcome};

use super::Audit;
use crate::rest::App;

/// Between two looks at spool and journal: how long an event takes to appear to those who follow.
const ROUND: Duration = Duration::from_millis(200);

/// Rounds between two syncs: one second.
const SYNC_ROUNDS: u64 = 5;

/// Rounds between two clean-ups: an hour.
const RETAIN_ROUNDS: u64 = 18_000;

/// Tells of the start, takes in what an earlier daemon left, and goes on until the daemon ends.
pub(crate) fn spawn(app: &Arc<App>) {
    let work_app = app.clone();
    app.tasks.spawn(async move {
        let draining = work_app.draining.clone();
        draining.run_until_cancelled(run(&work_app)).await;
        // Calls that end later leave theirs in the journal, for the next start.
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
        failing = take_in(app, failing).await;
        if round.is_multiple_of(SYNC_ROUNDS) {
            app.metrics.audit.waiting(app.audit.retry(app.engine.now_ms()).await);
            // A failure here shows with the next event that is to be written.
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

/// Answers whether it failed. The first failure in a row is told.
async fn take_in(app: &App, failed_before: bool) -> bool {
    let home = app.engine.catalog().default_tenant();
    match app.audit.spool.take_in(app.engine.now_ms(), &home, |tenant| *tenant == home).await {
        Ok(taken) => {
            app.metrics.audit.took_in(&taken);
            false
        }
        Err(error) => {
            app.metrics.audit.failed();
            if !failed_before {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not empty the audit spool; it is tried again"
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
            tracing::info!(removed, "removed what old events of the audit log said; their hashes stay")
        }
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not remove old events of the audit log"
        ),
    }
}
