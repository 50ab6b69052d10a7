//! What can go wrong between us and CRIU.

use std::fmt;
use std::io;
use std::time::Duration;

use super::inspect::Obstacle;

/// One of the two things CRIU is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Dump,
    Restore,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dump => "dump",
            Self::Restore => "restore",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CriuError {
    /// Found beforehand: nothing has happened to the processes.
    #[error("could not dump the processes: {}", list(.obstacles))]
    Obstacles { obstacles: Vec<Obstacle> },
    #[error("could not start CRIU for a {operation}: could not {step}")]
    Start { operation: Operation, step: &'static str, source: io::Error },
    #[error("could not talk to CRIU during a {operation}")]
    Talk { operation: Operation, source: io::Error },
    /// The processes are as they were: a failed dump lets them go on, a failed restore ends what it made.
    #[error("CRIU gave up the {operation}: {reason}")]
    Refused { operation: Operation, reason: String },
    /// A step of ours failed while CRIU waited for it; CRIU then gave up as it does when it fails itself.
    #[error("could not {step} during a {operation}")]
    Step { operation: Operation, step: &'static str, source: io::Error },
    #[error("CRIU ended in the middle of a {operation}: {reason}")]
    Died { operation: Operation, reason: String },
    /// It hung, and was killed with all it had made.
    #[error("a restore took longer than {} s", .after.as_secs())]
    Timeout { after: Duration },
    #[error("could not {step} of the restored processes")]
    Finish { step: &'static str, source: io::Error },
}

impl CriuError {
    /// Whether the same may succeed when it is tried again: CRIU was killed, or hung.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Died { .. } | Self::Talk { .. } | Self::Timeout { .. })
    }
}

/// The first few, in words.
fn list(obstacles: &[Obstacle]) -> String {
    const SHOWN_MAX: usize = 3;
    let shown: Vec<String> = obstacles.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    let more = obstacles.len().saturating_sub(SHOWN_MAX);
    if more == 0 { shown.join("; ") } else { format!("{}; and {more} more", shown.join("; ")) }
}
