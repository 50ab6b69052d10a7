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
    /// Lower-case letters, digits and hyphens; unique. Usable wherever an id is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// With a name that exists: answer that sandbox, started or woken if it was not running, with status 200.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_not_exists: bool,
    /// Name or id of an image; `debian` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What isolates it, `container` or `microvm`; the daemon's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsRequest>,
    /// Environment of every exec.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where execs start; the image's, else the user's home, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Who execs run as; the image's user, else root, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Delete it, with all it holds, as soon as it stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// Delete it this long after creation, whatever it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub ttl_seconds: Option<u64>,
    /// Supervised processes, started with the sandbox, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, CreateService>,
    /// What it may reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkRequest>,
    /// When to put it to sleep if it does no work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepRequest>,
    /// Snapshots it takes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_policy: Option<SnapshotPolicyRequest>,
    /// Renewal from a known good state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<RotateRequest>,
    /// What it remembers and where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryRequest>,
    /// Volumes in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<MountVolume>,
}

/// Limits to set; what is absent stays, or takes the daemon's default.
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
    /// What it reads from its disk and writes to it in a second, together; without a bound when absent. 0 in an update
    /// takes the bound away. Not every driver can hold a disk to a rate: `GET /v1/host` tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 8192)]
    pub disk_mib_per_second: Option<u32>,
    /// What it sends in a second, and as much again for what it receives; without a bound when absent. 0 in an update
    /// takes the bound away. Execs and files are not counted: they are not its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 8192)]
    pub network_mib_per_second: Option<u32>,
}

/// `PATCH /v1/sandboxes/{sandbox}`. What is absent stays as it is.
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
    /// Variables to set; `null` removes one. Execs started from now on see them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
    /// What it may reach from now on, running connections included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<UpdateNetwork>,
    /// When to put it to sleep if it does no work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepRequest>,
    /// Snapshots it takes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_policy: Option<SnapshotPolicyRequest>,
    /// Renewal from a known good state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<RotateRequest>,
    /// What it remembers and where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryRequest>,
    /// All its volumes anew; only of one that is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<MountVolume>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sandbox {
    pub id: String,
    pub name: Option<String>,
    pub state: SandboxState,
    /// Why it does not run, when it once did.
    pub stop_reason: Option<StopReason>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Why it cannot be used yet: the daemon was restarted and is still finishing what it was doing to this sandbox.
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
    /// What it may reach.
    #[serde(default)]
    pub network: Network,
    /// Where it came from, when not from an image.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// When it is put to sleep if it does no work.
    #[serde(default)]
    pub sleep: SleepPolicy,
    /// Snapshots it takes by itself.
    #[serde(default)]
    pub snapshot_policy: Option<SnapshotPolicy>,
    /// How it is renewed.
    #[serde(default)]
    pub rotate: Option<RotatePolicy>,
    /// When it was last seen at work.
    #[serde(default)]
    pub active_ms: Option<u64>,
    /// Since when it is paused or hibernated.
    #[serde(default)]
    pub asleep_since_ms: Option<u64>,
    /// What it remembers and where; absent from a daemon that does not know memory.
    #[serde(default)]
    pub memory: Option<SandboxMemory>,
    /// Volumes in it.
    #[serde(default)]
    pub volumes: Vec<VolumeMount>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    Creating,
    Starting,
    Running,
    /// Stands still, RAM kept; the next use resumes it.
    Paused,
    Hibernating,
    /// Its processes are on disk; the next use wakes it.
    Hibernated,
    Waking,
    /// Going back to a snapshot.
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
    /// Absent: as fast as the host is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mib_per_second: Option<u32>,
    /// Each way by itself. Absent: as fast as the host is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mib_per_second: Option<u32>,
}

/// `GET /v1/sandboxes/{sandbox}/stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    pub id: String,
    /// Asking wakes nobody: of one that is paused or hibernated, what is known without it, and 0 for the rest.
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
    /// Processes the kernel ended for want of RAM since the sandbox started.
    pub oom_kills: u64,
    pub uptime_ms: u64,
}
