//! The daemon and its host on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    pub version: String,
    /// Generation of the host–guest protocol.
    pub guest_generation: u32,
}

/// `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    pub ready: bool,
    /// What is not ready yet.
    pub waiting_for: Vec<String>,
}

/// `GET /v1/host`: what this host can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostInfo {
    pub version: String,
    pub drivers: Vec<Driver>,
    /// The driver of a sandbox that is created without one.
    pub default_driver: String,
    pub pool_total_bytes: u64,
    pub pool_free_bytes: u64,
    pub sandboxes: u64,
    pub sandboxes_running: u64,
    /// Sandboxes that cannot be used yet, because the daemon was restarted and is still completing operations on them.
    #[serde(default)]
    pub sandboxes_recovering: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Driver {
    pub name: String,
    pub available: Ability,
    pub pause: Ability,
    pub hibernate: Ability,
    pub limits: Ability,
    /// Whether the disk throughput of a sandbox can be limited; absent from a daemon that does not support such limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_rate: Option<Ability>,
    /// Whether its sandboxes can have volumes; absent from a daemon that does not support volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Ability>,
    /// How its machines are run, if there is more than one way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ability {
    pub yes: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The command that fixes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}
