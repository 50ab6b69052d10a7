//! The limits of a sandbox as the cgroup files that set them.
//!
//! Pure: a list of writes for a layout, so that layouts other than this host's can be tested.

use std::path::PathBuf;

use burrow_model::{Limits, MIB};

use super::layout::{Controller, Layout};

/// Window of the CPU quota, the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// The part of the RAM limit that buffers of TCP and UDP sockets may use on v1, in addition to the limit itself.
///
/// v2 charges them to `memory.max` like all other RAM. v1 counts them separately, and not at all until they have a
/// limit. Beyond the limit the kernel still accepts the first message of each connection, so many connections use more
/// than this: about 75 KiB each.
const SOCKET_BUFFERS_PART: u64 = 4;

/// A value and the file of a cgroup to which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) path: PathBuf,
    pub(super) value: String,
    pub(super) need: FileRequirement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileRequirement {
    Must,
    /// The file exists only on hosts that count swap, or socket buffers.
    IfExists,
}

/// The writes under `<tree>/<group>` that set `limits`.
///
/// In v1, the limit of RAM with swap must never be below that of RAM alone, so the list contains it before and after: when
/// limits grow the first write takes effect, when they shrink the second; the other one fails or changes nothing.
pub(super) fn writes(layout: &Layout, group: &str, limits: &Limits) -> Vec<Write> {
    let mut writes = Vec::new();
    for controller in Controller::ALL {
        let (tree, unified) = match (&layout.unified, layout.legacy.get(&controller)) {
            (Some(tree), _) if layout.in_unified.contains(&controller) => (tree, true),
            (_, Some(tree)) => (tree, false),
            (_, None) => continue,
        };
        for (file, value, need) in files(controller, unified, limits) {
            writes.push(Write { path: tree.join(group).join(file), value, need });
        }
    }
    writes
}

fn files(
    controller: Controller,
    unified: bool,
    limits: &Limits,
) -> Vec<(&'static str, String, FileRequirement)> {
    let ram_bytes = u64::from(limits.ram_mib) * MIB;
    let ram = ram_bytes.to_string();
    let quota_us = u64::from(limits.cpu_millis) * CPU_PERIOD_US / 1000;
    match (controller, unified) {
        // No swap: a sandbox is limited by its RAM, and the host should not page out other tenants' memory because of
        // it.
        (Controller::Memory, true) => vec![
            ("memory.max", ram, FileRequirement::Must),
            ("memory.swap.max", "0".to_owned(), FileRequirement::IfExists),
            // The kernel kills one process, not the whole sandbox.
            ("memory.oom.group", "0".to_owned(), FileRequirement::IfExists),
        ],
        (Controller::Memory, false) => vec![
            ("memory.memsw.limit_in_bytes", ram.clone(), FileRequirement::IfExists),
            ("memory.limit_in_bytes", ram.clone(), FileRequirement::Must),
            ("memory.memsw.limit_in_bytes", ram, FileRequirement::IfExists),
            (
                "memory.kmem.tcp.limit_in_bytes",
                (ram_bytes / SOCKET_BUFFERS_PART).to_string(),
                FileRequirement::IfExists,
            ),
        ],
        (Controller::Cpu, true) => {
            vec![("cpu.max", format!("{quota_us} {CPU_PERIOD_US}"), FileRequirement::Must)]
        }
        (Controller::Cpu, false) => vec![
            ("cpu.cfs_period_us", CPU_PERIOD_US.to_string(), FileRequirement::Must),
            ("cpu.cfs_quota_us", quota_us.to_string(), FileRequirement::Must),
        ],
        (Controller::Pids, true | false) => {
            vec![("pids.max", limits.pids.to_string(), FileRequirement::Must)]
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const LIMITS: Limits = Limits { ram_mib: 512, cpu_millis: 1500, pids: 100, disk_mib: 1 };

    fn lines(layout: &Layout) -> Vec<String> {
        writes(layout, "burrow/x", &LIMITS)
            .into_iter()
            .map(|write| format!("{} = {}", write.path.display(), write.value))
            .collect()
    }

    #[test]
    fn v2_limits_are_written_to_one_tree() {
        let layout = Layout {
            unified: Some(PathBuf::from("/c")),
            in_unified: Controller::ALL.to_vec(),
            legacy: BTreeMap::new(),
            legacy_freezer: None,
        };
        assert_eq!(
            lines(&layout),
            [
                "/c/burrow/x/memory.max = 536870912",
                "/c/burrow/x/memory.swap.max = 0",
                "/c/burrow/x/memory.oom.group = 0",
                "/c/burrow/x/cpu.max = 150000 100000",
                "/c/burrow/x/pids.max = 100",
            ]
        );
    }

    #[test]
    fn v1_limits_are_written_to_each_tree() {
        let layout = Layout {
            unified: Some(PathBuf::from("/c/unified")),
            in_unified: Vec::new(),
            legacy: Controller::ALL.into_iter().map(|c| (c, PathBuf::from("/c").join(c.name()))).collect(),
            legacy_freezer: None,
        };
        assert_eq!(
            lines(&layout),
            [
                "/c/memory/burrow/x/memory.memsw.limit_in_bytes = 536870912",
                "/c/memory/burrow/x/memory.limit_in_bytes = 536870912",
                "/c/memory/burrow/x/memory.memsw.limit_in_bytes = 536870912",
                "/c/memory/burrow/x/memory.kmem.tcp.limit_in_bytes = 134217728",
                "/c/cpu/burrow/x/cpu.cfs_period_us = 100000",
                "/c/cpu/burrow/x/cpu.cfs_quota_us = 150000",
                "/c/pids/burrow/x/pids.max = 100",
            ]
        );
    }
}
