//! Opens regular files, and nothing else, without side effects.
//!
//! Opens with `O_PATH` first, which touches no device and wakes no writer of a FIFO. Only a regular file is then
//! opened for reading or writing, through that descriptor, so that it cannot be replaced in between.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::agent::failure::{fail, refused};
use crate::protocol::{ErrorCode, RequestError};

/// `f_type` of procfs.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// Opens a regular file, following symbolic links.
pub(super) fn open_regular(path: &str, access: OFlags) -> Result<(OwnedFd, Stat), RequestError> {
    let pinned = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| refused("open", path, errno))?;
    let stat = rustix::fs::fstat(&pinned).map_err(|errno| refused("look up", path, errno))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_dir() {
        return Err(fail(ErrorCode::IsADirectory, format_args!("`{path}` is a directory")));
    }
    if !kind.is_file() {
        return Err(fail(ErrorCode::NotAFile, format_args!("`{path}` is not a regular file")));
    }
    if is_the_agents_own(&pinned) {
        return Err(fail(
            ErrorCode::PermissionDenied,
            format_args!("`{path}` belongs to the sandbox agent and cannot be opened"),
        ));
    }
    let file = reopen(&pinned, access).map_err(|errno| refused("open", path, errno))?;
    Ok((file, stat))
}

/// Opens a file for reading or writing through its `O_PATH` descriptor.
pub(super) fn reopen(pinned: &OwnedFd, access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(format!("/proc/self/fd/{}", pinned.as_raw_fd()), flags, Mode::empty())
}

/// Whether this is a file of procfs about the agent itself: the agent's memory holds the token, and a process may
/// always open its own memory.
fn is_the_agents_own(file: &OwnedFd) -> bool {
    let on_proc =
        rustix::fs::fstatfs(file).is_ok_and(|fs| u64::try_from(fs.f_type).ok() == Some(PROC_SUPER_MAGIC));
    if !on_proc {
        return false;
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Ok(path) = rustix::fs::readlink(link, Vec::new()) else { return true };
    let path = path.to_string_lossy().into_owned();
    let Some(number) = path.split('/').nth(2).and_then(|part| part.parse::<u32>().ok()) else { return false };
    // A thread's number works like a process's, so the process of the thread must be read.
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse::<u32>().ok());
    group.is_none_or(|group| group == std::process::id())
}
