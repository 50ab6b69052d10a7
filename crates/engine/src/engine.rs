//! The engine: what the daemon calls. Its methods are in the files of their subjects.
//!
//! Reads query the catalog directly. Every change of a sandbox is sent to its actor, which carries out one request at a time.

use std::sync::Arc;

use burrow_catalog::{Catalog, EventRow};
use burrow_disks::{Chunks, DiskId, Space};
use burrow_model::{SandboxId, TenantId};
use burrow_runtime::Capabilities;

use crate::actor::command::{Command, Reply};
use crate::shared::Shared;
use crate::{Background, EngineError, ExecObserver, ObjectKind};

/// Cheap to clone; all clones are the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

impl Engine {
    /// Ends background work. Sandboxes continue to run.
    pub async fn shutdown(&self) {
        self.shared.shutdown().await;
    }

    /// The work that a shutdown waits for.
    pub fn background(&self) -> &Background {
        &self.shared.background
    }

    pub fn catalog(&self) -> &Catalog {
        &self.shared.seams.catalog
    }

    pub fn capabilities(&self) -> Vec<(&'static str, Capabilities)> {
        self.shared.seams.runtimes.iter().map(|runtime| (runtime.name(), runtime.capabilities())).collect()
    }

    pub async fn space(&self) -> Result<Space, EngineError> {
        Ok(self.shared.seams.disks.space().await?)
    }

    /// A disk as a stream, for backups: see [`burrow_disks::Disks::send`]. For a sandbox's disk use [`Engine::send_sandbox`].
    pub async fn send_disk(&self, disk: DiskId, base: Option<DiskId>) -> Result<Chunks, EngineError> {
        Ok(self.shared.seams.disks.send(disk, base).await?)
    }

    /// A tenant's events after number `seq`, oldest first. Includes every event up to the time of this call.
    pub async fn events_since(
        &self,
        tenant: &TenantId,
        seq: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>, EngineError> {
        self.shared.flush_records().await;
        Ok(self.shared.seams.catalog.events_since(tenant, seq, limit).await?)
    }

    pub(crate) fn exec_observer(&self) -> &dyn ExecObserver {
        &*self.shared.seams.execs
    }

    pub fn now_ms(&self) -> u64 {
        self.shared.now_ms()
    }

    /// How many sandboxes are still being recovered.
    pub fn recovering_count(&self) -> usize {
        self.shared.recovering.len()
    }

    /// Waits until a sandbox is recovered, or could not be recovered.
    pub async fn recovered(&self, id: &SandboxId) {
        self.shared.recovering.wait_for(id).await;
    }

    /// Waits until the start has no work left in the background.
    pub async fn started(&self) {
        self.shared.recovering.wait_for_start().await;
    }

    /// Why a sandbox cannot be used yet: an operation that an earlier daemon left open is still being completed or undone.
    pub fn recovering(&self, id: &SandboxId) -> Option<String> {
        self.shared.recovering.reason(id)
    }

    /// Sends a command to the actor of a sandbox that this tenant owns.
    pub(crate) async fn ask<T>(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, EngineError> {
        let unknown = || EngineError::NotFound { kind: ObjectKind::Sandbox, what: id.to_string() };
        let Some(actor) = self.shared.registry.get(id) else {
            // Its row has the tenant; it has no actor yet.
            let Some(reason) = self.recovering(id) else { return Err(unknown()) };
            self.shared.seams.catalog.sandbox(tenant, id).await?.ok_or_else(unknown)?;
            return Err(EngineError::Recovering { id: id.clone(), reason });
        };
        // Invariant 8: the answer to an id of another tenant is the same as to an unknown id.
        if actor.tenant() != tenant {
            return Err(unknown());
        }
        actor.ask(command).await
    }
}
