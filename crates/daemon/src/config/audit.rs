//! The keys about the audit log, together.

use super::file::Settings;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// What older events say is removed; `None` keeps all.
    pub keep_ms: Option<u64>,
    /// Calls that only read are recorded too.
    pub reads: bool,
}

impl AuditConfig {
    pub(super) fn of(settings: &Settings) -> Self {
        Self { keep_ms: settings.span_if_any("audit.keep"), reads: settings.flag("audit.reads") }
    }
}
