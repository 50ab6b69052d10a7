//! The door behind which a sandbox finds its own API: what it remembers, and who it is.
//!
//! The engine opens it with the sandbox's other doors and gives it to whoever serves it; it knows no HTTP itself. A
//! request that comes through it is the sandbox's, because it came through it.

use std::fmt;
use std::os::fd::OwnedFd;

use burrow_catalog::SandboxRow;
use burrow_model::{SandboxId, TenantId};

use crate::EngineError;
use crate::shared::Shared;

/// Serves sandboxes' own API. Called from async code: must not block.
pub trait OwnApi: fmt::Debug + Send + Sync {
    /// Serves a sandbox's newest door, in place of an earlier one of the same sandbox.
    fn serve(&self, tenant: &TenantId, sandbox: &SandboxId, door: OwnedFd);

    /// Closes the door and the connections that came through it. Of an unknown sandbox: nothing to do.
    fn close(&self, sandbox: &SandboxId);
}

/// Nobody behind the doors: for engines that are not part of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct NoOwnApi;

impl OwnApi for NoOwnApi {
    fn serve(&self, _tenant: &TenantId, _sandbox: &SandboxId, _door: OwnedFd) {}

    fn close(&self, _sandbox: &SandboxId) {}
}

/// Opens the own door of a sandbox that has a network.
pub(crate) async fn open(shared: &Shared, row: &SandboxRow) -> Result<(), EngineError> {
    let door = shared.seams.network.own_door(&row.id).await?;
    shared.seams.own.serve(&row.tenant, &row.id, door);
    Ok(())
}

/// Of a sandbox that runs already. Without it, it runs on.
pub(crate) async fn adopt(shared: &Shared, row: &SandboxRow) {
    if let Err(error) = open(shared, row).await {
        tracing::warn!(
            sandbox = %row.id, error = &error as &dyn std::error::Error,
            "a sandbox cannot reach its own API until it is started again"
        );
    }
}

pub(crate) fn close(shared: &Shared, id: &SandboxId) {
    shared.seams.own.close(id);
}
