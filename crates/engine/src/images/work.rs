//! How much work on images goes on at once, and when it must end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Tell;
use super::layers::LayerLocks;
use crate::{EngineError, ImagePolicy};

/// Requests that may wait for their turn. Each holds a task and little else; a flood must not.
const WAITING_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct ImageWork {
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    closing: Arc<AtomicBool>,
    pub(crate) locks: LayerLocks,
}

/// The right to unpack or build. Held until the image is there.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
}

impl ImageWork {
    pub(crate) fn new(policy: &ImagePolicy) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(policy.at_once)),
            waiting: AtomicUsize::new(0),
            closing: Arc::default(),
            locks: LayerLocks::default(),
        }
    }

    /// Waits for its turn, and says so.
    pub(super) async fn slot(&self, tell: &Tell) -> Result<Slot, EngineError> {
        if let Ok(permit) = self.slots.clone().try_acquire_owned() {
            return Ok(Slot { _permit: permit });
        }
        let waiting = Waiting::join(&self.waiting)?;
        tell.stage("waiting for other images to be finished", None);
        let permit = self.slots.clone().acquire_owned().await.map_err(|_| EngineError::ShuttingDown)?;
        drop(waiting);
        Ok(Slot { _permit: permit })
    }

    /// True once work under way shall end.
    pub(super) fn closing(&self) -> Arc<AtomicBool> {
        self.closing.clone()
    }

    /// Ends what goes on in threads, which cannot be dropped, and takes no more.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.slots.close();
    }
}

/// One place in the queue; given back also by whoever gives up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn join(count: &'a AtomicUsize) -> Result<Self, EngineError> {
        let waiting = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            return Err(EngineError::ImagesBusy { waiting: WAITING_MAX });
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
