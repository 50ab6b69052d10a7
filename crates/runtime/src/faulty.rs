//! A driver that fails on demand; see [`Fault`].
//!
//! It counts the calls that act on one sandbox or report about it. `capabilities` is not counted, since it cannot fail,
//! nor is `ended`, since watchers call it at arbitrary times.

use std::io;
use std::path::Path;

use async_trait::async_trait;
use burrow_model::{FailMode, Fault, Limits, SandboxId};

use crate::disks::{DiskAccess, OpenDisks, SendFn};
use crate::{
    BootOptions, Capabilities, DumpInfo, DumpOptions, FinishOptions, Incidents, Machine, Obstacle, OpenFile,
    OwnDisks, Precreate, PrecreatedMachine, RestoreOptions, RestoredKinds, Runtime, RuntimeError,
    TemplateOptions, Trials,
};

/// Wraps a driver and makes one call fail.
#[derive(Debug)]
pub struct FaultyRuntime<R> {
    pub inner: R,
    fault: Fault,
}

impl<R> FaultyRuntime<R> {
    pub fn new(inner: R, fail_at: u64, fails: FailMode) -> Self {
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

    async fn run<T>(&self, call: impl Future<Output = Result<T, RuntimeError>>) -> Result<T, RuntimeError> {
        self.fault.run(RuntimeError::Injected, call).await
    }
}

impl<R: Runtime> FaultyRuntime<R> {
    fn driver(&self) -> &dyn Runtime {
        &self.inner
    }
}

#[async_trait]
impl<R: Runtime> Runtime for FaultyRuntime<R> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn precreate(&self) -> Option<&dyn Precreate> {
        self.inner.precreate().map(|_| self as &dyn Precreate)
    }

    fn own_disks(&self) -> Option<&dyn OwnDisks> {
        self.inner.own_disks().map(|_| self as &dyn OwnDisks)
    }

    fn trials(&self) -> Option<&dyn Trials> {
        self.inner.trials().map(|_| self as &dyn Trials)
    }

    async fn prepare_image(&self, root: &Path) -> io::Result<()> {
        self.inner.prepare_image(root).await
    }

    async fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        self.run(self.inner.boot(id, options)).await
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

    async fn obstacles(&self, id: &SandboxId) -> Result<Vec<Obstacle>, RuntimeError> {
        self.run(self.inner.obstacles(id)).await
    }

    async fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.run(self.inner.dump_bytes(id)).await
    }

    async fn dump(&self, id: &SandboxId, options: DumpOptions) -> Result<DumpInfo, RuntimeError> {
        self.run(self.inner.dump(id, options)).await
    }

    async fn restore(&self, id: &SandboxId, options: RestoreOptions) -> Result<Machine, RuntimeError> {
        self.run(self.inner.restore(id, options)).await
    }

    async fn prepare_moved(&self, root: &std::path::Path, keeps_agent: bool) -> std::io::Result<()> {
        self.inner.prepare_moved(root, keeps_agent).await
    }

    async fn misfit(&self, about: &str) -> Option<String> {
        self.inner.misfit(about).await
    }

    async fn recover(&self, id: &SandboxId, machine: &Machine, paused: bool) -> Result<(), RuntimeError> {
        self.run(self.inner.recover(id, machine, paused)).await
    }

    async fn cpu_us(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.run(self.inner.cpu_us(id)).await
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError> {
        self.run(self.inner.set_limits(id, limits)).await
    }

    async fn set_disk_rate(&self, id: &SandboxId, bytes_per_second: Option<u64>) -> Result<(), RuntimeError> {
        self.run(self.inner.set_disk_rate(id, bytes_per_second)).await
    }

    async fn incidents(&self, id: &SandboxId) -> Result<Incidents, RuntimeError> {
        self.run(self.inner.incidents(id)).await
    }

    async fn open_files(&self, id: &SandboxId) -> Result<Vec<OpenFile>, RuntimeError> {
        self.run(self.inner.open_files(id)).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.run(self.inner.destroy(id)).await
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        self.run(self.inner.inventory()).await
    }
}

#[async_trait]
impl<R: Runtime> Precreate for FaultyRuntime<R> {
    async fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<PrecreatedMachine, RuntimeError> {
        self.run(self.driver().needs_precreate(id)?.begin(id, options)).await
    }

