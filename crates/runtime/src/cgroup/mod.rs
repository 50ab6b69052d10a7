//! The cgroups of one sandbox: its limits, its freezer, and the only reliable way to kill all its processes.
//!
//! Each sandbox has a directory `<parent>/<id>` in every tree in use (see [`layout`]). The directory in the first tree,
//! v2 or the v1 freezer, contains the sandbox's processes; `inventory` lists these directories.
//!
//! Everything here blocks, usually for microseconds and at most for five seconds: call it off the async threads.

mod aside;
mod layout;
mod limits;
mod sockets;
mod wait;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_model::{Limits, SandboxId};
use rustix::process::{Pid, Signal};

pub(crate) use aside::WorkerGroup;
pub(crate) use layout::{Controller, Layout};
use limits::FileRequirement;
use sockets::SocketLimit;

/// Rounds of signalling all remaining processes on kernels without `cgroup.kill`. Each round freezes first, so a fork
/// bomb cannot outrun it; more than one round is needed only if a process was being added from outside.
const KILL_ROUNDS: u32 = 16;

/// Maximum number of groups inside a sandbox's own that are listed.
const GROUPS_MAX: usize = 10_000;

/// CRIU and its helpers count as processes of the sandbox until they have ended.
const RESTORE_PIDS: u32 = 8;

/// The cgroups of all sandboxes on this host.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    layout: Layout,
    parent: String,
    /// Only if v1 counts RAM, and the kernel can count sockets.
    sockets: Option<Arc<SocketLimit>>,
    /// Why sockets are not limited although they should be.
    sockets_unlimited: Option<String>,
}

/// One sandbox's cgroups, which may or may not exist.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    layout: &'a Layout,
    name: String,
    sockets: Option<&'a SocketLimit>,
}

// === impl Groups ===

