//! Who came from whom, and what nobody needs any more, on the wire.

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
    /// Place of its parent in `nodes`, lower than its own. A snapshot's is the one of the same sandbox that it followed,
    /// else its sandbox; a sandbox's is the snapshot it was made from. None when that is gone, or was never there.
    pub parent: Option<usize>,
    pub created_ms: u64,
    /// A sandbox's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SandboxState>,
    /// A snapshot's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_kind: Option<SnapshotKind>,
    /// Whether a snapshot holds processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<bool>,
    /// The sandbox that a snapshot was taken of, which may be gone, and its name then.
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

/// `POST /v1/gc`: does what `GET /v1/gc` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectGarbage {
    /// What nobody used for this long is stale; 30 days when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_for_seconds: Option<u64>,
}

/// What is stale, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GarbageReport {
    /// Whether the actions were taken, or only named.
    pub applied: bool,
    pub unused_for_seconds: u64,
    pub items: Vec<GarbageItem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GarbageItem {
    pub kind: GarbageKind,
    pub id: String,
    pub name: Option<String>,
    /// Why it counts as stale, and what it holds.
    pub why: String,
    /// What it costs, in bytes of disk; RAM included where it holds any.
    pub bytes: u64,
    pub action: GarbageAction,
    /// Why the action could not be taken.
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

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GarbageAction {
    /// Nothing: it is named for a person to decide.
    Keep,
    Remove,
}
