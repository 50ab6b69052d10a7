//! The kernel: its version, user namespaces, the requirements of the container driver, and the clock.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use burrow_daemon::probes::{BOUNDS, LimitState, apparmor};

use super::Check;
use super::program::{Version, version_in};

/// `cgroup.kill` came with 5.14; 5.15 is the first long-term kernel that has everything the container driver calls.
const FLOOR: Version = Version { major: 5, minor: 15 };
/// No host was set up before this: 1 January 2025.
const CLOCK_FLOOR: Duration = Duration::from_secs(1_735_689_600);

pub(super) fn examine() -> Vec<Check> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let version = version_in(&release);
    vec![
        version_check(&release, version),
        user_namespaces(),
        architecture(&uname.machine().to_string_lossy()),
        shared_limits(),
        apparmor_check(apparmor::standing(), apparmor::has_parser()),
        clock(SystemTime::now()),
    ]
}

/// Whether containers have a second barrier behind namespaces and filter.
fn apparmor_check(standing: apparmor::ProfileState, has_parser: bool) -> Check {
    let name = "AppArmor";
    match (standing, has_parser) {
        (apparmor::ProfileState::NoAppArmor, _) => {
            Check::ok(name, "not enabled in this kernel: containers run without a profile")
        }
        (apparmor::ProfileState::Loaded, _) => {
            Check::ok(name, format!("active: the profile `{}` is loaded", apparmor::PROFILE))
        }
        (apparmor::ProfileState::NotLoaded, true) => {
            let found = format!(
                "enabled; the profile `{}` is not loaded: containers run without it",
                apparmor::PROFILE
            );
            Check::ok(name, found)
                .fix("start the daemon with `runtime.apparmor = true` in its configuration: it loads the profile, or says why it cannot")
        }
        (apparmor::ProfileState::NotLoaded, false) => Check::ok(
            name,
            "enabled; `apparmor_parser`, which loads the profile of containers, is missing: they run without it",
        )
        .fix("sudo apt-get install apparmor, and restart the daemon"),
    }
}

/// Kernel limits that one sandbox could exhaust for all others.
fn shared_limits() -> Check {
    let name = "shared limits";
    let low: Vec<_> = BOUNDS
        .iter()
        .filter_map(|bound| match bound.standing() {
            LimitState::Low { now } => Some((bound, now)),
            LimitState::Enough | LimitState::Unknown => None,
        })
        .collect();
    if low.is_empty() {
        return Check::ok(name, "high enough that no sandbox can exhaust them");
    }
    let found: Vec<String> = low
        .iter()
        .map(|(bound, now)| format!("{} is {now}: when it is exhausted, {}", bound.name, bound.why))
        .collect();
    let settings: Vec<String> =
        low.iter().map(|(bound, _)| format!("{}={}", bound.name, bound.value())).collect();
    let words = ["sysctl", "-w"].map(str::to_owned).into_iter().chain(settings);
    Check::warn(name, found.join("; ")).repair([words])
}

fn version_check(release: &str, version: Option<Version>) -> Check {
    match version {
        Some(version) if version >= FLOOR => Check::ok("version", release),
        Some(_) => Check::fail("version", format!("{release} is older than {FLOOR}"))
            .fix("install a newer kernel of your distribution and reboot"),
        None => Check::warn("version", format!("`{release}` is not a known version format")),
    }
}

fn user_namespaces() -> Check {
    let name = "user namespaces";
    if !Path::new("/proc/self/ns/user").exists() {
        return Check::fail(name, "the kernel was built without them")
            .fix("install the kernel of your distribution");
    }
    let most = fs::read_to_string("/proc/sys/user/max_user_namespaces").ok();
    match most.as_deref().map(str::trim).and_then(|text| text.parse::<u64>().ok()) {
        Some(0) => Check::fail(name, "disabled").repair([["sysctl", "-w", "user.max_user_namespaces=15000"]]),
        Some(most) => Check::ok(name, format!("up to {most}")),
        None => Check::ok(name, "available"),
    }
}

fn architecture(machine: &str) -> Check {
    match machine {
        "x86_64" | "aarch64" => Check::ok("architecture", machine),
        _ => Check::fail("architecture", format!("the container driver does not support {machine}")),
    }
}

/// Keys and sandboxes expire by this clock.
fn clock(now: SystemTime) -> Check {
    match now.duration_since(UNIX_EPOCH) {
        Ok(since) if since >= CLOCK_FLOOR => {
            Check::ok("clock", humantime::format_rfc3339_seconds(now).to_string())
        }
        _ => Check::fail("clock", "it is set to a time before 2025").repair([[
            "timedatectl",
            "set-ntp",
            "true",
        ]]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn the_check_shows_whether_the_apparmor_profile_is_loaded() {
        let found = |standing, has_parser| {
            let check = apparmor_check(standing, has_parser);
            (check.found, check.fix.unwrap_or_default())
        };
        assert!(found(apparmor::ProfileState::NoAppArmor, false).0.contains("not enabled"));
        assert!(found(apparmor::ProfileState::Loaded, true).0.starts_with("active"));
        assert!(found(apparmor::ProfileState::NotLoaded, true).1.contains("runtime.apparmor = true"));
        assert!(found(apparmor::ProfileState::NotLoaded, false).1.contains("apt-get install apparmor"));
    }

    #[test]
    fn an_old_kernel_is_distinguished_from_a_new_one() {
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
