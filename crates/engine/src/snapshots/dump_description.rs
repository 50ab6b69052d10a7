//! What the engine stores with dumped processes, and the state of their agent.

use std::path::PathBuf;

use burrow_catalog::SandboxRow;
use burrow_guest::protocol::Request as GuestRequest;
use burrow_model::{Limits, Name, SandboxId, ServiceSpec};
use burrow_runtime::IntroduceFn;
use serde::{Deserialize, Serialize};

use crate::Guest;
use crate::egress::interception::intercepts;

/// Stored with the dump's files. Holds the agent's token, as the files themselves do.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct DumpDescription {
    /// The sandbox that the processes belong to.
    pub(crate) sandbox: SandboxId,
    /// The token that the agent expects from its host.
    token: String,
    /// The settings that the agent received last.
    limits: Limits,
    services: std::collections::BTreeMap<Name, ServiceSpec>,
    /// Whether it trusts the authority of its lineage.
    #[serde(default)]
    trusts: bool,
    /// The driver's own description.
    pub(crate) runtime: String,
}

impl std::fmt::Debug for DumpDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DumpDescription").field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}

/// Dumped processes, ready to be restored.
#[derive(Clone, Debug)]
pub(crate) struct OpenedDump {
    pub(crate) images: PathBuf,
    pub(crate) about: DumpDescription,
}

impl DumpDescription {
    pub(crate) fn of(row: &SandboxRow, runtime: String) -> Self {
        Self {
            sandbox: row.id.clone(),
            token: row.token.clone(),
            limits: row.spec.limits,
            services: row.spec.services.clone(),
            trusts: intercepts(row),
            runtime,
        }
    }

    /// Reads the description in an imported file: its sandbox never existed here, and trusts no authority of this host yet.
    pub(crate) fn from_elsewhere(text: &str, sandbox: &SandboxId) -> Option<Self> {
        let about: Self = serde_json::from_str(text).ok()?;
        let token = about.token.len() == 64 && about.token.bytes().all(|b| b.is_ascii_hexdigit());
        token.then(|| Self { sandbox: sandbox.clone(), trusts: false, ..about })
    }

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a description is JSON")
    }

    /// Whether these processes are restored as another sandbox, whose identity they must receive before any of them runs.
    pub(crate) fn is_foreign(&self, row: &SandboxRow) -> bool {
        self.sandbox != row.id || self.token != row.token
    }

    /// Whether the agent has other limits or services than the sandbox has now.
    pub(crate) fn is_stale(&self, row: &SandboxRow) -> bool {
        self.limits.ram_mib != row.spec.limits.ram_mib
            || self.services != row.spec.services
            || self.trusts != intercepts(row)
    }

    /// Gives the agent its present identity. The connection is opened with the old token, since the agent does not know the new one yet.
    pub(crate) fn introduction(&self, row: &SandboxRow, hostname: String, guest: Guest) -> IntroduceFn {
        let old = SandboxRow { token: self.token.clone(), ..row.clone() };
        let guest = Guest { row: std::sync::Arc::new(old), ..guest };
        let renew = GuestRequest::Renew { token: row.token.clone(), hostname };
        Box::new(move || {
            Box::pin(async move { guest.call::<()>(&renew).await.map_err(std::io::Error::other) })
        })
    }
}
