//! Process state and microVMs: CRIU, QEMU, KVM.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::Check;
use super::program::{Version, find, first_line, version_in};
use crate::local::LocalDaemon;

/// Beside the program, installed by its package or by the setup: the versions of distributions are often too old.
const CRIU_OWN: &str = "criu/sbin/criu";
/// Kernels from 6.16 on break older ones.
const CRIU_FLOOR: Version = Version { major: 4, minor: 2 };
const QEMU_OWN: &str = "qemu/run/qemu-system-x86_64";
const KERNEL_OWN: &str = "vm/vmlinux";
/// What provides them.
const REINSTALL: &str =
    "install Burrow's package again, or run `make up` in its source directory: they contain it";

pub(super) async fn examine(daemon: Option<&LocalDaemon>) -> Vec<Check> {
    let chosen = daemon.and_then(|daemon| daemon.config.runtime.criu.clone());
    vec![criu(chosen).await, helper("tar").await, helper("gzip").await, qemu(), kvm()]
}

/// CRIU saves the contents of a tmpfs, such as the `/dev/shm` of every container, with `tar` and `gzip`.
async fn helper(name: &'static str) -> Check {
    let Some(program) = find(name) else { return no_helper(name, "not found") };
    let line = first_line(&program, "--version").await.unwrap_or_default();
    helper_check(name, &program, &line)
}

fn helper_check(name: &'static str, program: &Path, line: &str) -> Check {
    // CRIU passes options that other implementations of `tar` refuse.
    if name == "tar" && !line.contains("GNU tar") {
        return no_helper(name, &format!("`{}` is not GNU tar", program.display()));
    }
    Check::ok(name, format!("at {}", program.display()))
}

fn no_helper(name: &'static str, found: &str) -> Check {
    Check::warn(name, format!("{found}: CRIU needs it, so containers cannot hibernate, only stop"))
        .install(name)
}

/// The CRIU in the configuration, else that of the setup, else that of the distribution.
async fn criu(chosen: Option<PathBuf>) -> Check {
    let name = "CRIU";
    let fix = REINSTALL;
    let own = || Some(beside(CRIU_OWN)).filter(|path| path.is_file());
    let Some(program) = chosen.or_else(own).or_else(|| find("criu")) else {
        return Check::warn(name, "not found: sandboxes cannot hibernate, only stop").fix(fix);
    };
    let line = first_line(&program, "--version").await.unwrap_or_default();
    match version_in(&line) {
        Some(version) if version >= CRIU_FLOOR => {
            Check::ok(name, format!("{version} at {}", program.display()))
        }
        Some(version) => Check::warn(
            name,
            format!(
                "{version} at {} is older than {CRIU_FLOOR}: sandboxes cannot hibernate, only stop",
                program.display()
            ),
        )
        .fix(fix),
        None => Check::warn(name, format!("`{}` does not print its version", program.display())).fix(fix),
    }
}

/// The path of a file in the directory of this program.
fn beside(file: &str) -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("").join(file)
}

/// Only QEMU and the guest kernel of the setup are used.
fn qemu() -> Check {
    let name = "QEMU";
    let (program, kernel) = (beside(QEMU_OWN), beside(KERNEL_OWN));
    for needed in [&program, &kernel] {
        if !needed.is_file() {
            let lacks = format!("`{}` does not exist: no microVMs, only containers", needed.display());
            return Check::note(name, lacks).fix(REINSTALL);
        }
    }
    Check::ok(name, format!("at {}, with a kernel for its guests", program.display()))
}

fn kvm() -> Check {
    let path = Path::new("/dev/kvm");
    if !path.exists() {
        return Check::note("KVM", "no /dev/kvm: microVMs are emulated, ten to thirty times slower");
    }
    match File::options().read(true).write(true).open(path) {
        Ok(_) => {
            Check::note("KVM", "/dev/kvm can be opened; the daemon boots a machine to check whether it works")
        }
        Err(error) => Check::note("KVM", format!("/dev/kvm cannot be opened: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn only_gnu_tar_is_accepted_for_criu() {
        let check = |name, line| helper_check(name, Path::new("/bin/program"), line);
        assert_eq!(check("tar", "tar (GNU tar) 1.35").verdict, Verdict::Ok);
        assert_eq!(check("gzip", "").verdict, Verdict::Ok);
        let other = check("tar", "tar (busybox) 1.36.1");
        assert_eq!(other.verdict, Verdict::Warn);
        assert!(other.found.starts_with("`/bin/program` is not GNU tar: "), "{}", other.found);
        assert!(other.fix.is_some_and(|fix| fix.contains("tar")));
    }
}
