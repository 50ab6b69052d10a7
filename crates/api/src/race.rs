//! Races on the wire: several forks try the same, and one of them wins.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{MergeMemoryPolicy, MergePolicy, MergeRule};

/// `POST /v1/races`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRace {
    /// Name or id of the sandbox whose forks race.
    pub parent: String,
    #[schema(minimum = 1, maximum = 32)]
    pub attempts: u32,
    /// How many run at once; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 32)]
    pub parallel: Option<u32>,
    /// The command of every attempt. It finds its number in `BURROW_ATTEMPT`.
    #[schema(min_items = 1, max_items = 1000)]
    pub run: Vec<String>,
    /// A command that is run in every attempt after its end, and whose last line of output is a number: the highest wins. It
    /// turns an attempt down by exiting with another code than 0. Without one, an attempt that exits 0 is good, and the
    /// quickest of them wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub judge: Option<Vec<String>>,
    /// How long an attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u64>,
    /// The attempts boot from the parent's files, without its processes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
    /// The attempts stay when all is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// Merge the winner into the parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_winner: bool,
    /// How the winner is merged, as in a merge.
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
    /// Only say what would happen.
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

/// A race as it stands.
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
    /// Number of the attempt that won; absent: none yet, or none at all.
    pub winner: Option<u32>,
    /// What became of merging it, if it was to be merged.
    pub merged: Option<RaceMerged>,
    /// Why it ended early.
    pub failure: Option<String>,
    pub created_ms: u64,
    pub ended_ms: Option<u64>,
    /// Grows with every change: `after` takes it.
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
    /// As it is written on the wire.
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
    /// From 1.
    pub number: u32,
    pub sandbox: String,
    pub state: RaceAttemptState,
    pub exec: Option<String>,
    pub exit_code: Option<i32>,
    pub score: Option<f64>,
    pub took_ms: Option<u64>,
    /// Why it does not count.
    pub why: Option<String>,
    /// Paths it added, changed and deleted.
    pub added: Option<u64>,
    pub changed: Option<u64>,
    pub deleted: Option<u64>,
    /// Its sandbox is deleted.
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
    /// As it is written on the wire.
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
    /// Paths in conflict, the first hundred; where there are any, nothing was merged.
    pub conflicts: Vec<String>,
    /// Snapshot of the parent as it was before.
    pub undo: Option<String>,
}

/// `GET /v1/races`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Races {
    /// Newest first, the last two hundred.
    pub races: Vec<Race>,
}
