//! Templates: machines that are booted once, and from which others are created.
//!
//! ```text
//!   make_template:   boot, until the first process waits for its boot message ─► dump ─► ended
//!   begin:           the dump's RAM, shared ─► devices ─► warm-up, if it is emulated ─► paused ─► finish
//!   boot_template:   the dump's RAM, shared ─► devices ─► boot message: identity, time, network ─► its report
//! ```
//!
//! A template has run nothing but the kernel and the agent, and has no token and no name, so nothing in it must be
//! renewed: a machine created from it receives an identity for the first time. A template belongs to the disk with
//! which it was booted and which it has mounted: a machine created from it needs a copy of exactly that disk.

use burrow_model::SandboxId;
use serde_json::json;

use super::MicrovmRuntime;
use super::agent::SettleRequest;
use super::boot::{EmulatorParts, StartedEmulator, boot_failure, boot_timeout};
use super::compatibility::DumpOrigin;
use super::disk;
use super::model::{Accelerator, Model};
use super::shared_state::{Shared, step};
use crate::{
    Ability, BootOptions, DumpInfo, DumpOptions, FinishOptions, Machine, PrecreatedMachine, RuntimeError,
    Template, TemplateOptions,
};

impl MicrovmRuntime {
    pub(super) fn check_available(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        match &self.capabilities.available {
            Ability::Yes => Ok(()),
            Ability::No { reason, .. } => {
                let step = "run microVMs on this host".to_owned();
                Err(RuntimeError::Boot { id: id.clone(), step, message: reason.clone() })
            }
        }
    }
}

impl Shared {
    pub(super) fn make_template(
        &self,
        id: &SandboxId,
        options: TemplateOptions,
    ) -> Result<DumpInfo, RuntimeError> {
        let TemplateOptions { root, images, limits, attachment } = options;
        let plug = super::boot::plug_of(id, attachment)?;
        self.destroy(id)?;
        let disk = disk::open(&root, true).map_err(step("open the disk", id))?;
        let model = Model::new(&limits, self.here.accelerator, self.here.tsc_khz);
        let parts = EmulatorParts { model: &model, limits: &limits, disk: &disk, plug: &*plug, ram: None };
        let StartedEmulator { machine, mut state, said } = self.start(id, &parts)?;
        state.disk_mib = disk::size_mib(&disk).map_err(step("read the size of the disk", id))?;
        let timeout = boot_timeout(model.accelerator);
        // It answers as soon as it listens, and then waits for its boot message.
        let mut session = self.session(id);
        let waits = session.with_agent(|agent| agent.hold(timeout));
        waits.map_err(|error| boot_failure(id, error, timeout, &said, ""))?;
        // Programs that ran once are in the RAM that all machines share.
        let rehearsed = session.with_agent(|agent| agent.rehearse(timeout));
        rehearsed.map_err(step("warm up the machine", id))?;
        // Once for all machines that are created from it.
        session.grow(&mut state, limits.disk_mib).map_err(step("grow the disk", id))?;
        drop(session);
        self.dump(id, &DumpOptions { machine, root, images, mounts: Vec::new() })
    }

    /// A paused machine created from a template, which waits for its boot message.
    fn revive_template(
        &self,
        id: &SandboxId,
        options: BootOptions,
        template: &Template,
    ) -> Result<StartedEmulator, RuntimeError> {
        let BootOptions { root, attachment, hostname: _, limits, boot_document: _, template: _, mounts: _ } =
            options;
        let unfit = |reason| RuntimeError::Unfit { id: id.clone(), reason };
        let about = DumpOrigin::read(&template.about).map_err(unfit)?;
        if let Some(reason) = about.misfit(&self.here) {
            return Err(unfit(reason));
        }
        let wanted = Model::new(&limits, self.here.accelerator, about.model.tsc_khz);
        if wanted != about.model {
            return Err(unfit("the template has a different size".to_owned()));
        }
        let plug = super::boot::plug_of(id, attachment)?;
        let started = self.revive(id, &about.model, &root, &template.images, &limits, &*plug)?;
        self.run_dir.write_state(id, &started.state).map_err(step("write the machine's state", id))?;
        Ok(started)
    }

    pub(super) fn boot_template(
        &self,
        id: &SandboxId,
        options: BootOptions,
        template: &Template,
    ) -> Result<Machine, RuntimeError> {
        let told = FinishOptions {
            hostname: options.hostname.clone(),
            boot_document: options.boot_document.clone(),
        };
        let limits = options.limits;
        let StartedEmulator { machine, state: _, said } = self.revive_template(id, options, template)?;
        self.send_identity(id, told, limits.disk_mib, |error, timeout| {
            boot_failure(id, error, timeout, &said, "")
        })?;
        Ok(machine)
    }

    /// Prepares a machine as far as possible without its identity, and leaves it paused.
    pub(super) fn begin(
        &self,
        id: &SandboxId,
        options: BootOptions,
    ) -> Result<PrecreatedMachine, RuntimeError> {
        let (root, hostname, template) =
            (options.root.clone(), options.hostname.clone(), options.template.clone());
        let Some(template) = template else { return Err(RuntimeError::NotPrecreated { id: id.clone() }) };
        let StartedEmulator { machine, state, .. } = self.revive_template(id, options, &template)?;
        self.rehearse(id, state.model.accelerator)?;
        Ok(PrecreatedMachine { machine, hostname, root, socket: None })
    }

    /// Makes an emulated machine run once the code that it will run for a client: each emulator translates for itself.
    fn rehearse(&self, id: &SandboxId, accelerator: Accelerator) -> Result<(), RuntimeError> {
        if accelerator != Accelerator::Emulation {
            return Ok(());
        }
        let mut session = self.session(id);
        let rehearsed = session.resume_machine().and_then(|()| {
            session.with_agent(|agent| agent.rehearse(boot_timeout(accelerator)))?;
            session.run("stop", json!({})).map(drop)
        });
        rehearsed.map_err(step("warm up the machine", id))
    }

    pub(super) fn finish(
        &self,
        id: &SandboxId,
        begun: PrecreatedMachine,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        self.group_of(id, &begun.machine)?;
        self.send_identity(id, options, 0, |source, _| step("send the machine its identity", id)(source))?;
        Ok(begun.machine)
    }

    /// Lets a machine that waits for its boot message run, and sends it its identity.
    fn send_identity(
        &self,
        id: &SandboxId,
        options: FinishOptions,
        disk_mib: u32,
        failed: impl FnOnce(std::io::Error, std::time::Duration) -> RuntimeError,
    ) -> Result<(), RuntimeError> {
        let FinishOptions { hostname, boot_document } = options;
        let mut state = self.run_dir.state(id).map_err(step("read the machine's state", id))?;
        let mut session = self.session(id);
        session.resume_machine().map_err(step("start the machine", id))?;
        let settle = SettleRequest { hostname: Some(hostname), pids: state.pids, reset: false };
        let timeout = boot_timeout(state.model.accelerator);
        let told = session.with_agent(|agent| agent.boot(&settle, &boot_document, timeout));
        told.map_err(|error| failed(error, timeout))?;
        let before = state.disk_mib;
        session.grow(&mut state, disk_mib).map_err(step("grow the disk", id))?;
        if state.disk_mib != before {
            self.run_dir.write_state(id, &state).map_err(step("write the machine's state", id))?;
        }
        Ok(())
    }
}
