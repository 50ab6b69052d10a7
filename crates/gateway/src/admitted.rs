//! A request into a sandbox that may be forwarded, and the credential that it was admitted by.

use burrow_model::{SandboxId, TenantId};

/// A request that may be forwarded.
#[derive(Debug)]
pub(super) struct AdmittedRequest {
    pub(super) tenant: TenantId,
    pub(super) sandbox: SandboxId,
    pub(super) by: AdmittedBy,
    /// For the audit log; `None` if the port is public.
    pub(super) actor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdmittedBy {
    Key,
    Link { expires_ms: u64 },
    Cookie,
    Token,
    Public,
}