impl Groups {
    /// Creates the parent directories and, in a v2 tree, enables the controllers for their children.
    pub(crate) fn open(layout: Layout, parent: &str) -> io::Result<Self> {
        for tree in layout.trees() {
            create_dir(&tree.join(parent))?;
        }
        if let Some(tree) = &layout.unified {
            delegate(tree, &layout.in_unified)?;
            delegate(&tree.join(parent), &layout.in_unified)?;
        }
        let (sockets, sockets_unlimited) = match socket_limit(&layout, SocketLimit::load) {
            Ok(sockets) => (sockets.map(Arc::new), None),
            Err(reason) => {
                tracing::warn!(reason, "sockets of sandboxes are not limited");
                (None, Some(reason))
            }
        };
        Ok(Self { layout, parent: parent.to_owned(), sockets, sockets_unlimited })
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Why the number of sockets of a sandbox is not limited on a host whose RAM is counted by v1.
    pub(crate) fn sockets_unlimited(&self) -> Option<&str> {
        self.sockets_unlimited.as_deref()
    }

    pub(crate) fn group(&self, id: &SandboxId) -> Group<'_> {
        let name = format!("{}/{id}", self.parent);
        Group { layout: &self.layout, name, sockets: self.sockets.as_deref() }
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

/// The limit of sockets, which only v1 needs: v2 counts their buffers as RAM.
fn socket_limit<T>(layout: &Layout, load: impl FnOnce() -> io::Result<T>) -> Result<Option<T>, String> {
    if layout.in_unified.contains(&Controller::Memory) {
        return Ok(None);
    }
    if layout.unified.is_none() {
        return Err("the host has no cgroup v2 tree, which the BPF programs of the limit need".to_owned());
    }
    load().map(Some).map_err(|error| format!("could not load the BPF programs of the limit: {error}"))
}

// === impl Group ===

impl Group<'_> {
    /// Creates the directories. `AlreadyExists` if one exists: an earlier machine of this sandbox was not destroyed.
    pub(crate) fn create(&self) -> io::Result<()> {
        for directory in self.directories() {
            fs::create_dir(directory)?;
        }
        match (self.sockets, self.unified_path()) {
            (Some(sockets), Some(directory)) => sockets.count(&directory),
            (_, _) => Ok(()),
        }
    }

    pub(crate) fn exists(&self) -> bool {
        self.main().is_some_and(|directory| directory.exists())
    }

    pub(crate) fn set_limits(&self, limits: &Limits) -> io::Result<()> {
        self.write_limits(limits)?;
        match (self.sockets, self.unified_path()) {
            (Some(sockets), Some(directory)) => sockets.set(&directory, limits.ram_mib),
            (_, _) => Ok(()),
        }
    }

    /// The limits while CRIU restores the sandbox: more processes, for CRIU itself, and as many sockets as the dump
    /// contains.
    pub(crate) fn set_limits_of_restore(&self, limits: &Limits) -> io::Result<()> {
        self.write_limits(&Limits { pids: limits.pids.saturating_add(RESTORE_PIDS), ..*limits })
    }

    fn write_limits(&self, limits: &Limits) -> io::Result<()> {
        let writes = limits::writes(self.layout, &self.name, limits);
        for (at, write) in writes.iter().enumerate() {
            match (write_file(&write.path, &write.value), write.need) {
                (Ok(()), FileRequirement::Must | FileRequirement::IfExists) => {}
                (Err(error), FileRequirement::IfExists) if error.kind() == io::ErrorKind::NotFound => {}
                // The other write to the same file succeeds; see `limits::writes`.
                (Err(error), FileRequirement::IfExists)
                    if error.raw_os_error() == Some(libc::EINVAL)
                        && writes.iter().skip(at + 1).any(|later| later.path == write.path) => {}
                (Err(error), FileRequirement::Must | FileRequirement::IfExists) => return Err(error),
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

    /// The v1 `tasks` files. A process that writes `0` to one joins it, in 0.1 ms; writing to `cgroup.procs` would cost
    /// 7 to 11 ms, most likely an RCU grace period.
    pub(crate) fn tasks(&self) -> io::Result<Vec<File>> {
        let unified = self.layout.unified.as_deref();
        let legacy = self.layout.trees().into_iter().filter(|tree| Some(*tree) != unified);
        legacy.map(|tree| OpenOptions::new().write(true).open(tree.join(&self.name).join("tasks"))).collect()
    }

    /// Freezes all processes, and returns when they are frozen.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        let frozen = self.set_frozen(true);
        if frozen.is_err() {
            // Half frozen is worse than running: nothing would ever thaw it.
            let _ = self.set_frozen(false);
        }
        frozen
    }

    pub(crate) fn thaw(&self) -> io::Result<()> {
        self.set_frozen(false)
    }

    /// Whether it is frozen, by request and in effect.
    pub(crate) fn is_frozen(&self) -> io::Result<bool> {
        let Some(main) = self.main() else { return Ok(false) };
        if self.layout.unified.is_some() {
            return event(&main, "frozen");
        }
        Ok(fs::read_to_string(main.join("freezer.state"))?.trim() == "FROZEN")
    }

    /// CPU time of all its processes, including ended ones. `Unsupported` if the host does not count it.
    pub(crate) fn cpu_us(&self) -> io::Result<u64> {
        if let Some(unified) = self.unified_path() {
            return cpu_us_of(&unified);
        }
        // Hosts usually mount the two v1 controllers together.
        let tree = self.layout.legacy.get(&Controller::Cpu).ok_or(io::ErrorKind::Unsupported)?;
        let file = tree.join(&self.name).join("cpuacct.usage");
        match fs::read_to_string(file) {
            Ok(text) => text.trim().parse().map(|ns: u64| ns / 1000).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::ErrorKind::Unsupported.into()),
            Err(error) => Err(error),
        }
    }

    /// Whether it contains any process.
    pub(crate) fn is_populated(&self) -> io::Result<bool> {
        let Some(main) = self.main() else { return Ok(false) };
        if self.layout.unified.is_some() {
            return event(&main, "populated");
        }
        Ok(!self.pids()?.is_empty())
    }

    /// Its processes, by their pids on the host.
    pub(crate) fn pids(&self) -> io::Result<Vec<u32>> {
        let main = self.main();
        let (mut found, mut left): (Vec<u32>, Vec<PathBuf>) = (Vec::new(), main.iter().cloned().collect());
        // Processes inside may have created groups below it.
        while let Some(folder) = left.pop() {
            let read = fs::read_to_string(folder.join("cgroup.procs"))
                .and_then(|text| Ok((text, fs::read_dir(&folder)?)));
            let (text, entries) = match read {
                Ok(read) => read,
                Err(error) if Some(&folder) == main.as_ref() => return Err(error),
                // It was removed meanwhile, or it is threaded: then its processes are listed above it.
                Err(_) => continue,
            };
            found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            for entry in entries.flatten() {
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
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.kill_each_process()?,
            Err(error) => return Err(error),
        }
        wait::until(|| Ok(!self.is_populated()?))
    }

    /// Removes the directories. All processes must have ended; the kernel may need a moment to notice it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        // The main directory is removed last: while it exists, the inventory lists the sandbox.
        for directory in self.directories().iter().rev() {
            remove_dir(directory)?;
        }
        Ok(())
    }

    /// Number of processes inside that the kernel's OOM killer has killed.
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

    /// Whether the process is in this group or one below it; false if it has ended.
    pub(crate) fn has(&self, pid: u32) -> io::Result<bool> {
        let text = match fs::read_to_string(format!("/proc/{pid}/cgroup")) {
            Ok(text) => text,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let prefix = if self.layout.unified.is_some() { "0::" } else { "" };
        Ok(text.lines().any(|line| line.starts_with(prefix) && is_within(line, &self.name)))
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
                // The v1 freezer does not freeze processes that were added late, unless the state is written again.
                write_file(&file, state)?;
            }
            Ok(now.trim() == state)
        })
    }

