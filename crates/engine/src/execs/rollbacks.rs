//! The execs that have a snapshot, and the readers that delay their rollback.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_model::{ExecId, SandboxId, SnapshotId, TenantId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::EngineError;

/// Execs whose rollback state is kept; for older ones only the snapshot itself remains.
const REMEMBERED_MAX: usize = 1_000;

/// A client that streams an exec requests its output as soon as it knows the id; the guest keeps it for as long.
const FIRST_READER_PATIENCE: Duration = Duration::from_secs(30);

/// Readers of the output of a failed exec delay its rollback by at most this.
const READERS_PATIENCE: Duration = Duration::from_secs(60);

/// The kind of snapshot that an exec requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollbackMode {
    Nothing,
    /// A snapshot that is kept.
    Snapshot,
    /// A rollback on failure. `keep`: the snapshot is kept in any case.
    Rollback {
        keep: bool,
    },
}

/// The progress of a promised rollback.
#[derive(Clone, Debug)]
pub enum Rollback {
    /// The exec is running, or is being rolled back.
    Pending,
    /// It succeeded: there is nothing to roll back.
    Unneeded,
    /// The sandbox is as it was before the exec. `undo`: a snapshot of the state that the exec left, if that snapshot
    /// could not be removed.
    Done { undo: Option<SnapshotId> },
    /// The snapshot is kept for a manual restore.
    Failed { error: Arc<EngineError> },
}

/// What is reported with an exec about the snapshot that was taken before it.
#[derive(Clone, Debug, Default)]
pub struct RollbackStatus {
    /// `None` if there was none, or it was removed.
    pub snapshot: Option<SnapshotId>,
    /// `None` if none was promised.
    pub rollback: Option<Rollback>,
}

/// The newest execs of this daemon that have a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Rollbacks {
    known: Mutex<RollbackGuards>,
}

#[derive(Debug, Default)]
struct RollbackGuards {
    by_exec: HashMap<ExecId, Arc<RollbackGuard>>,
    order: VecDeque<ExecId>,
}

/// An exec with a snapshot that was taken before it.
#[derive(Debug)]
pub(super) struct RollbackGuard {
    pub(super) tenant: TenantId,
    pub(super) sandbox: SandboxId,
    pub(super) exec: ExecId,
    pub(super) snapshot: SnapshotId,
    pub(super) keep: bool,
    pub(super) status: watch::Sender<RollbackStatus>,
    pub(super) readers: watch::Sender<Readers>,
}

/// The clients that stream the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Readers {
    /// Readers that have not reached the end.
    pub(super) now: usize,
    /// Whether there was a reader, or none is needed.
    pub(super) ever: bool,
}

impl Rollbacks {
    fn known(&self) -> MutexGuard<'_, RollbackGuards> {
        // Entries are changed as a whole, so the state is consistent even after a panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an exec, which is running now.
    pub(super) fn add(&self, guard: &Arc<RollbackGuard>) {
        let mut known = self.known();
        if known.order.len() >= REMEMBERED_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            // An open promise is kept by its task, which holds its own reference.
            known.by_exec.remove(&oldest);
        }
        known.order.push_back(guard.exec.clone());
        known.by_exec.insert(guard.exec.clone(), guard.clone());
    }

    /// The guard of an exec, if it has one.
    pub(super) fn guard(&self, exec: &ExecId) -> Option<Arc<RollbackGuard>> {
        self.known().by_exec.get(exec).cloned()
    }

    pub(super) fn status(&self, exec: &ExecId) -> RollbackStatus {
        self.guard(exec).map(|guard| guard.status()).unwrap_or_default()
    }
}

/// A client that will read the output to its end. Delays the rollback of the exec until it is dropped.
#[derive(Debug)]
pub(super) struct OutputHold {
    guard: Arc<RollbackGuard>,
}

impl OutputHold {
    /// The output was read. Returns the status after the rollback, if there is one.
    pub(super) async fn settled(self, draining: &CancellationToken) -> RollbackStatus {
        let guard = self.guard.clone();
        drop(self);
        // If the daemon shuts down, the state remains `Pending`.
        let _ = draining.run_until_cancelled(guard.settled()).await;
        guard.status()
    }
}

impl Drop for OutputHold {
    fn drop(&mut self) {
        self.guard.readers.send_modify(|readers| readers.now = readers.now.saturating_sub(1));
    }
}

impl RollbackGuard {
    /// Registers a client that will read the output to its end.
    pub(super) fn hold(self: Arc<Self>) -> OutputHold {
        self.readers.send_modify(|readers| *readers = Readers { now: readers.now + 1, ever: true });
        OutputHold { guard: self }
    }

    pub(super) fn status(&self) -> RollbackStatus {
        self.status.borrow().clone()
    }

    /// Waits until the exec has succeeded, or its rollback has ended.
    pub(super) async fn settled(&self) {
        let settled = |status: &RollbackStatus| !matches!(status.rollback, Some(Rollback::Pending));
        // The sender lives as long as `self`, so there is no error.
        let _ = self.status.subscribe().wait_for(settled).await;
    }

    /// Waits until the clients have read the output, or the time for that is over.
    pub(super) async fn wait_for_readers(&self) {
        let mut readers = self.readers.subscribe();
        let _ = tokio::time::timeout(FIRST_READER_PATIENCE, readers.wait_for(|readers| readers.ever)).await;
        let _ = tokio::time::timeout(READERS_PATIENCE, readers.wait_for(|readers| readers.now == 0)).await;
    }
}
