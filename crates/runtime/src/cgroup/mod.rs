//! The cgroups of one sandbox: its limits, its freezer, and the one reliable way to end it.
//!
//! Each sandbox has a directory `<parent>/<id>` in every tree that matters (see [`layout`]). The directory in the
//! first tree, v2 or the v1 freezer, knows the sandbox's processes; its existence is what `inventory` reports.
//!
//! Everything here blocks, for microseconds mostly and five seconds at worst: call it off the async threads.

mod aside;
mod layout;
mod limits;
mod wait;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use burrow_model::{Limits, SandboxId};
use rustix::process::{Pid, Signal};

pub(crate) use aside::Aside;
pub(crate) use layout::{Controller, Layout};
use limits::Need;

/// Rounds of "signal all that is left" where there is no `cgroup.kill`. Each round freezes first, so a fork bomb does
/// not outrun it; more than one is needed only if something was being added from outside.
const KILL_ROUNDS: u32 = 16;

/// Groups inside a sandbox's own that are looked into.
const GROUPS_MAX: usize = 10_000;

/// All sandboxes' cgroups on this host.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    layout: Layout,
    parent: String,
}

/// One sandbox's cgroups, which may or may not exist.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    layout: &'a Layout,
    name: String,
}

// === impl Groups ===

impl Groups {
    /// Makes the parent directories and, in a v2 tree, hands the controllers down to them.
    pub(crate) fn open(layout: Layout, parent: &str) -> io::Result<Self> {
        for tree in layout.trees() {
            create_dir(&tree.join(parent))?;
        }
        if let Some(tree) = &layout.unified {
            delegate(tree, &layout.in_unified)?;
            delegate(&tree.join(parent), &layout.in_unified)?;
        }
        Ok(Self { layout, parent: parent.to_owned() })
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn group(&self, id: &SandboxId) -> Group<'_> {
        Group { layout: &self.layout, name: format!("{}/{id}", self.parent) }
    }

    /// Sandboxes with a directory in any tree.
    pub(crate) fn inventory(&self) -> io::Result<Vec<SandboxId>> {
        let mut found = BTreeSet::new();
        for tree in self.layout.trees() {
            for entry in fs::read_dir(tree.join(&self.parent))? {
                let name = entry?.file_name();
                let name = name.to_str().map(|name| name.strip_suffix(aside::SUFFIX).unwrap_or(name));
                found.extend(name.and_then(|name| name.parse().ok()));
            }
        }
        Ok(found.into_iter().collect())
    }
}

// === impl Group ===

