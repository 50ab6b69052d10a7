//! Other tasks' access to the task of a sandbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burrow_catalog::SandboxRow;
use burrow_model::{SandboxId, State, TenantId};
use tokio::sync::{mpsc, oneshot};

use super::command::{Command, Reply};
use crate::EngineError;
use crate::sleep::activity::Activity;

/// Requests of one sandbox that may wait. Two hundred execs at once must fit; a flood must not.
const INBOX_MAX: usize = 1024;

/// Other tasks' access to an actor.
#[derive(Clone, Debug)]
pub(crate) struct ActorHandle {
    id: SandboxId,
    tenant: TenantId,
    inbox: mpsc::Sender<Command>,
    running_generation: RunningGeneration,
    activity: Arc<Activity>,
}

/// Whether the sandbox runs, for readers that must not wait in its queue: the generation it runs as, or 0. It may change right
/// after it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct RunningGeneration(Arc<AtomicU64>);

impl RunningGeneration {
    pub(super) fn set(&self, row: &SandboxRow, live: bool) {
        let runs = live && row.state == State::Running;
        self.0.store(if runs { row.generation } else { 0 }, Ordering::Release);
    }
}

impl ActorHandle {
    /// With the end of its inbox that the task keeps.
    pub(super) fn new(
        row: &SandboxRow,
        running_generation: RunningGeneration,
        activity: Arc<Activity>,
    ) -> (Self, mpsc::Receiver<Command>) {
        let (inbox, commands) = mpsc::channel(INBOX_MAX);
        let (id, tenant) = (row.id.clone(), row.tenant.clone());
        (Self { id, tenant, inbox, running_generation, activity }, commands)
    }

    /// Does not keep the task alive.
    pub(super) fn weak_inbox(&self) -> mpsc::WeakSender<Command> {
        self.inbox.downgrade()
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.id
    }

    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The generation it runs as, if it runs.
    pub(crate) fn running(&self) -> Option<u64> {
        Some(self.running_generation.0.load(Ordering::Acquire)).filter(|generation| *generation > 0)
    }

    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        let gone = || EngineError::Gone { id: self.id.clone() };
        match self.inbox.try_send(command(reply)) {
            Ok(()) => answer.await.map_err(|_| gone())?,
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(EngineError::Busy { id: self.id.clone(), queued: INBOX_MAX })
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(gone()),
        }
    }

    /// For commands without an answer. Their sender repeats them if they are important.
    pub(crate) fn tell(&self, command: Command) {
        let _ = self.inbox.try_send(command);
    }
}
