//! Copies of other processes' descriptors: they refer to the same open files, to query or change them from this
//! process.

#![expect(unsafe_code, reason = "pidfd_getfd has no safe interface")]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process whose descriptors are inspected.
#[derive(Debug)]
pub(super) struct Descriptors {
    pid: u32,
    process: OwnedFd,
}

impl Descriptors {
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { pid, process: pidfd_open(number, PidfdFlags::empty())? })
    }

    /// Their numbers and their targets according to `/proc`; `None` for a path that is too long. A descriptor that is
    /// closed meanwhile is left out.
    pub(super) fn list(&self) -> io::Result<Vec<(u32, Option<OsString>)>> {
        let mut list = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/fd", self.pid))? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let link = match fs::read_link(entry.path()) {
                Ok(link) => Some(link.into_os_string()),
                Err(error) if is_too_long(&error) => None,
                Err(_) => continue,
            };
            list.extend(number.map(|number| (number, link)));
        }
        Ok(list)
    }

    pub(super) fn metadata(&self, descriptor: u32) -> io::Result<fs::Metadata> {
        fs::metadata(format!("/proc/{}/fd/{descriptor}", self.pid))
    }

    pub(super) fn copy(&self, descriptor: u32) -> io::Result<OwnedFd> {
        // SAFETY: takes numbers, and returns a new descriptor or an error.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.process.as_raw_fd(), descriptor, 0) };
        match i32::try_from(copy) {
            // SAFETY: the call succeeded, so the descriptor is new and has no other owner.
            Ok(copy) if copy >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(copy) }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether a link could not be read because its target is longer than any system call accepts.
pub(super) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENAMETOOLONG)
}
