//! Fails one call on demand, so that tests can cover every failure of an operation.
//!
//! Every seam has a `Faulty` driver that counts its calls with a [`Fault`]. The call with the given number fails; later
//! calls work again, so that the undo after the failure can succeed. A call can fail before it acts (nothing happened) or
//! after it acted (it happened, and the result is lost). The second is how a crash appears to the engine, and only
//! it finds an undo that misses something that was created. A lasting failure, such as a full disk, fails every call from
//! that one on until it is repaired: then no undo succeeds either.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether the failing call does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailMode {
    /// Nothing was done.
    BeforeActing,
    /// Everything was done, and the result is lost.
    AfterActing,
    /// This call and all later ones do nothing, until [`Fault::repair`].
    FromThenOn,
}

/// Fails the call numbered `fail_at`, counted from 0.
#[derive(Debug)]
pub struct Fault {
    fails: FailMode,
    fail_at: u64,
    calls: AtomicU64,
    repaired: AtomicBool,
}

impl Fault {
    pub fn new(fail_at: u64, fails: FailMode) -> Self {
        Self { fails, fail_at, calls: AtomicU64::new(0), repaired: AtomicBool::new(false) }
    }

    /// How many calls were counted so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Whether the failure has happened. A test that fails each call in turn is complete when this is false after a run.
    pub fn has_happened(&self) -> bool {
        self.calls() > self.fail_at
    }

    /// Ends a lasting failure.
    pub fn repair(&self) {
        self.repaired.store(true, Ordering::SeqCst);
    }

    /// Counts one call and runs it, skips it, or runs it and drops its result.
    pub async fn run<T, E>(&self, injected: E, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let chosen = match self.fails {
            FailMode::BeforeActing | FailMode::AfterActing => number == self.fail_at,
            FailMode::FromThenOn => number >= self.fail_at && !self.repaired.load(Ordering::SeqCst),
        };
        match self.fails {
            _ if !chosen => call.await,
            FailMode::BeforeActing | FailMode::FromThenOn => Err(injected),
            FailMode::AfterActing => {
                call.await?;
                Err(injected)
            }
        }
    }
}
