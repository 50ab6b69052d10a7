//! `/dev` of a sandbox, and its mount points.
//!
//! The host creates the device nodes in the sandbox's own files: they work inside the user namespace, and are dumped
//! and restored without special handling, which bind mounts from the host would need. No process inside can create one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, makedev};

use super::entry::{self, Owner};

/// Name, major and minor number. These six, and no others.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Ensures that all entries exist and have the right type.
pub(super) fn prepare(root: BorrowedFd<'_>) -> io::Result<()> {
    for target in ["proc", "sys"] {
        entry::directory(root, target, 0o555, Owner::Inside)?;
    }
    let dev = entry::directory(root, "dev", 0o755, Owner::Inside)?;
    entry::directory(dev.as_fd(), "pts", 0o755, Owner::Inside)?;
    entry::directory(dev.as_fd(), "shm", 0o1777, Owner::Inside)?;
    for (name, major, minor) in DEVICES {
        entry::node(dev.as_fd(), name, FileType::CharacterDevice, 0o666, makedev(major, minor))?;
    }
    for (name, target) in LINKS {
        entry::symlink(dev.as_fd(), name, target)?;
    }
    Ok(())
}

/// An image may lack directories that every program expects. A link with such a name is kept, as the image's choice.
pub(super) fn prepare_scratch(root: BorrowedFd<'_>) -> io::Result<()> {
    for (name, mode) in [("tmp", 0o1777), ("run", 0o755)] {
        if entry::stat(root, name)?.is_none() {
            entry::directory(root, name, mode, Owner::Inside)?;
        }
    }
    Ok(())
}
