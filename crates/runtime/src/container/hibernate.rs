//! Dumps the processes of a machine to disk.
//!
//! CRIU does the work (see [`super::criu`]). This module starts it in the right place, and cleans up after it. It runs
//! in the cgroup *aside* of the machine's, so that it is not frozen with the machine, and `destroy` finds it.

use std::error::Error;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use burrow_model::SandboxId;

use super::compatibility::DumpOrigin;
use super::criu::{self, Criu, CriuError, CriuPlacement, DumpedMachine};
use super::shared_state::{Shared, step};
use super::volumes;
use super::work_dir::Note;
use crate::cgroup::{Group, WorkerGroup};
use crate::process::Process;
use crate::{DumpInfo, DumpOptions, Machine, Obstacle, RuntimeError};

/// CRIU and its working directories.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) criu: Criu,
    pub(super) version: String,
}

/// The cgroups that the work on a machine's processes needs.
pub(super) struct WorkGroups {
    pub(super) group: PathBuf,
    pub(super) aside: WorkerGroup,
}

impl WorkGroups {
    /// `None` on a host without a v2 tree.
    pub(super) fn of(group: &Group<'_>) -> Option<Self> {
        Some(Self { group: group.unified_path()?, aside: group.aside()? })
    }
}

/// The error of operations that `capabilities` reports as unsupported.
pub(super) const UNABLE: &str = "this host cannot dump or restore processes";

/// One of several steps.
pub(super) const NAMES_AWAY: &str = "remove the temporary names of deleted files";

impl Shared {
    pub(super) fn obstacles(&self, id: &SandboxId) -> Result<Vec<Obstacle>, RuntimeError> {
        let site = WorkGroups::of(&self.live(id)?).ok_or_else(|| unable(id))?;
        let found = criu::obstacles(&site.group).map_err(step("check the processes", id))?;
        Ok(found.into_iter().map(Obstacle::from).collect())
    }

