//! Machines that are booted once, for all that are like them.
//!
//! ```text
//!   make_template:   boot, up to where the first process waits for its boot message ─► dump ─► gone
//!   boot_template:   the dump's RAM, shared ─► devices ─► boot message: who it is, what time, its network ─► its report
//! ```
//!
//! A template has run nothing but the kernel and the agent, knows no token and has no name, so nothing of it must be
//! renewed: what comes of it is told who it is for the first time. It belongs to the disk that it was booted with, which
//! it has mounted: a machine made of it needs a copy of exactly that disk.

use burrow_model::{Limits, SandboxId};
use burrow_network::Attachment;
use std::path::PathBuf;

use super::about::About;
use super::agent::Settle;
use super::boot::{Parts, Started, boot_timeout, not_up};
use super::disk;
use super::model::Model;
use super::{MicrovmRuntime, Shared, step};
use crate::{Ability, BootOptions, DumpOptions, Dumped, Machine, RuntimeError};

#[derive(Debug)]
pub struct TemplateOptions {
    /// The directory with the disk, which the boot changes: it is the template's from then on.
    pub root: PathBuf,
    /// An empty directory for the dump.
    pub images: PathBuf,
    /// Of the machines that will be made of it: RAM and processors cannot be others.
    pub limits: Limits,
    pub attachment: Attachment,
}

/// A template, as it was made.
#[derive(Clone, Debug)]
pub struct Template {
    pub images: PathBuf,
    /// As [`MicrovmRuntime::make_template`] answered.
    pub about: String,
}

impl MicrovmRuntime {
    /// Boots a machine up to where it would be told who it is, writes it down, and ends it. `id` is of no sandbox; what is
    /// left under it after a crash, `destroy` removes.
    pub async fn make_template(
        &self,
        id: &SandboxId,
        options: TemplateOptions,
    ) -> Result<Dumped, RuntimeError> {
        self.check_available(id)?;
        self.work(id, move |shared, id| {
            let made = shared.make_template(id, options);
            shared.clean_up(id);
            made
        })
        .await
    }

    /// As [`crate::Runtime::boot`], from a template. `options.root` holds a copy of the template's disk.
    /// [`RuntimeError::Unfit`]: it must be booted from the start.
    pub async fn boot_template(
        &self,
        id: &SandboxId,
        options: BootOptions,
        template: Template,
    ) -> Result<Machine, RuntimeError> {
        self.check_available(id)?;
        self.work(id, move |shared, id| {
            let booted = shared.boot_template(id, options, &template);
            if booted.is_err() {
                shared.clean_up(id);
            }
            booted
        })
        .await
    }

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
    fn make_template(&self, id: &SandboxId, options: TemplateOptions) -> Result<Dumped, RuntimeError> {
        let TemplateOptions { root, images, limits, attachment } = options;
        let plug = super::boot::plug_of(id, attachment)?;
        self.destroy(id)?;
        let disk = disk::open(&root).map_err(step("open the disk", id))?;
        let model = Model::new(&limits, self.here.accelerator, self.here.tsc_khz);
        let parts = Parts { model: &model, limits: &limits, disk: &disk, plug: &*plug, ram: None };
        let Started { machine, state: _, said } = self.start(id, &parts)?;
        let timeout = boot_timeout(model.accelerator);
        // It answers as soon as it listens, and waits for its boot message then.
        let waits = self.session(id).with_agent(|agent| agent.hold(timeout));
        waits.map_err(|error| not_up(id, error, timeout, &said, ""))?;
        self.dump(id, &DumpOptions { machine, root, images })
    }

    fn boot_template(
        &self,
        id: &SandboxId,
        options: BootOptions,
        template: &Template,
    ) -> Result<Machine, RuntimeError> {
        let BootOptions { root, attachment, hostname, limits, boot_document } = options;
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
        let Started { machine, mut state, said } =
            self.revive(id, &about.model, &root, &template.images, &limits, &*plug)?;
        let mut session = self.session(id);
        session.go_on().map_err(step("start the machine", id))?;
        let settle = Settle { hostname: Some(hostname), pids: limits.pids, reset: false };
        let timeout = boot_timeout(about.model.accelerator);
        session
            .with_agent(|agent| agent.boot(&settle, &boot_document, timeout))
            .map_err(|error| not_up(id, error, timeout, &said, ""))?;
        session.grow(&mut state, limits.disk_mib).map_err(step("grow the disk", id))?;
        self.places.write_state(id, &state).map_err(step("write what the machine is", id))?;
        Ok(machine)
    }
}
