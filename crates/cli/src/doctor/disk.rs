//! Disks: btrfs in the kernel and its tools, loop devices, free space.

use std::path::Path;

use burrow_daemon::probes::{self, DisksFinding, PoolBacking};

use super::Check;
use crate::local::LocalDaemon;
use crate::print::quantity;

/// The default image, a few sandboxes, and some free space.
const SPACE_WANTED: u64 = 5 << 30;
const SPACE_NEEDED: u64 = 1 << 30;

pub(super) async fn examine(daemon: Option<&LocalDaemon>) -> Vec<Check> {
    // It runs programs to get their versions, which blocks.
    let findings = tokio::task::spawn_blocking(probes::volumes).await.unwrap_or_default();
    let mut checks: Vec<_> = findings.into_iter().map(finding).collect();
    let state = daemon.map_or(Path::new("/var/lib/burrow"), |daemon| &daemon.config.state_dir);
    checks.push(space("space for state", state));
    checks.extend(PoolBacking::of(&state.join(probes::POOL_FILE)).ok().map(promised));
    checks
}

fn finding(finding: DisksFinding) -> Check {
    match finding.found {
        Ok(found) => Check::ok(finding.subject, found),
        Err(problem) => {
            let check = match problem.fatal {
                true => Check::fail(finding.subject, problem.reason),
                false => Check::warn(finding.subject, problem.reason),
            };
            match problem.fix.and_then(|fix| fix.split_once(' ')) {
                Some(("modprobe", module)) => check.repair([["modprobe", module]]),
                Some(("apt-get", words)) => check.install(words.rsplit(' ').next().unwrap_or(words)),
                Some(_) | None => check.fix_if(problem.fix.map(|fix| format!("sudo {fix}"))),
            }
        }
    }
}

fn space(name: &'static str, path: &Path) -> Check {
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let Ok(found) = rustix::fs::statvfs(existing) else {
        return Check::warn(name, format!("could not get the free space of `{}`", existing.display()));
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    space_check(name, existing, free)
}

/// A loop-backed pool is a sparse file: its disk must have space for everything the pool may still write.
fn promised(backing: PoolBacking) -> Check {
    let shown = format!(
        "the pool may write {} more, and {} are free on its disk",
        quantity::bytes(backing.promised_bytes()),
        quantity::bytes(backing.disk_free_bytes)
    );
    if backing.is_overcommitted() {
        let fix =
            "free space on the disk of `state_dir`, then restart the daemon: it shrinks the pool if possible";
        Check::fail("space for the pool", shown).fix(fix.to_owned())
    } else {
        Check::ok("space for the pool", shown)
    }
}

fn space_check(name: &'static str, path: &Path, free: u64) -> Check {
    let shown = format!("{} free at {}", quantity::bytes(free), path.display());
    let fix = format!(
        "free some space, or move the state to another disk; to find large directories: sudo du -xh -d 2 {} | sort -h | tail",
        path.display()
    );
    if free >= SPACE_WANTED {
        Check::ok(name, shown)
    } else if free >= SPACE_NEEDED {
        Check::warn(name, format!("{shown}, less than {}", quantity::bytes(SPACE_WANTED))).fix(fix)
    } else {
        Check::fail(name, format!("{shown}, less than {}", quantity::bytes(SPACE_NEEDED))).fix(fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_pool_larger_than_its_disk_fails() {
        let backing =
            |free| PoolBacking { size_bytes: 16 << 30, allocated_bytes: 4 << 30, disk_free_bytes: free };
        assert_eq!(promised(backing(20 << 30)).verdict, Verdict::Ok);
        assert_eq!(promised(backing(12 << 30)).verdict, Verdict::Fail);
    }

    #[test]
    fn little_space_warns_and_less_fails() {
        for (free, verdict) in [(20 << 30, Verdict::Ok), (2 << 30, Verdict::Warn), (1 << 20, Verdict::Fail)] {
            assert_eq!(space_check("space", Path::new("/"), free).verdict, verdict);
        }
    }
}
