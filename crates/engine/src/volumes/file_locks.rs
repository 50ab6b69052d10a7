//! Locks of volumes' files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_model::VolumeId;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// One lock per volume for access to its files through the host.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    // One lock per volume; it is removed with its volume.
    locks: Mutex<HashMap<VolumeId, Arc<RwLock<()>>>>,
}

impl FileLocks {
    fn lock(&self, id: &VolumeId) -> Arc<RwLock<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.entry(id.clone()).or_default().clone()
    }

    /// The lock, shared. `None`: the volume is being restored or removed.
    pub(super) fn lock_shared(&self, id: &VolumeId) -> Option<OwnedRwLockReadGuard<()>> {
        self.lock(id).try_read_owned().ok()
    }

    /// The lock, exclusive. `None`: its files are being read or written.
    pub(super) fn lock_exclusive(&self, id: &VolumeId) -> Option<OwnedRwLockWriteGuard<()>> {
        self.lock(id).try_write_owned().ok()
    }

    pub(super) fn forget(&self, id: &VolumeId) {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
