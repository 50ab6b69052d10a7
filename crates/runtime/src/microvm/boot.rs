//! Boots a machine, until its agent listens.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use burrow_model::{Limits, SandboxId};
use burrow_network::linux::random_owner;
use burrow_network::{Attachment, Plug};

use super::agent::{FailedStep, SettleRequest};
use super::disk;
use super::model::{self, Accelerator, Model, Start};
use super::qmp::Qmp;
use super::run_dir::{Socket, State};
use super::shared_state::{Shared, step};
use crate::cgroup::Group;
use crate::launcher::{EmulatorPlan, LaunchError, LaunchedProcess};
use crate::process::Process;
use crate::{BootOptions, Machine, RuntimeError};

/// An emulated machine boots within three seconds on an idle host, and within minutes on one where dozens start at
/// once.
const EMULATED_BOOT_TIMEOUT: Duration = Duration::from_secs(180);
const BOOT_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of the emulator's error output that are kept if it does not start.
const SAID_BYTES_MAX: u64 = 4096;

/// The parts of an emulator's command and resources.
pub(super) struct EmulatorParts<'a> {
    pub(super) model: &'a Model,
    pub(super) limits: &'a Limits,
    pub(super) disk: &'a File,
    pub(super) plug: &'a dyn Plug,
    /// The RAM that it starts from; `None`: it boots a kernel.
    pub(super) ram: Option<PathBuf>,
}

/// An emulator that has sent its greeting.
pub(super) struct StartedEmulator {
    pub(super) machine: Machine,
    pub(super) state: State,
    pub(super) said: ErrorOutput,
}

/// The emulator's error output, until the daemon closes it.
pub(super) struct ErrorOutput(OwnedFd);

