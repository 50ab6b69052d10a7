//! Finds the actor of a sandbox.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burrow_model::{SandboxId, TenantId};

use super::handle::ActorHandle;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    actors: Mutex<HashMap<SandboxId, ActorHandle>>,
}

impl Registry {
    pub(crate) fn keep(&self, handle: ActorHandle) -> ActorHandle {
        self.lock().insert(handle.id().clone(), handle.clone());
        handle
    }

    pub(crate) fn get(&self, id: &SandboxId) -> Option<ActorHandle> {
        self.lock().get(id).cloned()
    }

    /// The generation that a sandbox of this tenant runs as, without waiting in its queue; `None` when it does not run.
    pub(crate) fn running(&self, tenant: &TenantId, id: &SandboxId) -> Option<u64> {
        self.lock().get(id).filter(|actor| actor.tenant() == tenant).and_then(ActorHandle::running)
    }

    pub(crate) fn remove(&self, id: &SandboxId) {
        self.lock().remove(id);
    }

    pub(crate) fn all(&self) -> Vec<ActorHandle> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Lets every actor end after its last request.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, ActorHandle>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
