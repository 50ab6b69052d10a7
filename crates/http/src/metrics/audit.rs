//! Metrics of the audit log.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::audit::SpoolImport;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Source {
    source: &'static str,
}

#[derive(Debug, Default)]
pub struct AuditMetrics {
    events: Family<Source, Counter>,
    refused: Counter,
    failures: Counter,
    waiting: Gauge,
    behind: Gauge,
}

impl AuditMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("audit_events", "Events written to the audit log", self.events.clone());
        let about = "Rejected events of the egress process, and damaged parts of its spool";
        registry.register("audit_refused", about, self.refused.clone());
        let about = "Attempts to write to the audit log that failed";
        registry.register("audit_failures", about, self.failures.clone());
        let about = "Events that wait in RAM because the audit log cannot be written";
        registry.register("audit_waiting", about, self.waiting.clone());
        let about = "Data that the egress process has recorded and that is not in the audit log yet";
        registry.register_with_unit("audit_spool_behind", about, Unit::Bytes, self.behind.clone());
    }

    /// The daemon recorded an event itself.
    pub fn recorded(&self) {
        self.events.get_or_create(&Source { source: "daemon" }).inc();
    }

    pub fn failed(&self) {
        self.failures.inc();
    }

    pub fn waiting(&self, events: usize) {
        self.waiting.set(i64::try_from(events).unwrap_or(i64::MAX));
    }

    pub fn imported(&self, imported: &SpoolImport) {
        self.events.get_or_create(&Source { source: "egress" }).inc_by(imported.events);
        self.refused.inc_by(imported.refused);
        self.behind.set(super::gauge(imported.behind_bytes));
    }
}
