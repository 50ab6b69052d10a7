//! The pool's background work: grows a pool that fills up, and removes unused quota groups.
//!
//! One separate thread per open pool, because growing takes seconds. It ends when the pool is closed.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Inner;
use super::backing::GROWTH;
use crate::{DiskError, step};

/// How often the pool is checked. At 500 MB/s a pool of 20 GiB with a fifth free takes 8 s to fill.
const PACE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Housekeeper {
    /// Dropping the sender ends the thread.
    running: Mutex<Option<(SyncSender<()>, JoinHandle<()>)>>,
}

impl Housekeeper {
    pub(super) fn start(inner: &Arc<Inner>) -> Result<Self, DiskError> {
        let (sender, receiver) = mpsc::sync_channel(0);
        let weak = Arc::downgrade(inner);
        let thread = std::thread::Builder::new()
            .name("burrow-pool".into())
            .spawn(move || {
                if let Some(inner) = weak.upgrade()
                    && let Err(error) = inner.pool.shrink_to_disk()
                {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "could not shrink a pool that its disk cannot hold: free space on that disk"
                    );
                }
                while receiver.recv_timeout(PACE) == Err(RecvTimeoutError::Timeout) && round(&weak) {}
            })
            .map_err(step("start the housekeeper of", &inner.pool.root))?;
        Ok(Self { running: Mutex::new(Some((sender, thread))) })
    }

    /// Ends the thread, and waits for it.
    pub(super) fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((sender, thread)) = running {
            drop(sender);
            if thread.join().is_err() {
                tracing::error!("the pool's housekeeper ended by a panic");
            }
        }
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One round of checks; `false` if the pool is closed.
fn round(pool: &Weak<Inner>) -> bool {
    let Some(inner) = pool.upgrade() else { return false };
    inner.quotas.sweep(&inner.pool.directory);
    if let Err(error) = inner.grow_if_filling() {
        tracing::warn!(error = &error as &dyn std::error::Error, "could not grow the pool");
    }
    true
}

impl Inner {
    /// Grows a loop-backed pool that has little room left, as far as the host's disk can back it.
    pub(super) fn grow_if_filling(&self) -> Result<(), DiskError> {
        let Some(size_bytes) = self.pool.larger_size(&GROWTH)? else { return Ok(()) };
        tracing::info!(pool = %self.pool.root.display(), size_bytes, "growing the pool");
        match self.pool.grow(size_bytes) {
            // The file system refuses during a balance or another resize: the next round tries again.
            Err(DiskError::Step { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            result => result,
        }
    }
}
