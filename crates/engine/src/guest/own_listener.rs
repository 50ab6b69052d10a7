//! The *own* listener: through it a sandbox reaches its own API (its memory, and its identity).
//!
//! The engine opens it with the sandbox's other listeners and passes it to the daemon, which serves it; the engine contains no HTTP.
//! A request through this listener comes from its sandbox, because only that sandbox can reach it.

use burrow_catalog::SandboxRow;
use burrow_model::SandboxId;

use crate::EngineError;
use crate::shared::Shared;

/// Opens the own listener of a sandbox that has a network.
pub(crate) async fn open(shared: &Shared, row: &SandboxRow) -> Result<(), EngineError> {
    let listener = shared.seams.network.own_listener(&row.id).await?;
    shared.seams.own.serve(&row.tenant, &row.id, listener);
    Ok(())
}

/// Opens the own listener of an adopted sandbox. If that fails, the sandbox continues to run without it.
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
