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
    /// What is still missing.
    pub waiting_for: Vec<String>,
}

/// `GET /v1/host`: what this host can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostInfo {
    pub version: String,
    pub drivers: Vec<Driver>,
    /// The driver of a sandbox whose creator does not say.
    pub default_driver: String,
    pub pool_total_bytes: u64,
    pub pool_free_bytes: u64,
    pub sandboxes: u64,
    pub sandboxes_running: u64,
    /// Sandboxes that cannot be used yet: the daemon was restarted and is still finishing what it was doing to them.
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
    /// Whether a sandbox's disk can be held to a rate; absent from a daemon that does not know rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_rate: Option<Ability>,
    /// Whether its sandboxes can have volumes; absent from a daemon that does not know them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Ability>,
    /// By what its machines run, where there is more than one way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ability {
    pub yes: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The command that mends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}
