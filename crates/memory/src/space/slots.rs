//! The open spaces: opened on demand, closed when idle or too many.
//!
//! Invariant: a file has at most one [`Space`] in this process. A slot's lock is held while its space is opened or
//! closed, and a space is closed only when nothing else uses it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use burrow_model::SpaceId;
use tokio::sync::{broadcast, watch};

use super::{Space, SpaceOptions};
use crate::clock::Clock;
use crate::embed::Embedder;
use crate::limits::Limits;
use crate::{MemoryError, blocking};

/// Commits that a watcher may lag behind before it must read the log itself.
const CHANGES_KEPT: usize = 1024;

/// How often a space to be closed is checked for users, and for how long in all: half a minute.
const CLOSE_POLL: Duration = Duration::from_millis(5);
const CLOSE_POLLS_MAX: u32 = 6000;

#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) folder: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) limits: Limits,
    slots: Mutex<HashMap<SpaceId, Arc<Slot>>>,
    closed: watch::Sender<bool>,
    /// Notified when there are rows without vectors.
    pub(crate) pending: tokio::sync::Notify,
}

#[derive(Debug)]
pub(crate) struct Slot {
    space: tokio::sync::Mutex<Option<Arc<Space>>>,
    used_ms: AtomicU64,
    changes: broadcast::Sender<u64>,
}

/// The operation that a caller is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Creates the file if it does not exist.
    Write,
}

impl Slots {
    pub(crate) fn new(
        folder: PathBuf,
        clock: Arc<dyn Clock>,
        embedder: Arc<dyn Embedder>,
        limits: Limits,
    ) -> Self {
        Self {
            folder,
            clock,
            embedder,
            limits,
            slots: Mutex::default(),
            closed: watch::Sender::new(false),
            pending: tokio::sync::Notify::new(),
        }
    }

    pub(crate) fn path(&self, space: &SpaceId) -> PathBuf {
        self.folder.join(format!("{space}.db"))
    }

    fn slot(&self, space: &SpaceId) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(space.clone()).or_insert_with(|| {
            Arc::new(Slot {
                space: tokio::sync::Mutex::new(None),
                used_ms: AtomicU64::new(0),
                changes: broadcast::Sender::new(CHANGES_KEPT),
            })
        });
        Arc::clone(slot)
    }

    /// The sequence numbers of commits, from now on. Remains valid while the space is closed.
    pub(crate) fn changes(&self, space: &SpaceId) -> broadcast::Receiver<u64> {
        self.slot(space).changes.subscribe()
    }

    pub(crate) async fn open(&self, id: &SpaceId, access: Access) -> Result<Arc<Space>, MemoryError> {
        if *self.closed.borrow() {
            return Err(MemoryError::Closed);
        }
        let slot = self.slot(id);
        let mut held = slot.space.lock().await;
        slot.used_ms.store(self.clock.now_ms(), Ordering::Relaxed);
        if let Some(space) = &*held
            && (access == Access::Read || space.path.is_some())
        {
            return Ok(Arc::clone(space));
        }
        let opening = SpaceOptions {
            path: self.path(id),
            clock: Arc::clone(&self.clock),
            embedder: Arc::clone(&self.embedder),
            changes: slot.changes.clone(),
        };
        let space = blocking(move || Space::open(opening, access == Access::Write)).await?;
        let space = Arc::new(space);
        if space.arena().pending > 0 {
            self.pending.notify_one();
        }
        *held = Some(Arc::clone(&space));
        drop(held);
        self.make_room(id).await;
        Ok(space)
    }

    /// A space if it is open; does not open it.
    pub(crate) fn if_open(&self, id: &SpaceId) -> Option<Arc<Space>> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(id).and_then(|slot| slot.space.try_lock().ok().and_then(|space| space.clone()))
    }

    /// Removes the slot of a removed space.
    pub(crate) fn forget(&self, id: &SpaceId) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// All spaces that are open now.
    pub(crate) async fn opened(&self) -> Vec<Arc<Space>> {
        let slots: Vec<_> = {
            let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.values().map(Arc::clone).collect()
        };
        let mut opened = Vec::new();
        for slot in slots {
            opened.extend(slot.space.lock().await.clone());
        }
        opened
    }

    /// Closes spaces that are idle for too long, and the longest idle ones while too many are open.
    pub(crate) async fn close_idle(&self) -> usize {
        let now_ms = self.clock.now_ms();
        let idle_since = |used_ms: u64| now_ms.saturating_sub(used_ms) >= self.limits.idle_ms;
        let mut closed = 0;
        for (_, slot) in self.by_age() {
            if idle_since(slot.used_ms.load(Ordering::Relaxed)) && close_unused(&slot).await {
                closed += 1;
            }
        }
        closed
    }

    async fn make_room(&self, keep: &SpaceId) {
        let mut open = Vec::new();
        let mut bytes = 0;
        for (id, slot) in self.by_age() {
            // A slot whose lock is held is being opened or closed by another task.
            let size = slot.space.try_lock().ok().and_then(|space| space.as_ref().map(|s| s.arena().bytes()));
            if let Some(size) = size {
                bytes += size;
                open.push((id, slot, size));
            }
        }
        let mut count = open.len();
        for (id, slot, size) in open {
            if count <= self.limits.open_spaces_max && bytes <= self.limits.arena_bytes_max {
                return;
            }
            if id != *keep && close_unused(&slot).await {
                count -= 1;
                bytes -= size;
            }
        }
    }

    /// Longest unused first.
    fn by_age(&self) -> Vec<(SpaceId, Arc<Slot>)> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = slots.iter().map(|(id, slot)| (id.clone(), Arc::clone(slot))).collect();
        drop(slots);
        all.sort_by_key(|(_, slot)| slot.used_ms.load(Ordering::Relaxed));
        all
    }

    /// Waits until the space is unused, closes it, and runs `then` before it can be opened again.
    pub(crate) async fn closed_for<T>(
        &self,
        id: &SpaceId,
        then: impl FnOnce() -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError>
    where
        T: Send + 'static,
    {
        let slot = self.slot(id);
        let mut held = slot.space.lock().await;
        for _ in 0..CLOSE_POLLS_MAX {
            if held.as_ref().is_none_or(|space| Arc::strong_count(space) == 1) {
                let space = held.take();
                return blocking(move || {
                    drop(space);
                    then()
                })
                .await;
            }
            tokio::time::sleep(CLOSE_POLL).await;
        }
        Err(MemoryError::Busy { space: id.clone() })
    }

    /// Closes everything permanently.
    pub(crate) async fn close(&self) {
        self.closed.send_replace(true);
        for (id, _) in self.by_age() {
            if let Err(error) = self.closed_for(&id, || Ok(())).await {
                tracing::warn!(space = %id, %error, "a space was still in use when memory was closed");
            }
        }
    }
}

async fn close_unused(slot: &Slot) -> bool {
    let Ok(mut held) = slot.space.try_lock() else { return false };
    if held.as_ref().is_none_or(|space| Arc::strong_count(space) > 1) {
        return false;
    }
    let space = held.take();
    // Closing writes the journal into the file; the lock is held meanwhile.
    let closed = blocking(move || {
        drop(space);
        Ok(())
    });
    closed.await.is_ok()
}
