//! A dump as the engine knows it: whose processes it holds, and what their agent was told.

use std::path::PathBuf;

use burrow_catalog::SandboxRow;
use burrow_guest::protocol::Request as GuestRequest;
use burrow_model::{DumpId, Limits, Name, SandboxId, ServiceSpec};
use burrow_runtime::Introduce;
use serde::{Deserialize, Serialize};

use crate::shared::Shared;
use crate::{EngineError, Guest, secrets};

/// Kept with the dump's files. Holds the agent's token, as the files themselves do.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct About {
    /// Whose processes they are.
    pub(crate) sandbox: SandboxId,
    /// What their agent expects of its host.
    token: String,
    /// What the agent was last told.
    limits: Limits,
    services: std::collections::BTreeMap<Name, ServiceSpec>,
    /// Whether it was told to trust its lineage's authority.
    #[serde(default)]
    trusts: bool,
    /// The driver's own.
    pub(crate) runtime: String,
}

impl std::fmt::Debug for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("About").field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}

/// Processes on disk, ready to be brought back.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) images: PathBuf,
    pub(crate) about: About,
}

impl About {
    pub(crate) fn of(row: &SandboxRow, runtime: String) -> Self {
        Self {
            sandbox: row.id.clone(),
            token: row.token.clone(),
            limits: row.spec.limits,
            services: row.spec.services.clone(),
            trusts: secrets::intercepts(row),
            runtime,
        }
    }

    /// As it came with a file: of a sandbox that never was here, and that trusts nobody of this host yet.
    pub(crate) fn from_elsewhere(text: &str, sandbox: &SandboxId) -> Option<Self> {
        let about: Self = serde_json::from_str(text).ok()?;
        let token = about.token.len() == 64 && about.token.bytes().all(|b| b.is_ascii_hexdigit());
        token.then(|| Self { sandbox: sandbox.clone(), trusts: false, ..about })
    }

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a description is JSON")
    }

    /// Whether these processes become another sandbox's, which must be told before any of them runs.
    pub(crate) fn is_foreign(&self, row: &SandboxRow) -> bool {
        self.sandbox != row.id || self.token != row.token
    }

    /// Whether the agent was told of other limits or services than the sandbox has now.
    pub(crate) fn is_stale(&self, row: &SandboxRow) -> bool {
        self.limits.ram_mib != row.spec.limits.ram_mib
            || self.services != row.spec.services
            || self.trusts != secrets::intercepts(row)
    }

    /// Tells the agent who it is now: the one it was for does not open it any more.
    pub(crate) fn introduction(&self, row: &SandboxRow, hostname: String, guest: Guest) -> Introduce {
        let old = SandboxRow { token: self.token.clone(), ..row.clone() };
        let guest = Guest { row: std::sync::Arc::new(old), ..guest };
        let renew = GuestRequest::Renew { token: row.token.clone(), hostname };
        Box::new(move || {
            Box::pin(async move { guest.call::<()>(&renew).await.map_err(std::io::Error::other) })
        })
    }
}

/// A sealed dump, each of its files checked.
pub(crate) async fn open(shared: &Shared, id: &DumpId) -> Result<Kept, EngineError> {
    let dump = shared.seams.volumes.open_dump(id).await?;
    let about =
        serde_json::from_str(&dump.about).map_err(|_| EngineError::DumpUnknown { dump: id.clone() })?;
    Ok(Kept { images: dump.path, about })
}

/// Removes a dump that neither a snapshot nor a sandbox names any more. What fails is removed at the next start.
pub(crate) async fn let_go(shared: &Shared, id: &DumpId) {
    let removed = async {
        if !shared.seams.catalog.dump_in_use(id).await? {
            shared.seams.volumes.remove_dump(id).await?;
        }
        Ok::<_, EngineError>(())
    };
    if let Err(error) = removed.await {
        tracing::warn!(dump = %id, error = &error as &dyn std::error::Error, "could not remove a dump");
    }
}

/// Whether a dump of so many bytes fits into the pool, its reserve left alone.
pub(crate) async fn check_room(shared: &Shared, needed_bytes: u64) -> Result<(), EngineError> {
    let free_bytes = shared.seams.volumes.space().await?.free_bytes;
    let reserve_bytes = shared.policy.pool_reserve_bytes;
    if free_bytes < needed_bytes.saturating_add(reserve_bytes) {
        return Err(EngineError::NoRoom { needed_bytes, free_bytes, reserve_bytes });
    }
    Ok(())
}
