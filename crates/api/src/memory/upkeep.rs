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
    /// Its name; absent for the own space of a sandbox.
    pub name: Option<String>,
    /// The branch of it that is read here.
    pub branch: String,
    /// The sandbox that the request named, if it did.
    pub sandbox: Option<String>,
    /// The last position in the log that is visible here; 0 for an empty log.
    pub seq: u64,
    /// Number of entries, including those in the cold tier and those that others replaced.
    pub entries: u64,
    pub by_kind: BTreeMap<String, u64>,
    /// Of these, entries in the cold tier.
    pub cold: u64,
    /// Of these, entries that others replaced.
    pub superseded: u64,
    pub sessions: u64,
    pub kv_keys: u64,
    pub skills: u64,
    pub artifacts: u64,
    /// Total size of the texts of these entries.
    pub text_bytes: u64,
    pub vectors: VectorCoverage,
    /// Other spaces that searches include.
    pub attached: Vec<super::AttachedSpace>,
}

/// How many entries have vectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VectorCoverage {
    /// The model that computes them.
    pub model: String,
    /// Entries that have a vector of this model, and entries that wait for one.
    pub covered: u64,
    pub pending: u64,
}

/// `POST /v1/memory/{of}/merge`: merges what a fork remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeMemory {
    /// Name or id of the sandbox to merge from: a fork, or another sandbox of the same lineage.
    pub from: String,
    /// Only report what would happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Which side wins if both changed an entry, or one forgot what the other changed; also for conflicts that an
    /// earlier merge listed. When absent, this side stays, and the conflict is listed until a merge decides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<EntryPolicy>,
    /// Which side wins if both changed a key, a skill or an artifact; also for conflicts that an earlier merge listed.
    /// When absent, this side stays, and the conflict is listed until a merge decides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvPolicy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntryPolicy {
    /// The existing version stays.
    Ours,
    /// The incoming version wins, including forgetting.
    Theirs,
    /// The existing version stays, and the incoming one is added beside it, linked to it.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KvPolicy {
    /// The existing version stays.
    Ours,
    /// The incoming version wins.
    Theirs,
    /// Nothing is merged; the conflicts are returned.
    Fail,
}

/// Response to a merge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MergedMemory {
    pub dry_run: bool,
    /// Entries that are new here.
    pub added: u64,
    /// Entries that repeat an existing one, and were joined with it.
    pub joined: u64,
    /// Updates and deletions that were applied.
    pub updated: u64,
    /// Contradictions, and which side is in effect here now. The first 1,000.
    pub contradictions: Vec<Contradiction>,
    /// Number of keys that were taken.
    pub kv: u64,
    /// Keys that both sides changed. The first 1,000.
    pub kv_conflicts: Vec<MergeConflict>,
    pub skills: u64,
    pub artifacts: u64,
}

/// A key that both sides changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MergeConflict {
    pub key: String,
    /// Its value here, truncated; absent if it was deleted.
    pub ours: Option<String>,
    pub theirs: Option<String>,
    /// Which side is in effect now.
    pub taken: KvPolicy,
}

/// `POST /v1/memory/{of}/consolidate`. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsolidateMemory {
    /// Only report what would happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Only entries older than this; `memory.consolidate_older_than` of the configuration when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_seconds: Option<u64>,
    /// Maximum number of entries to examine; 10000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub entries: Option<u64>,
    /// Time it may take; 30 s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 600_000)]
    pub budget_ms: Option<u64>,
    /// Share of the entries that should stay warm, from 0 to 1; when absent, their value decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 1.0)]
    pub target_share: Option<f32>,
}

/// Response to a consolidation. Nothing is lost: sources stay in `as_of` reads, the history and exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsolidatedMemory {
    pub dry_run: bool,
    /// Entries examined.
    pub examined: u64,
    /// Duplicates joined with the entries that they repeat.
    pub joined: u64,
    /// Groups of old entries that a summary now represents.
    pub rolled_up: u64,
    /// Entries of these groups, which moved to the cold tier.
    pub cooled: u64,
    /// Ids of the summaries; each cites its sources.
    pub summaries: Vec<String>,
    /// Summaries that the configured endpoint failed to write; they consist of sentences of their sources.
    pub fell_back: u64,
    /// Warm entries before and after.
    pub before: u64,
    pub after: u64,
    /// More work remains than fitted in the budget.
    pub more: bool,
}

/// `POST /v1/memory/{of}/check` and `…/rebuild`: whether a space is intact and all its indices agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryCheck {
    pub ok: bool,
    /// The parts that were compared.
    pub parts: Vec<MemoryPart>,
    /// The problems found. The first 100.
    pub problems: Vec<String>,
    pub took_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryPart {
    /// `entries`, `words`, `vectors`, `pending`, `branches`, `artifacts`, …
    pub part: String,
    pub count: u64,
}
