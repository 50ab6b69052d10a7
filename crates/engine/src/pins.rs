//! Which snapshots are being used, so that none is removed under those who go back to it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_model::SnapshotId;

#[derive(Debug, Default)]
pub(crate) struct Pins {
    state: Mutex<State>,
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

/// Keeps others from using a snapshot that goes.
#[derive(Debug)]
pub(crate) struct Removal {
    pins: Arc<Pins>,
    id: SnapshotId,
}

impl Pins {
    /// `None`: it is being removed.
    pub(crate) fn pin(pins: &Arc<Self>, id: &SnapshotId) -> Option<Pin> {
        let mut state = pins.lock();
        if state.removing.contains(id) {
            return None;
        }
        *state.used.entry(id.clone()).or_default() += 1;
        Some(Pin { pins: pins.clone(), id: id.clone() })
    }

    /// `None`: somebody uses it, or removes it already.
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_not_removed_and_what_is_removed_is_not_used() {
        let (pins, id) = (Arc::new(Pins::default()), SnapshotId::generate());
        let (first, second) = (Pins::pin(&pins, &id).unwrap(), Pins::pin(&pins, &id).unwrap());
        drop(first);
        assert!(Pins::remove(&pins, &id).is_none());
        drop(second);
        let removal = Pins::remove(&pins, &id).unwrap();
        assert!(Pins::pin(&pins, &id).is_none() && Pins::remove(&pins, &id).is_none());
        drop(removal);
        assert!(Pins::pin(&pins, &id).is_some());
    }
}
