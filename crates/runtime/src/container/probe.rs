//! Finds out by trials what this host supports.
//!
//! Each "no" contains its reason for the user and, if there is one, the command that fixes it.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::criu;
use crate::cgroup::{Groups, Layout};
use crate::launcher::Failure;
use crate::{Ability, Capabilities};

/// The first kernel with `cgroup.kill`; everything else that the driver needs is older.
const KERNEL_MIN: (u32, u32) = (5, 14);

/// Older versions fail on kernels from 6.16 on.
const CRIU_MIN: (u32, u32) = (4, 2);

/// The capabilities, and the resources that were opened to find them out.
pub(super) struct HostSupport {
    pub(super) groups: Option<Groups>,
    /// Its version, if it can be used.
    pub(super) criu: Option<String>,
    pub(super) capabilities: Capabilities,
}

impl HostSupport {
    /// `namespaces` is the failure of the launcher's attempt at namespaces, if it failed.
    pub(super) fn look(namespaces: Option<Failure>, cgroup_parent: &str, criu: Option<&Path>) -> Self {
        let (groups, limits) = cgroups(cgroup_parent);
        let pause = match &groups {
            Some(groups) if groups.layout().can_freeze() => Ability::Yes,
            Some(_) | None => {
                no("this host has neither a cgroup v2 tree nor a v1 freezer", Some(MOUNT_CGROUP2))
            }
        };
        // Without limits one sandbox could overload the host, so none is run at all.
        let available =
            [kernel(), namespaces.map_or(Ability::Yes, no_namespaces), limits.clone(), pause.clone()]
                .into_iter()
                .find(|ability| *ability != Ability::Yes)
                .unwrap_or(Ability::Yes);
        let unified = groups.as_ref().is_some_and(|groups| groups.layout().unified.is_some());
        let (hibernate, criu) =
            match criu_version(criu).and_then(|found| check_host_for_criu(unified).map(|()| found)) {
                Ok(version) => (Ability::Yes, Some(version)),
                Err(no) => (no, None),
            };
        let volumes = available.clone();
        let capabilities = Capabilities {
            available,
            pause,
            hibernate,
            limits,
            disk_rate: no(NO_DISK_RATE, None),
            volumes,
            isolates_by_hardware: false,
            note: None,
        };
        Self { groups, criu, capabilities }
    }
}

/// A cgroup that throttles the pool's device only delays writes for which processes wait. Of 300 MiB that were written
/// without waiting, under a limit of 4 MiB/s in a v1 tree, all were on the disk after two seconds. A v2 tree with the
/// `io` controller could attribute the pages to their writers; no host on which this was tried has it.
pub(super) const NO_DISK_RATE: &str =
    "containers write through the host's page cache, whose writeback cannot be attributed to a sandbox";

/// The note for a kernel, or a file system of the pool, without idmapped mounts.
pub(super) const SHARED_IDS: &str = "all sandboxes have the same uids on the host, so one can use up limits that the kernel \
     counts per user, since the pool cannot be mounted with other owners";

/// The note for hosts on which cgroup v1 counts RAM, and the programs that count sockets cannot be used.
pub(super) const SOCKETS_UNLIMITED: &str = "the number of sockets of a sandbox is not limited, so with thousands of connections \
     to itself it can hold more than its RAM limit in socket buffers";

const MOUNT_CGROUP2: &str = "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified";

pub(crate) fn no(reason: impl Into<String>, fix: Option<&str>) -> Ability {
    Ability::No { reason: reason.into(), fix: fix.map(str::to_owned) }
}

fn kernel() -> Ability {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    match version(&release) {
        Some(found) if found >= KERNEL_MIN => Ability::Yes,
        Some(_) | None => no(
            format!("kernel {release} is too old: {}.{} or newer is needed", KERNEL_MIN.0, KERNEL_MIN.1),
            None,
        ),
    }
}

fn no_namespaces(failure: Failure) -> Ability {
    let reason = format!("this host could not {}: {}", failure.step, failure.source());
    let fix = (failure.errno == libc::ENOSPC).then_some("sysctl -w user.max_user_namespaces=65536");
    no(reason, fix)
}

pub(crate) fn cgroups(parent: &str) -> (Option<Groups>, Ability) {
    let layout = match Layout::detect() {
        Ok(layout) => layout,
        Err(error) => return (None, no(format!("could not read this host's mounts: {error}"), None)),
    };
    let missing: Vec<_> = layout.missing().into_iter().map(crate::cgroup::Controller::name).collect();
    let (pure_v2, no_tree) = (layout.legacy.is_empty(), layout.trees().is_empty());
    if no_tree {
        return (None, no("no cgroup tree is mounted on this host", Some(MOUNT_CGROUP2)));
    }
    match Groups::open(layout, parent) {
        Err(error) => (None, no(cgroup_reason(&error, pure_v2), None)),
        Ok(groups) if missing.is_empty() => (Some(groups), Ability::Yes),
        Ok(groups) => {
            let missing = missing.join("`, `");
            let fix = missing
                .contains("memory")
                .then_some("add `cgroup_enable=memory` to the kernel's command line");
            (Some(groups), no(format!("this host lacks the cgroup controllers `{missing}`"), fix))
        }
    }
}

