//! Merges on the wire: applying the changes of one sandbox to another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::memory::MergedMemory;
use crate::{DiffNode, DiffNoise, Snapshot};

/// `POST /v1/sandboxes/{sandbox}/merge`: applies the changes of a fork to the sandbox, as a three-way merge against the
/// snapshot that both came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeSandbox {
    /// Name or id of the sandbox whose changes are merged.
    pub child: String,
    /// Only report what would happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Policies for paths that both changed, by pattern; the first that matches applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub policies: Vec<MergeRule>,
    /// The policy where no pattern matches; `fail` when absent.
    #[serde(default)]
    pub policy: MergePolicy,
    /// Include noise: caches, temporary files, logs, pid files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// How the child's memory is merged.
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
    /// A conflict: nothing is merged.
    #[default]
    Fail,
    /// The parent's version stays.
    Ours,
    /// The child's version replaces it.
    Theirs,
    /// For text: the lines of both, including lines that one deleted and the other changed.
    Union,
    /// Line by line; a conflict if both changed the same lines.
    Text,
}

impl MergePolicy {
    pub const ALL: [Self; 5] = [Self::Fail, Self::Ours, Self::Theirs, Self::Union, Self::Text];

    /// The name used on the wire.
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
    /// It is not merged.
    None,
    /// It is merged; where both changed the same item, the parent's version stays and the contradiction is listed.
    #[default]
    List,
    /// It is merged; the parent's version wins.
    Ours,
    /// It is merged; the child's version wins.
    Theirs,
    /// It is merged; both versions of entries are kept, and the parent's version of keys.
    Both,
    /// If both changed the same item, nothing is merged, including files.
    Fail,
}

impl MergeMemoryPolicy {
    pub const ALL: [Self; 6] = [Self::None, Self::List, Self::Ours, Self::Theirs, Self::Both, Self::Fail];

    /// The name used on the wire.
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

/// The result of a merge: what it changed, would change, or why it changed nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Merged)]
pub struct MergeReport {
    /// Absent if nothing was done.
    pub id: Option<String>,
    pub parent: String,
    pub child: String,
    /// The snapshot that both came from.
    pub base: String,
    pub dry_run: bool,
    /// Whether anything was changed. False if there are conflicts.
    pub applied: bool,
    /// The parent before the merge: restoring it undoes the merge.
    pub undo: Option<Snapshot>,
    /// Paths by kind of change: `added`, `changed`, `deleted`, `merged` (lines of both). The first 10,000 of each.
    pub changes: BTreeMap<String, Vec<String>>,
    /// Files that one side moved and the other changed: they are changed at their new path.
    pub moved: Vec<MovedFile>,
    /// Total number of paths.
    pub total: u64,
    /// There are more paths than are listed.
    pub cut: bool,
    /// If there are any, nothing is merged.
    pub conflicts: Vec<FileConflict>,
    /// Files that were replaced or removed while processes of the parent had them open: these processes continue to use
    /// the old files.
    pub open: Vec<MergeOpenFile>,
    /// Noise that the child changed and that was left out, and how much of it.
    pub noise: Vec<DiffNoise>,
    /// What was merged, or would be merged, of the child's memory.
    pub memory: Option<MergedMemory>,
    /// How long the parent was paused, in microseconds.
    pub pause_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MovedFile {
    pub from: String,
    pub to: String,
}

/// One path that both changed in different ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileConflict {
    pub path: String,
    pub kind: MergeConflictKind,
    /// The common ancestor.
    pub base: Option<DiffNode>,
    /// The parent's version.
    pub ours: Option<DiffNode>,
    /// The child's version.
    pub theirs: Option<DiffNode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MergeConflictKind {
    /// Content, or the target of a link.
    BothChanged,
    BothAdded,
    /// The parent has deleted what the child has changed.
    DeletedByOurs,
    /// The child has deleted what the parent has changed.
    DeletedByTheirs,
    /// A file on one side, a directory on the other.
    Kind,
    /// Mode, owner or extended attributes.
    Attributes,
    /// One side has no directory where the other added files to it.
    Directory,
}

impl MergeConflictKind {
    /// A description for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::BothChanged => "both changed it",
            Self::BothAdded => "both added it",
            Self::DeletedByOurs => "the parent deleted what the child changed",
            Self::DeletedByTheirs => "the child deleted what the parent changed",
            Self::Kind => "a file in one, a directory or link in the other",
            Self::Attributes => "both changed its mode, owner or attributes",
            Self::Directory => "not a directory in one, new files in the directory in the other",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MergeOpenFile {
    pub path: String,
    /// The process id on the host.
    pub pid: u32,
    pub program: String,
}

/// `GET /v1/sandboxes/{sandbox}/merges`: one completed merge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastMerge {
    pub id: String,
    pub child: String,
    pub base: String,
    /// Snapshot of the parent before the merge.
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
    fn policies_are_serialized_under_their_names() {
        for policy in MergePolicy::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
        }
        for policy in MergeMemoryPolicy::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
        }
    }

    #[test]
    fn a_merge_refuses_conflicts_and_lists_memory_by_default() {
        let merge: MergeSandbox = serde_json::from_str(r#"{"child":"x"}"#).unwrap();
        assert_eq!((merge.policy, merge.memory), (MergePolicy::Fail, MergeMemoryPolicy::List));
        assert!(serde_json::from_str::<MergeSandbox>(r#"{"child":["x","y"]}"#).is_err());
    }
}