    pub(super) fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        let site = WorkGroups::of(&self.live(id)?).ok_or_else(|| unable(id))?;
        criu::ram_bytes(&site.group).map_err(step("check the processes", id))
    }

    pub(super) fn cpu_us(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.live(id)?.cpu_us().map_err(step("read the processor time", id))
    }

    pub(super) fn dump(&self, id: &SandboxId, options: &DumpOptions) -> Result<DumpInfo, RuntimeError> {
        let tool = self.tool.as_ref().ok_or_else(|| unable(id))?;
        let group = self.group_of(id, &options.machine)?;
        let site = WorkGroups::of(&group).ok_or_else(|| unable(id))?;
        let about = DumpOrigin::here(&tool.version).map_err(step("inspect this host", id))?;
        let was_frozen = group.is_frozen().map_err(step("check the machine", id))?;
        criu::take_away(&options.root).map_err(step(NAMES_AWAY, id))?;
        let images = File::open(&options.images).map_err(step("open the directory for the dump", id))?;
        let aside = site.aside.create().map_err(step("create a cgroup for CRIU", id))?;
        let work = self.work_dir.clear(id).map_err(step("create a directory for CRIU", id))?;
        let noted = self.work_dir.note(id, Note::Dumping, &options.root);
        noted.map_err(step("write to CRIU's directory", id))?;
        let dump = criu::DumpOptions {
            pid: options.machine.pid,
            root: &options.root,
            images: images.as_fd(),
            work: work.as_fd(),
            group: &site.group,
            aside: site.aside.path(),
            external: &volumes::excluded_mounts(&options.mounts),
            outside: &volumes::outside(&options.mounts),
            was_frozen,
            // Of the v1 trees only the machine's own groups matter, and CRIU must not be in them.
            place: CriuPlacement {
                unified: Some(aside.as_fd()),
                tasks: &[],
                run: self.work_dir.run(&options.root),
            },
        };
        let outcome = tool.criu.dump(&dump, &self.adjuster(&site, &aside));
        self.tidy_up(id, &site);
        match outcome {
            Ok(DumpedMachine { frozen_for, named }) => {
                if named && let Err(error) = self.work_dir.note(id, Note::Named, &options.root) {
                    // Without the note, the names would never be removed.
                    criu::take_away(&options.root).map_err(step(NAMES_AWAY, id))?;
                    if !was_frozen {
                        group.thaw().map_err(step("resume the machine", id))?;
                    }
                    return Err(step("write to CRIU's directory", id)(error));
                }
                let paused_us = if was_frozen { 0 } else { frozen_for.as_micros() };
                Ok(DumpInfo {
                    about: about.to_json(),
                    paused_us: u64::try_from(paused_us).unwrap_or(u64::MAX),
                })
            }
            Err(CriuError::Obstacles { obstacles }) => Err(RuntimeError::Obstacles {
                id: id.clone(),
                obstacles: obstacles.into_iter().map(Obstacle::from).collect(),
            }),
            Err(error) => Err(RuntimeError::Dump { id: id.clone(), reason: in_words(&error) }),
        }
    }

    pub(super) fn recover(
        &self,
        id: &SandboxId,
        machine: &Machine,
        stays_frozen: bool,
    ) -> Result<(), RuntimeError> {
        let group = self.group_of(id, machine)?;
        let cut_short = self.work_dir.noted(id, Note::Dumping).map_err(step("read CRIU's directory", id))?;
        if let (Some(site), Some(root)) = (WorkGroups::of(&group), cut_short) {
            // CRIU is not killed here: first it must remove its code from the processes. It gives up by itself when it
            // gets no answer.
            site.aside.await_end().map_err(|error| {
                if error.kind() == std::io::ErrorKind::TimedOut {
                    RuntimeError::DumpHangs { id: id.clone() }
                } else {
                    step("wait for the end of a dump", id)(error)
                }
            })?;
            let aside = site.aside.create().map_err(step("create a cgroup for CRIU", id))?;
            criu::recover(&site.group, &root, true, &self.adjuster(&site, &aside))
                .map_err(step("recover the machine", id))?;
            criu::take_away(&root).map_err(step(NAMES_AWAY, id))?;
            self.tidy_up(id, &site);
        }
        if stays_frozen {
            return group.freeze().map_err(step("recover the machine", id));
        }
        self.resume(id)
    }

    pub(super) fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        if let Some(root) = self.work_dir.noted(id, Note::Named).map_err(step("read CRIU's directory", id))? {
            criu::take_away(&root).map_err(step(NAMES_AWAY, id))?;
            self.work_dir.remove(id).map_err(step("remove CRIU's directory", id))?;
        }
        group.thaw().map_err(step("resume the machine", id))
    }

    /// Adjusts the machine's processes in a process that is in the cgroup *aside* until it is done.
    fn adjuster<'a>(
        &'a self,
        site: &'a WorkGroups,
        aside: &'a File,
    ) -> impl Fn(criu::Adjustment) -> std::io::Result<criu::AppliedChanges> + 'a {
        |adjustment| self.launcher.adjust(&site.group, adjustment, aside.as_fd())
    }

    /// Called after CRIU has ended. `destroy` and the next dump find whatever cannot be removed.
    pub(super) fn tidy_up(&self, id: &SandboxId, site: &WorkGroups) {
        for left in [site.aside.remove(), self.work_dir.remove(id)] {
            if let Err(error) = left {
                tracing::warn!(%id, %error, "could not clean up after CRIU");
            }
        }
    }

    /// The group of a machine that is alive and has the given identity.
    fn group_of(&self, id: &SandboxId, machine: &Machine) -> Result<Group<'_>, RuntimeError> {
        let group = self.live(id)?;
        let looking = "find the machine";
        let in_group = group.has(machine.pid).map_err(step(looking, id))?;
        // Checked last: if the process is still the same one, it was so when its cgroup was read.
        match in_group && Process::find(machine).map_err(step(looking, id))?.is_some() {
            true => Ok(group),
            false => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }
}

fn unable(id: &SandboxId) -> RuntimeError {
    RuntimeError::Dump { id: id.clone(), reason: UNABLE.to_owned() }
}

/// An error and its causes, in one line.
pub(super) fn in_words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(": ");
        words.push_str(&error.to_string());
        cause = error.source();
    }
    words
}

impl From<criu::Obstacle> for Obstacle {
    fn from(found: criu::Obstacle) -> Self {
        let criu::Obstacle { pid, name, reason } = found;
        Self { pid, process: name, reason: reason.to_string(), passes: reason.passes() }
    }
}
