//! From options to a machine whose agent listens.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use burrow_model::{Limits, SandboxId};
use burrow_network::linux::random_owner;
use burrow_network::{Attachment, Plug};

use super::agent::{Refused, Settle};
use super::disk;
use super::model::{self, Accelerator, Model, Start};
use super::place::{Socket, State};
use super::qmp::Qmp;
use super::{Shared, step};
use crate::cgroup::Group;
use crate::launcher::{EmulatorPlan, LaunchError, Launched};
use crate::process::Process;
use crate::{BootOptions, Machine, RuntimeError};

/// An emulated machine is up within three seconds on an idle host; on one where dozens start at once, within minutes.
const EMULATED_BOOT_TIMEOUT: Duration = Duration::from_secs(180);
const BOOT_TIMEOUT: Duration = Duration::from_secs(30);

/// Of what an emulator says when it does not start.
const SAID_BYTES_MAX: u64 = 4096;

/// What an emulator is started with.
pub(super) struct Parts<'a> {
    pub(super) model: &'a Model,
    pub(super) limits: &'a Limits,
    pub(super) disk: &'a File,
    pub(super) plug: &'a dyn Plug,
    /// The RAM it starts from; `None`: it boots.
    pub(super) ram: Option<PathBuf>,
}

/// An emulator that has greeted.
pub(super) struct Started {
    pub(super) machine: Machine,
    pub(super) state: State,
    pub(super) said: Said,
}

/// Where an emulator says what is wrong, until nobody listens any more.
pub(super) struct Said(OwnedFd);

impl Shared {
    pub(super) fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        self.cleaned(id, |shared| shared.try_boot(id, options))
    }

    /// After a failure whose reason is worth more than one for the clean-up, which `destroy` repeats anyway.
    pub(super) fn clean_up(&self, id: &SandboxId) {
        if let Err(left) = self.destroy(id) {
            tracing::warn!(%id, error = &left as &dyn std::error::Error, "a failed start left something behind");
        }
    }

    fn try_boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        let BootOptions { root, attachment, hostname, limits, boot_document, template: _, mounts: _ } =
            options;
        let Attachment::Later(plug) = attachment else {
            let message = "a microVM needs a gateway to plug its card into".to_owned();
            return Err(RuntimeError::Boot {
                id: id.clone(),
                step: "plug in the network".to_owned(),
                message,
            });
        };
        self.destroy(id)?;
        let disk = disk::open(&root, true).map_err(step("open the disk", id))?;
        let has_mib = disk::size_mib(&disk).map_err(step("look at the disk", id))?;
        let model = Model::new(&limits, self.here.accelerator, self.here.tsc_khz);
        let parts = Parts { model: &model, limits: &limits, disk: &disk, plug: &*plug, ram: None };
        let Started { machine, mut state, said } = self.start(id, &parts)?;
        state.disk_mib = has_mib;

        let settle = Settle { hostname: Some(hostname), pids: limits.pids, reset: false };
        let timeout = boot_timeout(model.accelerator);
        let mut session = self.session(id);
        if let Err(error) = session.with_agent(|agent| agent.boot(&settle, &boot_document, timeout)) {
            let console = if error.kind() == io::ErrorKind::TimedOut {
                session.with_qmp(Qmp::console).unwrap_or_default()
            } else {
                String::new()
            };
            return Err(not_up(id, error, timeout, &said, &console));
        }
        session.grow(&mut state, limits.disk_mib).map_err(step("grow the disk", id))?;
        self.places.write_state(id, &state).map_err(step("write what the machine is", id))?;
        Ok(machine)
    }

    /// Starts an emulator, and returns when it takes commands. What is half made after a failure, `destroy` removes.
    pub(super) fn start(&self, id: &SandboxId, parts: &Parts<'_>) -> Result<Started, RuntimeError> {
        let group = self.group(id)?;
        group.create().map_err(step("make the cgroups", id))?;
        let bounds = parts.model.emulator_limits(parts.limits);
        group.set_limits(&bounds).map_err(step("set the limits", id))?;
        self.places.make(id).map_err(step("make the machine's directory", id))?;
        let tap = parts.plug.plug_tap().map_err(step("plug in the network", id))?;
        let given = [parts.disk.as_fd()];
        let (machine, said) = self.launch(id, &group, parts, tap.as_fd(), given[0])?;
        let state = State::new(parts.model.clone(), parts.limits);
        self.places.write_state(id, &state).map_err(step("write what the machine is", id))?;
        // Its greeting says that the emulator found all it needs.
        if let Err(error) = self.session(id).with_qmp(Qmp::is_running) {
            let message = said.or(&error);
            return Err(RuntimeError::Boot {
                id: id.clone(),
                step: "start the emulator".to_owned(),
                message,
            });
        }
        Ok(Started { machine, state, said })
    }

    fn launch(
        &self,
        id: &SandboxId,
        group: &Group<'_>,
        parts: &Parts<'_>,
        tap: BorrowedFd<'_>,
        disk: BorrowedFd<'_>,
    ) -> Result<(Machine, Said), RuntimeError> {
        let listen = |socket| self.places.listen(id, socket).map_err(step("make the machine's sockets", id));
        let (qmp, agent) = (listen(Socket::Qmp)?, listen(Socket::Agent)?);
        let (start, append) = match parts.ram {
            Some(_) => (Start::Restore, String::new()),
            None => (Start::Boot, parts.model.append()),
        };
        let mut given = vec![qmp.as_fd(), agent.as_fd(), tap, disk];
        let kvm = match parts.model.accelerator {
            Accelerator::Kvm => Some(super::probe::open_kvm().map_err(step("open `/dev/kvm`", id))?),
            Accelerator::Emulation => None,
        };
        given.extend(kvm.as_ref().map(|kvm| kvm.as_fd()));
        let command = parts.model.command(start, &append);
        let (launched, said) = self.emulate(id, group, command, parts, &given)?;
        match Process::describe(launched.pid, launched.pidfd).map_err(step("look at the machine", id))? {
            Some(machine) => Ok((machine, said)),
            None => {
                let message = said.or(&io::Error::other("it ended at once"));
                Err(RuntimeError::Boot { id: id.clone(), step: "start the emulator".to_owned(), message })
            }
        }
    }

    pub(super) fn emulate(
        &self,
        id: &SandboxId,
        group: &Group<'_>,
        argv: Vec<String>,
        parts: &Parts<'_>,
        given: &[BorrowedFd<'_>],
    ) -> Result<(Launched, Said), RuntimeError> {
        let unified = group.unified().map_err(step("open the cgroup", id))?;
        let tasks = group.tasks().map_err(step("open the cgroups", id))?;
        let (hear, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| step("make a pipe", id)(error.into()))?;
        rustix::io::ioctl_fionbio(&hear, true).map_err(|error| step("make a pipe", id)(error.into()))?;
        let mut descriptors: Vec<BorrowedFd<'_>> = unified.iter().map(|file| file.as_fd()).collect();
        descriptors.extend(tasks.iter().map(|file| file.as_fd()));
        descriptors.push(told.as_fd());
        descriptors.extend(given);
        let plan = EmulatorPlan {
            argv,
            place: self.places.root(),
            shown: self.shown(parts.ram.as_deref()),
            uid: random_owner(),
            small_pages: parts.model.accelerator == Accelerator::Emulation,
            unified: unified.is_some(),
            tasks: tasks.len(),
        };
        match self.launcher.emulate(plan, &descriptors) {
            Ok(launched) => Ok((launched, Said(hear))),
            Err(LaunchError::Refused(failure)) => Err(RuntimeError::Boot {
                id: id.clone(),
                message: failure.source().to_string(),
                step: failure.step,
            }),
            Err(LaunchError::Gone(source)) => Err(RuntimeError::Launcher { source }),
        }
    }

    /// What an emulator sees of the host's files.
    fn shown(&self, ram: Option<&Path>) -> Vec<(PathBuf, String)> {
        let mut shown = vec![(self.qemu.clone(), model::PROGRAM.to_owned())];
        match ram {
            Some(ram) => shown.push((ram.to_owned(), model::RAM.to_owned())),
            None => {
                shown.push((self.kernel.join("vmlinux"), model::KERNEL.to_owned()));
                shown.push((self.places.initrd(), model::INITRD.to_owned()));
            }
        }
        shown
    }
}

