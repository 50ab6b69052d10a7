//! Sends signals by number, including real-time signals, which rustix's safe functions do not support.

#![expect(unsafe_code, reason = "kill with a number chosen by the host has no safe wrapper")]

use rustix::io::Errno;

/// Highest signal number of Linux.
const SIGNAL_MAX: i32 = 64;

/// Signals one process.
pub(super) fn send(pid: i32, number: i32) -> Result<(), Errno> {
    // To the kernel, zero and negative numbers mean groups, and -1 means all processes.
    if pid <= 0 {
        return Err(Errno::SRCH);
    }
    kill(pid, number)
}

/// Signals a process group.
pub(super) fn send_group(group: i32, number: i32) -> Result<(), Errno> {
    if group <= 1 {
        return Err(Errno::SRCH);
    }
    kill(-group, number)
}

/// Signals every process in the sandbox except the agent. Only for PID 1: for other processes, -1 means the whole
/// machine.
pub(super) fn send_all(number: i32) -> Result<(), Errno> {
    assert_eq!(std::process::id(), 1, "only PID 1 owns all processes it can see");
    kill(-1, number)
}

/// Whether any process except the agent is left (zombies count until they are reaped). Only for PID 1.
pub(super) fn any_process_left() -> bool {
    assert_eq!(std::process::id(), 1, "only PID 1 owns all processes it can see");
    // SAFETY: kill takes two integers; 0 sends nothing.
    unsafe { libc::kill(-1, 0) == 0 }
}

fn kill(target: i32, number: i32) -> Result<(), Errno> {
    if !(1..=SIGNAL_MAX).contains(&number) {
        return Err(Errno::INVAL);
    }
    // SAFETY: kill takes two integers, both checked.
    if unsafe { libc::kill(target, number) } == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM))
}
