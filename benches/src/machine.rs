//! Facts about the machine and the source tree, which are needed to interpret a figure.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use rustix::fs::statfs;
use serde::Serialize;

use crate::crun;
use crate::daemon::BenchSetup;
use crate::process::run;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) architecture: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) ram_mib: u64,
    /// `v2`, `v1` or `hybrid`.
    pub(crate) cgroups: &'static str,
    pub(crate) state_filesystem: String,
    pub(crate) crun: Option<String>,
    /// Over one minute. Above the number of cores, other programs were busy too.
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Revision {
    pub(crate) commit: Option<String>,
    /// Whether the tree has uncommitted changes.
    pub(crate) changed: bool,
}

impl Machine {
    pub(crate) fn look(prepared: &BenchSetup) -> Self {
        let name = rustix::system::uname();
        Self {
            kernel: name.release().to_string_lossy().into_owned(),
            architecture: name.machine().to_string_lossy().into_owned(),
            processor: colon_field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            ram_mib: ram_mib(),
            cgroups: cgroups(),
            state_filesystem: filesystem(&prepared.state),
            crun: crun::version(),
            load_before: load(),
            load_after: 0.0,
        }
    }
}

impl Revision {
    pub(crate) fn look() -> Self {
        let git = |arguments: &[&str]| run(Command::new("git").args(arguments)).ok();
        Self {
            commit: git(&["rev-parse", "HEAD"]),
            changed: git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty()),
        }
    }
}

/// Now, as RFC 3339 in UTC.
pub(crate) fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

fn ram_mib() -> u64 {
    let text = colon_field("/proc/meminfo", "MemTotal").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn colon_field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn cgroups() -> &'static str {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let has = |kind: &str| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
    match (has("cgroup"), has("cgroup2")) {
        (true, true) => "hybrid",
        (true, false) => "v1",
        (false, _) => "v2",
    }
}

/// The name of its file system, by its magic number where it is a relevant one.
fn filesystem(path: &Path) -> String {
    let Ok(stat) = statfs(path) else { return "unknown".to_owned() };
    match stat.f_type {
        0xef53 => "ext4".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x794c_7630 => "overlay".to_owned(),
        other => format!("{other:#x}"),
    }
}