    /// For kernels before 5.14 and for v1: freezes, so that no process escapes by forking, signals all, and thaws them
    /// to die.
    fn kill_each_process(&self) -> io::Result<()> {
        for _ in 0..KILL_ROUNDS {
            // A group that cannot be frozen is still killed, if a fork bomb does not outrun the rounds.
            let _ = self.set_frozen(true);
            let pids = self.pids()?.into_iter().filter_map(|pid| i32::try_from(pid).ok());
            for pid in pids.filter_map(Pid::from_raw) {
                // It may have ended already; whether any is left is checked below.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            self.set_frozen(false)?;
            if wait::until(|| Ok(!self.is_populated()?)).is_ok() {
                return Ok(());
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The directory that contains the processes.
    fn main(&self) -> Option<PathBuf> {
        self.directories().into_iter().next()
    }

    fn directories(&self) -> Vec<PathBuf> {
        self.layout.trees().into_iter().map(|tree| tree.join(&self.name)).collect()
    }
}

/// Whether a line of `/proc/<pid>/cgroup` has the path of this group, or of one below it.
fn is_within(line: &str, name: &str) -> bool {
    // The hierarchy, the controllers and the path, which may contain more colons.
    let path = line.splitn(3, ':').nth(2).unwrap_or_default();
    format!("{path}/").contains(&format!("/{name}/"))
}

/// A boolean line of `cgroup.events`.
fn event(directory: &Path, name: &str) -> io::Result<bool> {
    let text = fs::read_to_string(directory.join("cgroup.events"))?;
    Ok(text.lines().any(|line| line.split_once(' ') == Some((name, "1"))))
}

/// Enables controllers for the children of a v2 directory.
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

/// Removes a directory that is empty, or about to be; the kernel may need a moment to notice it.
fn remove_dir(directory: &Path) -> io::Result<()> {
    wait::until(|| match fs::remove_dir(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
        Err(error) => Err(error),
    })
}

/// Writes to a file of the kernel; never creates one.
fn write_file(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// Reading files of a process that has just ended fails with one of these.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// CPU time of all processes of a v2 directory, including ended ones.
pub(crate) fn cpu_us_of(directory: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(directory.join("cpu.stat"))?;
    let used = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok());
    used.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether a process of a v2 directory is in uninterruptible sleep, for example waiting for a disk.
pub(crate) fn waits_for_disk(directory: &Path) -> bool {
    let pids = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    pids.lines().any(|pid| {
        // The state follows the name, which may contain anything, including parentheses.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
    })
}

#[cfg(test)]
mod tests;
