//! Limits the number of image tasks that run at once, and cancels them at the end of the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ImageProgressSink;
use super::layer_locks::LayerLocks;
use crate::{EngineError, ImagePolicy};

/// Requests that may wait. Each holds a task and little else; a flood must not.
const WAITING_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct ImageWork {
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    closing: Arc<AtomicBool>,
    pub(crate) locks: LayerLocks,
}

/// The permit to unpack or build. Held until the image exists.
#[derive(Debug)]
pub(crate) struct ImageWorkPermit {
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

    /// Waits for a permit, and reports that it waits.
    pub(super) async fn permit(&self, tell: &ImageProgressSink) -> Result<ImageWorkPermit, EngineError> {
        if let Ok(permit) = self.slots.clone().try_acquire_owned() {
            return Ok(ImageWorkPermit { _permit: permit });
        }
        let waiting = QueuePlace::join(&self.waiting)?;
        tell.stage("waiting for other images to be finished", None);
        let permit = self.slots.clone().acquire_owned().await.map_err(|_| EngineError::ShuttingDown)?;
        drop(waiting);
        Ok(ImageWorkPermit { _permit: permit })
    }

    /// True if work in progress must end.
    pub(super) fn closing(&self) -> Arc<AtomicBool> {
        self.closing.clone()
    }

    /// Cancels work in threads, which cannot be dropped, and accepts no more.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.slots.close();
    }
}

/// One place in the queue; released when it is dropped, also if the caller gives up.
struct QueuePlace<'a>(&'a AtomicUsize);

impl<'a> QueuePlace<'a> {
    fn join(count: &'a AtomicUsize) -> Result<Self, EngineError> {
        let waiting = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            return Err(EngineError::ImagesBusy { waiting: WAITING_MAX });
        }
        Ok(waiting)
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
