//! A driver that fails on demand; see [`Fault`].
//!
//! It counts the calls that act on one sandbox or report about it. `capabilities` is not counted, since it cannot fail,
//! nor is `ended`, since watchers call it at arbitrary times.

use std::io;
use std::path::Path;

use async_trait::async_trait;
use burrow_model::{Fails, Fault, Limits, SandboxId};

use crate::disks::{DiskAccess, Give, OpenDisks};
use crate::{
    Begun, BootOptions, Capabilities, DumpOptions, Dumped, FinishOptions, Form, Incidents, Machine, Obstacle,
    OpenFile, RestoreOptions, RestoredKinds, Runtime, RuntimeError, TemplateOptions,
};

/// Wraps a driver and makes one call fail.
#[derive(Debug)]
pub struct Faulty<R> {
    pub inner: R,
    fault: Fault,
}

impl<R> Faulty<R> {
    pub fn new(inner: R, fail_at: u64, fails: Fails) -> Self {
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

    fn form(&self) -> Form {
        self.inner.form()
    }

    async fn make_disk(&self, tree: &Path, into: &Path) -> io::Result<()> {
        self.inner.make_disk(tree, into).await
    }

    fn template_kind(&self, limits: &Limits) -> Option<String> {
        self.inner.template_kind(limits)
    }

    async fn make_template(&self, id: &SandboxId, options: TemplateOptions) -> Result<Dumped, RuntimeError> {
        self.run(self.inner.make_template(id, options)).await
    }

    async fn settle_files(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.run(self.inner.settle_files(id)).await
    }

    async fn open_disks(&self, options: OpenDisks) -> Result<Box<dyn DiskAccess>, RuntimeError> {
        self.run(self.inner.open_disks(options)).await
    }

    async fn change_files(&self, id: &SandboxId, give: Give) -> Result<(), RuntimeError> {
        self.run(self.inner.change_files(id, give)).await
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

    async fn obstacles(&self, id: &SandboxId) -> Result<Vec<Obstacle>, RuntimeError> {
        self.run(self.inner.obstacles(id)).await
    }

    async fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.run(self.inner.dump_bytes(id)).await
    }

    async fn dump(&self, id: &SandboxId, options: DumpOptions) -> Result<Dumped, RuntimeError> {
        self.run(self.inner.dump(id, options)).await
    }

    async fn untried(&self, id: &SandboxId, images: &Path) -> Result<Vec<String>, RuntimeError> {
        self.run(self.inner.untried(id, images)).await
    }

    fn restored_kinds(&self) -> Option<RestoredKinds> {
        self.inner.restored_kinds()
    }

    fn recall_kinds(&self, record: RestoredKinds) -> bool {
        self.inner.recall_kinds(record)
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
        for (when, live) in [(Fails::BeforeActing, 0), (Fails::AfterActing, 1)] {
            let faulty = Faulty::new(Sim::default(), 0, when);
            let error = faulty.boot(&SandboxId::generate(), options()).await.unwrap_err();
            assert!(matches!(error, RuntimeError::Injected), "{error}");
            assert_eq!(faulty.inner.live().len(), live, "{when:?}");
        }
    }

    #[tokio::test]
    async fn only_the_chosen_call_fails() {
        let faulty = Faulty::new(Sim::default(), 1, Fails::BeforeActing);
        let id = SandboxId::generate();
        faulty.boot(&id, options()).await.unwrap();
        assert!(faulty.pause(&id).await.is_err());
        faulty.pause(&id).await.unwrap();
        assert_eq!(faulty.calls(), 3);
    }

    /// A failure after the action has the effects of the call: a paused machine, or a new machine.
    #[tokio::test]
    async fn dumps_and_restores_fail_before_and_after_they_act() {
        for (when, acted) in [(Fails::BeforeActing, false), (Fails::AfterActing, true)] {
            let faulty = Faulty::new(Sim::default(), 1, when);
            let id = SandboxId::generate();
            let machine = faulty.boot(&id, options()).await.unwrap();
            let (root, images) = (PathBuf::from("/nowhere"), PathBuf::from("/nowhere"));
            let dump =
                DumpOptions { machine, root: root.clone(), images: images.clone(), mounts: Vec::new() };
            faulty.dump(&id, dump.clone()).await.unwrap_err();
            assert_eq!(faulty.inner.machine(&id).unwrap().paused, acted, "{when:?}");

            let about = faulty.dump(&id, dump).await.unwrap().about;
            let faulty = Faulty::new(Sim::default(), 0, when);
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
