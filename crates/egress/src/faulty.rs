//! A driver that fails on demand; see [`Fault`].

use std::os::fd::OwnedFd;

use async_trait::async_trait;
use burrow_model::{FailMode, Fault, SandboxId};
use tokio::sync::mpsc;

use crate::{BudgetLeft, Counters, Egress, EgressError, LogEntry, PendingApproval, Policy, Target, Trial};

/// Wraps a driver and fails one call, counted over all fallible methods.
#[derive(Debug)]
pub struct FaultyEgress<E> {
    pub inner: E,
    fault: Fault,
}

impl<E> FaultyEgress<E> {
    pub fn new(inner: E, fail_at: u64, fails: FailMode) -> Self {
        Self { inner, fault: Fault::new(fail_at, fails) }
    }

    /// The number of calls so far.
    pub fn calls(&self) -> u64 {
        self.fault.calls()
    }

    /// Whether the failure has happened.
    pub fn has_failed(&self) -> bool {
        self.fault.has_happened()
    }

    /// Ends a permanent failure.
    pub fn repair(&self) {
        self.fault.repair();
    }

    async fn run<T>(&self, call: impl Future<Output = Result<T, EgressError>>) -> Result<T, EgressError> {
        self.fault.run(EgressError::Injected, call).await
    }
}

#[async_trait]
impl<E: Egress> Egress for FaultyEgress<E> {
    async fn attach(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        self.run(self.inner.attach(id, policy)).await
    }

    async fn adopt(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        self.run(self.inner.adopt(id, policy)).await
    }

    async fn set_policy(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        self.run(self.inner.set_policy(id, policy)).await
    }

    async fn detach(&self, id: &SandboxId) -> Result<(), EgressError> {
        self.run(self.inner.detach(id)).await
    }

    async fn attached(&self) -> Result<Vec<SandboxId>, EgressError> {
        self.run(self.inner.attached()).await
    }

    async fn trial(&self, id: &SandboxId, target: &Target) -> Result<Trial, EgressError> {
        self.run(self.inner.trial(id, target)).await
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters, EgressError> {
        self.run(self.inner.counters(id)).await
    }

    fn epoch(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.epoch()
    }

    async fn approvals(&self, id: &SandboxId) -> Result<Vec<PendingApproval>, EgressError> {
        self.run(self.inner.approvals(id)).await
    }

    async fn decide(&self, id: &SandboxId, number: u64, yes: bool) -> Result<(), EgressError> {
        self.run(self.inner.decide(id, number, yes)).await
    }

    async fn budgets(&self, id: &SandboxId) -> Result<Vec<BudgetLeft>, EgressError> {
        self.run(self.inner.budgets(id)).await
    }

    async fn set_spool(&self, segment: OwnedFd) -> Result<(), EgressError> {
        self.run(self.inner.set_spool(segment)).await
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

    async fn attach_with(fails: FailMode) -> (Result<(), EgressError>, FaultyEgress<SimEgress>, SandboxId) {
        let egress = FaultyEgress::new(SimEgress::new(), 0, fails);
        let id = SandboxId::generate();
        (egress.attach(&id, &Policy::closed()).await, egress, id)
    }

    #[tokio::test]
    async fn a_call_that_fails_before_its_effect_leaves_nothing() {
        let (answer, egress, _) = attach_with(FailMode::BeforeActing).await;
        assert!(matches!(answer, Err(EgressError::Injected)));
        assert_eq!(egress.inner.live(), []);
    }

    #[tokio::test]
    async fn a_call_that_fails_after_its_effect_leaves_the_sandbox_attached() {
        let (answer, egress, id) = attach_with(FailMode::AfterActing).await;
        assert!(matches!(answer, Err(EgressError::Injected)));
        assert_eq!(egress.inner.live(), std::slice::from_ref(&id));
        egress.detach(&id).await.unwrap();
        assert_eq!(egress.inner.live(), []);
        assert_eq!((egress.calls(), egress.has_failed()), (2, true));
    }
}
