//! The `[audit]` keys.

use super::file::Settings;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// Bodies of older events are removed; `None` keeps all.
    pub keep_ms: Option<u64>,
    /// Record calls that only read, too.
    pub reads: bool,
}

impl AuditConfig {
    pub(super) fn of(settings: &Settings) -> Self {
        Self { keep_ms: settings.span_if_any("audit.keep"), reads: settings.flag("audit.reads") }
    }
}
