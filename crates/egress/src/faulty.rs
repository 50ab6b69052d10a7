//! A driver that fails on demand, so that tests can walk every failure of an operation.
//!
//! Exactly one call fails, the one with the given number; the calls after it work again, because the undo that
//! follows a failure has to be able to succeed. A call can fail before it acts (nothing happened) or after it acted
//! (it happened, and nobody was told): the second is what a crash or a lost answer looks like from the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use burrow_model::SandboxId;
use tokio::sync::mpsc;

use crate::{Counters, Egress, EgressError, LogEntry, Policy, Target, Trial};

/// Whether the failing call does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    /// Nothing has been done.
    BeforeActing,
    /// All has been done, and the answer is lost.
    AfterActing,
}

/// Wraps a driver and fails the call numbered `fail_at`, counted from 0 over all fallible methods.
#[derive(Debug)]
pub struct Faulty<E> {
    pub inner: E,
    fails: Fails,
    fail_at: u64,
    calls: AtomicU64,
}

impl<E> Faulty<E> {
    pub fn new(inner: E, fail_at: u64, fails: Fails) -> Self {
        Self { inner, fails, fail_at, calls: AtomicU64::new(0) }
    }

    /// How many calls were made so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Whether the failure has happened. A walk ends with the first run that did not meet it.
    pub fn has_failed(&self) -> bool {
        self.calls() > self.fail_at
    }

    /// The fault of this call, if it is the chosen one.
    fn strike(&self) -> Option<Fails> {
        (self.calls.fetch_add(1, Ordering::SeqCst) == self.fail_at).then_some(self.fails)
    }
}

/// Runs one call of the wrapped driver, or the fault it was chosen for.
async fn struck<T>(
    fails: Option<Fails>,
    call: impl Future<Output = Result<T, EgressError>>,
) -> Result<T, EgressError> {
    match fails {
        None => call.await,
        Some(Fails::BeforeActing) => Err(EgressError::Injected),
        Some(Fails::AfterActing) => {
            call.await?;
            Err(EgressError::Injected)
        }
    }
}

#[async_trait]
impl<E: Egress> Egress for Faulty<E> {
    async fn attach(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        struck(self.strike(), self.inner.attach(id, policy)).await
    }

    async fn adopt(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        struck(self.strike(), self.inner.adopt(id, policy)).await
    }

    async fn set_policy(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        struck(self.strike(), self.inner.set_policy(id, policy)).await
    }

    async fn detach(&self, id: &SandboxId) -> Result<(), EgressError> {
        struck(self.strike(), self.inner.detach(id)).await
    }

    async fn attached(&self) -> Result<Vec<SandboxId>, EgressError> {
        struck(self.strike(), self.inner.attached()).await
    }

    async fn trial(&self, id: &SandboxId, target: &Target) -> Result<Trial, EgressError> {
        struck(self.strike(), self.inner.trial(id, target)).await
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters, EgressError> {
        struck(self.strike(), self.inner.counters(id)).await
    }

    fn log(&self) -> Option<mpsc::Receiver<LogEntry>> {
        self.inner.log()
    }

    async fn shutdown(&self) {
        self.inner.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimEgress;

    async fn attach_with(fails: Fails) -> (Result<(), EgressError>, Faulty<SimEgress>, SandboxId) {
        let egress = Faulty::new(SimEgress::new(), 0, fails);
        let id = SandboxId::generate();
        (egress.attach(&id, &Policy::closed()).await, egress, id)
    }

    #[tokio::test]
    async fn a_call_failing_before_it_acts_leaves_nothing() {
        let (answer, egress, _) = attach_with(Fails::BeforeActing).await;
        assert!(matches!(answer, Err(EgressError::Injected)));
        assert_eq!(egress.inner.live(), []);
    }

    #[tokio::test]
    async fn a_call_failing_after_it_acted_leaves_what_the_engine_must_find_again() {
        let (answer, egress, id) = attach_with(Fails::AfterActing).await;
        assert!(matches!(answer, Err(EgressError::Injected)));
        assert_eq!(egress.inner.live(), std::slice::from_ref(&id));
        egress.detach(&id).await.unwrap();
        assert_eq!(egress.inner.live(), []);
        assert_eq!((egress.calls(), egress.has_failed()), (2, true));
    }
}
