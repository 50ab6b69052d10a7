//! Copies of other processes' descriptors: of the same open file, to ask it or act on it from here.

#![expect(unsafe_code, reason = "pidfd_getfd has no safe interface")]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process whose descriptors are looked at.
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

    /// Their numbers, with what `/proc` says they lead to. One that is closed meanwhile is left out.
    pub(super) fn list(&self) -> io::Result<Vec<(u32, OsString)>> {
        let mut list = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/fd", self.pid))? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(number), Ok(link)) = (number, fs::read_link(entry.path())) {
                list.push((number, link.into_os_string()));
            }
        }
        Ok(list)
    }

    pub(super) fn metadata(&self, descriptor: u32) -> io::Result<fs::Metadata> {
        fs::metadata(format!("/proc/{}/fd/{descriptor}", self.pid))
    }

    pub(super) fn copy(&self, descriptor: u32) -> io::Result<OwnedFd> {
        // SAFETY: takes numbers, and answers with a new descriptor or an error.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.process.as_raw_fd(), descriptor, 0) };
        match i32::try_from(copy) {
            // SAFETY: the call succeeded, so the descriptor is new and nobody else's.
            Ok(copy) if copy >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(copy) }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
