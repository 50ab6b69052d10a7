//! The kernel: its version, user namespaces, what a container driver needs of it, and the clock.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use burrow_daemon::probes::{BOUNDS, Standing};

use super::Check;
use super::program::{Version, version_in};

const AREA: &str = "kernel";
/// `cgroup.kill` came with 5.14; 5.15 is the first long-term kernel that has everything the container driver calls.
const FLOOR: Version = Version { major: 5, minor: 15 };
/// No host of ours was ever set up before this: the first of January 2025.
const CLOCK_FLOOR: Duration = Duration::from_secs(1_735_689_600);

pub(super) fn examine() -> Vec<Check> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let version = version_in(&release);
    vec![
        version_check(&release, version),
        user_namespaces(),
        architecture(&uname.machine().to_string_lossy()),
        shared_bounds(),
        clock(SystemTime::now()),
    ]
}

/// What one sandbox could use up for all.
fn shared_bounds() -> Check {
    let name = "shared bounds";
    let low: Vec<_> = BOUNDS
        .iter()
        .filter_map(|bound| match bound.standing() {
            Standing::Low { now } => Some((bound, now)),
            Standing::Enough | Standing::Unknown => None,
        })
        .collect();
    if low.is_empty() {
        return Check::ok(AREA, name, "out of reach of any one sandbox");
    }
    let told: Vec<String> =
        low.iter().map(|(bound, now)| format!("{} is {now}: used up, {}", bound.name, bound.why)).collect();
    let settings: Vec<String> =
        low.iter().map(|(bound, _)| format!("{}={}", bound.name, bound.value())).collect();
    Check::warn(AREA, name, told.join("; ")).fix(format!("sudo sysctl -w {}", settings.join(" ")))
}

fn version_check(release: &str, version: Option<Version>) -> Check {
    match version {
        Some(version) if version >= FLOOR => Check::ok(AREA, "version", release),
        Some(_) => Check::fail(AREA, "version", format!("{release} is older than {FLOOR}"))
            .fix("install a newer kernel of your distribution and reboot"),
        None => Check::warn(AREA, "version", format!("`{release}` is not a version we understand")),
    }
}

fn user_namespaces() -> Check {
    let name = "user namespaces";
    if !Path::new("/proc/self/ns/user").exists() {
        return Check::fail(AREA, name, "the kernel was built without them")
            .fix("install your distribution's own kernel");
    }
    let most = fs::read_to_string("/proc/sys/user/max_user_namespaces").ok();
    match most.as_deref().map(str::trim).and_then(|text| text.parse::<u64>().ok()) {
        Some(0) => {
            Check::fail(AREA, name, "switched off").fix("sudo sysctl -w user.max_user_namespaces=15000")
        }
        Some(most) => Check::ok(AREA, name, format!("up to {most}")),
        None => Check::ok(AREA, name, "available"),
    }
}

fn architecture(machine: &str) -> Check {
    match machine {
        "x86_64" | "aarch64" => Check::ok(AREA, "architecture", machine),
        _ => Check::fail(AREA, "architecture", format!("the container driver knows no {machine}")),
    }
}

/// Keys and sandboxes expire by this clock.
fn clock(now: SystemTime) -> Check {
    match now.duration_since(UNIX_EPOCH) {
        Ok(since) if since >= CLOCK_FLOOR => {
            Check::ok(AREA, "clock", humantime::format_rfc3339_seconds(now).to_string())
        }
        _ => Check::fail(AREA, "clock", "it stands before 2025").fix("sudo timedatectl set-ntp true"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn an_old_kernel_is_told_from_a_new_one() {
        for (release, verdict) in [
            ("6.18.5", Verdict::Ok),
            ("6.1.0-28-amd64", Verdict::Ok),
            ("5.10.0", Verdict::Fail),
            ("x", Verdict::Warn),
        ] {
            assert_eq!(version_check(release, version_in(release)).verdict, verdict, "{release}");
        }
    }

    #[test]
    fn a_clock_from_the_past_is_a_failure() {
        assert_eq!(clock(UNIX_EPOCH).verdict, Verdict::Fail);
        assert_eq!(clock(UNIX_EPOCH + CLOCK_FLOOR).verdict, Verdict::Ok);
    }
}
