//! The options of the microVM driver.

use std::ffi::OsString;
use std::path::PathBuf;

use super::model::Accelerator;

#[derive(Clone, Debug)]
pub struct Options {
    /// Program and arguments of the launcher role, which calls [`crate::container::launcher_main`].
    pub launcher: Vec<OsString>,
    /// The agent, a static program.
    pub guest_binary: PathBuf,
    /// Directory of the cgroup trees that contains one directory per sandbox; not shared with other drivers.
    pub cgroup_parent: String,
    /// For files that must not outlive the host's boot.
    pub run_dir: PathBuf,
    /// The directory in which `scripts/get-qemu.sh` installed QEMU.
    pub qemu: PathBuf,
    /// The directory in which it installed the kernel and its modules.
    pub kernel: PathBuf,
    /// `None`: decided by a trial boot.
    pub accelerator: Option<Accelerator>,
}