impl Said {
    /// What the emulator said, or else the error that was met.
    pub(super) fn or(&self, error: &io::Error) -> String {
        let mut said = String::new();
        if let Ok(pipe) = self.0.try_clone() {
            // It does not block: what has not been said by now never will.
            let mut bytes = Vec::new();
            let _ = File::from(pipe).take(SAID_BYTES_MAX).read_to_end(&mut bytes);
            said = String::from_utf8_lossy(&bytes).trim().to_owned();
        }
        if said.is_empty() { error.to_string() } else { format!("{said} ({error})") }
    }
}

pub(super) fn boot_timeout(accelerator: Accelerator) -> Duration {
    match accelerator {
        Accelerator::Kvm => BOOT_TIMEOUT,
        Accelerator::Emulation => EMULATED_BOOT_TIMEOUT,
    }
}

/// What the machine's card is plugged into.
pub(super) fn plug_of(id: &SandboxId, attachment: Attachment) -> Result<Arc<dyn Plug>, RuntimeError> {
    match attachment {
        Attachment::Later(plug) => Ok(plug),
        Attachment::Namespaces { .. } | Attachment::None => {
            let message = "a microVM needs a gateway to plug its card into".to_owned();
            Err(RuntimeError::Boot { id: id.clone(), step: "plug in the network".to_owned(), message })
        }
    }
}

/// Why a machine whose emulator runs did not come up.
pub(super) fn not_up(
    id: &SandboxId,
    error: io::Error,
    timeout: Duration,
    said: &Said,
    console: &str,
) -> RuntimeError {
    if let Some(Refused { step, message }) = error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>())
    {
        return RuntimeError::Boot { id: id.clone(), step: step.clone(), message: message.clone() };
    }
    if error.kind() == io::ErrorKind::TimedOut {
        tracing::warn!(%id, console, "a machine did not come up; the last that its kernel said");
        return RuntimeError::BootTimeout { id: id.clone(), seconds: timeout.as_secs() };
    }
    let message = said.or(&io::Error::other("it ended without a report"));
    RuntimeError::Boot { id: id.clone(), step: "start the guest agent".to_owned(), message }
}
