//! Merges on the wire: the work of one sandbox, brought into another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::memory::MergedMemory;
use crate::{DiffNode, DiffNoise, Snapshot};

/// `POST /v1/sandboxes/{sandbox}/merge`: brings what a fork did into the sandbox, three-way against the snapshot that both
/// came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeSandbox {
    /// Name or id of the sandbox whose work is brought.
    pub child: String,
    /// Only say what would happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// What is done where both changed the same path, by pattern; the first that matches counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub policies: Vec<MergeRule>,
    /// What is done where no pattern matches; `fail` when absent.
    #[serde(default)]
    pub policy: MergePolicy,
    /// Noise too: caches, temporary files, logs, pid files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// What becomes of what the child remembers.
    #[serde(default)]
    pub memory: MergeMemoryPolicy,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeRule {
    /// Which paths: `*.md`, `/srv/**`.
    pub glob: String,
    pub policy: MergePolicy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MergePolicy {
    /// It is a conflict, and nothing is merged.
    #[default]
    Fail,
    /// The parent's stays.
    Ours,
    /// The child's comes.
    Theirs,
    /// The lines of both, of text; what one deleted and the other changed stays.
    Union,
    /// Line by line; a conflict where both changed the same lines.
    Text,
}

impl MergePolicy {
    pub const ALL: [Self; 5] = [Self::Fail, Self::Ours, Self::Theirs, Self::Union, Self::Text];

    /// As it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Ours => "ours",
            Self::Theirs => "theirs",
            Self::Union => "union",
            Self::Text => "text",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MergeMemoryPolicy {
    /// It stays where it is.
    None,
    /// It comes; where both changed the same, the parent's stays and the contradiction is listed.
    #[default]
    List,
    /// It comes; the parent's wins.
    Ours,
    /// It comes; the child's wins.
    Theirs,
    /// It comes; of entries both are kept, of keys the parent's.
    Both,
    /// Where both changed the same, nothing is merged, files included.
    Fail,
}

impl MergeMemoryPolicy {
    pub const ALL: [Self; 6] = [Self::None, Self::List, Self::Ours, Self::Theirs, Self::Both, Self::Fail];

    /// As it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::List => "list",
            Self::Ours => "ours",
            Self::Theirs => "theirs",
            Self::Both => "both",
            Self::Fail => "fail",
        }
    }
}

/// What a merge did, would do, or why it did nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Merged {
    /// Absent where nothing was done.
    pub id: Option<String>,
    pub parent: String,
    pub child: String,
    /// The snapshot that both came from.
    pub base: String,
    pub dry_run: bool,
    /// Whether anything was changed. Not where there are conflicts.
    pub applied: bool,
    /// The parent as it was before: restoring it undoes the merge.
    pub undo: Option<Snapshot>,
    /// Paths by what happens to them: `added`, `changed`, `deleted`, `merged` (lines of both). The first 10,000 of each.
    pub changes: BTreeMap<String, Vec<String>>,
    /// Files that one moved and the other changed: changed where they are now.
    pub moved: Vec<MovedFile>,
    /// How many paths that are in all.
    pub total: u64,
    /// There are more than are listed.
    pub cut: bool,
    /// Where there are any, nothing is merged.
    pub conflicts: Vec<FileConflict>,
    /// Files that were replaced or removed while processes of the parent have them open: these go on with the old ones.
    pub open: Vec<MergeOpenFile>,
    /// What the child changed and was left out, and how much of it.
    pub noise: Vec<DiffNoise>,
    /// What came, or would come, of what the child remembers.
    pub memory: Option<MergedMemory>,
    /// How long the parent stood still, in microseconds.
    pub pause_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MovedFile {
    pub from: String,
    pub to: String,
}

/// One path that both changed, each in its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileConflict {
    pub path: String,
    pub kind: MergeConflictKind,
    /// What both came from.
    pub base: Option<DiffNode>,
    /// The parent's.
    pub ours: Option<DiffNode>,
    /// The child's.
    pub theirs: Option<DiffNode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MergeConflictKind {
    /// Content, or where a link leads.
    BothChanged,
    BothAdded,
    /// The parent has deleted what the child has changed.
    DeletedByOurs,
    /// The child has deleted what the parent has changed.
    DeletedByTheirs,
    /// A file here, a directory there.
    Kind,
    /// Mode, owner or extended attributes.
    Attributes,
    /// One has something else where the other has put things into a directory.
    Directory,
}

impl MergeConflictKind {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::BothChanged => "both changed it",
            Self::BothAdded => "both added it",
            Self::DeletedByOurs => "the parent deleted what the child changed",
            Self::DeletedByTheirs => "the child deleted what the parent changed",
            Self::Kind => "a file in one, a directory or link in the other",
            Self::Attributes => "both changed its mode, owner or attributes",
            Self::Directory => "no directory in one, something new in it in the other",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MergeOpenFile {
    pub path: String,
    /// As the host numbers it.
    pub pid: u32,
    pub program: String,
}

/// `GET /v1/sandboxes/{sandbox}/merges`: one that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastMerge {
    pub id: String,
    pub child: String,
    pub base: String,
    /// Snapshot of the parent as it was before.
    pub undo: String,
    /// Paths that it changed.
    pub total: u64,
    pub created_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastMerges {
    /// Newest first, the last hundred.
    pub merges: Vec<PastMerge>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_written_as_they_are_named() {
        for policy in MergePolicy::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
        }
        for policy in MergeMemoryPolicy::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
        }
    }

    #[test]
    fn a_merge_that_says_only_whose_refuses_conflicts_and_brings_memory() {
        let merge: MergeSandbox = serde_json::from_str(r#"{"child":"x"}"#).unwrap();
        assert_eq!((merge.policy, merge.memory), (MergePolicy::Fail, MergeMemoryPolicy::List));
        assert!(serde_json::from_str::<MergeSandbox>(r#"{"child":["x","y"]}"#).is_err());
    }
}
