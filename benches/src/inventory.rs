//! Finds and removes what a measured daemon has left on the host, by the kernel's own lists.
//!
//! Only resources with this daemon's cgroup, run directory or pool folder are inspected.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use burrow_egress::Supervisor;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

/// Killed processes exit within this time, or the kernel is stuck in them.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// The paths of one daemon's resources.
#[derive(Clone, Debug)]
pub(crate) struct DaemonPaths {
    pub(crate) cgroup: String,
    pub(crate) run_dir: PathBuf,
    pub(crate) pool: PathBuf,
}

impl DaemonPaths {
    /// Host pids in the cgroups of its sandboxes.
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        let mut pids = BTreeSet::new();
        for folder in self.sandbox_groups() {
            let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            pids.extend(members.lines().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        pids
    }

    /// The remaining resources of sandboxes, as text; empty when there are none.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let pids = self.processes().into_iter().map(|pid| format!("process {pid}"));
        let groups =
            self.sandbox_groups().into_iter().map(|path| format!("control group {}", path.display()));
        let kept = ["sandboxes", "snapshots", "dumps"].iter().flat_map(|part| folders(&self.pool.join(part)));
        pids.chain(groups).chain(kept.map(|path| format!("folder {}", path.display()))).collect()
    }

    /// Removes everything, including sandboxes. Best effort: the rest is left to the next clean-up of the pool.
    pub(crate) fn remove(&self) {
        self.end_egress();
        self.kill_all();
        for mount in mount_points_under(&self.run_dir).into_iter().rev() {
            let _ = unmount(&mount, UnmountFlags::DETACH);
        }
        for group in self.sandbox_groups().into_iter().chain(self.groups()) {
            let _ = fs::remove_dir(group);
        }
        for part in ["sandboxes", "snapshots", "staged", "images", "volumes", "volume-snapshots"] {
            for volume in folders(&self.pool.join(part)) {
                remove_subvolume(&volume);
            }
        }
        let _ = fs::remove_dir_all(&self.pool);
    }

    /// A killed daemon leaves behind the process that serves its sandboxes' listeners.
    fn end_egress(&self) {
        let run_dir = self.run_dir.join("egress");
        // On a separate thread: this may run on a thread of an async runtime, where no other runtime may be
        // started.
        let end = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(Supervisor::remove_all(&run_dir)))
        });
        let _ = end.join();
    }

    fn kill_all(&self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let pids = self.processes();
            if pids.is_empty() {
                return;
            }
            for pid in pids {
                if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            for group in self.sandbox_groups() {
                // A frozen process dies when it is thawed.
                let _ = fs::write(group.join("cgroup.freeze"), "0");
                let _ = fs::write(group.join("freezer.state"), "THAWED");
            }
            std::thread::sleep(POLL);
        }
    }

    /// Cgroups named after a sandbox's id, in any hierarchy.
    pub(crate) fn groups_of(&self, sandbox: &str) -> Vec<PathBuf> {
        let named =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(sandbox));
        self.sandbox_groups().into_iter().filter(named).collect()
    }

    fn sandbox_groups(&self) -> Vec<PathBuf> {
        self.groups().iter().flat_map(|group| folders(group)).collect()
    }

    /// This daemon's group in every hierarchy.
    fn groups(&self) -> Vec<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let (at, kind) = (fields.next()?, fields.next()?);
                matches!(kind, "cgroup" | "cgroup2").then(|| Path::new(at))
            })
            // Those of containers and of microVMs.
            .flat_map(|at| [at.join(&self.cgroup), at.join(format!("{}-vm", self.cgroup))])
            .filter(|folder| folder.is_dir())
            .collect()
    }
}

/// With `btrfs`, because a read-only subvolume must be made writable first on older kernels.
pub(crate) fn remove_subvolume(path: &Path) {
    let _ =
        Command::new("btrfs").args(["-q", "property", "set", "-f"]).arg(path).args(["ro", "false"]).output();
    let _ = Command::new("btrfs").args(["-q", "subvolume", "delete"]).arg(path).output();
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(of) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect()
}

fn mount_points_under(folder: &Path) -> Vec<PathBuf> {
    let info = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    info.lines()
        .filter_map(|line| line.split(' ').nth(4).map(PathBuf::from))
        .filter(|path| path.starts_with(folder))
        .collect()
}
