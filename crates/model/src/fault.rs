//! One failure on demand, so that tests can walk every failure of an operation.
//!
//! Every seam has a `Faulty` driver that counts its calls by one of these. The call with the given number fails; the calls
//! after it work again, so that the undo that follows a failure can succeed. A call can fail before it acts (nothing
//! happened) or after it acted (it happened, and the answer is lost): the second is what a crash looks like from the
//! engine, and only it finds an undo that forgets what was made. A lasting failure fails every call from that one on until
//! it is repaired, as a full disk does: then no undo succeeds either.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether the failing call does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    /// Nothing has been done.
    BeforeActing,
    /// All has been done, and the answer is lost.
    AfterActing,
    /// Nothing is done, by this call and all that follow, until [`Fault::repair`].
    FromThenOn,
}

/// Fails the call numbered `fail_at`, counted from 0.
#[derive(Debug)]
pub struct Fault {
    fails: Fails,
    fail_at: u64,
    calls: AtomicU64,
    repaired: AtomicBool,
}

impl Fault {
    pub fn new(fail_at: u64, fails: Fails) -> Self {
        Self { fails, fail_at, calls: AtomicU64::new(0), repaired: AtomicBool::new(false) }
    }

    /// How many calls were counted so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Whether the failure has happened. A walk ends with the first run that did not meet it.
    pub fn has_happened(&self) -> bool {
        self.calls() > self.fail_at
    }

    /// Ends a lasting failure.
    pub fn repair(&self) {
        self.repaired.store(true, Ordering::SeqCst);
    }

    /// Counts one call and runs it; or does not; or runs it and forgets its answer.
    pub async fn run<T, E>(&self, injected: E, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let chosen = match self.fails {
            Fails::BeforeActing | Fails::AfterActing => number == self.fail_at,
            Fails::FromThenOn => number >= self.fail_at && !self.repaired.load(Ordering::SeqCst),
        };
        match self.fails {
            _ if !chosen => call.await,
            Fails::BeforeActing | Fails::FromThenOn => Err(injected),
            Fails::AfterActing => {
                call.await?;
                Err(injected)
            }
        }
    }
}
