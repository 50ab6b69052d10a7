//! A driver that fails on demand, so that tests can walk every failure of an operation.
//!
//! Exactly one call fails, the one with the given number; the calls after it work again, because the undo that
//! follows a failure has to be able to succeed. A call can fail before it acts (nothing happened) or after it acted
//! (it happened, and nobody was told): the second is what a crash or a lost answer looks like from the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use burrow_model::SandboxId;

use crate::{Dial, Doors, Link, Network, NetworkError};

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
pub struct Faulty<N> {
    pub inner: N,
    fails: Fails,
    fail_at: u64,
    calls: AtomicU64,
}

impl<N> Faulty<N> {
    pub fn new(inner: N, fail_at: u64, fails: Fails) -> Self {
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
    call: impl Future<Output = Result<T, NetworkError>>,
) -> Result<T, NetworkError> {
    match fails {
        None => call.await,
        Some(Fails::BeforeActing) => Err(NetworkError::Injected),
        Some(Fails::AfterActing) => {
            call.await?;
            Err(NetworkError::Injected)
        }
    }
}

#[async_trait]
impl<N: Network> Network for Faulty<N> {
    async fn connect(&self, id: &SandboxId) -> Result<Link, NetworkError> {
        struck(self.strike(), self.inner.connect(id)).await
    }

    async fn adopt(&self, id: &SandboxId) -> Result<Option<Arc<dyn Dial>>, NetworkError> {
        struck(self.strike(), self.inner.adopt(id)).await
    }

    async fn doors(&self, id: &SandboxId) -> Result<Doors, NetworkError> {
        struck(self.strike(), self.inner.doors(id)).await
    }

    async fn release(&self, id: &SandboxId) -> Result<(), NetworkError> {
        struck(self.strike(), self.inner.release(id)).await
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, NetworkError> {
        struck(self.strike(), self.inner.inventory()).await
    }

    async fn shutdown(&self) {
        self.inner.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimNetwork;

    async fn connect_with(fails: Fails) -> (Result<Link, NetworkError>, Faulty<SimNetwork>, SandboxId) {
        let network = Faulty::new(SimNetwork::new(), 0, fails);
        let id = SandboxId::generate();
        (network.connect(&id).await, network, id)
    }

    #[tokio::test]
    async fn a_call_failing_before_it_acts_leaves_nothing() {
        let (answer, network, _) = connect_with(Fails::BeforeActing).await;
        assert!(matches!(answer, Err(NetworkError::Injected)));
        assert_eq!(network.inner.live(), []);
    }

    #[tokio::test]
    async fn a_call_failing_after_it_acted_leaves_what_the_engine_must_find_again() {
        let (answer, network, id) = connect_with(Fails::AfterActing).await;
        assert!(matches!(answer, Err(NetworkError::Injected)));
        assert_eq!(network.inner.live(), std::slice::from_ref(&id));
        network.release(&id).await.unwrap();
        assert_eq!(network.inner.live(), []);
        assert_eq!((network.calls(), network.has_failed()), (2, true));
    }
}
