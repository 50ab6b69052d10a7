//! The v2 directory beside a sandbox's own, for whoever works on its processes and must not freeze with them.
//!
//! Named after the sandbox, so that what is left of such work is found, and ended, by the sandbox's id alone.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Group, cpu_us_of, event, remove_dir, wait, write_file};

/// After the sandbox's id; never part of one.
pub(super) const SUFFIX: &str = ".aside";

/// Writing gigabytes of RAM to a slow disk takes minutes, but a worker that used no processor time for this long hangs.
const IDLE_LOOKS_MAX: u32 = 30;
const LOOK_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Aside {
    directory: PathBuf,
}

impl Group<'_> {
    /// `None` on a host without a v2 tree.
    pub(crate) fn aside(&self) -> Option<Aside> {
        let tree = self.layout.unified.as_ref()?;
        Some(Aside { directory: tree.join(format!("{}{SUFFIX}", self.name)) })
    }
}

impl Aside {
    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    /// Makes it, or takes the empty one that is there.
    pub(crate) fn create(&self) -> io::Result<File> {
        match fs::create_dir(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        File::open(&self.directory)
    }

    /// Waits until the workers end, as long as they make progress. `TimedOut`: they are still there and make none.
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
            // One that waits for a disk uses no processor time, and does not hang.
            idle_looks = if now_used == used && !self.waits_for_disk() { idle_looks + 1 } else { 0 };
            used = now_used;
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Whether one of the workers waits for a disk or the like, where not even a signal reaches it.
    fn waits_for_disk(&self) -> bool {
        let pids = fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
        pids.lines().any(|pid| {
            // The state follows the name, which may hold anything, parentheses included.
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
        })
    }

    /// Ends whoever is at work, and removes the directory. Of one that is not there: nothing to do.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match write_file(&self.directory.join("cgroup.kill"), "1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        remove_dir(&self.directory)
    }
}
