//! Promises to roll back what an exec did, if it fails.
//!
//! ```text
//!   snapshot ─► promise durable, with the exec's row ─► exec ─► ended ─► (undoing, durable ─► restore) ─► promise removed
//! ```
//!
//! A promise is stored before the exec runs and removed when the exec was settled, so the next daemon after a crash finds all open
//! promises and keeps them ([`resume`]): it waits for an exec that still runs, and rolls back one that has failed in the meantime or
//! was interrupted by a restart of the host.

use burrow_catalog::ExecRow;
use burrow_model::{ExecId, SandboxId, SnapshotId, State, StopReason, TenantId};
use serde::{Deserialize, Serialize};

use super::rollbacks::{Rollback, RollbackGuard};
use crate::{Engine, EngineError};

/// The promise for one exec, stored before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RollbackPromise {
    /// The snapshot that the sandbox is restored to.
    pub(super) snapshot: SnapshotId,
    /// Keep the snapshot in any case.
    pub(super) keep: bool,
    /// The sandbox's generation when the rollback began, if it has begun. A restore counts as a start: a sandbox with a higher
    /// generation was restored already.
    #[serde(default)]
    pub(super) undoing: Option<u64>,
}

/// A promise that is not fulfilled yet.
#[derive(Clone, Debug)]
pub(super) struct OpenPromise {
    pub(super) tenant: TenantId,
    pub(super) sandbox: SandboxId,
    pub(super) exec: ExecId,
    /// The sandbox's generation when the exec was started.
    pub(super) generation: u64,
    pub(super) promise: RollbackPromise,
}

impl Engine {
    /// The exec failed, and its sandbox is about to be restored.
    pub(super) async fn begin_rollback(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        exec: &ExecId,
        promise: &RollbackPromise,
    ) -> Result<(), EngineError> {
        let generation = self.get(tenant, sandbox).await?.generation;
        let promise = RollbackPromise { undoing: Some(generation), ..promise.clone() };
        Ok(self.shared.seams.catalog.set_promise(exec, Some(to_value(&promise))).await?)
    }

    /// Removes a fulfilled promise.
    pub(super) async fn remove_promise(&self, exec: &ExecId) -> Result<(), EngineError> {
        Ok(self.shared.seams.catalog.set_promise(exec, None).await?)
    }
}

pub(super) fn to_value(promise: &RollbackPromise) -> serde_json::Value {
    serde_json::to_value(promise).expect("ids are JSON")
}

/// A promise of a newer version that cannot be read is left for that version.
fn of_row(row: ExecRow) -> Option<OpenPromise> {
    let promise = serde_json::from_value(row.command.get(burrow_catalog::PROMISE)?.clone()).ok()?;
    Some(OpenPromise {
        tenant: row.tenant,
        sandbox: row.sandbox,
        exec: row.id,
        generation: row.generation,
        promise,
    })
}

/// Keeps the open promises of earlier daemons.
pub(super) async fn resume(engine: &Engine) {
    let rows = match engine.shared.seams.catalog.promised_execs().await {
        Ok(rows) => rows,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            return tracing::error!(error, "could not list the execs with a promised rollback");
        }
    };
    for open in rows.into_iter().filter_map(of_row) {
        let (exec, sandbox) = (&open.exec, &open.sandbox);
        tracing::info!(%exec, %sandbox, "an earlier daemon promised to roll this exec back if it fails");
        let (generation, undoing) = (open.generation, open.promise.undoing);
        let guard = RollbackGuard::resumed(open);
        engine.shared.rollbacks.add(&guard);
        let engine = engine.clone();
        engine.shared.background.tasks.clone().spawn(async move {
            let how = async {
                engine.recovered(&guard.sandbox).await;
                fate(&engine, &guard, generation, undoing).await
            };
            match engine.shared.background.draining.run_until_cancelled(how).await {
                None => {}
                Some(Ok(ExecFate::Ended { success })) => guard.settle(&engine, success).await,
                Some(Ok(ExecFate::Restored)) => guard.fulfilled(&engine, Rollback::Done { undo: None }).await,
                Some(Err(error)) => guard.give_up(&engine, error).await,
            }
        });
    }
}

/// What happened to an exec since its daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecFate {
    Ended {
        success: bool,
    },
    /// Its sandbox was already restored: the start completed the operation.
    Restored,
}

async fn fate(
    engine: &Engine,
    guard: &RollbackGuard,
    generation: u64,
    undoing: Option<u64>,
) -> Result<ExecFate, EngineError> {
    if let Some(before) = undoing {
        let row = engine.get(&guard.tenant, &guard.sandbox).await?;
        return Ok(if row.generation > before {
            ExecFate::Restored
        } else {
            ExecFate::Ended { success: false }
        });
    }
    match guard.end(engine).await {
        Ok(success) => Ok(ExecFate::Ended { success }),
        Err(lost) => {
            let row = engine.get(&guard.tenant, &guard.sandbox).await?;
            let cut_short = row.stop_reason == Some(StopReason::HostRestarted);
            match row.state {
                // It was interrupted by a restart of the host.
                State::Stopped | State::Failed if cut_short => Ok(ExecFate::Ended { success: false }),
                // The machine is the same but does not know the exec: the daemon ended before it sent the request.
                State::Running if row.generation == generation => Ok(ExecFate::Ended { success: true }),
                State::Running
                | State::Paused
                | State::Hibernating
                | State::Hibernated
                | State::Waking
                | State::Restoring
                | State::Creating
                | State::Starting
                | State::Stopping
                | State::Stopped
                | State::Deleting
                | State::Failed => Err(lost),
            }
        }
    }
}
