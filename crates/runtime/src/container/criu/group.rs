//! The v2 cgroup of a machine, with the operations that stopping its processes needs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A tree freezes within a millisecond; a process in an uninterruptible wait may take longer.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(10);

/// A killed process ends within milliseconds, unless it waits for a disk.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
const KILL_PAUSE: Duration = Duration::from_millis(5);

/// Waiting for the kernel's notification costs 6 ms; another read costs a system call.
const LOOK_AGAIN: Duration = Duration::from_micros(20);

#[derive(Clone, Debug)]
pub(super) struct Group {
    directory: PathBuf,
}

impl Group {
    pub(super) fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    pub(super) fn freeze(&self) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.freeze"), "1")
    }

    pub(super) fn thaw(&self) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.freeze"), "0")
    }

    pub(super) fn await_frozen(&self) -> io::Result<()> {
        let deadline = Instant::now() + FREEZE_TIMEOUT;
        while !fs::read_to_string(self.directory.join("cgroup.events"))?
            .lines()
            .any(|line| line == "frozen 1")
        {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Its processes except zombies, by their pids in our pid namespace.
    pub(super) fn processes(&self) -> io::Result<Vec<u32>> {
        let text = fs::read_to_string(self.directory.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// CPU time of all processes that are, or were, in it; 0 if it cannot be read.
    pub(super) fn cpu_us(&self) -> u64 {
        crate::cgroup::cpu_us_of(&self.directory).unwrap_or(0)
    }

    /// Whether one of its processes waits for a disk or similar: it uses no CPU time, but does not hang.
    pub(super) fn waits_for_disk(&self) -> bool {
        crate::cgroup::waits_for_disk(&self.directory)
    }

    /// Continues processes that were stopped by a signal.
    pub(super) fn continue_stopped(&self) -> io::Result<()> {
        self.send(Signal::CONT).map(drop)
    }

    /// Kills its processes one by one. After a [`Self::kill`], some kernels kill every process that is cloned into the
    /// same group later.
    pub(super) fn kill_each(&self) -> io::Result<()> {
        let deadline = Instant::now() + KILL_TIMEOUT;
        // A process may have created another before it died.
        while self.send(Signal::KILL)? {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(KILL_PAUSE);
        }
        Ok(())
    }

    /// Sends a signal to each process; `false` if there was none.
    fn send(&self, signal: Signal) -> io::Result<bool> {
        let processes = self.processes()?;
        for pid in processes.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
            match kill_process(pid, signal) {
                // It has ended meanwhile.
                Err(rustix::io::Errno::SRCH) => {}
                sent => sent?,
            }
        }
        Ok(!processes.is_empty())
    }

    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.kill"), "1")
    }

    /// Moves a process into the group.
    pub(super) fn add_process(&self, pid: u32) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string())
    }
}
