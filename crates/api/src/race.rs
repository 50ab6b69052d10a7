//! Races on the wire: several forks attempt the same task, and one of them wins.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{MergeMemoryPolicy, MergePolicy, MergeRule};

/// `POST /v1/races`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRace {
    /// Name or id of the sandbox that is forked.
    pub parent: String,
    #[schema(minimum = 1, maximum = 32)]
    pub attempts: u32,
    /// How many run at the same time; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 32)]
    pub parallel: Option<u32>,
    /// The command of every attempt. `BURROW_ATTEMPT` contains the number of the attempt.
    #[schema(min_items = 1, max_items = 1000)]
    pub run: Vec<String>,
    /// A command that is run in every attempt after it ended, and whose last line of output is a number: the highest
    /// wins. It rejects an attempt by a non-zero exit code. Without a judge, the fastest attempt that exits with code 0
    /// wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub judge: Option<Vec<String>>,
    /// Time limit of an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u64>,
    /// The attempts boot from the parent's files, without its processes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
    /// Keep the sandboxes of the attempts after the race.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// Merge the winner into the parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_winner: bool,
    /// The policies for merging the winner, as in a merge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub policies: Vec<MergeRule>,
    #[serde(default)]
    pub policy: MergePolicy,
    #[serde(default)]
    pub memory: MergeMemoryPolicy,
}

/// `POST /v1/races/{race}/merge`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeRace {
    /// Only report what would happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub policies: Vec<MergeRule>,
    #[serde(default)]
    pub policy: MergePolicy,
    #[serde(default)]
    pub memory: MergeMemoryPolicy,
}

/// The state of a race.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Race {
    pub id: String,
    pub parent: String,
    pub stage: RaceStage,
    pub run: Vec<String>,
    pub judge: Option<Vec<String>>,
    pub attempts: Vec<RaceAttempt>,
    /// The snapshot that all attempts started from.
    pub base: Option<String>,
    /// Number of the attempt that won; absent if there is none, or none yet.
    pub winner: Option<u32>,
    /// The result of merging it, if that was requested.
    pub merged: Option<RaceMerged>,
    /// Why it ended early.
    pub failure: Option<String>,
    pub created_ms: u64,
    pub ended_ms: Option<u64>,
    /// Increases with every change; pass it as `after` to wait for the next one.
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RaceStage {
    Forking,
    Running,
    Choosing,
    Merging,
    Cleaning,
    Done,
}

impl RaceStage {
    /// The name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forking => "forking",
            Self::Running => "running",
            Self::Choosing => "choosing",
            Self::Merging => "merging",
            Self::Cleaning => "cleaning",
            Self::Done => "done",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RaceAttempt {
    /// Starts at 1.
    pub number: u32,
    pub sandbox: String,
    pub state: RaceAttemptState,
    pub exec: Option<String>,
    pub exit_code: Option<i32>,
    pub score: Option<f64>,
    pub took_ms: Option<u64>,
    /// Why it was rejected.
    pub why: Option<String>,
    /// Number of paths that it added, changed and deleted.
    pub added: Option<u64>,
    pub changed: Option<u64>,
    pub deleted: Option<u64>,
    /// Whether its sandbox is deleted.
    pub gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RaceAttemptState {
    Waiting,
    Running,
    Judging,
    Ended,
    Failed,
}

impl RaceAttemptState {
    /// The name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Judging => "judging",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RaceMerged {
    pub applied: bool,
    /// Paths that it changed.
    pub total: u64,
    /// Paths in conflict, the first hundred; if there are any, nothing was merged.
    pub conflicts: Vec<String>,
    /// Snapshot of the parent before the merge.
    pub undo: Option<String>,
}

/// `GET /v1/races`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Races {
    /// Newest first, the last two hundred.
    pub races: Vec<Race>,
}
