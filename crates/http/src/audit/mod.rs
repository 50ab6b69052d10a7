//! The daemon's side of the audit log: records the daemon's own events, imports those of the egress process from its
//! spool, and applies the retention time.
//!
//! ```text
//!  audited (every call that changes something) ─► Audit::record ─┐
//!  burrow egress ─► spool segments ─► spool::Spool::take_in ──────────┼─► burrow_audit::Store
//!  upkeep: sync each second, retention each hour ─────────────────────┘
//! ```
//!
//! The daemon records its own actions when their outcome is known. If writing fails (a full disk), the event waits in
//! RAM, within a limit, and is retried: the daemon continues to serve, so that a person can free space. Injection is
//! different: the egress process records first, and injects nothing if it cannot.
//!
//! Sandboxes cause events of the egress process, so those are imported, and segments created, only while half of
//! `memory.disk_reserve` stays free beside the space that was promised to the pool. Below it the spool fills up to the size
//! of a segment, and then no secret is injected.

mod spool;
mod trace;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burrow_audit::{Action, Durability, Event, Store, StoreError};

use burrow_config::{AuditConfig, Config};

use crate::metrics::Metrics;

pub use spool::{Spool, SpoolImport};
pub use trace::Trace;

/// Maximum number of events that wait in RAM while the log cannot be written. Beyond it the oldest are dropped, and
/// counted.
const WAITING_MAX: usize = 10_000;

/// The log, and the sources of its events.
#[derive(Debug)]
pub struct Audit {
    pub store: Store,
    pub spool: Spool,
    pub config: AuditConfig,
    waiting: Mutex<WaitingEvents>,
}

#[derive(Debug, Default)]
struct WaitingEvents {
    events: VecDeque<Event>,
    /// Number of events dropped since the log could last be written.
    lost: u64,
    /// Whether the failure was logged.
    reported: bool,
}

/// The result of recording an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordResult {
    Stored,
    /// It could not be written yet, and is retried.
    Waits,
}

/// The directory of the log.
pub fn folder(config: &Config) -> PathBuf {
    config.state_dir.join("audit")
}

impl Audit {
    /// Blocks.
    pub fn open(config: &Config) -> Result<Self, StoreError> {
        let folder = folder(config);
        let store = Store::open(&folder)?;
        // Half of the reserve: the other half is for the catalog, and for the daemon's own events.
        let mut floor = crate::memory::floor(config, folder.clone());
        floor.reserve_bytes /= 2;
        let spool = Spool::open(folder.join("spool"), store.clone(), Some(floor))?;
        Ok(Self { store, spool, config: config.audit.clone(), waiting: Mutex::default() })
    }

    /// Records an event. `now_ms` is the engine's clock, which never goes backwards.
    pub async fn record(&self, event: Event, now_ms: u64) -> RecordResult {
        let durability = durability(event.action);
        // Waiting events are written first, to keep the order.
        let mut events = self.take_waiting();
        events.push(event);
        match self.store.append(events.clone(), now_ms, durability).await {
            Ok(()) => {
                self.all_is_well();
                RecordResult::Stored
            }
            Err(error) => {
                self.put_back(events, &error);
                RecordResult::Waits
            }
        }
    }

    /// The same, and counts the event.
    pub async fn record_counted(&self, event: Event, now_ms: u64, metrics: &Metrics) {
        match self.record(event, now_ms).await {
            RecordResult::Stored => metrics.audit.recorded(),
            RecordResult::Waits => metrics.audit.failed(),
        }
    }

    /// Retries the waiting events. Returns how many still wait.
    pub async fn retry(&self, now_ms: u64) -> usize {
        let events = self.take_waiting();
        if events.is_empty() {
            return 0;
        }
        match self.store.append(events.clone(), now_ms, Durability::Power).await {
            Ok(()) => self.all_is_well(),
            Err(error) => self.put_back(events, &error),
        }
        self.waiting().events.len()
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingEvents> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_waiting(&self) -> Vec<Event> {
        self.waiting().events.drain(..).collect()
    }

    fn put_back(&self, events: Vec<Event>, error: &StoreError) {
        let mut waiting = self.waiting();
        for event in events.into_iter().rev() {
            if waiting.events.len() < WAITING_MAX {
                waiting.events.push_front(event);
            } else {
                waiting.lost += 1;
            }
        }
        if !std::mem::replace(&mut waiting.reported, true) {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "could not write to the audit log; events wait in RAM, and no secret is injected without one"
            );
        }
    }

    fn all_is_well(&self) {
        let mut waiting = self.waiting();
        if std::mem::replace(&mut waiting.reported, false) {
            tracing::info!(lost = std::mem::take(&mut waiting.lost), "the audit log is written again");
        }
    }
}

/// Changes of access rights are synced to disk before the response. Other events are synced within a second; none of
/// them is lost if only the daemon dies.
fn durability(action: Action) -> Durability {
    match action {
        Action::KeyCreate
        | Action::KeyDelete
        | Action::TokenRevoke
        | Action::SecretSet
        | Action::SecretRotate
        | Action::SecretDelete
        | Action::PolicyChange
        | Action::EgressAllow
        | Action::EgressDeny
        | Action::EgressInject
        | Action::EgressScrub
        | Action::EgressBudget
        | Action::EgressApproval
        | Action::EgressAlarm
        | Action::AuditRetention
        | Action::AuditGap => Durability::Power,
        Action::ApiCall
        | Action::ApiRead
        | Action::ExecStart
        | Action::ExecEnd
        | Action::ExecAttach
        | Action::ExecInput
        | Action::PortConnect
        | Action::LinkUse
        | Action::BackupRead
        | Action::ImageExport
        | Action::SshLogin
        | Action::SnapshotCreate
        | Action::SnapshotRestore
        | Action::SnapshotDelete
        | Action::SandboxCreate
        | Action::SandboxFork
        | Action::SandboxDelete
        | Action::SandboxMerge
        | Action::DaemonStart => Durability::Process,
    }
}
