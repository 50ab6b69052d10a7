//! The inputs and results of dumping a machine's processes and of restoring them.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;

use burrow_model::Limits;
use burrow_network::Attachment;
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Mount};

/// Further obstacles are only counted: the first few are enough to act on.
const OBSTACLES_SHOWN_MAX: usize = 3;

/// A reason why processes cannot be dumped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// The pid inside the sandbox, if known; else zero.
    pub pid: u32,
    /// The name of the process.
    pub process: String,
    /// The obstacle, in words: "has the device `/dev/fuse` open".
    pub reason: String,
    /// Whether it disappears by itself within moments. A dump waits for such obstacles.
    pub passes: bool,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => write!(f, "`{}` {}", self.process, self.reason),
            pid => write!(f, "`{}` (process {pid}) {}", self.process, self.reason),
        }
    }
}

/// Text that names the first few obstacles.
pub(crate) fn list(obstacles: &[Obstacle]) -> String {
    let shown: Vec<String> = obstacles.iter().take(OBSTACLES_SHOWN_MAX).map(ToString::to_string).collect();
    match obstacles.len().saturating_sub(OBSTACLES_SHOWN_MAX) {
        0 => shown.join("; "),
        more => format!("{}; and {more} more", shown.join("; ")),
    }
}

/// The kinds of state that a driver has restored in trials, for the next start of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredKinds {
    /// The properties of the host and of the driver on which the result of a trial depends. A driver with other
    /// properties ignores the record.
    pub host: String,
    pub kinds: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub struct DumpOptions {
    pub machine: Machine,
    /// The sandbox's files, as in [`crate::BootOptions`].
    pub root: PathBuf,
    /// An empty directory, on a file system with [`crate::Runtime::dump_bytes`] of free space.
    pub images: PathBuf,
    /// As at its boot. The contents of volumes are not dumped.
    pub mounts: Vec<Mount>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpInfo {
    /// The properties of the host that a restore must know: JSON, only read by the driver.
    pub about: String,
    /// How long the machine has been frozen so far. Zero if it was paused before.
    pub paused_us: u64,
}

pub struct RestoreOptions {
    /// The sandbox's files, exactly as they were at the time of the dump.
    pub root: PathBuf,
    pub images: PathBuf,
    /// As returned by the dump.
    pub about: String,
    /// [`Attachment::Later`]: the driver creates the network namespace itself.
    pub attachment: Attachment,
    pub limits: Limits,
    /// `Some`: a fork, which is renamed before anything runs.
    pub hostname: Option<String>,
    /// At the same paths as at the time of the dump. The access modes may differ.
    pub mounts: Vec<Mount>,
    pub introduce: Option<IntroduceFn>,
    /// Only a test whether the dump can be restored: the machine is destroyed next. None of its processes run, and its
    /// connections are not aborted.
    pub trial: bool,
}

/// Called when only the first process runs: sends the agent its new identity.
pub type IntroduceFn = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>> + Send>;

impl fmt::Debug for RestoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreOptions")
            .field("root", &self.root)
            .field("images", &self.images)
            .field("about", &self.about)
            .field("attachment", &self.attachment)
            .field("limits", &self.limits)
            .field("hostname", &self.hostname)
            .field("mounts", &self.mounts)
            .field("trial", &self.trial)
            .field("introduce", &self.introduce.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_obstacles_are_named_and_the_others_counted() {
        let obstacle = |pid| Obstacle {
            pid,
            process: "redis".to_owned(),
            reason: "uses io_uring".to_owned(),
            passes: false,
        };
        assert_eq!(list(&[obstacle(7)]), "`redis` (process 7) uses io_uring");
        assert_eq!(list(&[obstacle(0)]), "`redis` uses io_uring");
        let many: Vec<_> = (1..=5).map(obstacle).collect();
        assert!(list(&many).ends_with("(process 3) uses io_uring; and 2 more"), "{}", list(&many));
    }
}
