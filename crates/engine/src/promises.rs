//! Promises to undo what an exec did, should it fail.
//!
//! ```text
//!   snapshot ─► promise durable, with the exec's row ─► exec ─► ended ─► (undoing, durable ─► restore) ─► promise gone
//! ```
//!
//! Written down before the exec runs and taken back when it has been settled, so whoever comes after a daemon that was
//! killed finds what is still owed. Who keeps promises is not here: they are handed out, and asked for again at the start.

use burrow_catalog::ExecRow;
use burrow_model::{ExecId, SandboxId, SnapshotId, TenantId};
use serde::{Deserialize, Serialize};

use crate::{Engine, EngineError};

/// What is promised of an exec before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// What the sandbox goes back to.
    pub snapshot: SnapshotId,
    /// The snapshot stays, whatever comes.
    pub keep: bool,
    /// How often the sandbox had been started when its undoing began, if it has. A restore counts as a start: a sandbox that
    /// has been started since is back already.
    #[serde(default)]
    pub undoing: Option<u64>,
}

/// A promise that nobody has kept yet.
#[derive(Clone, Debug)]
pub struct OpenPromise {
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    pub exec: ExecId,
    /// How often the sandbox had been started when the exec was.
    pub generation: u64,
    pub promise: Promise,
}

impl Engine {
    /// All that earlier daemons promised and did not get to.
    pub async fn open_promises(&self) -> Result<Vec<OpenPromise>, EngineError> {
        let rows = self.shared.seams.catalog.promised_execs().await?;
        Ok(rows.into_iter().filter_map(of_row).collect())
    }

    /// The exec failed and its sandbox is about to go back.
    pub async fn begin_undoing(
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

    /// Nothing is owed any more.
    pub async fn promise_kept(&self, exec: &ExecId) -> Result<(), EngineError> {
        Ok(self.shared.seams.catalog.set_promise(exec, None).await?)
    }
}

pub(crate) fn to_value(promise: &Promise) -> serde_json::Value {
    serde_json::to_value(promise).expect("ids are JSON")
}

/// One of a newer version that cannot be read is left for it.
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
