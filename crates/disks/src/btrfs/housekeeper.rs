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
use crate::{DiskError, Space, step};

/// How often the pool is checked. At 500 MB/s a pool of 20 GiB with a fifth free takes 8 s to fill.
const PACE: Duration = Duration::from_secs(5);

/// A balance or another resize refuses to run beside a growth; waited for this long in all.
const BUSY_RETRIES_MAX: u32 = 40;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

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
                    && let Err(error) = inner.shrink_to_disk()
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
        let _lock = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(size_bytes) = self.pool.larger_size(&GROWTH)? else { return Ok(()) };
        match self.pool.grow(size_bytes) {
            // The file system refuses during a balance or another resize: the next round tries again.
            Err(DiskError::Step { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            result => result,
        }
    }

    /// Grows the pool until so many bytes are free, as far as the host's disk can back it, and returns its space.
    pub(super) fn space_for(&self, needed_bytes: u64) -> Result<Space, DiskError> {
        let space = self.pool.space()?;
        if space.free_bytes >= needed_bytes {
            return Ok(space);
        }
        let _lock = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(size_bytes) = self.pool.size_for(needed_bytes, &GROWTH)? else { return self.pool.space() };
        let mut grown = self.pool.grow(size_bytes);
        for _ in 0..BUSY_RETRIES_MAX {
            match grown {
                Err(DiskError::Step { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(BUSY_PAUSE);
                    grown = self.pool.grow(size_bytes);
                }
                _ => break,
            }
        }
        // What it has free decides, whether it grew or not.
        if let Err(error) = grown {
            tracing::warn!(error = &error as &dyn std::error::Error, "could not grow the pool");
        }
        self.pool.space()
    }

    fn shrink_to_disk(&self) -> Result<(), DiskError> {
        let _lock = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        self.pool.shrink_to_disk()
    }

    pub(super) fn grow_to(&self, size_bytes: u64) -> Result<(), DiskError> {
        let _lock = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        self.pool.grow(size_bytes)
    }
}
