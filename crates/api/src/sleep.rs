//! What a sandbox does by itself, on the wire: sleep, take snapshots, start over from a known good state.
//!
//! In requests, 0 seconds means never, since what is absent stays as it is (or takes the daemon's default).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::defaults;

/// When to put a sandbox that does no work to sleep. What is absent stays, or takes the daemon's default; 0: never.
/// Those that are set ascend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SleepRequest {
    /// Stand still, RAM kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_seconds: Option<u64>,
    /// RAM to disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hibernate_after_seconds: Option<u64>,
    /// Files only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after_seconds: Option<u64>,
}

/// When a sandbox that does no work is put to sleep. Absent: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SleepPolicy {
    pub pause_after_seconds: Option<u64>,
    pub hibernate_after_seconds: Option<u64>,
    pub stop_after_seconds: Option<u64>,
}

/// Snapshots to take by themselves; replaces the policy there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotPolicyRequest {
    /// At least 10; 0: no more.
    pub every_seconds: u64,
    /// The oldest of the policy's own go beyond this many.
    #[serde(default = "keep")]
    #[schema(minimum = 1, maximum = 1000, default = 10)]
    pub keep: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
}

fn keep() -> u32 {
    defaults::SNAPSHOT_KEEP
}

/// Snapshots a sandbox takes by itself, while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotPolicy {
    pub every_seconds: u64,
    pub keep: u32,
    pub files_only: bool,
}

/// Renewal from a known good state; replaces the policy there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// At least 10; 0: no more.
    pub every_seconds: u64,
    /// Name or id of the snapshot to go back to; needed unless `every_seconds` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// How a sandbox is renewed. What it replaces is kept as a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotatePolicy {
    pub every_seconds: u64,
    /// The snapshot's id.
    pub snapshot: String,
}

/// Where a sandbox came from, when not from an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Origin {
    /// The snapshot it goes on from.
    pub snapshot: String,
    /// The sandbox that snapshot was taken of.
    pub sandbox: String,
    pub kind: OriginKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    Fork,
    Restore,
}
