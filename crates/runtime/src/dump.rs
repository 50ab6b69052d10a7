//! A machine's processes written down, and made again: what is asked for and what is answered.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;

use burrow_model::Limits;
use burrow_network::Attachment;
use serde::{Deserialize, Serialize};

use crate::{Machine, Mount};

/// More are not told one by one: the first few are what somebody can act on.
const OBSTACLES_SHOWN_MAX: usize = 3;

/// One reason why processes cannot be written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// As the sandbox itself numbers its processes, where that is known; else zero.
    pub pid: u32,
    /// The name of the process.
    pub process: String,
    /// What it has or does, in words: "has the device `/dev/fuse` open".
    pub reason: String,
    /// Whether it goes away by itself within moments. A dump waits for those.
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

/// The first few, in words.
pub(crate) fn list(obstacles: &[Obstacle]) -> String {
    let shown: Vec<String> = obstacles.iter().take(OBSTACLES_SHOWN_MAX).map(ToString::to_string).collect();
    match obstacles.len().saturating_sub(OBSTACLES_SHOWN_MAX) {
        0 => shown.join("; "),
        more => format!("{}; and {more} more", shown.join("; ")),
    }
}

#[derive(Clone, Debug)]
pub struct DumpOptions {
    pub machine: Machine,
    /// The sandbox's files, as in [`crate::BootOptions`].
    pub root: PathBuf,
    /// An empty directory, on a file system with room for what [`crate::Runtime::dump_bytes`] says.
    pub images: PathBuf,
    /// As at its boot: what is in them is not written down.
    pub mounts: Vec<Mount>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// What a restore must know of where the dump was made: JSON, opaque to all but the driver.
    pub about: String,
    /// How long the machine has stood still so far. Zero for one that was paused before.
    pub paused_us: u64,
}

pub struct RestoreOptions {
    /// The sandbox's files, exactly as they were when the dump was made.
    pub root: PathBuf,
    pub images: PathBuf,
    /// As the dump answered.
    pub about: String,
    /// [`Attachment::Later`]: the driver makes the network namespace itself.
    pub attachment: Attachment,
    pub limits: Limits,
    /// Some: a fork, to be renamed before anything runs.
    pub hostname: Option<String>,
    /// At the same places as when the dump was made. Who may write is said anew.
    pub mounts: Vec<Mount>,
    pub introduce: Option<Introduce>,
}

/// Called when the first process runs and no other does: tells the agent who it is now.
pub type Introduce = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>> + Send>;

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
            .field("introduce", &self.introduce.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_obstacles_are_told_and_the_others_counted() {
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
