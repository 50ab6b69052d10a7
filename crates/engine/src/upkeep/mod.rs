//! Periodic work: deletes expired sandboxes and snapshots, applies policies that could not be applied before, prunes old history.

pub(crate) mod gc;

use std::sync::{Arc, Weak};
use std::time::Duration;

use burrow_catalog::CatalogError;

use crate::actor::command::Command;
use crate::egress::{self, former_secrets};
use crate::memory;
use crate::shared::Shared;
use crate::snapshots::removal;

/// How late a sandbox may be deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Sweeps between two prunings of history: about ten minutes.
const SWEEPS_PER_PRUNING: u64 = 600;

/// Runs until the engine is dropped: not stopped earlier, since a policy may become due until the last request is served.
pub(crate) fn spawn(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    drop(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for sweep in 0u64.. {
            ticks.tick().await;
            let Some(shared) = Weak::upgrade(&shared) else { return };
            egress::apply_due_policies(&shared);
            let mut done = Ok(());
            // If the date is wrong, correcting it does not bring deleted sandboxes back.
            if !shared.seams.clock.in_doubt() {
                done = delete_expired(&shared).await;
                if done.is_ok() {
                    done = delete_expired_snapshots(&shared).await;
                }
            }
            if sweep % SWEEPS_PER_PRUNING == 0 && done.is_ok() {
                done = prune(&shared).await;
                if let Err(error) = memory::sweep(&shared).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "could not remove unused memory"
                    );
                }
            }
            match done {
                Ok(()) => {}
                Err(CatalogError::Closed) => return,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "periodic upkeep failed")
                }
            }
        }
    }));
}

async fn delete_expired(shared: &Shared) -> Result<(), CatalogError> {
    for id in shared.seams.catalog.expired(shared.now_ms()).await? {
        if let Some(actor) = shared.registry.get(&id) {
            actor.tell(Command::Expire);
        }
    }
    Ok(())
}

async fn delete_expired_snapshots(shared: &Shared) -> Result<(), CatalogError> {
    for row in shared.seams.catalog.expired_snapshots(shared.now_ms()).await? {
        let snapshot = row.snapshot;
        if let Err(error) = removal::remove_snapshot(shared, &snapshot).await {
            tracing::warn!(snapshot = %snapshot.id, error = &error as &dyn std::error::Error, "could not remove an expired snapshot");
            continue;
        }
        let detail = serde_json::json!({ "snapshot": snapshot.id, "name": snapshot.name });
        shared.event(&row.tenant, "snapshot.expired", Some(&snapshot.sandbox), detail);
    }
    Ok(())
}

async fn prune(shared: &Shared) -> Result<(), CatalogError> {
    shared.seams.catalog.purge_idempotency(shared.now_ms()).await?;
    shared.seams.catalog.prune_execs().await?;
    shared.seams.catalog.forget_lineages(shared.now_ms()).await?;
    former_secrets::forget_expired(shared).await?;
    shared.seams.catalog.forget_removed_images().await?;
    shared.seams.catalog.prune_egress(shared.now_ms()).await?;
    Ok(())
}
