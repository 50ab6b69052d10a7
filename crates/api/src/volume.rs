//! Volumes on the wire: trees of files under a name, which outlive sandboxes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Lower-case letters, digits and hyphens; unique among volumes, for good. Usable wherever an id is.
    pub name: String,
    /// Most that is written to it, in MiB; that of a sandbox's disk when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 16)]
    pub disk_mib: Option<u32>,
    /// Id of a snapshot of any volume, whose files it begins with; empty when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_snapshot: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    pub id: String,
    pub name: String,
    /// Most that is written to it, in MiB.
    pub disk_mib: u32,
    /// Charged to it. Absent in lists, and where the pool keeps no account.
    #[serde(default)]
    pub used_bytes: Option<u64>,
    /// Id of the snapshot it was made from.
    #[serde(default)]
    pub from_snapshot: Option<String>,
    pub created_ms: u64,
    /// Sandboxes that have it, in whatever state they are.
    #[serde(default)]
    pub used_by: Vec<VolumeUser>,
}

/// A sandbox that has a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeUser {
    pub sandbox: String,
    pub name: Option<String>,
    pub path: String,
    pub mode: VolumeMode,
}

/// Who may write to a volume: of all sandboxes that have it one at most, and any number reads beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeMode {
    Ro,
    #[default]
    Rw,
}

impl VolumeMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
        }
    }
}

/// A volume for a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountVolume {
    /// The volume's name or id.
    pub name: String,
    /// Where in the sandbox: absolute, and not a directory of the system's.
    pub path: String,
    /// `rw` when absent.
    #[serde(default)]
    pub mode: VolumeMode,
}

/// A volume in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMount {
    pub id: String,
    pub name: String,
    pub path: String,
    pub mode: VolumeMode,
}

/// `POST /v1/volumes/{volume}/snapshots`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolumeSnapshot {
    /// Unique among the volume's snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The files of a volume as they were once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeSnapshot {
    pub id: String,
    /// Id of its volume.
    pub volume: String,
    pub name: Option<String>,
    pub created_ms: u64,
}

/// `POST /v1/volumes/{volume}/restore`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreVolume {
    /// One of the volume's own snapshots, by id or name.
    pub snapshot: String,
}
