//! Opens the runtime drivers of this host, and finds the programs that they need.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_runtime::Runtime;
use burrow_runtime::container::{self, ContainerRuntime};
use burrow_runtime::microvm::{self, MicrovmRuntime};

use crate::error::ServeError;
use crate::instance::make_directory;
use burrow_config::Config;

/// Containers first: they run everywhere. Blocks; if KVM hangs, for seconds, once.
pub(crate) fn open(
    config: &Config,
    program: &Path,
    guest: &Path,
) -> Result<Vec<Arc<dyn Runtime>>, ServeError> {
    let settings = &config.runtime;
    let launcher = vec![program.as_os_str().to_owned(), OsString::from("launcher")];
    // The installer puts CRIU, QEMU and a kernel beside the program, separate from those of the distribution.
    let beside = |name: &str| program.parent().unwrap_or(Path::new("/")).join(name);
    let criu = Some(beside("criu/sbin/criu")).filter(|criu| criu.is_file());
    let options = container::Options {
        launcher: launcher.clone(),
        guest_binary: guest.to_owned(),
        cgroup_parent: settings.cgroup.clone(),
        run_dir: config.run_dir.join("container"),
        criu: settings.criu.clone().or(criu).or_else(|| find_program("criu")),
        apparmor: settings.apparmor,
    };
    make_directory(&options.run_dir)?;
    let failed = |source| ServeError::Runtime { source };
    let containers = ContainerRuntime::open(options).map_err(failed)?;
    let options = microvm::Options {
        launcher,
        guest_binary: guest.to_owned(),
        cgroup_parent: format!("{}-vm", settings.cgroup),
        run_dir: config.run_dir.join("microvm"),
        qemu: settings.qemu.clone().unwrap_or_else(|| beside("qemu")),
        kernel: settings.kernel.clone().unwrap_or_else(|| beside("vm")),
        accelerator: settings.accelerator,
    };
    make_directory(&options.run_dir)?;
    let machines = MicrovmRuntime::open(options).map_err(failed)?;
    Ok(vec![containers, machines])
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}
