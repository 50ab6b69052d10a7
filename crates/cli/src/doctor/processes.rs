//! Process state and microVMs: CRIU, QEMU, KVM.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::Check;
use super::packages::{Package, install};
use super::program::{Version, find, first_line, version_in};
use crate::local::LocalDaemon;

const AREA: &str = "processes";
/// Where the set-up puts it: distributions' own are often too old.
const CRIU_OWN: &str = "/usr/local/lib/burrow/criu/sbin/criu";
/// Kernels from 6.16 on break older ones.
const CRIU_FLOOR: Version = Version { major: 4, minor: 2 };
/// Older ones cannot protect RAM that machines share.
const QEMU_FLOOR: Version = Version { major: 10, minor: 0 };

pub(super) async fn examine(daemon: Option<&LocalDaemon>) -> Vec<Check> {
    let chosen = daemon.and_then(|daemon| daemon.criu.clone());
    vec![criu(chosen).await, qemu().await, kvm()]
}

/// The one that the configuration names, else the set-up's, else the distribution's.
async fn criu(chosen: Option<PathBuf>) -> Check {
    let name = "CRIU";
    let fix = "run `make up` in Burrow's source directory again: it provides CRIU";
    let own = || Some(PathBuf::from(CRIU_OWN)).filter(|path| path.is_file());
    let Some(program) = chosen.or_else(own).or_else(|| find("criu")) else {
        return Check::warn(AREA, name, "not found: sandboxes cannot hibernate, only stop").fix(fix);
    };
    let line = first_line(&program, "--version").await.unwrap_or_default();
    match version_in(&line) {
        Some(version) if version >= CRIU_FLOOR => {
            Check::ok(AREA, name, format!("{version} at {}", program.display()))
        }
        Some(version) => Check::warn(
            AREA,
            name,
            format!(
                "{version} at {} is older than {CRIU_FLOOR}: sandboxes cannot hibernate, only stop",
                program.display()
            ),
        )
        .fix(fix),
        None => Check::warn(AREA, name, format!("`{}` does not say its version", program.display())).fix(fix),
    }
}

/// Of use from the microVM driver on.
async fn qemu() -> Check {
    let name = "QEMU";
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    let Some(program) = find(&format!("qemu-system-{machine}")) else {
        return Check::note(
            AREA,
            name,
            "not found: only microVMs need it, and this version has no driver for them",
        )
        .fix(install(Package::Qemu));
    };
    let line = first_line(&program, "--version").await.unwrap_or_default();
    match version_in(&line) {
        Some(version) if version >= QEMU_FLOOR => {
            Check::ok(AREA, name, format!("{version} at {}", program.display()))
        }
        Some(version) => {
            Check::note(AREA, name, format!("{version} is older than {QEMU_FLOOR}: too old for microVMs"))
                .fix(install(Package::Qemu))
        }
        None => Check::note(AREA, name, format!("`{}` does not say its version", program.display())),
    }
}

fn kvm() -> Check {
    let path = Path::new("/dev/kvm");
    if !path.exists() {
        return Check::note(AREA, "KVM", "no /dev/kvm: microVMs would be emulated, some ten times slower");
    }
    match File::options().read(true).write(true).open(path) {
        Ok(_) => Check::note(AREA, "KVM", "/dev/kvm opens; only booting a machine proves that it works"),
        Err(error) => Check::note(AREA, "KVM", format!("/dev/kvm does not open: {error}")),
    }
}
