//! The keys that were not revoked, in RAM, for the authentication of every request.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use burrow_model::{KeyId, SandboxId};

use crate::KeyRow;

/// The use of a key is recorded at most this often.
const LAST_USED_EVERY_MS: u64 = 60_000;

/// The hash of a key's secret.
pub(crate) type Hash = [u8; 32];

/// Every key that was not revoked, by the hash of its secret.
pub(crate) struct KeyCache {
    by_hash: RwLock<HashMap<Hash, KeyRow>>,
}

impl KeyCache {
    pub(crate) fn new(by_hash: HashMap<Hash, KeyRow>) -> Self {
        Self { by_hash: RwLock::new(by_hash) }
    }

    /// Revokes, in RAM, the keys that are limited to a sandbox.
    pub(crate) fn revoke_of_sandbox(&self, sandbox: &SandboxId) {
        // Most deletes affect no key and need no exclusive lock.
        let concerned = self.read().values().any(|row| row.sandbox.as_ref() == Some(sandbox));
        if concerned {
            self.write().retain(|_, row| row.sandbox.as_ref() != Some(sandbox));
        }
    }

    /// A linear search, because there are few keys and lookups by id are rare.
    pub(crate) fn find(&self, id: &KeyId) -> Option<KeyRow> {
        self.read().values().find(|row| row.id == *id).cloned()
    }

    /// Revokes, in RAM, a key and those that end with it.
    pub(crate) fn revoke(&self, id: &KeyId) {
        self.write().retain(|_, row| row.id != *id && row.parent.as_ref() != Some(id));
    }

    /// Records a use. Returns false if another request recorded one within the interval.
    pub(crate) fn note_use(&self, hash: &Hash, now_ms: u64) -> bool {
        let mut keys = self.write();
        let Some(row) = keys.get_mut(hash) else { return false };
        let due = is_use_due(row, now_ms);
        if due {
            row.last_used_ms = Some(now_ms);
        }
        due
    }

    // A panic while the lock was held cannot have left the map half-changed: each change is one call.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, HashMap<Hash, KeyRow>> {
        self.by_hash.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, HashMap<Hash, KeyRow>> {
        self.by_hash.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the last use of a key was recorded so long ago that this one is recorded.
pub(crate) fn is_use_due(row: &KeyRow, now_ms: u64) -> bool {
    row.last_used_ms.is_none_or(|at_ms| now_ms >= at_ms.saturating_add(LAST_USED_EVERY_MS))
}
