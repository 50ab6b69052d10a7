//! The state of the driver that its work off the async threads shares, and what all of that work needs.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use burrow_model::SandboxId;

use super::hibernate::Tool;
use super::ids::Ranges;
use super::trial::TriedKinds;
use super::work_dir::WorkDir;
use crate::RuntimeError;
use crate::cgroup::{Group, Groups};
use crate::launcher::Launcher;

/// State for work off the async threads.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) launcher: Launcher,
    pub(super) guest_binary: PathBuf,
    /// `None` if the host has no usable cgroups; `capabilities` gives the reason.
    pub(super) groups: Option<Groups>,
    /// `None` if processes cannot be dumped; `capabilities` gives the reason.
    pub(super) tool: Option<Tool>,
    pub(super) work_dir: WorkDir,
    /// Whether restored machines get their own ids. For machines that are booted, the network driver decides it.
    pub(super) own_ids: bool,
    pub(super) ranges: Ranges,
    /// Whether machines enter the AppArmor profile.
    pub(super) profile: bool,
    pub(super) tried: TriedKinds,
}

impl Shared {
    pub(super) fn group(&self, id: &SandboxId) -> Result<Group<'_>, RuntimeError> {
        match &self.groups {
            Some(groups) => Ok(groups.group(id)),
            None => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }

    /// The group of a sandbox that has a process.
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

    pub(super) fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let Some(groups) = &self.groups else { return Ok(()) };
        let group = groups.group(id);
        if group.exists() {
            group.kill().map_err(step("end the machine", id))?;
        }
        // After the machine: a CRIU that dumps it still holds its processes, and none of them may run when CRIU ends.
        if let Some(aside) = group.aside() {
            aside.remove().map_err(step("end CRIU", id))?;
        }
        self.work_dir.remove(id).map_err(step("remove CRIU's directory", id))?;
        group.remove().map_err(step("remove the cgroups", id))?;
        self.ranges.release(id);
        Ok(())
    }

    pub(super) fn inventory(&self) -> io::Result<Vec<SandboxId>> {
        let mut found = BTreeSet::new();
        if let Some(groups) = &self.groups {
            found.extend(groups.inventory()?);
        }
        found.extend(self.work_dir.inventory()?);
        Ok(found.into_iter().collect())
    }
}

/// The error of a step for a sandbox.
pub(super) fn step(step: &'static str, id: &SandboxId) -> impl FnOnce(io::Error) -> RuntimeError {
    let id = id.clone();
    move |source| RuntimeError::Step { step, id, source }
}
