//! `/.burrow` of a sandbox: the agent's program, and what is mounted over `/proc`.
//!
//! ```text
//!   /.burrow           host root, 0755   nobody inside can add or replace anything
//!   /.burrow/guest     host root, 0555   readable, since a dump must open it; not writable, not by root inside either
//!   /.burrow/empty     host root, 0555   covers directories of /proc and /sys that are nobody's business
//!   /.burrow/sys/…     host root, 0555   takes the place of directories of /sys that are shown in part
//!   /.burrow/meminfo   root inside       covers /proc/meminfo, kept up to date by the agent
//!   /.burrow/boot_id   host root, 0444   covers /proc/sys/kernel/random/boot_id; a new one with each start
//!   /usr/local/bin/burrow-memory         a link to the agent's program, which under that name is the command; only where
//!                                        the directory is there and the name is free
//! ```
//!
//! Root inside owns `/`, so it may rename `/.burrow` away and put something else there: then that is set aside and
//! `/.burrow` is made anew. It cannot forge one, since it cannot make files that belong to the host's root.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{
    FileType, Mode, OFlags, Stat, Timespec, Timestamps, fstat, futimens, ioctl_ficlone, openat,
};

use super::entry::{self, Owner};

const DIRECTORY: &str = ".burrow";
const GUEST_MODE: u32 = 0o555;

/// What the agent's program is called where programs inside look for it. `burrow_guest::memory` has the same name.
const COMMAND: &str = "burrow-memory";

pub(super) fn prepare(root: BorrowedFd<'_>, guest_binary: &Path, ram_bytes: u64) -> io::Result<()> {
    let directory = ours(root)?;
    install_guest(directory.as_fd(), guest_binary)?;
    offer_command(root);
    entry::directory(directory.as_fd(), "empty", 0o555, Owner::Host)?;
    substitutes(directory.as_fd())?;
    // A start is a boot to programs inside. The host's own id would tell sandboxes of one host from those of others.
    let boot_id = fs::read("/proc/sys/kernel/random/uuid")?;
    entry::overwrite(directory.as_fd(), "boot_id", &boot_id, 0o444, Owner::Host)?;
    entry::overwrite(directory.as_fd(), "meminfo", meminfo(ram_bytes).as_bytes(), 0o644, Owner::Inside)
}

/// Makes the directory and the program in it the host's again, as they came.
pub(super) fn own(root: BorrowedFd<'_>) -> io::Result<()> {
    let directory = entry::open_directory(root, DIRECTORY)?;
    entry::own(directory.as_fd(), 0o755, Owner::Host)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for (name, mode) in [("guest", GUEST_MODE), ("empty", 0o555)] {
        let file = openat(&directory, name, flags, Mode::empty())?;
        entry::own(file.as_fd(), mode, Owner::Host)?;
    }
    // A tree from an older version has none of these, and its dump mounts none.
    if entry::stat(directory.as_fd(), "boot_id")?.is_some() {
        let file = openat(&directory, "boot_id", flags, Mode::empty())?;
        entry::own(file.as_fd(), 0o444, Owner::Host)?;
    }
    match entry::stat(directory.as_fd(), "sys")? {
        Some(_) => substitutes(directory.as_fd()),
        None => Ok(()),
    }
}

/// What [`crate::launcher`] mounts over `/sys/devices` and `/sys/fs`: directories, and nothing in them.
fn substitutes(directory: BorrowedFd<'_>) -> io::Result<()> {
    for path in ["sys/devices/system", "sys/devices/virtual/net", "sys/fs/cgroup"] {
        let mut parent = directory.try_clone_to_owned()?;
        for name in path.split('/') {
            parent = entry::directory(parent.as_fd(), name, 0o555, Owner::Host)?;
            if !is_hosts(&fstat(&parent)?) {
                entry::own(parent.as_fd(), 0o555, Owner::Host)?;
            }
        }
    }
    Ok(())
}

/// The directory, if it is one that only the host can have made; else a new one.
fn ours(root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let directory = entry::directory(root, DIRECTORY, 0o755, Owner::Host)?;
    if is_hosts(&fstat(&directory)?) {
        return Ok(directory);
    }
    entry::clear(root, DIRECTORY)?;
    let directory = entry::directory(root, DIRECTORY, 0o755, Owner::Host)?;
    if is_hosts(&fstat(&directory)?) { Ok(directory) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn is_hosts(stat: &Stat) -> bool {
    (stat.st_uid, stat.st_gid) == (Owner::Host.id(), Owner::Host.id()) && stat.st_mode & 0o022 == 0
}

/// Puts the command where every shell looks. An image without the usual directories does without it.
fn offer_command(root: BorrowedFd<'_>) {
    let mut directory = None;
    for name in ["usr", "local", "bin"] {
        let parent = directory.as_ref().map_or(root, OwnedFd::as_fd);
        match entry::open_directory(parent, name) {
            Ok(found) => directory = Some(found),
            Err(_) => return,
        }
    }
    if let Some(bin) = directory
        && let Err(error) = entry::symlink(bin.as_fd(), COMMAND, "/.burrow/guest")
    {
        tracing::debug!(%error, "a sandbox has no `burrow-memory` in its path");
    }
}

/// Copies the program in, unless the copy of an earlier boot, or of the image, is still right.
fn install_guest(directory: BorrowedFd<'_>, guest_binary: &Path) -> io::Result<()> {
    let source = File::open(guest_binary)?;
    let wanted = source.metadata()?;
    match entry::stat(directory, "guest")? {
        Some(stat) if is_copy(&stat, &wanted) => return Ok(()),
        Some(_) | None => {}
    }
    let copy = entry::create(directory, "guest.new")?;
    if ioctl_ficlone(&copy, &source).is_err() {
        // Another file system, or one that cannot share extents.
        io::copy(&mut &source, &mut &copy)?;
    }
    entry::own(copy.as_fd(), GUEST_MODE, Owner::Host)?;
    let modified = Timespec { tv_sec: wanted.mtime(), tv_nsec: wanted.mtime_nsec() };
    futimens(&copy, &Timestamps { last_access: modified, last_modification: modified })?;
    entry::put(directory, "guest.new", "guest")
}

/// Size and time of a file in a directory that only the host can write. A copy cut short by a power loss has another
/// size, since a file's size reaches the disk after its data.
fn is_copy(stat: &Stat, wanted: &Metadata) -> bool {
    entry::kind(stat) == FileType::RegularFile
        && stat.st_mode & 0o7777 == GUEST_MODE
        && (stat.st_uid, stat.st_gid) == (Owner::Host.id(), Owner::Host.id())
        && u64::try_from(stat.st_size) == Ok(wanted.len())
        && (stat.st_mtime, i64::try_from(stat.st_mtime_nsec)) == (wanted.mtime(), Ok(wanted.mtime_nsec()))
}

/// What programs look for, until the agent writes better numbers.
fn meminfo(ram_bytes: u64) -> String {
    let total = ram_bytes / 1024;
    let mut text = String::new();
    for (name, kib) in [
        ("MemTotal", total),
        ("MemFree", total),
        ("MemAvailable", total),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
    ] {
        text.push_str(&format!("{:<16}{kib:>8} kB\n", format!("{name}:")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_looks_like_the_kernels() {
        let text = meminfo(512 << 20);
        assert!(text.starts_with("MemTotal:         524288 kB\nMemFree:          524288 kB\n"), "{text}");
    }
}