    async fn finish(
        &self,
        id: &SandboxId,
        begun: PrecreatedMachine,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        self.run(self.driver().needs_precreate(id)?.finish(id, begun, options)).await
    }
}

#[async_trait]
impl<R: Runtime> OwnDisks for FaultyRuntime<R> {
    async fn make_disk(&self, tree: &Path, into: &Path) -> io::Result<()> {
        match self.inner.own_disks() {
            Some(disks) => disks.make_disk(tree, into).await,
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn template_kind(&self, limits: &Limits) -> Option<String> {
        self.inner.own_disks()?.template_kind(limits)
    }

    async fn make_template(
        &self,
        id: &SandboxId,
        options: TemplateOptions,
    ) -> Result<DumpInfo, RuntimeError> {
        self.run(self.driver().needs_own_disks()?.make_template(id, options)).await
    }

    async fn settle_files(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.run(self.driver().needs_own_disks()?.settle_files(id)).await
    }

    async fn open_disks(&self, options: OpenDisks) -> Result<Box<dyn DiskAccess>, RuntimeError> {
        self.run(self.driver().needs_own_disks()?.open_disks(options)).await
    }

    async fn change_files(&self, id: &SandboxId, give: SendFn) -> Result<(), RuntimeError> {
        self.run(self.driver().needs_own_disks()?.change_files(id, give)).await
    }
}

#[async_trait]
impl<R: Runtime> Trials for FaultyRuntime<R> {
    async fn untried(&self, id: &SandboxId, images: &Path) -> Result<Vec<String>, RuntimeError> {
        match self.inner.trials() {
            Some(trials) => self.run(trials.untried(id, images)).await,
            None => Ok(Vec::new()),
        }
    }

    fn restored_kinds(&self) -> Option<RestoredKinds> {
        self.inner.trials()?.restored_kinds()
    }

    fn recall_kinds(&self, record: RestoredKinds) -> bool {
        self.inner.trials().is_some_and(|trials| trials.recall_kinds(record))
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
            template: None,
            mounts: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_failure_before_the_action_has_no_effect_and_one_after_it_has_all() {
        for (when, live) in [(FailMode::BeforeActing, 0), (FailMode::AfterActing, 1)] {
            let faulty = FaultyRuntime::new(Sim::default(), 0, when);
            let error = faulty.boot(&SandboxId::generate(), options()).await.unwrap_err();
            assert!(matches!(error, RuntimeError::Injected), "{error}");
            assert_eq!(faulty.inner.live().len(), live, "{when:?}");
        }
    }

    #[tokio::test]
    async fn only_the_chosen_call_fails() {
        let faulty = FaultyRuntime::new(Sim::default(), 1, FailMode::BeforeActing);
        let id = SandboxId::generate();
        faulty.boot(&id, options()).await.unwrap();
        assert!(faulty.pause(&id).await.is_err());
        faulty.pause(&id).await.unwrap();
        assert_eq!(faulty.calls(), 3);
    }

    /// A failure after the action has the effects of the call: a paused machine, or a new machine.
    #[tokio::test]
    async fn dumps_and_restores_fail_before_and_after_they_act() {
        for (when, acted) in [(FailMode::BeforeActing, false), (FailMode::AfterActing, true)] {
            let faulty = FaultyRuntime::new(Sim::default(), 1, when);
            let id = SandboxId::generate();
            let machine = faulty.boot(&id, options()).await.unwrap();
            let (root, images) = (PathBuf::from("/nowhere"), PathBuf::from("/nowhere"));
            let dump =
                DumpOptions { machine, root: root.clone(), images: images.clone(), mounts: Vec::new() };
            faulty.dump(&id, dump.clone()).await.unwrap_err();
            assert_eq!(faulty.inner.machine(&id).unwrap().paused, acted, "{when:?}");

            let about = faulty.dump(&id, dump).await.unwrap().about;
            let faulty = FaultyRuntime::new(Sim::default(), 0, when);
            let attachment = Attachment::None;
            let restore = RestoreOptions {
                root,
                images,
                about,
                attachment,
                limits: LIMITS,
                hostname: None,
                mounts: Vec::new(),
                introduce: None,
                trial: false,
            };
            faulty.restore(&id, restore).await.unwrap_err();
            assert_eq!(faulty.inner.live().len(), usize::from(acted), "{when:?}");
        }
    }
}
