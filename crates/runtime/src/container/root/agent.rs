//! `/.burrow` of a sandbox: the agent's program, and the files mounted over `/proc`.
//!
//! ```text
//!   /.burrow           host root, 0755   no process inside can add or replace anything
//!   /.burrow/guest     host root, 0555   readable, since a dump must open it; not writable, not by root inside either
//!   /.burrow/empty     host root, 0555   mounted over hidden directories of /proc and /sys
//!   /.burrow/sys/…     host root, 0555   mounted over partly hidden directories of /sys
//!   /.burrow/meminfo   root inside       mounted over /proc/meminfo, updated by the agent
//!   /.burrow/boot_id   host root, 0444   mounted over /proc/sys/kernel/random/boot_id; a new one with each start
//!   /usr/local/bin/burrow-memory         a link to the agent's program, which is the command under that name; only if
//!                                        the directory exists and the name is free
//! ```
//!
//! Root inside owns `/`, so it may rename `/.burrow` and create another one: then that one is moved out of the way and
//! `/.burrow` is created again. It cannot forge one, since it cannot create files that belong to the host's root.

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

/// The name under which programs inside find the agent's program. `burrow_guest::memory` has the same name.
const COMMAND: &str = "burrow-memory";

pub(super) fn prepare(root: BorrowedFd<'_>, guest_binary: &Path, ram_bytes: u64) -> io::Result<()> {
    let directory = trusted_directory(root)?;
    install_guest(directory.as_fd(), guest_binary)?;
    offer_command(root);
    entry::directory(directory.as_fd(), "empty", 0o555, Owner::Host)?;
    substitutes(directory.as_fd())?;
    // To programs inside, a start is a boot. The host's own id would reveal which sandboxes are on the same host.
    let boot_id = fs::read("/proc/sys/kernel/random/uuid")?;
    entry::overwrite(directory.as_fd(), "boot_id", &boot_id, 0o444, Owner::Host)?;
    entry::overwrite(directory.as_fd(), "meminfo", meminfo(ram_bytes).as_bytes(), 0o644, Owner::Inside)
}

/// Gives the directory and the program in it, which were imported, to the host's root.
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

/// The directories that [`crate::launcher`] mounts over `/sys/devices` and `/sys/fs`, with empty mount points in them.
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

/// The existing directory, if only the host can have created it; else a new one.
fn trusted_directory(root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
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

/// Adds the command to the search path of every shell. Skipped if an image lacks the usual directories.
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

/// Copies the program, unless the copy of an earlier boot, or of the image, is still current.
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

/// Compares size and time of a file in a directory that only the host can write. A copy that was interrupted by a power
/// loss has another size, since a file's size reaches the disk after its data.
fn is_copy(stat: &Stat, wanted: &Metadata) -> bool {
    entry::kind(stat) == FileType::RegularFile
        && stat.st_mode & 0o7777 == GUEST_MODE
        && (stat.st_uid, stat.st_gid) == (Owner::Host.id(), Owner::Host.id())
        && u64::try_from(stat.st_size) == Ok(wanted.len())
        && (stat.st_mtime, i64::try_from(stat.st_mtime_nsec)) == (wanted.mtime(), Ok(wanted.mtime_nsec()))
}

/// The initial content, until the agent writes better numbers.
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
    fn meminfo_has_the_format_of_the_kernel() {
        let text = meminfo(512 << 20);
        assert!(text.starts_with("MemTotal:         524288 kB\nMemFree:          524288 kB\n"), "{text}");
    }
}