fn cgroup_reason(error: &io::Error, pure_v2: bool) -> String {
    // A v2 directory with its own processes cannot enable controllers for its children; only the real root may.
    if pure_v2 && error.raw_os_error() == Some(libc::EBUSY) {
        return "the root cgroup that this program sees contains processes, so it cannot enable controllers for its children: \
                run it outside of a container, or with the host's cgroup namespace"
            .to_owned();
    }
    format!("could not set up the cgroups: {error}")
}

/// The version of CRIU, if it is new enough.
fn criu_version(criu: Option<&Path>) -> Result<String, Ability> {
    const FIX: Option<&str> = Some("scripts/get-criu.sh");
    let Some(criu) = criu else { return Err(no("CRIU is not installed", FIX)) };
    let text = run(criu, &["--version"])
        .map_err(|error| no(format!("CRIU at `{}` does not run: {error}", criu.display()), FIX))?;
    let found = text.lines().find_map(|line| line.strip_prefix("Version:")).unwrap_or_default().trim();
    match version(found) {
        Some(numbers) if numbers >= CRIU_MIN => Ok(found.to_owned()),
        Some((major, minor)) => {
            let (needed, wanted) = CRIU_MIN;
            Err(no(format!("CRIU {major}.{minor} is too old: {needed}.{wanted} or newer is needed"), FIX))
        }
        None => Err(no(format!("`{}` does not report its version", criu.display()), FIX)),
    }
}

fn check_host_for_criu(unified: bool) -> Result<(), Ability> {
    check_kernel_for_criu(unified)?;
    criu::missing_helper().map_or(Ok(()), |name| {
        let reason = format!("`{name}`, which CRIU needs to save the contents of a tmpfs, is not installed");
        Err(no(reason, Some(&format!("apt-get install -y {name}"))))
    })
}

/// The kernel features that CRIU and we need. CRIU's own `check` tests more, and takes a tenth of a second for it.
fn check_kernel_for_criu(unified: bool) -> Result<(), Ability> {
    if !unified {
        return Err(no("this host has no cgroup v2 tree", Some(MOUNT_CGROUP2)));
    }
    if !Path::new("/proc/sys/kernel/ns_last_pid").exists() {
        return Err(no("this kernel was built without CONFIG_CHECKPOINT_RESTORE", None));
    }
    match burrow_network::linux::can_reset() {
        Ok(true) => Ok(()),
        Ok(false) => Err(no("this kernel was built without CONFIG_INET_DIAG_DESTROY", None)),
        Err(error) => Err(no(format!("could not query this kernel's sockets: {error}"), None)),
    }
}

/// Standard output of a program that ends by itself within a second; its standard error if it fails.
fn run(program: &Path, arguments: &[&str]) -> io::Result<String> {
    let output =
        Command::new(program).args(arguments).env_clear().current_dir("/").stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        return Err(io::Error::other(last.trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first two numbers, of `6.18.44-fc` and `4.2.1` alike.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn versions_are_their_first_two_numbers() {
        assert_eq!(version("6.18.44-fc-v310"), Some((6, 18)));
        assert_eq!(version("4.2.1"), Some((4, 2)));
        assert_eq!(version("4.2"), Some((4, 2)));
        assert_eq!(version("none"), None);
    }

    #[test]
    fn criu_is_accepted_only_if_it_is_new_enough() {
        let found = |script: &str| {
            let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
            std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
            match criu_version(Some(&file)) {
                Ok(version) => version,
                Err(Ability::Yes) => panic!("a yes is no reason"),
                Err(Ability::No { reason, .. }) => reason,
            }
        };
        assert_eq!(found("echo Version: 4.2.1"), "4.2.1");
        assert_eq!(found("echo Version: 3.17"), "CRIU 3.17 is too old: 4.2 or newer is needed");
        assert!(found("echo hello").ends_with("does not report its version"));
        assert!(found("echo no such thing >&2; exit 1").ends_with("does not run: no such thing"));
        assert!(criu_version(None).is_err());
        assert!(criu_version(Some(Path::new("/nonexistent/criu"))).is_err());
    }

    #[test]
    fn this_kernel_can_dump_processes_if_it_has_a_v2_tree() {
        assert_eq!(check_kernel_for_criu(true), Ok(()));
        assert!(check_kernel_for_criu(false).is_err());
    }

    #[test]
    fn a_limit_on_namespaces_names_its_fix() {
        let failure = Failure { step: "create a user namespace".to_owned(), errno: libc::ENOSPC };
        let Ability::No { reason, fix } = no_namespaces(failure) else { panic!("expected a no") };
        assert!(reason.starts_with("this host could not create a user namespace: "), "{reason}");
        assert_eq!(fix.as_deref(), Some("sysctl -w user.max_user_namespaces=65536"));
    }
}
