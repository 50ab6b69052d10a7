//! A driver that fails on demand, for walking every failure.
//!
//! The calls that act or answer about one sandbox are counted from 0, and the chosen one fails: either before the
//! driver has done anything, or after it has done all of it. A caller must cope with both, since an error never says
//! which of the two it was. `capabilities` is not counted, since it cannot fail, and `ended` is not, since watchers
//! call it at times of their own.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};

use crate::{Begun, BootOptions, Capabilities, FinishOptions, Incidents, Machine, Runtime, RuntimeError};

/// `inner`, but its `fail_at`-th call fails.
#[derive(Debug)]
pub struct Faulty<R> {
    pub inner: R,
    fail_at: u64,
    when: FailWhen,
    calls: AtomicU64,
}

/// On which side of the action the failure falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailWhen {
    /// Nothing has been done.
    Before,
    /// Everything has been done, and nobody was told.
    After,
}

impl<R> Faulty<R> {
    /// Both sides of the action, for loops over all failures.
    pub const SIDES: [FailWhen; 2] = [FailWhen::Before, FailWhen::After];

    pub fn new(inner: R, fail_at: u64, when: FailWhen) -> Self {
        Self { inner, fail_at, when, calls: AtomicU64::new(0) }
    }

    /// How many calls were counted: a walk is over when it is not above `fail_at`.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Counts one call and runs it, or not, or forgets its answer.
    async fn run<T>(&self, call: impl Future<Output = Result<T, RuntimeError>>) -> Result<T, RuntimeError> {
        let chosen = self.calls.fetch_add(1, Ordering::SeqCst) == self.fail_at;
        match (chosen, self.when) {
            (false, FailWhen::Before | FailWhen::After) => call.await,
            (true, FailWhen::Before) => Err(RuntimeError::Injected),
            (true, FailWhen::After) => {
                call.await?;
                Err(RuntimeError::Injected)
            }
        }
    }
}

#[async_trait]
impl<R: Runtime> Runtime for Faulty<R> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn prepare_image(&self, root: &Path) -> io::Result<()> {
        self.inner.prepare_image(root).await
    }

    async fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        self.run(self.inner.boot(id, options)).await
    }

    fn begins_ahead(&self) -> bool {
        self.inner.begins_ahead()
    }

    async fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<Begun, RuntimeError> {
        self.run(self.inner.begin(id, options)).await
    }

    async fn finish(
        &self,
        id: &SandboxId,
        begun: Begun,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        self.run(self.inner.finish(id, begun, options)).await
    }

    async fn adopt(&self, id: &SandboxId, machine: &Machine) -> Result<bool, RuntimeError> {
        self.run(self.inner.adopt(id, machine)).await
    }

    async fn ended(&self, machine: &Machine) -> Result<(), RuntimeError> {
        self.inner.ended(machine).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.run(self.inner.pause(id)).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.run(self.inner.resume(id)).await
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError> {
        self.run(self.inner.set_limits(id, limits)).await
    }

    async fn incidents(&self, id: &SandboxId) -> Result<Incidents, RuntimeError> {
        self.run(self.inner.incidents(id)).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.run(self.inner.destroy(id)).await
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        self.run(self.inner.inventory()).await
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use burrow_network::Attachment;

    use super::*;
    use crate::conformance::LIMITS;
    use crate::sim::Sim;

    fn options() -> BootOptions {
        BootOptions {
            root: PathBuf::from("/nowhere"),
            attachment: Attachment::None,
            hostname: "faulty".to_owned(),
            limits: LIMITS,
            boot_document: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_failure_before_the_action_leaves_nothing_and_one_after_it_leaves_everything() {
        for (when, live) in [(FailWhen::Before, 0), (FailWhen::After, 1)] {
            let faulty = Faulty::new(Sim::default(), 0, when);
            let error = faulty.boot(&SandboxId::generate(), options()).await.unwrap_err();
            assert!(matches!(error, RuntimeError::Injected), "{error}");
            assert_eq!(faulty.inner.live().len(), live, "{when:?}");
        }
    }

    #[tokio::test]
    async fn only_the_chosen_call_fails() {
        let faulty = Faulty::new(Sim::default(), 1, FailWhen::Before);
        let id = SandboxId::generate();
        faulty.boot(&id, options()).await.unwrap();
        assert!(faulty.pause(&id).await.is_err());
        faulty.pause(&id).await.unwrap();
        assert_eq!(faulty.calls(), 3);
    }
}
