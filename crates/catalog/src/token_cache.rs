//! The generations of tokens, in RAM, for every request with a token.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{PoisonError, RwLock};

use burrow_model::{SandboxId, VolumeId};

/// Generations of the few sandboxes and volumes whose tokens were revoked.
pub(crate) struct TokenGenerations {
    pub(crate) sandboxes: Generations<SandboxId>,
    pub(crate) volumes: Generations<VolumeId>,
}

/// Generations by id; an id that is missing has generation 0.
pub(crate) struct Generations<Id> {
    by_id: RwLock<HashMap<Id, u64>>,
}

impl<Id: Clone + Eq + Hash> Generations<Id> {
    pub(crate) fn new(by_id: HashMap<Id, u64>) -> Self {
        Self { by_id: RwLock::new(by_id) }
    }

    /// Removes a deleted sandbox or volume.
    pub(crate) fn forget(&self, id: &Id) {
        // Most ids are not in it; deleting them needs no exclusive lock.
        let known = self.by_id.read().unwrap_or_else(PoisonError::into_inner).contains_key(id);
        if known {
            self.by_id.write().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
    }

    pub(crate) fn get(&self, id: &Id) -> u64 {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).get(id).copied().unwrap_or(0)
    }

    pub(crate) fn set(&self, id: &Id, generation: u64) {
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), generation);
    }

    pub(crate) fn set_all(&self, generations: &HashMap<Id, u64>) {
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).clone_from(generations);
    }
}
