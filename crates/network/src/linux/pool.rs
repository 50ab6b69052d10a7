//! A pool of prepared network slots, so that a sandbox need not wait until one is created.
//!
//! ```text
//! take() ──► ready slot, at once ──wakes──► worker thread: creates one, until the pool is full again
//!      └───► none left: created now, on a separate thread, besides the worker
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::netlink::SlotError;
use super::slot::{self, Slot};

/// Number of slots that are created at once by callers that found the pool empty. The kernel creates most of a
/// namespace under locks of the whole host, so more threads would only wait for these locks.
const MADE_AT_ONCE_MAX: usize = 4;

/// After a failure the worker waits, twice as long each time. The cause (descriptors, a limit on namespaces) rarely
/// disappears at once, and callers that need a slot get the error from their own attempt.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Pool {
    warm_pool: Arc<WarmPool>,
    worker: Mutex<Option<JoinHandle<()>>>,
    on_demand: Semaphore,
}

#[derive(Debug)]
struct WarmPool {
    size: usize,
    own_ids: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    ready: VecDeque<Slot>,
    stopping: bool,
}

impl Pool {
    /// Starts filling the pool, in the background.
    pub(super) fn start(size: usize, own_ids: bool) -> io::Result<Self> {
        let state = Mutex::new(State { ready: VecDeque::with_capacity(size), stopping: size == 0 });
        let warm_pool = Arc::new(WarmPool { size, own_ids, state, changed: Condvar::new() });
        let worker = Arc::clone(&warm_pool);
        let worker = thread::Builder::new().name("burrow-slots".to_owned()).spawn(move || worker.refill())?;
        let on_demand = Semaphore::new(MADE_AT_ONCE_MAX);
        Ok(Self { warm_pool, worker: Mutex::new(Some(worker)), on_demand })
    }

    pub(super) async fn take(&self) -> Result<Slot, SlotError> {
        if let Some(slot) = self.warm_pool.take() {
            return Ok(slot);
        }
        let _permit = self.on_demand.acquire().await.expect("the semaphore is never closed");
        // The worker may have added one while we waited for the permit.
        match self.warm_pool.take() {
            Some(slot) => Ok(slot),
            None => {
                let own_ids = self.warm_pool.own_ids;
                on_demand(move || slot::make(own_ids)).await
            }
        }
    }

    /// Creates the gateway's half of a slot.
    pub(super) async fn make_gateway(&self) -> Result<OwnedFd, SlotError> {
        let _permit = self.on_demand.acquire().await.expect("the semaphore is never closed");
        on_demand(slot::gateway).await
    }

    /// How many slots are ready.
    pub(super) fn ready(&self) -> usize {
        self.warm_pool.lock().ready.len()
    }

    /// Ends the worker, and waits for its end. Discards the slots of the pool.
    pub(super) async fn stop(&self) {
        self.warm_pool.stop();
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(worker) = worker
            && !matches!(tokio::task::spawn_blocking(move || worker.join()).await, Ok(Ok(())))
        {
            tracing::error!("the thread that creates network slots panicked");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Does not wait for the worker, which may be creating a slot. It sees the flag afterwards.
        self.warm_pool.stop();
    }
}

impl WarmPool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Slot> {
        let slot = self.lock().ready.pop_front();
        self.changed.notify_all();
        slot
    }

    fn stop(&self) {
        let unused = {
            let mut state = self.lock();
            state.stopping = true;
            std::mem::take(&mut state.ready)
        };
        self.changed.notify_all();
        drop(unused);
    }

    /// The worker: keeps the pool full until it is stopped.
    fn refill(&self) {
        let mut backoff = BACKOFF_FIRST;
        while self.wait_for_room() {
            match slot::make(self.own_ids) {
                Ok(slot) => {
                    backoff = BACKOFF_FIRST;
                    self.put(slot);
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        ?backoff,
                        "could not create a network slot"
                    );
                    self.rest(backoff);
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// Waits until there is room for a slot, or the pool is being stopped. Returns whether to create one.
    fn wait_for_room(&self) -> bool {
        let full = |state: &mut State| !state.stopping && state.ready.len() >= self.size;
        let state = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        !state.stopping
    }

    fn put(&self, slot: Slot) {
        let mut state = self.lock();
        // A slot that arrives after the stop is dropped here, which removes it.
        if !state.stopping {
            state.ready.push_back(slot);
        }
    }

    fn rest(&self, time: Duration) {
        let going = |state: &mut State| !state.stopping;
        drop(
            self.changed.wait_timeout_while(self.lock(), time, going).unwrap_or_else(PoisonError::into_inner),
        );
    }
}

/// Runs `make` on a separate thread: it visits other namespaces, where no thread of the runtime may go.
async fn on_demand<T: Send + 'static>(
    make: impl FnOnce() -> Result<T, SlotError> + Send + 'static,
) -> Result<T, SlotError> {
    let failed = |source| SlotError { step: "start a thread that creates a slot", source };
    let (reply, answer) = oneshot::channel();
    let make = move || {
        // The caller may be gone; the slot is then dropped with the answer.
        let _ = reply.send(make());
    };
    thread::Builder::new().name("burrow-slot".to_owned()).spawn(make).map_err(failed)?;
    answer.await.map_err(|_| failed(io::Error::other("the thread panicked")))?
}
