//! Pins: which snapshots are in use, so that none is removed during a restore or fork from it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_model::SnapshotId;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Pins {
    state: Mutex<State>,
    /// A removal has ended, whether or not the snapshot was removed.
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    used: HashMap<SnapshotId, usize>,
    removing: HashSet<SnapshotId>,
}

/// Keeps a snapshot from being removed.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    id: SnapshotId,
}

/// Keeps a snapshot that is being removed from being used.
#[derive(Debug)]
pub(crate) struct Removal {
    pins: Arc<Pins>,
    id: SnapshotId,
}

impl Pins {
    /// Waits for a removal in progress, which may fail: the row says whether the snapshot still exists.
    pub(crate) async fn pin(pins: &Arc<Self>, id: &SnapshotId) -> Pin {
        loop {
            // Created before the check, or the end of a removal in between would be missed.
            let ended = pins.ended.notified();
            match Self::try_pin(pins, id) {
                Some(pin) => return pin,
                None => ended.await,
            }
        }
    }

    /// `None`: it is being removed.
    fn try_pin(pins: &Arc<Self>, id: &SnapshotId) -> Option<Pin> {
        let mut state = pins.lock();
        if state.removing.contains(id) {
            return None;
        }
        *state.used.entry(id.clone()).or_default() += 1;
        Some(Pin { pins: pins.clone(), id: id.clone() })
    }

    /// `None`: it is in use, or is being removed already.
    pub(crate) fn remove(pins: &Arc<Self>, id: &SnapshotId) -> Option<Removal> {
        let mut state = pins.lock();
        if state.used.contains_key(id) || !state.removing.insert(id.clone()) {
            return None;
        }
        Some(Removal { pins: pins.clone(), id: id.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.pins.lock();
        if let Some(count) = state.used.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                state.used.remove(&self.id);
            }
        }
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.pins.lock().removing.remove(&self.id);
        self.pins.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_used_snapshot_is_not_removed_and_a_pin_waits_for_a_removal() {
        let (pins, id) = (Arc::new(Pins::default()), SnapshotId::generate());
        let (first, second) = (Pins::pin(&pins, &id).await, Pins::pin(&pins, &id).await);
        drop(first);
        assert!(Pins::remove(&pins, &id).is_none());
        drop(second);
        let removal = Pins::remove(&pins, &id).unwrap();
        assert!(Pins::remove(&pins, &id).is_none());
        let mut waiting = std::pin::pin!(Pins::pin(&pins, &id));
        assert!(waiting.as_mut().now_or_never().is_none());
        let other = Pins::remove(&pins, &SnapshotId::generate()).unwrap();
        drop(other);
        assert!(
            waiting.as_mut().now_or_never().is_none(),
            "the end of another removal does not end this one"
        );
        drop(removal);
        let pin = waiting.await;
        assert!(Pins::remove(&pins, &id).is_none());
        drop(pin);
        assert!(Pins::remove(&pins, &id).is_some());
    }
}
