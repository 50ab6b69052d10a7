//! The state of the driver that its work off the async threads shares, and what all of that work needs.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use burrow_model::SandboxId;

use super::compatibility::HostProperties;
use super::run_dir::RunDir;
use super::session::Link;
use crate::cgroup::{Group, Groups};
use crate::launcher::Launcher;
use crate::process::Process;
use crate::{Machine, RuntimeError};

/// State for work off the async threads.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) launcher: Launcher,
    pub(super) qemu: PathBuf,
    pub(super) kernel: PathBuf,
    /// `None` if the host has no usable cgroups; `capabilities` gives the reason.
    pub(super) groups: Option<Groups>,
    pub(super) run_dir: RunDir,
    pub(super) here: HostProperties,
    /// Identifies the kernel and the agent that machines boot with.
    pub(super) booted_with: String,
    /// Connections to machines. The holder of the sandbox's lock takes one out while it uses it.
    pub(super) links: Mutex<HashMap<SandboxId, Link>>,
}

impl Shared {
    pub(super) fn group(&self, id: &SandboxId) -> Result<Group<'_>, RuntimeError> {
        match &self.groups {
            Some(groups) => Ok(groups.group(id)),
            None => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }

    /// The group of a sandbox that has a machine.
    pub(super) fn live(&self, id: &SandboxId) -> Result<Group<'_>, RuntimeError> {
        let group = self.group(id)?;
        match group.is_populated() {
            Ok(true) => Ok(group),
            Ok(false) => Err(RuntimeError::NoMachine { id: id.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(RuntimeError::NoMachine { id: id.clone() })
            }
            Err(source) => Err(step("find the machine", id)(source)),
        }
    }

    /// The group of a machine that is alive and has the given identity.
    pub(super) fn group_of(&self, id: &SandboxId, machine: &Machine) -> Result<Group<'_>, RuntimeError> {
        let group = self.live(id)?;
        let looking = "find the machine";
        let in_group = group.has(machine.pid).map_err(step(looking, id))?;
        // Checked last: if the process is still the same one, it was so when its cgroup was read.
        match in_group && Process::find(machine).map_err(step(looking, id))?.is_some() {
            true => Ok(group),
            false => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }

    /// The sandbox of a machine.
    pub(super) fn sandbox_of(&self, machine: &Machine) -> Option<SandboxId> {
        let groups = self.groups.as_ref()?;
        groups.inventory().ok()?.into_iter().find(|id| groups.group(id).has(machine.pid).unwrap_or(false))
    }

    /// Ends the emulator, if there is one.
    pub(super) fn kill(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let Some(groups) = &self.groups else { return Ok(()) };
        match groups.group(id).kill() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(step("end the machine", id)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes the remains of a machine that did not boot.
    pub(super) fn cleaned<T>(
        &self,
        id: &SandboxId,
        work: impl FnOnce(&Self) -> Result<T, RuntimeError>,
    ) -> Result<T, RuntimeError> {
        let done = work(self);
        if done.is_err() {
            self.clean_up(id);
        }
        done
    }

    pub(super) fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.forget_link(id);
        let Some(groups) = &self.groups else { return Ok(()) };
        let group = groups.group(id);
        if group.exists() {
            group.kill().map_err(step("end the machine", id))?;
        }
        self.run_dir.remove(id).map_err(step("remove the machine's directory", id))?;
        group.remove().map_err(step("remove the cgroups", id))
    }

    pub(super) fn inventory(&self) -> io::Result<Vec<SandboxId>> {
        let mut found = BTreeSet::new();
        if let Some(groups) = &self.groups {
            found.extend(groups.inventory()?);
        }
        found.extend(self.run_dir.inventory()?);
        Ok(found.into_iter().collect())
    }
}

/// The error of a step for a sandbox.
pub(super) fn step(step: &'static str, id: &SandboxId) -> impl FnOnce(io::Error) -> RuntimeError {
    let id = id.clone();
    move |source| RuntimeError::Step { step, id, source }
}
