//! A snapshot: the state of a sandbox at one moment, and the origins of sandboxes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DumpId, ImageId, Name, SandboxId, SandboxSpec, SnapshotId, SnapshotMemory};

/// The most snapshots of one sandbox, of all kinds together: as many as a list, a tree and a clean-up can process at once.
pub const SNAPSHOTS_MAX: usize = 1000;

/// Most changed paths that a snapshot lists; more are only counted.
pub const CHANGES_MAX: usize = 1000;

/// Most characters of a description: a paragraph, not a document.
pub const DESCRIPTION_LENGTH_MAX: usize = 1000;

/// The files, and possibly the processes, of a sandbox at one moment. Never changes once it exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: SnapshotId,
    /// The sandbox it was taken of, which may no longer exist.
    pub sandbox: SandboxId,
    /// The sandbox's name at that time.
    pub sandbox_name: Option<Name>,
    pub name: Option<Name>,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    pub kind: SnapshotKind,
    /// The previous snapshot of its sandbox, or the one the sandbox was created from: its parent in a tree.
    pub parent: Option<SnapshotId>,
    pub image: ImageId,
    /// The specification of the sandbox at that time.
    pub spec: SandboxSpec,
    /// Its processes. `None`: files only.
    pub dump: Option<DumpId>,
    /// The size of the dump on disk.
    pub ram_bytes: u64,
    /// Bytes that only this snapshot referred to when it was taken: the changes since its parent, as far as known.
    pub disk_bytes: u64,
    /// How long the sandbox was paused for it.
    pub pause_us: u64,
    pub changes: Changes,
    pub created_ms: u64,
    /// When it is removed automatically.
    pub expires_ms: Option<u64>,
    /// The state of the agent's memory at that time. `None`: taken before memory existed.
    pub memory: Option<SnapshotMemory>,
}

/// Why a snapshot was taken. Stored, so names are only added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotKind {
    /// A client requested it.
    Manual,
    /// The sandbox's snapshot policy.
    Policy,
    /// Taken so that a restore in place can be undone.
    BeforeRestore,
    /// Taken before an exec that may have to be undone.
    Exec,
    /// The origin of the children of a fork.
    Fork,
    /// The state that a rotation discarded.
    BeforeRotate,
    /// Taken so that a merge can be undone.
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

    /// The stored and displayed form.
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

/// The differences between two states of a sandbox's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Sorted by path; the first [`CHANGES_MAX`].
    pub paths: Vec<Change>,
    /// How many there are among those inspected, listed or not.
    pub total: u64,
    /// There may be others that were not counted: with so many, or on a disk that belongs to the machine, counting takes
    /// longer than the snapshot itself.
    #[serde(default)]
    pub more: bool,
    /// The snapshot compared with. `None`: the image.
    pub since: Option<SnapshotId>,
}

impl Changes {
    /// No known changes.
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

/// The origin of a sandbox that was not created from an image. Snapshot and sandbox may no longer exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub snapshot: SnapshotId,
    /// The sandbox of that snapshot.
    pub sandbox: SandboxId,
    pub kind: OriginKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    /// A child of a sandbox that continued to run.
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
