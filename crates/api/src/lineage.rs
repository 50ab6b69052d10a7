//! Lineage and garbage collection on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{SandboxState, SnapshotKind};

/// `GET /v1/tree`: sandboxes and snapshots by descent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tree {
    /// Parents before their children; siblings oldest first.
    pub nodes: Vec<TreeNode>,
}

/// A sandbox or a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreeNode {
    pub kind: TreeNodeKind,
    pub id: String,
    pub name: Option<String>,
    /// Index of its parent in `nodes`, lower than its own. The parent of a snapshot is the previous snapshot of the
    /// same sandbox, else its sandbox; the parent of a sandbox is the snapshot that it was created from. Absent if the
    /// parent no longer exists, or never did.
    pub parent: Option<usize>,
    pub created_ms: u64,
    /// State of a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SandboxState>,
    /// Kind of a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_kind: Option<SnapshotKind>,
    /// Whether a snapshot holds processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<bool>,
    /// The sandbox that a snapshot was taken of, which may be deleted, and its name at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TreeNodeKind {
    Sandbox,
    Snapshot,
}

/// `POST /v1/gc`: takes the actions that `GET /v1/gc` lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectGarbage {
    /// How long an object must be unused to be stale; 30 days when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_for_seconds: Option<u64>,
}

/// What is stale, and which action applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GarbageReport {
    /// Whether the actions were taken, or only listed.
    pub applied: bool,
    pub unused_for_seconds: u64,
    pub items: Vec<GarbageItem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GarbageItem {
    pub kind: GarbageKind,
    pub id: String,
    pub name: Option<String>,
    /// Why it is stale, and what it holds.
    pub why: String,
    /// The disk space it uses, in bytes, including RAM that it holds.
    pub bytes: u64,
    pub action: GarbageAction,
    /// Why the action failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GarbageKind {
    Sandbox,
    Snapshot,
    Image,
}

/// The action for a stale object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GarbageAction {
    /// No action: it is listed for a person to decide.
    Keep,
    Remove,
}
