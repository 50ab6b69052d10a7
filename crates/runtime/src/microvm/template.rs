//! Machines that are booted once, for all that are like them.
//!
//! ```text
//!   make_template:   boot, up to where the first process waits for its boot message ─► dump ─► gone
//!   begin:           the dump's RAM, shared ─► devices ─► a rehearsal, if it is emulated ─► it stands still ─► finish
//!   boot_template:   the dump's RAM, shared ─► devices ─► boot message: who it is, what time, its network ─► its report
//! ```
//!
//! A template has run nothing but the kernel and the agent, knows no token and has no name, so nothing of it must be
//! renewed: what comes of it is told who it is for the first time. It belongs to the disk that it was booted with, which
//! it has mounted: a machine made of it needs a copy of exactly that disk.

use burrow_model::SandboxId;
use serde_json::json;

use super::about::About;
use super::agent::Settle;
use super::boot::{Parts, Started, boot_timeout, not_up};
use super::disk;
use super::model::{Accelerator, Model};
use super::{MicrovmRuntime, Shared, step};
use crate::{
    Ability, Begun, BootOptions, DumpOptions, Dumped, FinishOptions, Machine, RuntimeError, Template,
    TemplateOptions,
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
    ) -> Result<Dumped, RuntimeError> {
        let TemplateOptions { root, images, limits, attachment } = options;
        let plug = super::boot::plug_of(id, attachment)?;
        self.destroy(id)?;
        let disk = disk::open(&root, true).map_err(step("open the disk", id))?;
        let model = Model::new(&limits, self.here.accelerator, self.here.tsc_khz);
        let parts = Parts { model: &model, limits: &limits, disk: &disk, plug: &*plug, ram: None };
        let Started { machine, mut state, said } = self.start(id, &parts)?;
        state.disk_mib = disk::size_mib(&disk).map_err(step("look at the disk", id))?;
        let timeout = boot_timeout(model.accelerator);
        // It answers as soon as it listens, and waits for its boot message then.
        let mut session = self.session(id);
        let waits = session.with_agent(|agent| agent.hold(timeout));
        waits.map_err(|error| not_up(id, error, timeout, &said, ""))?;
        // Programs that were run once are in the RAM that all share.
        let rehearsed = session.with_agent(|agent| agent.rehearse(timeout));
        rehearsed.map_err(step("have the machine run a first command", id))?;
        // Once for all that come of it.
        session.grow(&mut state, limits.disk_mib).map_err(step("grow the disk", id))?;
        drop(session);
        self.dump(id, &DumpOptions { machine, root, images, mounts: Vec::new() })
    }

    /// A machine of a template, standing still, that waits for its boot message.
    fn revive_template(
        &self,
        id: &SandboxId,
        options: BootOptions,
        template: &Template,
    ) -> Result<Started, RuntimeError> {
        let BootOptions { root, attachment, hostname: _, limits, boot_document: _, template: _, mounts: _ } =
            options;
        let unfit = |reason| RuntimeError::Unfit { id: id.clone(), reason };
        let about = About::read(&template.about).map_err(unfit)?;
        if let Some(reason) = about.misfit(&self.here) {
            return Err(unfit(reason));
        }
        let wanted = Model::new(&limits, self.here.accelerator, about.model.tsc_khz);
        if wanted != about.model {
            return Err(unfit("the template has another size".to_owned()));
        }
        let plug = super::boot::plug_of(id, attachment)?;
        let started = self.revive(id, &about.model, &root, &template.images, &limits, &*plug)?;
        self.places.write_state(id, &started.state).map_err(step("write what the machine is", id))?;
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
        let Started { machine, state: _, said } = self.revive_template(id, options, template)?;
        self.tell(id, told, limits.disk_mib, |error, timeout| not_up(id, error, timeout, &said, ""))?;
        Ok(machine)
    }

    /// As far as a machine gets without knowing whose it will be: it stands still.
    pub(super) fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<Begun, RuntimeError> {
        let (root, hostname, template) =
            (options.root.clone(), options.hostname.clone(), options.template.clone());
        let Some(template) = template else { return Err(RuntimeError::NotAhead { id: id.clone() }) };
        let Started { machine, state, .. } = self.revive_template(id, options, &template)?;
        self.rehearse(id, state.model.accelerator)?;
        Ok(Begun { machine, hostname, root, socket: None })
    }

    /// Has an emulated machine run once what it will run when somebody waits for it: every emulator translates for itself.
    fn rehearse(&self, id: &SandboxId, accelerator: Accelerator) -> Result<(), RuntimeError> {
        if accelerator != Accelerator::Emulation {
            return Ok(());
        }
        let mut session = self.session(id);
        let rehearsed = session.go_on().and_then(|()| {
            session.with_agent(|agent| agent.rehearse(boot_timeout(accelerator)))?;
            session.run("stop", json!({})).map(drop)
        });
        rehearsed.map_err(step("have the machine run a first command", id))
    }

    pub(super) fn finish(
        &self,
        id: &SandboxId,
        begun: Begun,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        self.group_of(id, &begun.machine)?;
        self.tell(id, options, 0, |source, _| step("tell the machine who it is", id)(source))?;
        Ok(begun.machine)
    }

    /// Lets a machine that waits for its boot message run, and tells it who it is.
    fn tell(
        &self,
        id: &SandboxId,
        options: FinishOptions,
        disk_mib: u32,
        failed: impl FnOnce(std::io::Error, std::time::Duration) -> RuntimeError,
    ) -> Result<(), RuntimeError> {
        let FinishOptions { hostname, boot_document } = options;
        let mut state = self.places.state(id).map_err(step("read what the machine is", id))?;
        let mut session = self.session(id);
        session.go_on().map_err(step("start the machine", id))?;
        let settle = Settle { hostname: Some(hostname), pids: state.pids, reset: false };
        let timeout = boot_timeout(state.model.accelerator);
        let told = session.with_agent(|agent| agent.boot(&settle, &boot_document, timeout));
        told.map_err(|error| failed(error, timeout))?;
        let before = state.disk_mib;
        session.grow(&mut state, disk_mib).map_err(step("grow the disk", id))?;
        if state.disk_mib != before {
            self.places.write_state(id, &state).map_err(step("write what the machine is", id))?;
        }
        Ok(())
    }
}
