//! Errors of CRIU and of the communication with it.

use std::fmt;
use std::io;
use std::time::Duration;

use super::inspect::Obstacle;

/// The operations that CRIU performs.
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
    /// Found before the dump: nothing has happened to the processes.
    #[error("could not dump the processes: {}", list(.obstacles))]
    Obstacles { obstacles: Vec<Obstacle> },
    #[error("could not start CRIU for a {operation}: could not {step}")]
    Start { operation: Operation, step: &'static str, source: io::Error },
    #[error("could not communicate with CRIU during a {operation}")]
    Talk { operation: Operation, source: io::Error },
    /// A failed dump has resumed the processes unchanged; a failed restore has ended the processes that it created.
    #[error("CRIU failed during the {operation}: {reason}")]
    Refused { operation: Operation, reason: String },
    /// A step of ours failed while CRIU waited for it; CRIU then stopped as after its own failures.
    #[error("could not {step} during a {operation}")]
    Step { operation: Operation, step: &'static str, source: io::Error },
    #[error("CRIU ended during a {operation}: {reason}")]
    Died { operation: Operation, reason: String },
    /// Not by us: by the OOM killer, or manually.
    #[error("CRIU was killed by signal {signal} during a {operation}")]
    Killed { operation: Operation, signal: i32 },
    /// It hung, and was killed; after a restore, together with the processes that it had created.
    #[error("CRIU made no progress for {} s during a {operation}{}", .after.as_secs(), last_seen(.last.as_deref()))]
    Timeout {
        operation: Operation,
        after: Duration,
        /// The last process that appears in its log.
        last: Option<String>,
    },
    #[error("could not {step} of the restored processes")]
    Finish { step: &'static str, source: io::Error },
}

impl CriuError {
    /// Whether a retry may succeed: CRIU was killed, or hung.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Died { .. } | Self::Killed { .. } | Self::Talk { .. } | Self::Timeout { .. })
    }
}

fn last_seen(process: Option<&str>) -> String {
    process.map_or_else(String::new, |process| format!("; the last process in its log is {process}"))
}

/// Text that names the first few obstacles.
fn list(obstacles: &[Obstacle]) -> String {
    const SHOWN_MAX: usize = 3;
    let shown: Vec<String> = obstacles.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    let more = obstacles.len().saturating_sub(SHOWN_MAX);
    if more == 0 { shown.join("; ") } else { format!("{}; and {more} more", shown.join("; ")) }
}