impl Group<'_> {
    /// Makes the directories. `AlreadyExists` when one is there: something of this sandbox was not destroyed.
    pub(crate) fn create(&self) -> io::Result<()> {
        for directory in self.directories() {
            fs::create_dir(directory)?;
        }
        Ok(())
    }

    pub(crate) fn exists(&self) -> bool {
        self.main().is_some_and(|directory| directory.exists())
    }

    pub(crate) fn set_limits(&self, limits: &Limits) -> io::Result<()> {
        let writes = limits::writes(self.layout, &self.name, limits);
        for (at, write) in writes.iter().enumerate() {
            match (write_file(&write.path, &write.value), write.need) {
                (Ok(()), Need::Must | Need::IfThere) => {}
                (Err(error), Need::IfThere) if error.kind() == io::ErrorKind::NotFound => {}
                // The other write of the same file will do; see `limits::writes`.
                (Err(error), Need::IfThere)
                    if error.raw_os_error() == Some(libc::EINVAL)
                        && writes.iter().skip(at + 1).any(|later| later.path == write.path) => {}
                (Err(error), Need::Must | Need::IfThere) => return Err(error),
            }
        }
        Ok(())
    }

    /// The v2 directory, for `CLONE_INTO_CGROUP`.
    pub(crate) fn unified(&self) -> io::Result<Option<File>> {
        self.unified_path().map(File::open).transpose()
    }

    pub(crate) fn unified_path(&self) -> Option<PathBuf> {
        self.layout.unified.as_ref().map(|tree| tree.join(&self.name))
    }

    /// The v1 `tasks` files. A process that writes `0` to one joins it, in 0.1 ms; writing to `cgroup.procs` would
    /// cost 7 to 11 ms, most likely an RCU grace period.
    pub(crate) fn tasks(&self) -> io::Result<Vec<File>> {
        let unified = self.layout.unified.as_deref();
        let legacy = self.layout.trees().into_iter().filter(|tree| Some(*tree) != unified);
        legacy.map(|tree| OpenOptions::new().write(true).open(tree.join(&self.name).join("tasks"))).collect()
    }

    /// Stops all processes, and returns when they have stopped.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        let frozen = self.set_frozen(true);
        if frozen.is_err() {
            // Half frozen is worse than running: nobody would ever thaw it.
            let _ = self.set_frozen(false);
        }
        frozen
    }

    pub(crate) fn thaw(&self) -> io::Result<()> {
        self.set_frozen(false)
    }

    /// Whether it was told to stand still, and does.
    pub(crate) fn is_frozen(&self) -> io::Result<bool> {
        let Some(main) = self.main() else { return Ok(false) };
        if self.layout.unified.is_some() {
            return event(&main, "frozen");
        }
        Ok(fs::read_to_string(main.join("freezer.state"))?.trim() == "FROZEN")
    }

    /// CPU time of all its processes, past ones included. `Unsupported` where the host counts it nowhere.
    pub(crate) fn cpu_us(&self) -> io::Result<u64> {
        if let Some(unified) = self.unified_path() {
            return cpu_us_of(&unified);
        }
        // Hosts mount the two v1 controllers together as a rule.
        let tree = self.layout.legacy.get(&Controller::Cpu).ok_or(io::ErrorKind::Unsupported)?;
        let file = tree.join(&self.name).join("cpuacct.usage");
        match fs::read_to_string(file) {
            Ok(text) => text.trim().parse().map(|ns: u64| ns / 1000).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::ErrorKind::Unsupported.into()),
            Err(error) => Err(error),
        }
    }

    /// Whether any process lives in it.
    pub(crate) fn is_populated(&self) -> io::Result<bool> {
        let Some(main) = self.main() else { return Ok(false) };
        if self.layout.unified.is_some() {
            return event(&main, "populated");
        }
        Ok(!fs::read_to_string(main.join("cgroup.procs"))?.trim().is_empty())
    }

    /// Its processes, as the host numbers them.
    pub(crate) fn pids(&self) -> io::Result<Vec<u32>> {
        let (mut found, mut left): (Vec<u32>, Vec<PathBuf>) = (Vec::new(), self.main().into_iter().collect());
        // What runs inside may have made groups of its own.
        while let Some(folder) = left.pop() {
            let text = fs::read_to_string(folder.join("cgroup.procs"))?;
            found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            for entry in fs::read_dir(&folder)?.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) && left.len() < GROUPS_MAX {
                    left.push(entry.path());
                }
            }
        }
        Ok(found)
    }

    /// Kills every process, frozen or not, and returns when none is left.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let Some(main) = self.main() else { return Ok(()) };
        match write_file(&main.join("cgroup.kill"), "1") {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.kill_one_by_one(&main)?,
            Err(error) => return Err(error),
        }
        wait::until(|| Ok(!self.is_populated()?))
    }

    /// Removes the directories. All processes must be gone; the kernel may need a moment to see it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        // The main directory goes last: while it exists, the inventory still reports what is left of the others.
        for directory in self.directories().iter().rev() {
            remove_dir(directory)?;
        }
        Ok(())
    }

    /// Processes inside that the kernel killed for want of RAM.
    pub(crate) fn oom_kills(&self) -> io::Result<u64> {
        let file = match (&self.layout.unified, self.layout.legacy.get(&Controller::Memory)) {
            (Some(tree), _) if self.layout.in_unified.contains(&Controller::Memory) => {
                tree.join(&self.name).join("memory.events")
            }
            (_, Some(tree)) => tree.join(&self.name).join("memory.oom_control"),
            (_, None) => return Ok(0),
        };
        let text = fs::read_to_string(file)?;
        Ok(text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0))
    }

    /// Whether the process is in this group. Of a process that is gone: no.
    pub(crate) fn has(&self, pid: u32) -> io::Result<bool> {
        let text = match fs::read_to_string(format!("/proc/{pid}/cgroup")) {
            Ok(text) => text,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let prefix = if self.layout.unified.is_some() { "0::" } else { "" };
        let suffix = format!("/{}", self.name);
        Ok(text.lines().any(|line| {
            line.starts_with(prefix) && line.rsplit(':').next().is_some_and(|path| path.ends_with(&suffix))
        }))
    }

    fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        let Some(main) = self.main() else { return Err(io::ErrorKind::Unsupported.into()) };
        if self.layout.unified.is_some() {
            write_file(&main.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
            return wait::until(|| Ok(event(&main, "frozen")? == frozen));
        }
        let state = if frozen { "FROZEN" } else { "THAWED" };
        let file = main.join("freezer.state");
        write_file(&file, state)?;
        wait::until(|| {
            let now = fs::read_to_string(&file)?;
            if now.trim() != state && frozen {
                // The v1 freezer stops looking for late comers unless it is told again.
                write_file(&file, state)?;
            }
            Ok(now.trim() == state)
        })
    }

    /// For kernels before 5.14 and for v1: freeze, so that nobody escapes by forking, signal all, let them die.
    fn kill_one_by_one(&self, main: &Path) -> io::Result<()> {
        for _ in 0..KILL_ROUNDS {
            // A group that cannot be frozen is still killed, if a fork bomb does not outrun the rounds.
            let _ = self.set_frozen(true);
            let pids = fs::read_to_string(main.join("cgroup.procs"))?;
            for pid in pids.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
                // It may have ended already; whether any is left is asked below.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            self.set_frozen(false)?;
            if wait::until(|| Ok(!self.is_populated()?)).is_ok() {
                return Ok(());
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The directory that knows the processes.
    fn main(&self) -> Option<PathBuf> {
        self.directories().into_iter().next()
    }

    fn directories(&self) -> Vec<PathBuf> {
        self.layout.trees().into_iter().map(|tree| tree.join(&self.name)).collect()
    }
}

/// A yes-or-no line of `cgroup.events`.
fn event(directory: &Path, name: &str) -> io::Result<bool> {
    let text = fs::read_to_string(directory.join("cgroup.events"))?;
    Ok(text.lines().any(|line| line.split_once(' ') == Some((name, "1"))))
}

/// Hands controllers down to the children of a v2 directory.
fn delegate(directory: &Path, controllers: &[Controller]) -> io::Result<()> {
    let file = directory.join("cgroup.subtree_control");
    let now = fs::read_to_string(&file)?;
    for controller in controllers {
        if !now.split_whitespace().any(|word| word == controller.name()) {
            write_file(&file, &format!("+{}", controller.name()))?;
        }
    }
    Ok(())
}

fn create_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Removes a directory that is empty, or about to be; the kernel may need a moment to see it.
fn remove_dir(directory: &Path) -> io::Result<()> {
    wait::until(|| match fs::remove_dir(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
        Err(error) => Err(error),
    })
}

/// Writes to a file that the kernel made; never makes one.
fn write_file(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// Reading about a process that has just ended fails with one of these.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// CPU time of all processes of a v2 directory, past ones included.
pub(crate) fn cpu_us_of(directory: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(directory.join("cpu.stat"))?;
    let used = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok());
    used.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests;
