//! Snapshots on the wire: take, show, restore, fork.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ErrorDetail, Sandbox, UpdateNetwork};

/// `POST /v1/sandboxes/{sandbox}/snapshots`. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshot {
    /// Lower-case letters, digits and hyphens; unique among snapshots. Can be used instead of the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 4096)]
    pub description: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Leave the processes out: faster, smaller, and possible with any processes. A sandbox created from it boots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
    /// Delete it this long after it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub expires_seconds: Option<u64>,
}

/// An immutable point in the history of a sandbox: its files, its configuration and, unless left out, its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    pub id: String,
    pub name: Option<String>,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    pub kind: SnapshotKind,
    /// The sandbox it was taken of, which may have been deleted.
    pub sandbox_id: String,
    /// Name of the sandbox when the snapshot was taken.
    pub sandbox_name: Option<String>,
    /// The snapshot that the sandbox was created from, or the previous one of the sandbox.
    pub parent: Option<String>,
    /// The image that the sandbox was created from: the requested name, and the id of the image.
    pub image: String,
    pub image_id: String,
    /// Whether it holds processes besides files.
    pub processes: bool,
    /// Bytes on disk of the processes' RAM.
    pub ram_bytes: u64,
    /// Size of the files that no other snapshot shared when it was taken, as far as known.
    pub disk_bytes: u64,
    /// How long the sandbox was paused for it, in microseconds.
    pub pause_us: u64,
    pub changes: Changes,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
}

/// Why a snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotKind {
    /// A client requested it.
    Manual,
    /// By the sandbox's snapshot policy; the oldest ones are deleted when there are more than it keeps.
    Policy,
    /// The state before a restore: restoring this snapshot undoes it.
    BeforeRestore,
    /// The state before an exec with `snapshot` or `rollback_on_failure`.
    Exec,
    /// The base of the children of a fork.
    Fork,
    /// The state before a rotation.
    BeforeRotate,
    /// The state before a merge: restoring this snapshot undoes it.
    BeforeMerge,
}

impl SnapshotKind {
    /// The name used on the wire.
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

/// Changes since the previous snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// The first 1,000, in order; always empty in lists.
    pub paths: Vec<Change>,
    /// Total number; a lower bound if `more` is set.
    pub total: u64,
    /// Not all paths were compared: there are too many, or they are on a microVM's disk, which only a diff reads.
    #[serde(default)]
    pub more: bool,
    /// The snapshot compared with; absent: the image.
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

/// `POST /v1/sandboxes/{sandbox}/restore`: restores a sandbox to the state of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreSandbox {
    /// Name or id of a snapshot, of this sandbox or of another.
    pub snapshot: String,
    /// Leave the snapshot's processes out: the sandbox boots from the files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
}

/// Response to a restore in place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Restored)]
pub struct RestoreResult {
    pub sandbox: Sandbox,
    /// The replaced state: restoring it undoes this restore.
    pub undo: Snapshot,
}

/// `POST /v1/snapshots/{snapshot}/sandboxes`: a new sandbox that continues from the state of a snapshot.
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
    /// Delete it with all its data as soon as it stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// Delete it this long after creation, in any state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub ttl_seconds: Option<u64>,
    /// Changes its network access before any of its processes runs. Without it, its access is the present one of the
    /// snapshot's sandbox, or the daemon's default if that sandbox was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<UpdateNetwork>,
}

/// `POST /v1/sandboxes/{sandbox}/fork`: children that continue from its current state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkSandbox {
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 64, default = 1)]
    pub count: u32,
    /// Empty, one name per child, or one name for several children, which are then called `NAME-1`, `NAME-2` and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub names: Vec<String>,
    /// Leave the processes out: the children boot from the files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
    /// The children's labels; the parent's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Delete each child with all its data as soon as it stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// Delete each child this long after creation, in any state.
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

/// Response to a fork. At least one child was created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Forked)]
pub struct ForkResult {
    pub children: Vec<Sandbox>,
    /// Why other children could not be created, one error for each.
    pub failed: Vec<ErrorDetail>,
    /// The snapshot that the children were created from.
    pub snapshot: String,
    /// How long the parent was paused, in microseconds.
    pub pause_us: u64,
}

/// Response to `POST /v1/snapshots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedSnapshot {
    pub snapshot: Snapshot,
    /// Identity of the file, in 64 hexadecimal digits: later exports may contain only the differences from it.
    pub identity: String,
    /// The snapshot's id on the host that exported it.
    pub origin: String,
    /// Number of names in the file.
    pub entries: u64,
    /// Size of all content, without holes.
    pub content_bytes: u64,
    /// Size of the file.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_serialized_under_their_names() {
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
    fn the_default_fork_has_one_child() {
        let fork: ForkSandbox = serde_json::from_str("{}").unwrap();
        assert_eq!(fork, ForkSandbox::default());
        assert!(serde_json::from_str::<ForkSandbox>(r#"{"counts":2}"#).is_err());
    }
}
