//! Differences on the wire: of any two of sandboxes, snapshots and images.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ChangeKind, FileKind};

/// `POST /v1/diff`: what is different in one tree of files from another. `GET /v1/diff` takes the same as query parameters.
///
/// Each side is a sandbox, a snapshot or an image, by id, by a unique beginning of it, or by name; a name of several kinds
/// means the sandbox first, then the snapshot. `sandbox:`, `snapshot:` or `image:` before it says which.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffRequest {
    /// What is there before.
    #[schema(max_length = 300)]
    pub from: String,
    /// What is there after.
    #[schema(max_length = 300)]
    pub to: String,
    /// Only paths that one of these patterns matches: `*.py`, `/srv/**`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub globs: Vec<String>,
    /// Noise too: caches, temporary files, logs, pid files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// With the lines of text files that differ.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub content: bool,
    /// Entries at most; 10,000 when absent. More are only counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100_000)]
    pub limit: Option<u32>,
}

/// What is different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    pub from: DiffSide,
    pub to: DiffSide,
    /// The snapshot or image where their histories part; absent: they have none in common.
    pub base: Option<DiffSide>,
    /// By path.
    pub entries: Vec<DiffEntry>,
    /// Paths added, changed and deleted, listed or not.
    pub added: u64,
    pub changed: u64,
    pub deleted: u64,
    /// Bytes of the files among them, before and after.
    pub old_bytes: u64,
    pub new_bytes: u64,
    /// What was left out, and how much of it.
    pub noise: Vec<DiffNoise>,
    /// There are more than are listed.
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
    /// What it is, for people: `caches`, `logs`.
    pub what: String,
    pub count: u64,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffEntry {
    pub path: String,
    pub change: ChangeKind,
    /// In what it has changed; empty for what was added or deleted.
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
    /// A file where a directory was, and so on.
    Kind,
    Mode,
    Owner,
    /// Where a symbolic link leads.
    Link,
    /// Which device it is.
    Device,
    /// Extended attributes.
    Xattr,
}

impl DiffAspect {
    /// As it is written on the wire.
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

/// What is, or was, at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffNode {
    pub kind: FileKind,
    pub size: u64,
    /// Octal permission bits, e.g. `0644`.
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    /// Of a symbolic link.
    pub target: Option<String>,
    /// Names of extended attributes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffLines {
    pub added: u64,
    pub removed: u64,
    /// As `diff -u` writes them, without the names above.
    pub hunks: String,
    /// They are more than this.
    pub cut: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aspect_is_written_as_it_is_named() {
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
