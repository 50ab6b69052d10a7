//! A v2 directory beside a sandbox's own, for workers that handle its processes and must not be frozen with them.
//!
//! It is named after the sandbox, so that the sandbox's id is enough to find and end such workers.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Group, cpu_us_of, event, remove_dir, wait, waits_for_disk, write_file};

/// Appended to the sandbox's id; ids never contain it.
pub(super) const SUFFIX: &str = ".aside";

/// Writing gigabytes of RAM to a slow disk takes minutes, but a worker without CPU time for this long hangs.
const IDLE_LOOKS_MAX: u32 = 30;
const LOOK_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct WorkerGroup {
    directory: PathBuf,
}

impl Group<'_> {
    /// `None` on a host without a v2 tree.
    pub(crate) fn aside(&self) -> Option<WorkerGroup> {
        let tree = self.layout.unified.as_ref()?;
        Some(WorkerGroup { directory: tree.join(format!("{}{SUFFIX}", self.name)) })
    }
}

impl WorkerGroup {
    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    /// Creates the directory, or opens an existing empty one.
    pub(crate) fn create(&self) -> io::Result<File> {
        match fs::create_dir(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        File::open(&self.directory)
    }

    /// Waits until the workers end, as long as they make progress. `TimedOut`: they still exist and make no progress.
    pub(crate) fn await_end(&self) -> io::Result<()> {
        let worked = || match event(&self.directory, "populated") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            other => other.map(|populated| !populated),
        };
        match wait::until(worked) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            other => return other,
        }
        let (mut idle_looks, mut used) = (0, cpu_us_of(&self.directory).ok());
        while idle_looks < IDLE_LOOKS_MAX {
            if worked()? {
                return Ok(());
            }
            std::thread::sleep(LOOK_PAUSE);
            let now_used = cpu_us_of(&self.directory).ok();
            // A worker that waits for a disk uses no CPU time, but does not hang.
            idle_looks =
                if now_used == used && !waits_for_disk(&self.directory) { idle_looks + 1 } else { 0 };
            used = now_used;
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Kills the workers, and removes the directory. Not an error if it does not exist.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match write_file(&self.directory.join("cgroup.kill"), "1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        remove_dir(&self.directory)
    }
}
