//! A machine on this host, and the volumes in it.

use std::path::PathBuf;

use burrow_model::{MountMode, MountPath};
use serde::{Deserialize, Serialize};

/// A machine as stored in the catalog: enough to find it again, and to distinguish it from another process with its
/// pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// A directory of the host that is visible in a machine: a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path on the host. The path itself is trusted, its contents are not.
    pub source: PathBuf,
    /// The mount point in the machine.
    pub target: MountPath,
    pub mode: MountMode,
}