impl Shared {
    pub(super) fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        self.cleaned(id, |shared| shared.try_boot(id, options))
    }

    /// After a failure. The error of the clean-up is only logged: the first error matters more, and `destroy` repeats
    /// the clean-up.
    pub(super) fn clean_up(&self, id: &SandboxId) {
        if let Err(left) = self.destroy(id) {
            tracing::warn!(%id, error = &left as &dyn std::error::Error, "could not clean up after a failed start");
        }
    }

    fn try_boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        let BootOptions { root, attachment, hostname, limits, boot_document, template: _, mounts: _ } =
            options;
        let Attachment::Later(plug) = attachment else {
            let message = "a microVM needs a gateway for its network interface".to_owned();
            return Err(RuntimeError::Boot {
                id: id.clone(),
                step: "plug in the network".to_owned(),
                message,
            });
        };
        self.destroy(id)?;
        let disk = disk::open(&root, true).map_err(step("open the disk", id))?;
        let has_mib = disk::size_mib(&disk).map_err(step("read the size of the disk", id))?;
        let model = Model::new(&limits, self.here.accelerator, self.here.tsc_khz);
        let parts = EmulatorParts { model: &model, limits: &limits, disk: &disk, plug: &*plug, ram: None };
        let StartedEmulator { machine, mut state, said } = self.start(id, &parts)?;
        state.disk_mib = has_mib;

        let settle = SettleRequest { hostname: Some(hostname), pids: limits.pids, reset: false };
        let timeout = boot_timeout(model.accelerator);
        let mut session = self.session(id);
        if let Err(error) = session.with_agent(|agent| agent.boot(&settle, &boot_document, timeout)) {
            let console = if error.kind() == io::ErrorKind::TimedOut {
                session.with_qmp(Qmp::console).unwrap_or_default()
            } else {
                String::new()
            };
            return Err(boot_failure(id, error, timeout, &said, &console));
        }
        session.grow(&mut state, limits.disk_mib).map_err(step("grow the disk", id))?;
        self.run_dir.write_state(id, &state).map_err(step("write the machine's state", id))?;
        Ok(machine)
    }

    /// Starts an emulator, and returns when it accepts commands. `destroy` removes what a failure leaves behind.
    pub(super) fn start(
        &self,
        id: &SandboxId,
        parts: &EmulatorParts<'_>,
    ) -> Result<StartedEmulator, RuntimeError> {
        let group = self.group(id)?;
        group.create().map_err(step("create the cgroups", id))?;
        let bounds = parts.model.emulator_limits(parts.limits);
        group.set_limits(&bounds).map_err(step("set the limits", id))?;
        self.run_dir.make(id).map_err(step("create the machine's directory", id))?;
        let tap = parts.plug.plug_tap().map_err(step("plug in the network", id))?;
        let given = [parts.disk.as_fd()];
        let (machine, said) = self.launch(id, &group, parts, tap.as_fd(), given[0])?;
        let state = State::new(parts.model.clone(), parts.limits);
        self.run_dir.write_state(id, &state).map_err(step("write the machine's state", id))?;
        // With its greeting, the emulator confirms that it found all its files.
        if let Err(error) = self.session(id).with_qmp(Qmp::is_running) {
            let message = said.or(&error);
            return Err(RuntimeError::Boot {
                id: id.clone(),
                step: "start the emulator".to_owned(),
                message,
            });
        }
        Ok(StartedEmulator { machine, state, said })
    }

    fn launch(
        &self,
        id: &SandboxId,
        group: &Group<'_>,
        parts: &EmulatorParts<'_>,
        tap: BorrowedFd<'_>,
        disk: BorrowedFd<'_>,
    ) -> Result<(Machine, ErrorOutput), RuntimeError> {
        let listen =
            |socket| self.run_dir.listen(id, socket).map_err(step("create the machine's sockets", id));
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
        match Process::describe(launched.pid, launched.pidfd).map_err(step("check the machine", id))? {
            Some(machine) => Ok((machine, said)),
            None => {
                let message = said.or(&io::Error::other("the emulator ended at once"));
                Err(RuntimeError::Boot { id: id.clone(), step: "start the emulator".to_owned(), message })
            }
        }
    }

    pub(super) fn emulate(
        &self,
        id: &SandboxId,
        group: &Group<'_>,
        argv: Vec<String>,
        parts: &EmulatorParts<'_>,
        given: &[BorrowedFd<'_>],
    ) -> Result<(LaunchedProcess, ErrorOutput), RuntimeError> {
        let unified = group.unified().map_err(step("open the cgroup", id))?;
        let tasks = group.tasks().map_err(step("open the cgroups", id))?;
        let (hear, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| step("create a pipe", id)(error.into()))?;
        rustix::io::ioctl_fionbio(&hear, true).map_err(|error| step("create a pipe", id)(error.into()))?;
        let mut descriptors: Vec<BorrowedFd<'_>> = unified.iter().map(|file| file.as_fd()).collect();
        descriptors.extend(tasks.iter().map(|file| file.as_fd()));
        descriptors.push(told.as_fd());
        descriptors.extend(given);
        let plan = EmulatorPlan {
            argv,
            place: self.run_dir.root(),
            shown: self.shown(parts.ram.as_deref()),
            uid: random_owner(),
            small_pages: parts.model.accelerator == Accelerator::Emulation,
            unified: unified.is_some(),
            tasks: tasks.len(),
        };
        match self.launcher.emulate(plan, &descriptors) {
            Ok(launched) => Ok((launched, ErrorOutput(hear))),
            Err(LaunchError::Refused(failure)) => Err(RuntimeError::Boot {
                id: id.clone(),
                message: failure.source().to_string(),
                step: failure.step,
            }),
            Err(LaunchError::Gone(source)) => Err(RuntimeError::Launcher { source }),
        }
    }

    /// The host's files that are visible to an emulator.
    fn shown(&self, ram: Option<&Path>) -> Vec<(PathBuf, String)> {
        let mut shown = vec![(self.qemu.clone(), model::PROGRAM.to_owned())];
        match ram {
            Some(ram) => shown.push((ram.to_owned(), model::RAM.to_owned())),
            None => {
                shown.push((self.kernel.join("vmlinux"), model::KERNEL.to_owned()));
                shown.push((self.run_dir.initrd(), model::INITRD.to_owned()));
            }
        }
        shown
    }
}

impl ErrorOutput {
    /// The emulator's error output, or else the given error.
    pub(super) fn or(&self, error: &io::Error) -> String {
        let mut said = String::new();
        if let Ok(pipe) = self.0.try_clone() {
            // Non-blocking: output that has not arrived by now never will.
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

/// The plug for the machine's network interface.
pub(super) fn plug_of(id: &SandboxId, attachment: Attachment) -> Result<Arc<dyn Plug>, RuntimeError> {
    match attachment {
        Attachment::Later(plug) => Ok(plug),
        Attachment::Namespaces { .. } | Attachment::None => {
            let message = "a microVM needs a gateway for its network interface".to_owned();
            Err(RuntimeError::Boot { id: id.clone(), step: "plug in the network".to_owned(), message })
        }
    }
}

/// The error for a machine that did not boot although its emulator runs.
pub(super) fn boot_failure(
    id: &SandboxId,
    error: io::Error,
    timeout: Duration,
    said: &ErrorOutput,
    console: &str,
) -> RuntimeError {
    if let Some(FailedStep { step, message }) =
        error.get_ref().and_then(|inner| inner.downcast_ref::<FailedStep>())
    {
        return RuntimeError::Boot { id: id.clone(), step: step.clone(), message: message.clone() };
    }
    if error.kind() == io::ErrorKind::TimedOut {
        tracing::warn!(%id, console, "a machine did not boot; the end of its console output is attached");
        return RuntimeError::BootTimeout { id: id.clone(), seconds: timeout.as_secs() };
    }
    let message = said.or(&io::Error::other("the emulator ended without a report"));
    RuntimeError::Boot { id: id.clone(), step: "start the guest agent".to_owned(), message }
}
