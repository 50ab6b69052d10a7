//! Slots in stock, so that a sandbox need not wait for one to be made.
//!
//! ```text
//! take() ──► ready slot, at once ──wakes──► worker thread: makes one, until the stock is full again
//!      └───► none left: made now, on a thread of its own, beside the worker
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

/// How many slots are made at once by those who found the stock empty. The kernel makes most of a namespace under
/// locks of the whole host, so more would only queue there, each with a thread.
const MADE_AT_ONCE_MAX: usize = 4;

/// After a failure the worker waits, twice as long each time: what hinders it (descriptors, a limit on namespaces) is
/// rarely gone in an instant, and those who need a slot hear the reason from the one they try to make themselves.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Pool {
    stock: Arc<Stock>,
    worker: Mutex<Option<JoinHandle<()>>>,
    on_demand: Semaphore,
}

#[derive(Debug)]
struct Stock {
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
    /// Starts filling the stock, in the background.
    pub(super) fn start(size: usize, own_ids: bool) -> io::Result<Self> {
        let state = Mutex::new(State { ready: VecDeque::with_capacity(size), stopping: size == 0 });
        let stock = Arc::new(Stock { size, own_ids, state, changed: Condvar::new() });
        let worker = Arc::clone(&stock);
        let worker = thread::Builder::new().name("burrow-slots".to_owned()).spawn(move || worker.refill())?;
        let on_demand = Semaphore::new(MADE_AT_ONCE_MAX);
        Ok(Self { stock, worker: Mutex::new(Some(worker)), on_demand })
    }

    pub(super) async fn take(&self) -> Result<Slot, SlotError> {
        if let Some(slot) = self.stock.take() {
            return Ok(slot);
        }
        let _permit = self.on_demand.acquire().await.expect("the semaphore is never closed");
        // While we waited for our turn, the worker may have brought one.
        match self.stock.take() {
            Some(slot) => Ok(slot),
            None => {
                let own_ids = self.stock.own_ids;
                on_demand(move || slot::make(own_ids)).await
            }
        }
    }

    /// Makes the gateway's half of a slot.
    pub(super) async fn make_gateway(&self) -> Result<OwnedFd, SlotError> {
        let _permit = self.on_demand.acquire().await.expect("the semaphore is never closed");
        on_demand(slot::gateway).await
    }

    /// How many slots are ready.
    pub(super) fn ready(&self) -> usize {
        self.stock.lock().ready.len()
    }

    /// Ends the worker, and waits until it has. What was in stock is gone.
    pub(super) async fn stop(&self) {
        self.stock.stop();
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(worker) = worker
            && !matches!(tokio::task::spawn_blocking(move || worker.join()).await, Ok(Ok(())))
        {
            tracing::error!("the thread that makes slots had panicked");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Without waiting for the worker, which may be in the middle of a slot: it sees the sign when it is done.
        self.stock.stop();
    }
}

impl Stock {
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

    /// The worker: keeps the stock full until told to stop.
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
                        "could not make a network slot"
                    );
                    self.rest(backoff);
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// Whether a slot is to be made: waits until there is room for one, or it is time to stop.
    fn wait_for_room(&self) -> bool {
        let full = |state: &mut State| !state.stopping && state.ready.len() >= self.size;
        let state = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        !state.stopping
    }

    fn put(&self, slot: Slot) {
        let mut state = self.lock();
        // A slot that arrives after the end is dropped here, and vanishes.
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

/// Runs `make` on a thread of its own: it visits other namespaces, where no thread of the runtime may go.
async fn on_demand<T: Send + 'static>(
    make: impl FnOnce() -> Result<T, SlotError> + Send + 'static,
) -> Result<T, SlotError> {
    let failed = |source| SlotError { step: "start a thread that makes a slot", source };
    let (reply, answer) = oneshot::channel();
    let make = move || {
        // Whoever asked may be gone; what was made then vanishes with the answer.
        let _ = reply.send(make());
    };
    thread::Builder::new().name("burrow-slot".to_owned()).spawn(make).map_err(failed)?;
    answer.await.map_err(|_| failed(io::Error::other("it panicked")))?
}
