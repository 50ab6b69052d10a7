//! A driver that fails on demand; see [`Fault`].

use std::os::fd::OwnedFd;
use std::sync::Arc;

use async_trait::async_trait;
use burrow_model::{FailMode, Fault, SandboxId};

use crate::{Dial, Link, Listeners, Network, NetworkError, Rate};

/// Wraps a driver and makes one call fail, counted over all fallible methods.
#[derive(Debug)]
pub struct FaultyNetwork<N> {
    pub inner: N,
    fault: Fault,
}

impl<N> FaultyNetwork<N> {
    pub fn new(inner: N, fail_at: u64, fails: FailMode) -> Self {
        Self { inner, fault: Fault::new(fail_at, fails) }
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.fault.calls()
    }

    /// Whether the failure has happened.
    pub fn has_failed(&self) -> bool {
        self.fault.has_happened()
    }

    /// Ends a lasting failure.
    pub fn repair(&self) {
        self.fault.repair();
    }

    async fn run<T>(&self, call: impl Future<Output = Result<T, NetworkError>>) -> Result<T, NetworkError> {
        self.fault.run(NetworkError::Injected, call).await
    }
}

#[async_trait]
impl<N: Network> Network for FaultyNetwork<N> {
    async fn connect(&self, id: &SandboxId) -> Result<Link, NetworkError> {
        self.run(self.inner.connect(id)).await
    }

    async fn connect_later(&self, id: &SandboxId) -> Result<Link, NetworkError> {
        self.run(self.inner.connect_later(id)).await
    }

    async fn adopt(&self, id: &SandboxId) -> Result<Option<Arc<dyn Dial>>, NetworkError> {
        self.run(self.inner.adopt(id)).await
    }

    async fn listeners(&self, id: &SandboxId) -> Result<Listeners, NetworkError> {
        self.run(self.inner.listeners(id)).await
    }

    async fn own_listener(&self, id: &SandboxId) -> Result<OwnedFd, NetworkError> {
        self.run(self.inner.own_listener(id)).await
    }

    async fn set_rate(&self, id: &SandboxId, rate: Option<Rate>) -> Result<(), NetworkError> {
        self.run(self.inner.set_rate(id, rate)).await
    }

    async fn release(&self, id: &SandboxId) -> Result<(), NetworkError> {
        self.run(self.inner.release(id)).await
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, NetworkError> {
        self.run(self.inner.inventory()).await
    }

    async fn shutdown(&self) {
        self.inner.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimNetwork;

    async fn connect_with(
        fails: FailMode,
    ) -> (Result<Link, NetworkError>, FaultyNetwork<SimNetwork>, SandboxId) {
        let network = FaultyNetwork::new(SimNetwork::new(), 0, fails);
        let id = SandboxId::generate();
        (network.connect(&id).await, network, id)
    }

    #[tokio::test]
    async fn a_call_that_fails_before_it_acts_leaves_nothing() {
        let (answer, network, _) = connect_with(FailMode::BeforeActing).await;
        assert!(matches!(answer, Err(NetworkError::Injected)));
        assert_eq!(network.inner.live(), []);
    }

    #[tokio::test]
    async fn a_call_that_fails_after_it_acted_leaves_a_network_that_recovery_finds() {
        let (answer, network, id) = connect_with(FailMode::AfterActing).await;
        assert!(matches!(answer, Err(NetworkError::Injected)));
        assert_eq!(network.inner.live(), std::slice::from_ref(&id));
        network.release(&id).await.unwrap();
        assert_eq!(network.inner.live(), []);
        assert_eq!((network.calls(), network.has_failed()), (2, true));
    }
}
