//! Locks of layers, by tenant and key: see [`super::layers`] for how they are taken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_model::TenantId;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Locks kept before those that no task holds are removed.
const LOCKS_KEPT: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct LayerLocks {
    locks: Mutex<HashMap<(TenantId, String), Lock>>,
}

type Lock = Arc<RwLock<()>>;

/// Keeps a layer from being removed.
pub(crate) type LayerReadLock = OwnedRwLockReadGuard<()>;

/// The exclusive lock of a layer, for making it.
pub(crate) type LayerWriteLock = OwnedRwLockWriteGuard<()>;

impl LayerLocks {
    pub(super) fn of(&self, tenant: &TenantId, key: &str) -> Lock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if locks.len() > LOCKS_KEPT {
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        locks.entry((tenant.clone(), key.to_owned())).or_default().clone()
    }

    /// For making a layer again, whether or not it exists.
    pub(crate) async fn lock_exclusive(&self, tenant: &TenantId, key: &str) -> LayerWriteLock {
        self.of(tenant, key).write_owned().await
    }

    /// For removing a layer: `None` while it is in use.
    pub(crate) fn try_lock_exclusive(&self, tenant: &TenantId, key: &str) -> Option<LayerWriteLock> {
        self.of(tenant, key).try_write_owned().ok()
    }
}
