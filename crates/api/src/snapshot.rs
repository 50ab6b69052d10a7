//! Snapshots on the wire: take, show, restore, fork.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ErrorDetail, Sandbox};

/// `POST /v1/sandboxes/{sandbox}/snapshots`. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshot {
    /// Lower-case letters, digits and hyphens; unique among snapshots. Usable wherever an id is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 4096)]
    pub description: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Leave the processes out: quicker, smaller, and possible whatever runs. A sandbox made from it boots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
    /// Delete it this long after it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub expires_seconds: Option<u64>,
}

/// An immutable point in a sandbox's life: its files, its configuration and, unless left out, its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    pub id: String,
    pub name: Option<String>,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    pub kind: SnapshotKind,
    /// The sandbox it was taken of, which may be gone by now.
    pub sandbox_id: String,
    /// Its name when the snapshot was taken.
    pub sandbox_name: Option<String>,
    /// The snapshot that the sandbox came from, or the one taken of it before.
    pub parent: Option<String>,
    /// The image the sandbox was made from: as it was asked for, and which that was.
    pub image: String,
    pub image_id: String,
    /// Whether it holds processes besides files.
    pub processes: bool,
    /// Bytes on disk of the processes' RAM.
    pub ram_bytes: u64,
    /// Bytes of files that no other snapshot held when it was taken, as far as known.
    pub disk_bytes: u64,
    /// How long the sandbox stood still for it, in microseconds.
    pub pause_us: u64,
    pub changes: Changes,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
}

/// Why a snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotKind {
    /// Somebody asked.
    Manual,
    /// The sandbox's policy; the oldest of these go when there are more than it keeps.
    Policy,
    /// What a restore replaced: restoring this one undoes it.
    BeforeRestore,
    /// What an exec with `snapshot` or `rollback_on_failure` found.
    Exec,
    /// What the children of a fork stand on.
    Fork,
    /// What a rotation replaced.
    BeforeRotate,
    /// What a merge changed: restoring this one undoes it.
    BeforeMerge,
}

impl SnapshotKind {
    /// As it is written on the wire.
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

/// What is different from the snapshot before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// The first 1,000, in order; always empty in lists.
    pub paths: Vec<Change>,
    /// How many there are in all; at least, if there are `more`.
    pub total: u64,
    /// Not all were looked at: there are too many, or they are on a microVM's disk, which only a diff reads.
    #[serde(default)]
    pub more: bool,
    /// Against which snapshot; absent: against the image.
    pub since: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    pub path: String,
    pub kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Added,
    Changed,
    Deleted,
}

/// `POST /v1/sandboxes/{sandbox}/restore`: puts a sandbox back to where a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreSandbox {
    /// Name or id of a snapshot, of this sandbox or of another.
    pub snapshot: String,
    /// Leave the snapshot's processes out: the sandbox boots from the files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
}

/// Answer of a restore in place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Restored {
    pub sandbox: Sandbox,
    /// What was replaced: restoring it undoes this restore.
    pub undo: Snapshot,
}

/// `POST /v1/snapshots/{snapshot}/sandboxes`: a new sandbox that goes on where a snapshot is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxFromSnapshot {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Leave the snapshot's processes out: the sandbox boots from the files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
    /// Its labels; those of the snapshot's sandbox when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Delete it, with all it holds, as soon as it stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// Delete it this long after creation, whatever it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub ttl_seconds: Option<u64>,
}

/// `POST /v1/sandboxes/{sandbox}/fork`: children that go on from where it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkSandbox {
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 64, default = 1)]
    pub count: u32,
    /// None, one per child, or one for several, which are then called `NAME-1`, `NAME-2` and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub names: Vec<String>,
    /// Leave the processes out: the children boot from the files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
    /// The children's labels; the parent's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Delete each child, with all it holds, as soon as it stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// Delete each child this long after creation, whatever it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub ttl_seconds: Option<u64>,
}

fn one() -> u32 {
    1
}

impl Default for ForkSandbox {
    fn default() -> Self {
        Self {
            count: one(),
            names: Vec::new(),
            files_only: false,
            labels: None,
            ephemeral: false,
            ttl_seconds: None,
        }
    }
}

/// Answer of a fork. At least one child came to life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Forked {
    pub children: Vec<Sandbox>,
    /// Why others did not, one for each.
    pub failed: Vec<ErrorDetail>,
    /// The snapshot that the children stand on.
    pub snapshot: String,
    /// How long the parent stood still, in microseconds.
    pub pause_us: u64,
}

/// What `POST /v1/snapshots` took in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedSnapshot {
    pub snapshot: Snapshot,
    /// What the file was, in 64 hexadecimal digits: later exports may hold no more than what differs from it.
    pub identity: String,
    /// The snapshot's id where it came from.
    pub origin: String,
    /// Names in the file.
    pub entries: u64,
    /// Bytes of all content, holes not counted.
    pub content_bytes: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_written_as_it_is_named() {
        for kind in [
            SnapshotKind::Manual,
            SnapshotKind::Policy,
            SnapshotKind::BeforeRestore,
            SnapshotKind::Exec,
            SnapshotKind::Fork,
            SnapshotKind::BeforeRotate,
            SnapshotKind::BeforeMerge,
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }

    #[test]
    fn an_empty_fork_asks_for_one_child() {
        let fork: ForkSandbox = serde_json::from_str("{}").unwrap();
        assert_eq!(fork, ForkSandbox::default());
        assert!(serde_json::from_str::<ForkSandbox>(r#"{"counts":2}"#).is_err());
    }
}
