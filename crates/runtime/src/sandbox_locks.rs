//! A lock per sandbox: one operation at a time.
//!
//! Work off the async threads continues when its caller is dropped. A `destroy` that follows must not overtake the `boot`
//! that it undoes. So each operation holds the lock until its work, not its caller, is done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use burrow_model::SandboxId;
use tokio::sync::OwnedMutexGuard;

/// Unused entries are dropped when the map has grown this large.
const TIDY_AT: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct SandboxLocks {
    sandboxes: Mutex<HashMap<SandboxId, Weak<tokio::sync::Mutex<()>>>>,
}

impl SandboxLocks {
    /// Waits for all earlier operations on this sandbox.
    pub(crate) async fn lock(&self, id: &SandboxId) -> OwnedMutexGuard<()> {
        self.mutex(id).lock_owned().await
    }

    fn mutex(&self, id: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut sandboxes = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mutex) = sandboxes.get(id).and_then(Weak::upgrade) {
            return mutex;
        }
        if sandboxes.len() >= TIDY_AT {
            sandboxes.retain(|_, mutex| mutex.strong_count() > 0);
        }
        let mutex = Arc::new(tokio::sync::Mutex::new(()));
        sandboxes.insert(id.clone(), Arc::downgrade(&mutex));
        mutex
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_waits_for_its_holder_and_not_for_other_sandboxes() {
        let locks = SandboxLocks::default();
        let (one, other) = (SandboxId::generate(), SandboxId::generate());
        let first = locks.lock(&one).await;
        let _other = locks.lock(&other).await;
        assert!(locks.mutex(&one).try_lock_owned().is_err());
        drop(first);
        assert!(locks.mutex(&one).try_lock_owned().is_ok());
    }

    #[tokio::test]
    async fn unused_locks_are_dropped() {
        let locks = SandboxLocks::default();
        for _ in 0..10 * TIDY_AT {
            drop(locks.lock(&SandboxId::generate()).await);
        }
        assert!(locks.sandboxes.lock().unwrap().len() <= TIDY_AT);
    }
}
