//! What a merge is given, what it results in, and its record.

use std::collections::BTreeMap;

use burrow_catalog::SandboxRow;
use burrow_memory::merge::{
    EntryPolicy, KvPolicy, MergeOptions as MemoryOptions, MergeReport as MemoryMergeReport,
};
use burrow_model::{MergeId, SandboxId, Snapshot, SnapshotId};
use burrow_trees::plan::{Conflict, Policies};
use serde::{Deserialize, Serialize};

use super::held_tree::HeldTree;

#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// Report what would happen, and change nothing.
    pub dry_run: bool,
    pub policies: Policies,
    /// Include noise.
    pub all: bool,
    pub memory: MemoryPolicy,
}

/// What happens to the child's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryPolicy {
    /// It is not merged.
    None,
    /// It is merged; if both changed the same entry, the parent's stays and the contradiction is listed.
    List,
    Ours,
    Theirs,
    /// Of entries both are kept; of keys the parent's.
    Both,
    /// If both changed the same entry, nothing is merged at all.
    Fail,
}

impl MemoryPolicy {
    /// The options for the merge of memory.
    pub(super) fn options(self, dry_run: bool) -> MemoryOptions {
        let (entries, kv) = match self {
            Self::None | Self::List | Self::Fail => (None, None),
            Self::Ours => (Some(EntryPolicy::Ours), Some(KvPolicy::Ours)),
            Self::Theirs => (Some(EntryPolicy::Theirs), Some(KvPolicy::Theirs)),
            Self::Both => (Some(EntryPolicy::Both), Some(KvPolicy::Ours)),
        };
        MemoryOptions { dry_run, kv, entries }
    }
}

/// What a merge did or would do, or why it did nothing.
#[derive(Clone, Debug)]
pub struct MergeReport {
    pub parent: SandboxId,
    pub child: SandboxId,
    /// The common ancestor.
    pub base: SnapshotId,
    /// Whether anything was changed. False with conflicts, on a dry run, or if there was nothing to do.
    pub applied: bool,
    pub id: Option<MergeId>,
    /// The parent's state before; restoring it undoes the merge.
    pub undo: Option<Snapshot>,
    pub changes: MergeChanges,
    pub conflicts: Vec<Conflict>,
    /// Files that were replaced or removed while processes of the parent had them open.
    pub open: Vec<OpenFile>,
    /// Changes of the child that were not merged because they are noise, by kind.
    pub noise: BTreeMap<&'static str, u64>,
    pub memory: Option<MemoryMergeReport>,
    /// How long the parent was paused.
    pub pause_us: u64,
}

/// Paths by kind of change, in order; only the first of many.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MergeChanges {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub deleted: Vec<String>,
    /// Text files whose lines were merged from both sides.
    pub merged: Vec<String>,
    /// Changed on one side and moved on the other.
    pub moved: Vec<(String, String)>,
    pub total: u64,
    pub cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    pub path: String,
    pub pid: u32,
    pub program: String,
}

/// The record of a merge in the catalog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MergeRecord {
    pub(crate) base: SnapshotId,
    pub(crate) undo: SnapshotId,
    pub(crate) memory: MemoryPolicy,
    pub(crate) changes: MergeChanges,
}

/// What the parent's actor receives.
#[derive(Debug)]
pub(crate) struct MergeWork {
    pub(crate) child: SandboxRow,
    /// Held until the merge has ended.
    pub(crate) theirs: HeldTree,
    pub(crate) base: HeldTree,
    pub(crate) base_id: SnapshotId,
    pub(crate) options: MergeOptions,
}
