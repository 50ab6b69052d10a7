//! The directories of one daemon, and the lock that keeps a second one out of them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use burrow_config::Config;
use rustix::fs::{FlockOperation, flock};

use crate::error::ServeError;

/// Proof that no other daemon uses these directories.
#[derive(Debug)]
pub(crate) struct Instance {
    _lock: File,
    files: Vec<PathBuf>,
}

impl Instance {
    pub(crate) fn claim(config: &Config) -> Result<Self, ServeError> {
        make_directory(&config.state_dir)?;
        make_directory(&config.run_dir)?;
        let path = config.state_dir.join("daemon.lock");
        let failed = |step, path: &Path| {
            let path = path.to_owned();
            move |source| ServeError::Directory { step, path, source }
        };
        let mut open = OpenOptions::new();
        let lock = open.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(failed("open the lock", &path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(ServeError::Running { state_dir: config.state_dir.clone() });
            }
            Err(error) => return Err(failed("lock", &path)(error.into())),
        }
        let pid = config.run_dir.join("daemon.pid");
        fs::write(&pid, format!("{}\n", std::process::id())).map_err(failed("write", &pid))?;
        Ok(Self { _lock: lock, files: vec![pid, config.run_dir.join("address")] })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}

/// Not accessible to other users: it contains data of sandboxes.
pub(crate) fn make_directory(path: &Path) -> Result<(), ServeError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| ServeError::Directory {
        step: "create the directory",
        path: path.to_owned(),
        source,
    })
}
