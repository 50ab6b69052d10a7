//! Steps for pre-created and restored machines: reading files into the page cache, and setting the name later.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;

use burrow_model::SandboxId;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::boot::ended_early;
use super::root::Root;
use super::shared_state::step;
use crate::process::Process;
use crate::{Machine, RuntimeError};

/// Files that nearly every first command reads. Each copy-on-write child has its own page cache, so without this the
/// first command reads all of it from the disk. Files that an image lacks are skipped.
const WARMED: [&str; 13] = [
    ".burrow/guest",
    "etc/passwd",
    "etc/group",
    "etc/ld.so.cache",
    "lib64/ld-linux-x86-64.so.2",
    "lib/ld-linux-aarch64.so.1",
    "lib/x86_64-linux-gnu/libc.so.6",
    "lib/aarch64-linux-gnu/libc.so.6",
    "bin/sh",
    "bin/bash",
    "bin/echo",
    "bin/cat",
    "usr/bin/env",
];

/// Links lead to files of the image, never outside it.
const BENEATH_ROOT: ResolveFlags =
    ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// Directories whose files are read as well: every program that calls `setlocale` opens a dozen of these.
const WARMED_DIRECTORIES: [&str; 2] = ["usr/lib/locale/C.utf8", "usr/lib/locale/C.utf8/LC_MESSAGES"];

/// A library or shell is a few megabytes; an image may contain anything under these names.
const WARMED_BYTES_MAX: u64 = 4 << 20;

/// The same for a directory.
const WARMED_ENTRIES_MAX: usize = 32;

/// Reads files that are likely to be needed soon. Nothing depends on it: files that an image lacks, or has made
/// unreadable, are skipped.
pub(super) fn warm(root: &Path) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(root) = openat2(CWD, root, flags, Mode::empty(), ResolveFlags::empty()) else { return };
    for path in WARMED {
        let _ = read_through(&root, path);
    }
    for path in WARMED_DIRECTORIES {
        let _ = read_all_in(&root, path);
    }
}

fn read_all_in(root: &OwnedFd, path: &str) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat2(root, path, flags, Mode::empty(), BENEATH_ROOT)?;
    for entry in Dir::new(directory)?.take(WARMED_ENTRIES_MAX) {
        if let Ok(name) = entry?.file_name().to_str() {
            let _ = read_through(root, &format!("{path}/{name}"));
        }
    }
    Ok(())
}

/// Links are followed, since `/lib` and `/bin/sh` are links in most images, but never outside the root.
fn read_through(root: &OwnedFd, path: &str) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // With `O_PATH` first: opening a device or a FIFO of the image would have effects.
    let entry = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), BENEATH_ROOT)?;
    if FileType::from_raw_mode(fstat(&entry)?.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let file = File::from(openat2(root, path, flags, Mode::empty(), BENEATH_ROOT)?);
    let mut chunk = [0; 64 * 1024];
    let mut file = file.take(WARMED_BYTES_MAX);
    while file.read(&mut chunk)? > 0 {}
    Ok(())
}

/// Renames a machine that waits for its boot document, inside and in its `/etc`. Only the agent has run in it so far.
pub(super) fn rename(
    id: &SandboxId,
    machine: &Machine,
    root: &Path,
    hostname: &str,
) -> Result<(), RuntimeError> {
    let names = File::open(format!("/proc/{}/ns/uts", machine.pid)).map_err(step("set the host name", id))?;
    // Checked last: if the process is still the same one, it was so when its namespace was opened.
    if Process::find(machine).map_err(step("find the machine", id))?.is_none() {
        return Err(ended_early(id));
    }
    set_hostname(names.as_fd(), hostname).map_err(step("set the host name", id))?;
    name_files(root, hostname).map_err(step("write the host name to `/etc`", id))
}

/// Renames a paused machine.
pub(super) fn rename_paused(pid: u32, root: &Path, hostname: &str) -> io::Result<()> {
    set_hostname(File::open(format!("/proc/{pid}/ns/uts"))?.as_fd(), hostname)?;
    name_files(root, hostname)
}

fn name_files(root: &Path, hostname: &str) -> io::Result<()> {
    let root = Root::open(root).map_err(|error| error.source)?;
    root.name(hostname).map_err(|error| error.source)
}

/// On a separate thread, which ends afterwards: other threads must not end up in another UTS namespace.
fn set_hostname(names: std::os::fd::BorrowedFd<'_>, hostname: &str) -> io::Result<()> {
    thread::scope(|scope| {
        let renaming = scope.spawn(|| {
            move_into_link_name_space(names, Some(LinkNameSpaceType::HostNameAndNISDomainName))?;
            rustix::system::sethostname(hostname.as_bytes())
        });
        match renaming.join() {
            Ok(renamed) => Ok(renamed?),
            Err(_) => Err(io::ErrorKind::Other.into()),
        }
    })
}
