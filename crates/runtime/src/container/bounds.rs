//! Limits of the kernel that all sandboxes share.
//!
//! The kernel keeps a few counts per host, or per user of the host, rather than per cgroup or namespace. If sandboxes
//! share users, one sandbox could use such a limit up, and the agents of all others would fail. Also, a single sandbox
//! may reach a limit that is meant for a whole user. The counted objects are memory that is charged to the cgroup of
//! the process that uses them, so the RAM limit of each sandbox bounds them already, and the shared limit can be
//! raised. Limits are raised, never lowered.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One such limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLimit {
    /// The name for `sysctl`.
    pub name: &'static str,
    pub wanted: RequiredValue,
    /// The effect on other sandboxes if one sandbox uses it up.
    pub why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredValue {
    AtLeast(u64),
    /// The kernel expects 0 for this.
    Unlimited,
}

/// The state of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitState {
    Enough,
    Low {
        now: u64,
    },
    /// This kernel has no such limit, or does not show it.
    Unknown,
}

/// The result of raising a limit that was too low.
#[derive(Debug)]
pub struct RaisedLimit {
    pub bound: KernelLimit,
    pub before: u64,
    pub result: io::Result<()>,
}

pub const BOUNDS: [KernelLimit; 5] = [
    KernelLimit {
        name: "fs.epoll.max_user_watches",
        wanted: RequiredValue::AtLeast(2_000_000_000),
        why: "no agent can accept connections any more",
    },
    KernelLimit {
        name: "fs.pipe-user-pages-soft",
        wanted: RequiredValue::Unlimited,
        why: "new pipes are small and slow",
    },
    KernelLimit {
        name: "fs.pipe-user-pages-hard",
        wanted: RequiredValue::Unlimited,
        why: "no exec can create pipes any more",
    },
    KernelLimit {
        name: "fs.aio-max-nr",
        wanted: RequiredValue::AtLeast(4_194_304),
        why: "databases that use asynchronous input do not start",
    },
    KernelLimit {
        name: "kernel.pty.max",
        // The maximum that the kernel allows.
        wanted: RequiredValue::AtLeast(1 << 20),
        why: "no exec can open a terminal any more",
    },
];

impl KernelLimit {
    pub fn standing(&self) -> LimitState {
        self.standing_in(Path::new("/proc/sys"))
    }

    fn standing_in(&self, tree: &Path) -> LimitState {
        let text = fs::read_to_string(self.file(tree)).unwrap_or_default();
        let Ok(now) = text.trim().parse::<u64>() else { return LimitState::Unknown };
        let enough = match self.wanted {
            RequiredValue::AtLeast(wanted) => now >= wanted,
            RequiredValue::Unlimited => now == 0,
        };
        if enough { LimitState::Enough } else { LimitState::Low { now } }
    }

    /// The value to write.
    pub fn value(&self) -> u64 {
        match self.wanted {
            RequiredValue::AtLeast(wanted) => wanted,
            RequiredValue::Unlimited => 0,
        }
    }

    fn file(&self, tree: &Path) -> PathBuf {
        tree.join(self.name.replace('.', "/"))
    }
}

/// Raises the limits that are too low, until the next reboot.
pub fn raise() -> Vec<RaisedLimit> {
    raise_in(Path::new("/proc/sys"))
}

fn raise_in(tree: &Path) -> Vec<RaisedLimit> {
    let low = |bound: &KernelLimit| match bound.standing_in(tree) {
        LimitState::Low { now } => Some((*bound, now)),
        LimitState::Enough | LimitState::Unknown => None,
    };
    let raise = |(bound, before): (KernelLimit, u64)| {
        let result = fs::write(bound.file(tree), bound.value().to_string());
        RaisedLimit { bound, before, result }
    };
    BOUNDS.iter().filter_map(low).map(raise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(values: &[(&str, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (name, value) in values {
            let file = tree.path().join(name.replace('.', "/"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, value).unwrap();
        }
        tree
    }

    #[test]
    fn only_limits_that_are_too_low_are_raised() {
        let tree = tree(&[
            ("fs.epoll.max_user_watches", "5491266\n"),
            ("fs.pipe-user-pages-soft", "16384\n"),
            ("fs.pipe-user-pages-hard", "0\n"),
            ("fs.aio-max-nr", "99999999\n"),
        ]);
        let raised: Vec<_> =
            raise_in(tree.path()).into_iter().map(|raised| (raised.bound.name, raised.before)).collect();
        assert_eq!(raised, [("fs.epoll.max_user_watches", 5_491_266), ("fs.pipe-user-pages-soft", 16384)]);
        let read = |name: &str| fs::read_to_string(tree.path().join(name)).unwrap();
        assert_eq!(read("fs/epoll/max_user_watches"), "2000000000");
        assert_eq!(read("fs/pipe-user-pages-soft"), "0");
        assert_eq!(read("fs/aio-max-nr"), "99999999\n");
        assert!(raise_in(tree.path()).is_empty(), "a repeat changes nothing");
        assert_eq!(BOUNDS[4].standing_in(tree.path()), LimitState::Unknown);
    }

    #[test]
    fn this_kernel_has_every_limit() {
        for bound in BOUNDS {
            assert_ne!(bound.standing(), LimitState::Unknown, "{}", bound.name);
        }
    }
}
