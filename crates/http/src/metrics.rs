//! The daemon's Prometheus metrics.

mod audit;
mod memory;

use std::fmt;
use std::time::Duration;

use burrow_catalog::SnapshotTotals;
use burrow_engine::EgressTotals;
use http::Method;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub use audit::AuditMetrics;
pub use memory::{MemoryMetrics, MemoryQuery};

/// From a tenth of a millisecond to ten minutes: from starting an exec to waiting for its end.
const BUCKETS: [f64; 16] =
    [0.0001, 0.0003, 0.001, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0, 600.0];

/// All states, so that a state without sandboxes is reported as 0.
const STATES: [&str; 12] = [
    "creating",
    "starting",
    "running",
    "paused",
    "hibernating",
    "hibernated",
    "waking",
    "restoring",
    "stopping",
    "stopped",
    "deleting",
    "failed",
];

/// Operations that write or read the processes of a sandbox, if a client requested them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessOperation {
    Hibernate,
    Wake,
    Snapshot,
    Restore,
    Fork,
}

impl ProcessOperation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Hibernate => "hibernate",
            Self::Wake => "wake",
            Self::Snapshot => "snapshot",
            Self::Restore => "restore",
            Self::Fork => "fork",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SnapshotLabels {
    of: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: MethodLabel,
    /// The route template, never the path, which the client chooses.
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: MethodLabel,
    route: String,
}

/// Supported methods, and one label for all others, which clients can invent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MethodLabel(&'static str);

impl EncodeLabelValue for MethodLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        EncodeLabelValue::encode(&self.0, encoder)
    }
}

