//! What this host can do, found out by trying.
//!
//! Each answer of "no" carries its reason in the user's words and, where there is one, the command that mends it.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::cgroup::{Groups, Layout};
use super::launcher::Failure;
use crate::{Ability, Capabilities};

/// The first kernel with `cgroup.kill`; all else the driver needs came before it.
const KERNEL_MIN: (u32, u32) = (5, 14);

/// Older ones fail on kernels from 6.16 on.
const CRIU_MIN: (u32, u32) = (4, 2);

/// The abilities, and what was opened to find them out.
pub(super) struct Found {
    pub(super) groups: Option<Groups>,
    pub(super) capabilities: Capabilities,
}

impl Found {
    /// `namespaces` is where the launcher's attempt at namespaces failed, if it did.
    pub(super) fn look(namespaces: Option<Failure>, cgroup_parent: &str, criu: Option<&Path>) -> Self {
        let (groups, limits) = cgroups(cgroup_parent);
        let pause = match &groups {
            Some(groups) if groups.layout().can_freeze() => Ability::Yes,
            Some(_) | None => {
                no("this host has neither a cgroup v2 tree nor a v1 freezer", Some(MOUNT_CGROUP2))
            }
        };
        // Without limits one sandbox could take the host down, so it is not run at all.
        let available =
            [kernel(), namespaces.map_or(Ability::Yes, no_namespaces), limits.clone(), pause.clone()]
                .into_iter()
                .find(|ability| *ability != Ability::Yes)
                .unwrap_or(Ability::Yes);
        let hibernate = criu_ability(criu);
        Self { groups, capabilities: Capabilities { available, pause, hibernate, limits } }
    }
}

const MOUNT_CGROUP2: &str = "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified";

fn no(reason: impl Into<String>, fix: Option<&str>) -> Ability {
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

fn cgroups(parent: &str) -> (Option<Groups>, Ability) {
    let layout = match Layout::detect() {
        Ok(layout) => layout,
        Err(error) => return (None, no(format!("this host's mounts could not be read: {error}"), None)),
    };
    let missing: Vec<_> = layout.missing().into_iter().map(super::cgroup::Controller::name).collect();
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
    // A v2 directory with processes of its own hands no controllers down; only the real root may.
    if pure_v2 && error.raw_os_error() == Some(libc::EBUSY) {
        return "the cgroup this program sees as the root has processes in it, so it cannot hand controllers down: \
                run it outside of a container, or with the host's cgroup namespace"
            .to_owned();
    }
    format!("the cgroups could not be set up: {error}")
}

fn criu_ability(criu: Option<&Path>) -> Ability {
    const FIX: Option<&str> = Some("scripts/get-criu.sh");
    let Some(criu) = criu else { return no("CRIU is not installed", FIX) };
    let text = match run(criu, &["--version"]) {
        Ok(text) => text,
        Err(error) => return no(format!("CRIU at `{}` does not run: {error}", criu.display()), FIX),
    };
    let found = text.lines().find_map(|line| version(line.strip_prefix("Version:")?.trim()));
    match found {
        Some(found) if found >= CRIU_MIN => {}
        Some((major, minor)) => {
            let (needed, wanted) = CRIU_MIN;
            return no(format!("CRIU {major}.{minor} is too old: {needed}.{wanted} or newer is needed"), FIX);
        }
        None => return no(format!("`{}` does not tell its version", criu.display()), FIX),
    }
    match run(criu, &["check"]) {
        Ok(_) => Ability::Yes,
        Err(error) => no(format!("CRIU finds this kernel lacking: {error}"), None),
    }
}

/// Standard output of a program that ends by itself within a second; what it said on standard error when it fails.
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

/// `6.18.44-fc` and `4.2.1` alike: the first two numbers.
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
    fn criu_is_believed_only_when_it_is_new_enough_and_content() {
        let reason = |script: &str| {
            let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
            std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
            match criu_ability(Some(&file)) {
                Ability::Yes => "yes".to_owned(),
                Ability::No { reason, .. } => reason,
            }
        };
        assert_eq!(reason("echo Version: 4.2.1"), "yes");
        assert_eq!(reason("echo Version: 3.17"), "CRIU 3.17 is too old: 4.2 or newer is needed");
        assert_eq!(
            reason("[ $1 = --version ] && echo Version: 5.0 && exit; echo no soft-dirty >&2; exit 1"),
            "CRIU finds this kernel lacking: no soft-dirty"
        );
        assert!(criu_ability(None) != Ability::Yes);
        assert!(criu_ability(Some(Path::new("/nonexistent/criu"))) != Ability::Yes);
    }

    #[test]
    fn a_bound_on_namespaces_names_its_remedy() {
        let failure = Failure { step: "make a user namespace".to_owned(), errno: libc::ENOSPC };
        let Ability::No { reason, fix } = no_namespaces(failure) else { panic!("expected a no") };
        assert!(reason.starts_with("this host could not make a user namespace: "), "{reason}");
        assert_eq!(fix.as_deref(), Some("sysctl -w user.max_user_namespaces=65536"));
    }
}
