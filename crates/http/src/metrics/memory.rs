//! Metrics of memory.

use std::time::Duration;

use burrow_api::memory::{ArmReport, ArmState};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The kinds of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryQuery {
    Search,
    Context,
}

impl MemoryQuery {
    fn as_str(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Context => "context",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueryLabels {
    question: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ArmLabels {
    arm: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExecLabels {
    how: &'static str,
}

#[derive(Debug)]
pub struct MemoryMetrics {
    added: Counter,
    execs: Family<ExecLabels, Counter>,
    seconds: Family<QueryLabels, Histogram, fn() -> Histogram>,
    arms: Family<ArmLabels, Counter>,
    pending: Gauge,
    consolidated: Counter,
}

impl MemoryMetrics {
    pub(super) fn new() -> Self {
        Self {
            added: Counter::default(),
            execs: Family::default(),
            seconds: Family::new_with_constructor(super::histogram),
            arms: Family::default(),
            pending: Gauge::default(),
            consolidated: Counter::default(),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("memory_entries_added", "Entries added by a request", self.added.clone());
        let about = "Execs that were remembered, and failures to remember";
        registry.register("memory_execs", about, self.execs.clone());
        let about = "Time of memory queries";
        registry.register_with_unit("memory_question", about, Unit::Seconds, self.seconds.clone());
        let about = "Arms of memory queries, by whether they took part";
        registry.register("memory_arms", about, self.arms.clone());
        let about = "Entries of open spaces that wait for a vector";
        registry.register("memory_vectors_pending", about, self.pending.clone());
        let about = "Entries that consolidation joined, summarised or moved to the cold tier";
        registry.register("memory_consolidated", about, self.consolidated.clone());
    }

    pub fn added(&self, count: u64) {
        self.added.inc_by(count);
    }

    /// An exec was remembered, or could not be.
    pub fn remembered(&self, stored: bool) {
        self.execs.get_or_create(&ExecLabels { how: if stored { "stored" } else { "failed" } }).inc();
    }

    pub fn asked(&self, query: MemoryQuery, took: Duration, arms: &[ArmReport]) {
        self.seconds.get_or_create(&QueryLabels { question: query.as_str() }).observe(took.as_secs_f64());
        for arm in arms {
            let state = match arm.state {
                ArmState::Took => "took",
                ArmState::Off => "off",
                ArmState::Down => "down",
                ArmState::Partial => "partial",
            };
            self.arms.get_or_create(&ArmLabels { arm: arm.arm.clone(), state }).inc();
        }
    }

    pub fn pending(&self, vectors: u64) {
        self.pending.set(super::gauge(vectors));
    }

    pub fn consolidated(&self, entries: u64) {
        self.consolidated.inc_by(entries);
    }
}
