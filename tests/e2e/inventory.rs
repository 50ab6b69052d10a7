//! The resources that one daemon has on the host: processes, cgroups, namespaces, mounts, subvolumes.
//!
//! Read from the kernel's own lists, not from the program under test, and limited to this daemon's cgroup, run directory
//! and pool.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    /// Pids in the cgroups of this daemon's sandboxes.
    pub(crate) processes: BTreeSet<u32>,
    /// Sandbox ids that have a cgroup, in any hierarchy.
    pub(crate) cgroups: BTreeSet<String>,
    /// Sandbox ids that have a gateway namespace.
    pub(crate) networks: BTreeSet<String>,
    /// Sandbox ids that have a subvolume.
    pub(crate) volumes: BTreeSet<String>,
    cgroup_folders: Vec<PathBuf>,
    run_dir: PathBuf,
    pool: PathBuf,
}

impl Inventory {
    pub(crate) fn take(cgroup: &str, run_dir: &Path, pool: &Path) -> Self {
        // Those of containers and of microVMs.
        let mut cgroup_folders = cgroup_folders_of(cgroup);
        cgroup_folders.extend(cgroup_folders_of(&format!("{cgroup}-vm")));
        let mut processes = BTreeSet::new();
        let mut cgroups = BTreeSet::new();
        for folder in &cgroup_folders {
            for id in names(folder).into_iter().filter(|name| name.starts_with("sbx")) {
                let members = fs::read_to_string(folder.join(&id).join("cgroup.procs")).unwrap_or_default();
                processes.extend(members.lines().filter_map(|pid| pid.parse::<u32>().ok()));
                cgroups.insert(id);
            }
        }
        let run_dir = run_dir.to_owned();
        let networks = mounts_under(&run_dir).into_iter().filter(|name| name.starts_with("sbx")).collect();
        let volumes = names(&pool.join("sandboxes")).into_iter().collect();
        Self { processes, cgroups, networks, volumes, cgroup_folders, run_dir, pool: pool.to_owned() }
    }

    /// The ids of all sandboxes that have a resource of any kind.
    pub(crate) fn sandboxes(&self) -> BTreeSet<String> {
        self.cgroups.iter().chain(&self.networks).chain(&self.volumes).cloned().collect()
    }

    pub(crate) fn kill_machines(&self) {
        for pid in &self.processes {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).output();
        }
        for folder in &self.cgroup_folders {
            for id in &self.cgroups {
                let _ = fs::write(folder.join(id).join("cgroup.kill"), "1");
                let _ = fs::write(folder.join(id).join("cgroup.freeze"), "0");
            }
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.processes.iter().any(|pid| alive(*pid)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn remove_networks(&self) {
        for mount in mount_points_under(&self.run_dir).into_iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(&mount).output();
        }
    }

    /// Retries for a while: a process that was just killed keeps its cgroup until it has exited, and a process that
    /// was forked at the same time was not among those killed.
    pub(crate) fn remove_cgroups(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            for folder in &self.cgroup_folders {
                for id in &self.cgroups {
                    let _ = fs::write(folder.join(id).join("cgroup.kill"), "1");
                    let _ = fs::remove_dir(folder.join(id));
                }
                let _ = fs::remove_dir(folder);
            }
            if self.cgroup_folders.iter().all(|folder| !folder.exists()) || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn remove_volumes(&self) {
        for part in ["sandboxes", "staged", "images", "snapshots", "volumes", "volume-snapshots"] {
            for name in names(&self.pool.join(part)) {
                let path = self.pool.join(part).join(name);
                let _ = Command::new("btrfs")
                    .args(["-q", "property", "set", "-f"])
                    .arg(&path)
                    .args(["ro", "false"])
                    .output();
                let _ = Command::new("btrfs").args(["-q", "subvolume", "delete"]).arg(&path).output();
            }
        }
    }
}

fn alive(pid: u32) -> bool {
    // A zombie has only its pid.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// This daemon's directory in every cgroup hierarchy.
fn cgroup_folders_of(cgroup: &str) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            matches!(fields.get(2), Some(&("cgroup" | "cgroup2"))).then(|| Path::new(fields[1]).join(cgroup))
        })
        .filter(|folder| folder.is_dir())
        .collect()
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn mount_points_under(folder: &Path) -> Vec<PathBuf> {
    let info = fs::read_to_string("/proc/self/mountinfo").unwrap();
    info.lines()
        .filter_map(|line| line.split(' ').nth(4).map(PathBuf::from))
        .filter(|path| path.starts_with(folder))
        .collect()
}

fn mounts_under(folder: &Path) -> Vec<String> {
    mount_points_under(folder)
        .iter()
        .filter_map(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()))
        .collect()
}

/// Egress processes whose control socket is under `run_dir`.
pub(crate) fn egress_processes(run_dir: &Path) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| serves(*pid, run_dir).is_some()).collect()
}

fn serves(pid: u32, run_dir: &Path) -> Option<()> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    command.split(|byte| *byte == 0).find(|word| *word == b"egress-process")?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let inode = |entry: std::io::Result<fs::DirEntry>| {
        let target = fs::read_link(entry.ok()?.path()).ok()?;
        Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    let own: BTreeSet<String> = descriptors.filter_map(inode).collect();
    let sockets = fs::read_to_string(format!("/proc/{pid}/net/unix")).ok()?;
    let under = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let place = fields.get(7).copied().unwrap_or_default();
        fields.get(6).is_some_and(|inode| own.contains(*inode)) && Path::new(place).starts_with(run_dir)
    };
    sockets.lines().any(under).then_some(())
}
