//! Distinguishes a process from another one that later has its pid.
//!
//! A pid is only a number. A [`Machine`] is identified by its pid, the tick at which it started, and the boot of the
//! host from which these ticks are counted; together they are unique. An open pidfd ensures that a check remains valid.

#![expect(unsafe_code, reason = "registering a descriptor with the async runtime has no safe interface")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::Machine;

/// An identified process. While this exists, its pidfd refers to that process.
#[derive(Debug)]
pub(crate) struct Process {
    pidfd: OwnedFd,
}

impl Process {
    /// The process that `machine` describes; `None` when it has ended.
    pub(crate) fn find(machine: &Machine) -> io::Result<Option<Self>> {
        if boot_id()? != machine.boot_id {
            return Ok(None);
        }
        let Some(process) = Self::open(machine.pid)? else { return Ok(None) };
        let started = start_ticks(machine.pid)?;
        // The ticks were read by pid: they belong to this process only if it has not ended meanwhile.
        Ok((started == Some(machine.start_ticks) && !process.has_ended()?).then_some(process))
    }

    /// Describes the process behind a pidfd, whose pid is `pid`. `None` when it has ended.
    pub(crate) fn describe(pid: u32, pidfd: OwnedFd) -> io::Result<Option<Machine>> {
        let process = Self { pidfd };
        let Some(start_ticks) = start_ticks(pid)? else { return Ok(None) };
        if process.has_ended()? {
            return Ok(None);
        }
        Ok(Some(Machine { pid, start_ticks, boot_id: boot_id()? }))
    }

    /// Describes the process with this pid, which the caller knows to be the right one. `None` when it has ended.
    pub(crate) fn describe_pid(pid: u32) -> io::Result<Option<Machine>> {
        match Self::open(pid)? {
            Some(process) => Self::describe(pid, process.pidfd),
            None => Ok(None),
        }
    }

    /// Returns when the process has ended. Does not wait until it is reaped.
    pub(crate) async fn ended(self) -> io::Result<()> {
        // SAFETY: the descriptor is owned by the `AsyncFd` from here on, and nothing changes what it refers to.
        let pidfd = unsafe { AsyncFd::register_with_interest(self.pidfd, Interest::READABLE) }?;
        // A pidfd becomes readable once, and stays so: nothing is ever read from it.
        pidfd.readable().await?.retain_ready();
        // A restored machine is reparented to the host's init, which reaps it, unless we are init.
        let _ = waitid(WaitId::PidFd(pidfd.get_ref().as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        Ok(())
    }

    fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Some(Self { pidfd })),
            // `INVAL`, on newer kernels `NOENT`: the number belongs to a thread that is not a thread-group leader.
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn has_ended(&self) -> io::Result<bool> {
        let mut fds = [PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(poll(&mut fds, Some(&now))? > 0)
    }
}

/// The id of the host's current boot.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Field 22 of `/proc/<pid>/stat`; `None` when there is no such process.
fn start_ticks(pid: u32) -> io::Result<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_start_ticks(&stat).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The second field is the program's name in parentheses, chosen by its user: it may contain spaces and more
/// parentheses, so fields are counted from the last parenthesis.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn machine(pid: u32) -> Machine {
        Machine { pid, start_ticks: start_ticks(pid).unwrap().unwrap(), boot_id: boot_id().unwrap() }
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) S 1 (b) 2) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 99 100";
        assert_eq!(parse_start_ticks(stat), Some(4242));
        assert_eq!(parse_start_ticks("nonsense"), None);
    }

    #[tokio::test]
    async fn a_process_is_found_until_it_ends() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let machine = machine(child.id());
        let process = Process::find(&machine).unwrap().unwrap();
        child.kill().unwrap();
        process.ended().await.unwrap();
        assert!(Process::find(&machine).unwrap().is_none());
        // It is our child, so it has been reaped.
        assert_eq!(start_ticks(machine.pid).unwrap(), None);
        assert!(child.wait().is_err());
    }

    #[test]
    fn another_process_with_the_same_pid_is_not_found() {
        let me = machine(std::process::id());
        assert!(Process::find(&me).unwrap().is_some());
        let other_start = Machine { start_ticks: me.start_ticks + 1, ..me.clone() };
        assert!(Process::find(&other_start).unwrap().is_none());
        let other_boot = Machine { boot_id: "another".to_owned(), ..me };
        assert!(Process::find(&other_boot).unwrap().is_none());
    }
}
