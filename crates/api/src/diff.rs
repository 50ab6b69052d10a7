//! Differences on the wire, between any two sandboxes, snapshots and images.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ChangeKind, FileKind};

/// `POST /v1/diff`: how one file tree differs from another. `GET /v1/diff` takes the same fields as query parameters.
///
/// Each side is a sandbox, a snapshot or an image, by id, by a unique prefix of its id, or by name. A name that several
/// kinds have means the sandbox first, then the snapshot. The prefixes `sandbox:`, `snapshot:` and `image:` select one
/// kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffRequest {
    /// The old side.
    #[schema(max_length = 300)]
    pub from: String,
    /// The new side.
    #[schema(max_length = 300)]
    pub to: String,
    /// Only paths that match one of these patterns: `*.py`, `/srv/**`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub globs: Vec<String>,
    /// Include noise: caches, temporary files, logs, pid files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Include the lines of text files that differ.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub content: bool,
    /// Maximum number of entries; 10,000 when absent. The rest are only counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100_000)]
    pub limit: Option<u32>,
}

/// The differences between two file trees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    pub from: DiffSide,
    pub to: DiffSide,
    /// The snapshot or image where their histories diverge; absent if they have no common history.
    pub base: Option<DiffSide>,
    /// Ordered by path.
    pub entries: Vec<DiffEntry>,
    /// Number of paths added, changed and deleted, listed or not.
    pub added: u64,
    pub changed: u64,
    pub deleted: u64,
    /// Total size of the files among them, before and after.
    pub old_bytes: u64,
    pub new_bytes: u64,
    /// Which noise was left out, and how much of it.
    pub noise: Vec<DiffNoise>,
    /// There are more entries than are listed.
    pub cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffSide {
    pub kind: DiffSideKind,
    pub id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiffSideKind {
    Sandbox,
    Snapshot,
    Image,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffNoise {
    /// The category, for people: `caches`, `logs`.
    pub what: String,
    pub count: u64,
}

/// One path that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffEntry {
    pub path: String,
    pub change: ChangeKind,
    /// Which aspects have changed; empty for an added or deleted path.
    pub what: Vec<DiffAspect>,
    pub old: Option<DiffNode>,
    pub new: Option<DiffNode>,
    /// The lines of a text file that differ, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<DiffLines>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiffAspect {
    Content,
    /// The file type, for example a file that was a directory.
    Kind,
    Mode,
    Owner,
    /// The target of a symbolic link.
    Link,
    /// The device number.
    Device,
    /// Extended attributes.
    Xattr,
}

impl DiffAspect {
    /// The name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Kind => "kind",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Link => "link",
            Self::Device => "device",
            Self::Xattr => "xattr",
        }
    }
}

/// The file at a path, before or after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffNode {
    pub kind: FileKind,
    pub size: u64,
    /// Octal permission bits, e.g. `0644`.
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    /// Target of a symbolic link.
    pub target: Option<String>,
    /// Names of extended attributes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffLines {
    pub added: u64,
    pub removed: u64,
    /// As in the output of `diff -u`, without the file names.
    pub hunks: String,
    /// There are more hunks than are included.
    pub cut: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aspects_are_serialized_under_their_names() {
        for aspect in [
            DiffAspect::Content,
            DiffAspect::Kind,
            DiffAspect::Mode,
            DiffAspect::Owner,
            DiffAspect::Link,
            DiffAspect::Device,
            DiffAspect::Xattr,
        ] {
            assert_eq!(serde_json::to_value(aspect).unwrap(), aspect.as_str());
        }
    }
}
