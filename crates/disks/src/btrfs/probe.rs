//! What this host supports for the btrfs driver, for `burrow doctor`.

use std::fs;

use crate::command::{command, find, run};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked, in a few words.
    pub subject: &'static str,
    /// What was found, e.g. a version.
    pub found: Result<String, Problem>,
}

/// Something that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: String,
    /// The command that fixes it, if there is one.
    pub fix: Option<&'static str>,
    /// Whether sandboxes work without it.
    pub fatal: bool,
}

/// Checks the kernel and the programs; changes nothing.
pub fn probe() -> Vec<Finding> {
    vec![
        Finding { subject: "btrfs in the kernel", found: kernel_support() },
        Finding { subject: "loop devices", found: loop_support() },
        Finding { subject: "mkfs.btrfs", found: mkfs_version() },
        Finding { subject: "disk quotas", found: quota_support() },
    ]
}

fn kernel_support() -> Result<String, Problem> {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.trim() == "btrfs") {
        return Ok("built in or loaded".into());
    }
    Err(Problem {
        reason: "the kernel does not know btrfs, or its module is not loaded".into(),
        fix: Some("modprobe btrfs"),
        fatal: true,
    })
}

fn loop_support() -> Result<String, Problem> {
    match fs::metadata("/dev/loop-control") {
        Ok(_) => Ok("available".into()),
        Err(error) => Err(Problem {
            reason: format!("`/dev/loop-control` is missing: {error}"),
            fix: Some("modprobe loop"),
            fatal: true,
        }),
    }
}

fn mkfs_version() -> Result<String, Problem> {
    const FIX: Option<&str> = Some("apt-get install btrfs-progs");
    if find("mkfs.btrfs").is_none() {
        return Err(Problem { reason: "`mkfs.btrfs` is not installed".into(), fix: FIX, fatal: true });
    }
    match run(command("mkfs.btrfs").arg("--version")) {
        // `mkfs.btrfs, part of btrfs-progs v6.2`
        Ok(text) => Ok(text.split_whitespace().last().unwrap_or("an unknown version").to_owned()),
        Err(error) => Err(Problem { reason: error.to_string(), fix: FIX, fatal: true }),
    }
}

fn quota_support() -> Result<String, Problem> {
    if fs::exists("/sys/fs/btrfs/features/simple_quota").unwrap_or(false) {
        return Ok("simple quotas".into());
    }
    Err(Problem {
        reason: "the kernel has no simple quotas (Linux 6.7 brought them): a sandbox may fill the pool"
            .into(),
        fix: None,
        fatal: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_runs_these_tests_has_all_that_is_needed() {
        for finding in probe() {
            let fatal = matches!(&finding.found, Err(problem) if problem.fatal);
            assert!(!fatal, "{finding:?}");
        }
    }
}
