//! Sandboxes on the wire.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::memory::{MemoryRequest, SandboxMemory};
use crate::{
    CreateService, MountVolume, Network, NetworkRequest, Origin, RotatePolicy, RotateRequest, SleepPolicy,
    SleepRequest, SnapshotPolicy, SnapshotPolicyRequest, UpdateNetwork, VolumeMount,
};

/// `POST /v1/sandboxes`. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSandbox {
    /// Lower-case letters, digits and hyphens; unique. Can be used instead of the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// If a sandbox with this name exists, return it with status 200, started or woken if it was not running.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_not_exists: bool,
    /// Name or id of an image; `debian` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How it is isolated, `container` or `microvm`; the daemon's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsRequest>,
    /// Environment variables of every exec.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The working directory of execs; that of the image, else the user's home, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The user of execs; that of the image, else root, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Delete it with all its data as soon as it stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// Delete it this long after creation, in any state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub ttl_seconds: Option<u64>,
    /// Supervised processes that are started with the sandbox, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, CreateService>,
    /// Its network access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkRequest>,
    /// When it is put to sleep while idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepRequest>,
    /// Snapshots that are taken automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_policy: Option<SnapshotPolicyRequest>,
    /// Periodic restores to a known good state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<RotateRequest>,
    /// What it remembers, and in which space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryRequest>,
    /// Volumes to mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<MountVolume>,
}

/// Limits to set. Absent fields stay as they are, or take the daemon's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 32)]
    pub ram_mib: Option<u32>,
    /// Thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 50)]
    pub cpu_millis: Option<u32>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 16)]
    pub pids: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 16)]
    pub disk_mib: Option<u32>,
    /// Disk throughput per second, reads and writes together; unlimited when absent. 0 in an update removes the limit.
    /// Not every driver supports it: see `GET /v1/host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 8192)]
    pub disk_mib_per_second: Option<u32>,
    /// Network throughput per second, for each direction; unlimited when absent. 0 in an update removes the limit.
    /// Execs and files are not counted, because they do not use the sandbox's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 8192)]
    pub network_mib_per_second: Option<u32>,
}

/// `PATCH /v1/sandboxes/{sandbox}`. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSandbox {
    /// A new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsRequest>,
    /// Labels to set; `null` removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    /// Variables to set; `null` removes one. They apply to execs that start from now on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
    /// Its network access from now on, including open connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<UpdateNetwork>,
    /// When it is put to sleep while idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepRequest>,
    /// Snapshots that are taken automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_policy: Option<SnapshotPolicyRequest>,
    /// Periodic restores to a known good state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<RotateRequest>,
    /// What it remembers, and in which space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryRequest>,
    /// All its volumes; replaces the existing ones. Only while it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<MountVolume>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sandbox {
    pub id: String,
    pub name: Option<String>,
    pub state: SandboxState,
    /// Why it is not running, if it ran before.
    pub stop_reason: Option<StopReason>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Why it cannot be used yet: the daemon was restarted and is still completing an operation on this sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovering: Option<String>,
    pub image: String,
    pub image_id: String,
    pub driver: String,
    pub limits: Limits,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub user: Option<String>,
    pub ephemeral: bool,
    pub expires_ms: Option<u64>,
    pub created_ms: u64,
    pub started_ms: Option<u64>,
    pub stopped_ms: Option<u64>,
    /// Names of its services.
    pub services: Vec<String>,
    /// Its network access.
    #[serde(default)]
    pub network: Network,
    /// Its origin, if it was not created from an image.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// When it is put to sleep while idle.
    #[serde(default)]
    pub sleep: SleepPolicy,
    /// Snapshots that are taken automatically.
    #[serde(default)]
    pub snapshot_policy: Option<SnapshotPolicy>,
    /// Periodic restores to a known good state.
    #[serde(default)]
    pub rotate: Option<RotatePolicy>,
    /// When it last did any work.
    #[serde(default)]
    pub active_ms: Option<u64>,
    /// When it was paused or hibernated.
    #[serde(default)]
    pub asleep_since_ms: Option<u64>,
    /// What it remembers, and in which space; absent from a daemon that does not support memory.
    #[serde(default)]
    pub memory: Option<SandboxMemory>,
    /// Its mounted volumes.
    #[serde(default)]
    pub volumes: Vec<VolumeMount>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    Creating,
    Starting,
    Running,
    /// Frozen, its RAM is kept; the next use resumes it.
    Paused,
    Hibernating,
    /// Its processes are in a dump on disk; the next use wakes it.
    Hibernated,
    Waking,
    /// Being restored to a snapshot.
    Restoring,
    Stopping,
    Stopped,
    Deleting,
    Failed,
}

impl SandboxState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Hibernating => "hibernating",
            Self::Hibernated => "hibernated",
            Self::Waking => "waking",
            Self::Restoring => "restoring",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Deleting => "deleting",
            Self::Failed => "failed",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    Requested,
    GuestExited,
    HostRestarted,
    Expired,
    /// Its sleep policy.
    Idle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    pub ram_mib: u32,
    /// Thousandths of a core.
    pub cpu_millis: u32,
    pub pids: u32,
    pub disk_mib: u32,
    /// Absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mib_per_second: Option<u32>,
    /// For each direction. Absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mib_per_second: Option<u32>,
}

/// `GET /v1/sandboxes/{sandbox}/stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    pub id: String,
    /// The request does not wake the sandbox: while it is paused or hibernated, values that would require waking it are
    /// 0.
    pub state: SandboxState,
    pub cpu_us: u64,
    pub ram_bytes: u64,
    pub ram_limit_bytes: u64,
    pub processes: u32,
    pub threads: u32,
    /// Charged to the sandbox's quota.
    pub disk_used_bytes: u64,
    pub disk_limit_bytes: u64,
    pub network_received_bytes: u64,
    pub network_sent_bytes: u64,
    pub execs_running: u32,
    pub agent_ram_bytes: u64,
    /// Processes that the kernel killed because the sandbox was out of memory (OOM), since it was started.
    pub oom_kills: u64,
    pub uptime_ms: u64,
}