impl From<&Method> for MethodLabel {
    fn from(method: &Method) -> Self {
        Self(match method.as_str() {
            "GET" => "GET",
            "PUT" => "PUT",
            "POST" => "POST",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "other",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// Values that are measured when the metrics are requested.
#[derive(Clone, Debug)]
pub struct Gauges {
    pub sandboxes: Vec<(&'static str, u64)>,
    pub pool_total_bytes: u64,
    pub pool_free_bytes: u64,
    pub catalog_bytes: u64,
    pub warm_ready: u64,
    pub egress: EgressTotals,
    pub snapshots: SnapshotTotals,
}

/// Outcomes of connections from sandboxes, and of their DNS lookups.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    execs: Counter,
    exec_seconds: Histogram,
    creates: Counter,
    create_seconds: Histogram,
    sandboxes: Family<StateLabels, Gauge>,
    snapshots: Gauge,
    snapshot_bytes: Family<SnapshotLabels, Gauge>,
    operation_seconds: Family<OperationLabels, Histogram, fn() -> Histogram>,
    pool_total: Gauge,
    pool_free: Gauge,
    catalog: Gauge,
    warm_pool: Gauge,
    egress: Family<VerdictLabels, Counter>,
    egress_bytes: Family<DirectionLabels, Counter>,
    resident: Gauge,
    open_files: Gauge,
    pub memory: MemoryMetrics,
    pub audit: AuditMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("burrow"),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(histogram),
            execs: Counter::default(),
            exec_seconds: histogram(),
            creates: Counter::default(),
            create_seconds: histogram(),
            sandboxes: Family::default(),
            snapshots: Gauge::default(),
            snapshot_bytes: Family::default(),
            operation_seconds: Family::new_with_constructor(histogram),
            pool_total: Gauge::default(),
            pool_free: Gauge::default(),
            catalog: Gauge::default(),
            warm_pool: Gauge::default(),
            egress: Family::default(),
            egress_bytes: Family::default(),
            resident: Gauge::default(),
            open_files: Gauge::default(),
            memory: MemoryMetrics::new(),
            audit: AuditMetrics::default(),
        };
        metrics.registered()
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register(
            "build",
            "Version of the daemon",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register("requests", "Requests", self.requests.clone());
        let about = "Time until the head of the response";
        registry.register_with_unit("request", about, Unit::Seconds, self.request_seconds.clone());
        registry.register("execs_started", "Execs started by a request", self.execs.clone());
        let about = "Time until the process of an exec was running";
        registry.register_with_unit("exec_start", about, Unit::Seconds, self.exec_seconds.clone());
        registry.register("sandboxes_created", "Sandboxes created", self.creates.clone());
        let about = "Time until a new sandbox was running";
        registry.register_with_unit("create", about, Unit::Seconds, self.create_seconds.clone());
        registry.register("sandboxes", "Sandboxes by state", self.sandboxes.clone());
        registry.register("snapshots", "Snapshots of sandboxes", self.snapshots.clone());
        let about = "Size of snapshots when they were taken";
        registry.register_with_unit("snapshot", about, Unit::Bytes, self.snapshot_bytes.clone());
        let about = "Time of requested operations that write or read processes";
        registry.register_with_unit("operation", about, Unit::Seconds, self.operation_seconds.clone());
        registry.register_with_unit("pool_size", "Size of the pool", Unit::Bytes, self.pool_total.clone());
        registry.register_with_unit(
            "pool_free",
            "Free space in the pool",
            Unit::Bytes,
            self.pool_free.clone(),
        );
        registry.register_with_unit("catalog", "Size of the catalog", Unit::Bytes, self.catalog.clone());
        registry.register("warm_pool_ready", "Sandboxes in the warm pool", self.warm_pool.clone());
        let about = "Connections from sandboxes, and denied names, by outcome";
        registry.register("egress_connections", about, self.egress.clone());
        let about = "Bytes of closed connections from sandboxes, from the sandbox's point of view";
        registry.register_with_unit("egress", about, Unit::Bytes, self.egress_bytes.clone());
        registry.register_with_unit(
            "process_resident",
            "RAM of the daemon",
            Unit::Bytes,
            self.resident.clone(),
        );
        registry.register("process_open_fds", "Open files of the daemon", self.open_files.clone());
        self.memory.register(registry);
        self.audit.register(registry);
        self
    }

    pub fn answered(&self, method: &Method, route: &str, status: u16, took: Duration) {
        let method = MethodLabel::from(method);
        self.requests.get_or_create(&RequestLabels { method, route: route.to_owned(), status }).inc();
        self.request_seconds
            .get_or_create(&RouteLabels { method, route: route.to_owned() })
            .observe(took.as_secs_f64());
    }

    pub fn exec_started(&self, took: Duration) {
        self.execs.inc();
        self.exec_seconds.observe(took.as_secs_f64());
    }

    pub fn created(&self, took: Duration) {
        self.creates.inc();
        self.create_seconds.observe(took.as_secs_f64());
    }

    pub fn moved(&self, operation: ProcessOperation, took: Duration) {
        let operation = operation.as_str();
        self.operation_seconds.get_or_create(&OperationLabels { operation }).observe(took.as_secs_f64());
    }

    /// The page in the text format of Prometheus.
    pub fn render(&self, gauges: &Gauges) -> String {
        for state in STATES {
            let count =
                gauges.sandboxes.iter().find(|(known, _)| *known == state).map_or(0, |(_, count)| *count);
            self.sandboxes.get_or_create(&StateLabels { state }).set(gauge(count));
        }
        self.snapshots.set(gauge(gauges.snapshots.count));
        for (of, bytes) in [("ram", gauges.snapshots.ram_bytes), ("disk", gauges.snapshots.disk_bytes)] {
            self.snapshot_bytes.get_or_create(&SnapshotLabels { of }).set(gauge(bytes));
        }
        self.pool_total.set(gauge(gauges.pool_total_bytes));
        self.pool_free.set(gauge(gauges.pool_free_bytes));
        self.catalog.set(gauge(gauges.catalog_bytes));
        self.warm_pool.set(gauge(gauges.warm_ready));
        let EgressTotals { allowed, denied, failed, sent_bytes, received_bytes } = gauges.egress;
        for (verdict, count) in [("allowed", allowed), ("denied", denied), ("failed", failed)] {
            total(&self.egress.get_or_create(&VerdictLabels { verdict }), count);
        }
        for (direction, count) in [("sent", sent_bytes), ("received", received_bytes)] {
            total(&self.egress_bytes.get_or_create(&DirectionLabels { direction }), count);
        }
        self.resident.set(gauge(resident_bytes()));
        self.open_files.set(gauge(open_files()));
        let mut page = String::new();
        encode(&mut page, &self.registry).expect("writing to a string succeeds");
        page
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

/// For values that are counted elsewhere.
fn total(counter: &Counter, count: u64) {
    counter.inner().store(count, std::sync::atomic::Ordering::Relaxed);
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_contains_the_counted_values() {
        let metrics = Metrics::new();
        metrics.answered(&Method::GET, "/v1/sandboxes/{sandbox}", 200, Duration::from_millis(2));
        metrics.answered(&Method::from_bytes(b"BREW").unwrap(), "unknown", 404, Duration::from_millis(2));
        metrics.exec_started(Duration::from_millis(1));
        let gauges = Gauges {
            sandboxes: vec![("running", 3)],
            pool_total_bytes: 10,
            pool_free_bytes: 4,
            catalog_bytes: 1,
            warm_ready: 2,
            egress: EgressTotals { allowed: 5, denied: 2, failed: 1, sent_bytes: 10, received_bytes: 20 },
            snapshots: SnapshotTotals { count: 3, ram_bytes: 7, disk_bytes: 9 },
        };
        metrics.moved(ProcessOperation::Hibernate, Duration::from_millis(50));
        let page = metrics.render(&gauges);
        for line in [
            "burrow_requests_total{method=\"GET\",route=\"/v1/sandboxes/{sandbox}\",status=\"200\"} 1",
            "burrow_requests_total{method=\"other\",route=\"unknown\",status=\"404\"} 1",
            "burrow_execs_started_total 1",
            "burrow_sandboxes{state=\"running\"} 3",
            "burrow_sandboxes{state=\"failed\"} 0",
            "burrow_sandboxes{state=\"hibernated\"} 0",
            "burrow_snapshots 3",
            "burrow_snapshot_bytes{of=\"ram\"} 7",
            "burrow_operation_seconds_count{operation=\"hibernate\"} 1",
            "burrow_pool_free_bytes 4",
            "burrow_warm_pool_ready 2",
            "burrow_egress_connections_total{verdict=\"denied\"} 2",
            "burrow_egress_bytes_total{direction=\"received\"} 20",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert!(!page.contains("burrow_process_resident_bytes 0"), "{page}");
    }
}
