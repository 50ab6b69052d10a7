//! Volumes on the wire: named file trees that outlive sandboxes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Lower-case letters, digits and hyphens; unique among volumes, and never changed. Can be used instead of the id.
    pub name: String,
    /// Maximum size, in MiB; that of a sandbox's disk when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 16)]
    pub disk_mib: Option<u32>,
    /// Id of a snapshot of any volume, whose files it starts with; empty when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_snapshot: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    pub id: String,
    pub name: String,
    /// Maximum size, in MiB.
    pub disk_mib: u32,
    /// The space it uses. Absent in lists, and if the pool does not measure it.
    #[serde(default)]
    pub used_bytes: Option<u64>,
    /// Id of the snapshot it was created from.
    #[serde(default)]
    pub from_snapshot: Option<String>,
    pub created_ms: u64,
    /// Sandboxes that have it mounted, in any state.
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

/// Access to a volume: at most one sandbox writes to it, and any number of sandboxes read it.
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

/// A volume to mount in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountVolume {
    /// The volume's name or id.
    pub name: String,
    /// Where it is mounted: absolute, and not a system directory.
    pub path: String,
    /// `rw` when absent.
    #[serde(default)]
    pub mode: VolumeMode,
}

/// A volume mounted in a sandbox.
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

/// The files of a volume at an earlier time.
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
