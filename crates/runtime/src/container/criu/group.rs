//! The v2 cgroup of a machine, as far as holding its processes needs it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A tree freezes within a millisecond; a process in an uninterruptible wait may take longer.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(10);

/// Waiting for the kernel's notification costs 6 ms; looking again costs a system call.
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

    /// Its processes, zombies excepted, as our pid namespace numbers them.
    pub(super) fn processes(&self) -> io::Result<Vec<u32>> {
        let text = fs::read_to_string(self.directory.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Processor time of all that are, or were, in it; 0 where it cannot be read.
    pub(super) fn cpu_us(&self) -> u64 {
        crate::cgroup::cpu_us_of(&self.directory).unwrap_or(0)
    }

    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.kill"), "1")
    }

    /// Takes a process in.
    pub(super) fn take_in(&self, pid: u32) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string())
    }
}
