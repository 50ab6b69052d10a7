//! The v2 directory beside a sandbox's own, for whoever works on its processes and must not freeze with them.
//!
//! Named after the sandbox, so that what is left of such work is found, and ended, by the sandbox's id alone.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Group, event, remove_dir, wait, write_file};

/// After the sandbox's id; never part of one.
pub(super) const SUFFIX: &str = ".aside";

/// Writing gigabytes of RAM to a slow disk takes minutes; who works longer hangs.
const WORK_LOOKS: u32 = 600;
const WORK_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

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

    /// Waits for the end of whoever is at work.
    pub(crate) fn await_end(&self) -> io::Result<()> {
        let worked = || match event(&self.directory, "populated") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            other => other.map(|populated| !populated),
        };
        match wait::until(worked) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            other => return other,
        }
        for _ in 0..WORK_LOOKS {
            if worked()? {
                return Ok(());
            }
            std::thread::sleep(WORK_PAUSE);
        }
        Err(io::ErrorKind::TimedOut.into())
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
