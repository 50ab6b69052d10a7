//! One thing at a time per sandbox.
//!
//! Work off the async threads goes on when its caller is dropped. A `destroy` that follows must not overtake the
//! `boot` it undoes, so each takes a turn, and keeps it until the work, not the caller, is done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use burrow_model::SandboxId;
use tokio::sync::OwnedMutexGuard;

/// Entries of sandboxes nobody works on any more are dropped when the map has grown this large.
const TIDY_AT: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    sandboxes: Mutex<HashMap<SandboxId, Weak<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// Waits for all earlier turns of this sandbox.
    pub(crate) async fn take(&self, id: &SandboxId) -> OwnedMutexGuard<()> {
        self.queue(id).lock_owned().await
    }

    fn queue(&self, id: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut sandboxes = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = sandboxes.get(id).and_then(Weak::upgrade) {
            return queue;
        }
        if sandboxes.len() >= TIDY_AT {
            sandboxes.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::new(tokio::sync::Mutex::new(()));
        sandboxes.insert(id.clone(), Arc::downgrade(&queue));
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_waits_for_the_one_before_and_not_for_other_sandboxes() {
        let turns = Turns::default();
        let (one, other) = (SandboxId::generate(), SandboxId::generate());
        let first = turns.take(&one).await;
        let _other = turns.take(&other).await;
        assert!(turns.queue(&one).try_lock_owned().is_err());
        drop(first);
        assert!(turns.queue(&one).try_lock_owned().is_ok());
    }

    #[tokio::test]
    async fn turns_nobody_waits_for_are_forgotten() {
        let turns = Turns::default();
        for _ in 0..10 * TIDY_AT {
            drop(turns.take(&SandboxId::generate()).await);
        }
        assert!(turns.sandboxes.lock().unwrap().len() <= TIDY_AT);
    }
}
