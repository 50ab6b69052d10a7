//! A snapshot: what a sandbox was at one moment, and what was made from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DumpId, ImageId, Name, SandboxId, SandboxSpec, SnapshotId, SnapshotMemory};

/// Most snapshots of one sandbox, of all kinds together: what a list, a tree and a clean-up still go through at once.
pub const SNAPSHOTS_MAX: usize = 1000;

/// Most changed paths that a snapshot lists; more are only counted.
pub const CHANGES_MAX: usize = 1000;

/// Most characters of a description: a paragraph, not a document.
pub const DESCRIPTION_LENGTH_MAX: usize = 1000;

/// Files, perhaps processes, of a sandbox as they were at one moment. Never changes once it exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: SnapshotId,
    /// Whose it is. It may be gone by now.
    pub sandbox: SandboxId,
    /// What that sandbox was called then.
    pub sandbox_name: Option<Name>,
    pub name: Option<Name>,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    pub kind: SnapshotKind,
    /// The snapshot its sandbox had last, or was made from: the line of a tree.
    pub parent: Option<SnapshotId>,
    pub image: ImageId,
    /// What the sandbox was asked to be then.
    pub spec: SandboxSpec,
    /// Its processes. `None`: files only.
    pub dump: Option<DumpId>,
    /// What the dump takes on disk.
    pub ram_bytes: u64,
    /// What only this snapshot held when it was taken: what changed since its parent, as far as known.
    pub disk_bytes: u64,
    /// How long the sandbox stood still for it.
    pub pause_us: u64,
    pub changes: Changes,
    pub created_ms: u64,
    /// When it goes by itself.
    pub expires_ms: Option<u64>,
    /// How far what the agent remembers had come by then. `None`: taken before there was memory.
    pub memory: Option<SnapshotMemory>,
}

/// Why a snapshot was taken. Stored, so names only get added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotKind {
    /// Somebody asked.
    Manual,
    /// The sandbox's policy was due.
    Policy,
    /// So that a restore in place can be undone.
    BeforeRestore,
    /// Before an exec that may have to be undone.
    Exec,
    /// What the children of a fork were made from.
    Fork,
    /// What a rotation did away with.
    BeforeRotate,
    /// So that a merge can be undone.
    BeforeMerge,
}

impl SnapshotKind {
    pub const ALL: [Self; 7] = [
        Self::Manual,
        Self::Policy,
        Self::BeforeRestore,
        Self::Exec,
        Self::Fork,
        Self::BeforeRotate,
        Self::BeforeMerge,
    ];

    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Policy => "policy",
            Self::BeforeRestore => "before-restore",
            Self::Exec => "exec",
            Self::Fork => "fork",
            Self::BeforeRotate => "before-rotate",
            Self::BeforeMerge => "before-merge",
        }
    }
}

/// What is different between two moments of a sandbox's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// By path; the first [`CHANGES_MAX`].
    pub paths: Vec<Change>,
    /// How many there are, listed or not.
    pub total: u64,
    /// There may be others that nobody counted: with so many, or where they are on a disk of the machine's own, that takes
    /// longer than the snapshot itself.
    #[serde(default)]
    pub more: bool,
    /// Compared with what. `None`: with the image.
    pub since: Option<SnapshotId>,
}

impl Changes {
    /// Nothing known to have changed.
    pub fn none(since: Option<SnapshotId>) -> Self {
        Self { paths: Vec::new(), total: 0, more: false, since }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Absolute, as seen inside.
    pub path: String,
    pub kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Added,
    Changed,
    Deleted,
}

/// What a sandbox was made from, if not from an image. Both may be gone by now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub snapshot: SnapshotId,
    /// Whose snapshot that was.
    pub sandbox: SandboxId,
    pub kind: OriginKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    /// A child of a sandbox that went on.
    Fork,
    /// A new sandbox from a snapshot.
    Restore,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a description is at most {DESCRIPTION_LENGTH_MAX} characters without control characters other than line breaks"
)]
pub struct DescriptionError;

/// Checks free text about a snapshot before it can reach a terminal.
pub fn check_description(text: &str) -> Result<(), DescriptionError> {
    let good = text.chars().count() <= DESCRIPTION_LENGTH_MAX
        && text.chars().all(|character| character == '\n' || !character.is_control());
    if good { Ok(()) } else { Err(DescriptionError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_short_and_safe_to_print() {
        assert_eq!(check_description("before the migration\nsecond line, ünïcode"), Ok(()));
        assert_eq!(check_description(""), Ok(()));
        assert_eq!(check_description("\u{1b}[31mred"), Err(DescriptionError));
        assert_eq!(check_description(&"ü".repeat(1000)), Ok(()));
        assert_eq!(check_description(&"x".repeat(1001)), Err(DescriptionError));
    }
}
