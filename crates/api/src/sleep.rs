//! Automatic actions of a sandbox on the wire: sleep, snapshots, rotation to a known good state.
//!
//! In requests, 0 seconds means never, because absent fields stay as they are (or take the daemon's default).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::defaults;

/// When a sandbox is put to sleep while idle, and whether a use starts it again. Absent fields stay as they are, or take the
/// daemon's default; 0: never. The times that are set must be in ascending order. A default that does not fit between the
/// times of a new sandbox is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SleepRequest {
    /// Pause: its RAM is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_seconds: Option<u64>,
    /// Hibernate: its RAM is written to disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hibernate_after_seconds: Option<u64>,
    /// Stop: only its files are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after_seconds: Option<u64>,
    /// Whether any use of the stopped sandbox starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_on_use: Option<bool>,
}

/// When a sandbox is put to sleep while idle. Absent: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SleepPolicy {
    pub pause_after_seconds: Option<u64>,
    pub hibernate_after_seconds: Option<u64>,
    pub stop_after_seconds: Option<u64>,
    /// Whether any use of the stopped sandbox starts it.
    #[serde(default)]
    pub start_on_use: bool,
}

/// Snapshots to take automatically; replaces the existing policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotPolicyRequest {
    /// At least 10; 0: never.
    pub every_seconds: u64,
    /// Number of the policy's snapshots to keep; the oldest ones are deleted.
    #[serde(default = "keep")]
    #[schema(minimum = 1, maximum = 1000, default = 10)]
    pub keep: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
}

fn keep() -> u32 {
    defaults::SNAPSHOT_KEEP
}

/// Snapshots that are taken automatically while a sandbox works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotPolicy {
    pub every_seconds: u64,
    pub keep: u32,
    pub files_only: bool,
}

/// Periodic restores to a known good state; replaces the existing policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// At least 10; 0: never.
    pub every_seconds: u64,
    /// Name or id of the snapshot to restore; required unless `every_seconds` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// Periodic restores to a known good state. The replaced state is kept as a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotatePolicy {
    pub every_seconds: u64,
    /// The snapshot's id.
    pub snapshot: String,
}

/// The origin of a sandbox that was not created from an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Origin {
    /// The snapshot that it was created from.
    pub snapshot: String,
    /// The sandbox that this snapshot was taken of.
    pub sandbox: String,
    pub kind: OriginKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    Fork,
    Restore,
}
