//! Promises to roll back what an exec did, if it fails.
//!
//! ```text
//!   snapshot ─► promise durable, with the exec's row ─► exec ─► ended ─► (undoing, durable ─► restore) ─► promise removed
//! ```
//!
//! A promise is stored before the exec runs and removed when the exec was settled, so the next daemon after a crash finds all open
//! promises. This module only stores promises and lists the open ones; the daemon fulfils them.

use burrow_catalog::ExecRow;
use burrow_model::{ExecId, SandboxId, SnapshotId, TenantId};
use serde::{Deserialize, Serialize};

use crate::{Engine, EngineError};

/// The promise for one exec, stored before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The snapshot that the sandbox is restored to.
    pub snapshot: SnapshotId,
    /// Keep the snapshot in any case.
    pub keep: bool,
    /// The sandbox's generation when the rollback began, if it has begun. A restore counts as a start: a sandbox with a higher
    /// generation was restored already.
    #[serde(default)]
    pub undoing: Option<u64>,
}

/// A promise that is not fulfilled yet.
#[derive(Clone, Debug)]
pub struct OpenPromise {
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    pub exec: ExecId,
    /// The sandbox's generation when the exec was started.
    pub generation: u64,
    pub promise: Promise,
}

impl Engine {
    /// All promises that earlier daemons did not fulfil.
    pub async fn open_promises(&self) -> Result<Vec<OpenPromise>, EngineError> {
        let rows = self.shared.seams.catalog.promised_execs().await?;
        Ok(rows.into_iter().filter_map(of_row).collect())
    }

    /// The exec failed, and its sandbox is about to be restored.
    pub async fn begin_rollback(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        exec: &ExecId,
        promise: &Promise,
    ) -> Result<(), EngineError> {
        let generation = self.get(tenant, sandbox).await?.generation;
        let promise = Promise { undoing: Some(generation), ..promise.clone() };
        Ok(self.shared.seams.catalog.set_promise(exec, Some(to_value(&promise))).await?)
    }

    /// Removes a fulfilled promise.
    pub async fn remove_promise(&self, exec: &ExecId) -> Result<(), EngineError> {
        Ok(self.shared.seams.catalog.set_promise(exec, None).await?)
    }
}

pub(crate) fn to_value(promise: &Promise) -> serde_json::Value {
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
