//! One failure on demand, so that tests can walk every failure of an operation.
//!
//! Every seam has a `Faulty` driver that counts its calls by one of these. Exactly one call fails, the one with the given
//! number; the calls after it work again, because the undo that follows a failure has to be able to succeed. A call can
//! fail before it acts (nothing happened) or after it acted (it happened, and nobody was told): the second is what a
//! crash or a lost answer looks like from the engine, and only it finds an undo that forgets what was made.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether the failing call does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    /// Nothing has been done.
    BeforeActing,
    /// All has been done, and the answer is lost.
    AfterActing,
}

/// Fails the call numbered `fail_at`, counted from 0.
#[derive(Debug)]
pub struct Fault {
    fails: Fails,
    fail_at: u64,
    calls: AtomicU64,
}

impl Fault {
    pub fn new(fail_at: u64, fails: Fails) -> Self {
        Self { fails, fail_at, calls: AtomicU64::new(0) }
    }

    /// How many calls were counted so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Whether the failure has happened. A walk ends with the first run that did not meet it.
    pub fn has_happened(&self) -> bool {
        self.calls() > self.fail_at
    }

    /// Counts one call and runs it; or does not; or runs it and forgets its answer.
    pub async fn run<T, E>(&self, injected: E, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let chosen = self.calls.fetch_add(1, Ordering::SeqCst) == self.fail_at;
        match (chosen, self.fails) {
            (false, Fails::BeforeActing | Fails::AfterActing) => call.await,
            (true, Fails::BeforeActing) => Err(injected),
            (true, Fails::AfterActing) => {
                call.await?;
                Err(injected)
            }
        }
    }
}
