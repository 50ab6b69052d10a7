//! The daemon's side of the audit log: what it records itself, what it takes out of the egress process's spool, and what it
//! keeps for how long.
//!
//! ```text
//!  rest/audited (every call that changes something) ─► Audit::record ─┐
//!  burrow egress ─► spool segments ─► spool::Spool::take_in ──────────┼─► burrow_audit::Store
//!  upkeep: sync each second, retention each hour ─────────────────────┘
//! ```
//!
//! What the daemon does itself it records once it is known how it came out. Where that fails (a full disk), the event waits
//! in RAM, within a bound, and is tried again: the daemon goes on, so that somebody can make room. Injection is another
//! matter: the egress process records first and does nothing if it cannot.

pub(crate) mod feed;
mod spool;
mod trace;
mod upkeep;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burrow_audit::{Action, Durability, Event, Store, StoreError};

use crate::config::{AuditConfig, Config};

pub(crate) use spool::{Spool, Taken};
pub(crate) use trace::Trace;
pub(crate) use upkeep::spawn;

/// Events that wait in RAM while the log cannot be written; beyond it the oldest are lost, and that is counted.
const WAITING_MAX: usize = 10_000;

/// The log, and what feeds it.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) store: Store,
    pub(crate) spool: Spool,
    pub(crate) config: AuditConfig,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Since the log could last be written.
    lost: u64,
    /// The operator has been told.
    told: bool,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Stored,
    /// It is tried again.
    Waits,
}

/// Where the log is.
pub(crate) fn folder(config: &Config) -> PathBuf {
    config.state_dir.join("audit")
}

impl Audit {
    /// Blocks.
    pub(crate) fn open(config: &Config) -> Result<Self, StoreError> {
        let folder = folder(config);
        let store = Store::open(&folder)?;
        let spool = Spool::open(folder.join("spool"), store.clone())?;
        Ok(Self { store, spool, config: config.audit.clone(), waiting: Mutex::default() })
    }

    /// Writes an event down. `now_ms` is the engine's, which never goes back.
    pub(crate) async fn record(&self, event: Event, now_ms: u64) -> Recorded {
        let durability = durability(event.action);
        // Those that wait go first, so that the order stays.
        let mut events = self.take_waiting();
        events.push(event);
        match self.store.append(events.clone(), now_ms, durability).await {
            Ok(()) => {
                self.all_is_well();
                Recorded::Stored
            }
            Err(error) => {
                self.put_back(events, &error);
                Recorded::Waits
            }
        }
    }

    /// Tries again what could not be written. Answers how many wait.
    async fn retry(&self, now_ms: u64) -> usize {
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

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
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
        if !std::mem::replace(&mut waiting.told, true) {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "could not write to the audit log; events wait in RAM, and no secret is injected without one"
            );
        }
    }

    fn all_is_well(&self) {
        let mut waiting = self.waiting();
        if std::mem::replace(&mut waiting.told, false) {
            tracing::info!(lost = std::mem::take(&mut waiting.lost), "the audit log is written again");
        }
    }
}

/// What changes who may do what is on disk before it is answered. The rest is within a second; a daemon that dies loses
/// neither.
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
