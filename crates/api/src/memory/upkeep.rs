//! Statistics, merging, consolidation and checks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Contradiction;

/// `GET /v1/memory/{of}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryStats {
    /// Id of the space.
    pub space: String,
    /// Its name; absent for a sandbox's own.
    pub name: Option<String>,
    /// The line of it that is seen here.
    pub branch: String,
    /// The sandbox it was asked for by, if it was.
    pub sandbox: Option<String>,
    /// The last number of the log that is seen here; 0: nothing.
    pub seq: u64,
    /// Entries, those in the cold tier and those that others replaced included.
    pub entries: u64,
    pub by_kind: BTreeMap<String, u64>,
    /// Of these, in the cold tier.
    pub cold: u64,
    /// Of these, replaced by others.
    pub superseded: u64,
    pub sessions: u64,
    pub kv_keys: u64,
    pub skills: u64,
    pub artifacts: u64,
    /// Of the texts of these entries.
    pub text_bytes: u64,
    pub vectors: VectorCoverage,
    /// Spaces that are searched as well.
    pub attached: Vec<super::AttachedSpace>,
}

/// How far vectors have come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VectorCoverage {
    /// What makes them.
    pub model: String,
    /// Entries that have one of this model, and that wait for theirs.
    pub covered: u64,
    pub pending: u64,
}

/// `POST /v1/memory/{of}/merge`: brings what a fork remembered back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeMemory {
    /// Name or id of the sandbox to merge from: a fork, or one of the same descent.
    pub from: String,
    /// Only say what would happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Who wins where both changed an entry, or one forgot what the other changed; also of what an earlier merge listed.
    /// When absent what is here stays, and is listed until a merge says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<EntryPolicy>,
    /// Who wins where both changed a key, a skill or an artifact; also of what an earlier merge listed. When absent what
    /// is here stays, and is listed until a merge says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvPolicy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntryPolicy {
    /// What is there stays.
    Ours,
    /// What comes wins, forgetting included.
    Theirs,
    /// What is there stays, and what comes is added beside it, linked to it.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KvPolicy {
    /// What is there stays.
    Ours,
    /// What comes wins.
    Theirs,
    /// Nothing is merged; the conflicts are the answer.
    Fail,
}

/// Answer of a merge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MergedMemory {
    pub dry_run: bool,
    /// Entries that are new here.
    pub added: u64,
    /// Entries that said what was known, joined with what was there.
    pub joined: u64,
    /// Updates and forgettings taken over.
    pub updated: u64,
    /// What cannot both hold, and which of it is here now. The first 1,000.
    pub contradictions: Vec<Contradiction>,
    /// Keys taken over.
    pub kv: u64,
    /// Keys that both changed. The first 1,000.
    pub kv_conflicts: Vec<MergeConflict>,
    pub skills: u64,
    pub artifacts: u64,
}

/// A key that both changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MergeConflict {
    pub key: String,
    /// What it is here, cut short; absent where it was deleted.
    pub ours: Option<String>,
    pub theirs: Option<String>,
    /// Whose is there now.
    pub taken: KvPolicy,
}

/// `POST /v1/memory/{of}/consolidate`. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsolidateMemory {
    /// Only say what would happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Only what is older than this; `memory.consolidate_older_than` of the configuration when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_seconds: Option<u64>,
    /// Entries looked at, at most; 10000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub entries: Option<u64>,
    /// Time it may take; 30 s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 600_000)]
    pub budget_ms: Option<u64>,
    /// Share of the entries that should stay warm, from 0 to 1; as many as are worth it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 1.0)]
    pub target_share: Option<f32>,
}

/// Answer of a consolidation. Nothing is lost: sources stay, in `as_of` reads, the history and exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsolidatedMemory {
    pub dry_run: bool,
    /// Entries looked at.
    pub examined: u64,
    /// Duplicates joined with what they repeat.
    pub joined: u64,
    /// Groups of old entries that a summary now stands for.
    pub rolled_up: u64,
    /// Their entries, which moved to the cold tier.
    pub cooled: u64,
    /// Ids of the summaries; each cites its sources.
    pub summaries: Vec<String>,
    /// Summaries that the configured endpoint failed to write: they are the sources' own sentences.
    pub fell_back: u64,
    /// Warm entries before and after.
    pub before: u64,
    pub after: u64,
    /// There is more to do than fitted in the budget.
    pub more: bool,
}

/// `POST /v1/memory/{of}/check` and `…/rebuild`: whether a space is what was written, and all its indices agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryCheck {
    pub ok: bool,
    /// What was compared.
    pub parts: Vec<MemoryPart>,
    /// What is wrong, if anything is. The first 100.
    pub problems: Vec<String>,
    pub took_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryPart {
    /// `entries`, `words`, `vectors`, `pending`, `branches`, `artifacts`, …
    pub part: String,
    pub count: u64,
}
