//! Control groups: their layout, and whether the controllers for limits exist.

use std::fs;
use std::path::Path;

use super::Check;

/// For hosts with systemd, the only ones with the hybrid layout.
const USE_V2: &str =
    "add `systemd.unified_cgroup_hierarchy=1` to the kernel's command line and reboot, for cgroup v2";

/// Mounts a v2 tree without controllers.
const MOUNT_V2: &str =
    "sudo mkdir -p /sys/fs/cgroup/unified && sudo mount -t cgroup2 none /sys/fs/cgroup/unified";

const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// One v2 tree.
    Unified,
    /// Controllers on v1, and a v2 tree beside them.
    Hybrid,
    /// v1 only.
    Legacy,
    Missing,
}

pub(super) fn examine() -> Vec<Check> {
    examine_at(Path::new("/sys/fs/cgroup"))
}

fn examine_at(root: &Path) -> Vec<Check> {
    let layout = layout(root);
    let mut checks = vec![layout_check(layout)];
    if layout == Layout::Missing {
        return checks;
    }
    let present: Vec<&str> = CONTROLLERS.into_iter().filter(|name| has(root, layout, name)).collect();
    let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !present.contains(name)).collect();
    checks.push(if missing.is_empty() {
        Check::ok("controllers", present.join(", "))
    } else {
        let check = Check::fail("controllers", format!("missing: {}", missing.join(", ")));
        if missing.contains(&"memory") {
            check.fix("add `cgroup_enable=memory` to the kernel's command line and reboot")
        } else {
            check.fix("boot a kernel with CONFIG_CGROUP_SCHED and CONFIG_CGROUP_PIDS")
        }
    });
    checks
}

fn layout(root: &Path) -> Layout {
    if root.join("cgroup.controllers").exists() {
        Layout::Unified
    } else if root.join("unified/cgroup.procs").exists() {
        Layout::Hybrid
    } else if root.join("memory").exists() || root.join("pids").exists() {
        Layout::Legacy
    } else {
        Layout::Missing
    }
}

fn layout_check(layout: Layout) -> Check {
    match layout {
        Layout::Unified => Check::ok("layout", "v2"),
        Layout::Hybrid => Check::warn(
            "layout",
            "hybrid, controllers on v1: the buffers of a sandbox's sockets are not part of its RAM limit",
        )
        .fix(USE_V2),
        Layout::Legacy => Check::warn(
            "layout",
            "v1 only: without a v2 tree sandboxes cannot be paused or killed at once, and the buffers of a sandbox's sockets are \
             not part of its RAM limit",
        )
        .fix(format!("{USE_V2}; or, for a v2 tree beside v1: {MOUNT_V2}")),
        Layout::Missing => Check::fail("layout", "nothing is mounted at /sys/fs/cgroup")
            .repair([["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"]]),
    }
}

fn has(root: &Path, layout: Layout, controller: &str) -> bool {
    match layout {
        Layout::Unified => fs::read_to_string(root.join("cgroup.controllers"))
            .is_ok_and(|text| text.split_whitespace().any(|name| name == controller)),
        Layout::Hybrid | Layout::Legacy => {
            // `cpu` is often mounted together with `cpuacct`, with a symbolic link of this name.
            root.join(controller).join("tasks").exists()
        }
        Layout::Missing => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn layouts_are_distinguished() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        assert_eq!(layout(root), Layout::Missing);
        for name in ["memory", "cpu"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("tasks"), "").unwrap();
        }
        assert_eq!(layout(root), Layout::Legacy);
        let fix = examine_at(root)[0].fix.clone().unwrap();
        assert!(fix.starts_with(USE_V2) && fix.ends_with(MOUNT_V2), "v2 is recommended first: {fix}");
        fs::create_dir(root.join("unified")).unwrap();
        fs::write(root.join("unified/cgroup.procs"), "").unwrap();
        assert_eq!(layout(root), Layout::Hybrid);
        let checks = examine_at(root);
        assert_eq!((checks[0].verdict, checks[0].fix.as_deref()), (Verdict::Warn, Some(USE_V2)));
        assert_eq!((checks[1].verdict, checks[1].found.as_str()), (Verdict::Fail, "missing: pids"));
        fs::write(root.join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        assert_eq!(layout(root), Layout::Unified);
        assert!(examine_at(root).iter().all(|check| check.verdict == Verdict::Ok));
    }
}
