//! What callers give: everything required, nothing guessed here.

use std::collections::BTreeMap;
use std::sync::Arc;

use burrow_catalog::{Catalog, Idempotency};
use burrow_model::{Lifetime, Limits, Name, ServiceSpec};
use burrow_network::Network;
use burrow_runtime::Runtime;
use burrow_volumes::Volumes;

use crate::{Clock, ImageBuilder};

/// The drivers of this host.
#[derive(Clone, Debug)]
pub struct Seams {
    pub catalog: Catalog,
    pub volumes: Arc<dyn Volumes>,
    pub network: Arc<dyn Network>,
    pub runtimes: Vec<Arc<dyn Runtime>>,
    pub images: Arc<dyn ImageBuilder>,
    pub clock: Arc<dyn Clock>,
}

/// The operator's bounds.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Sandboxes on this host, in whatever state.
    pub sandboxes_max: usize,
    /// Room that must stay free in the pool for a create to be admitted.
    pub pool_reserve_bytes: u64,
    /// What one sandbox may ask for at most.
    pub limits_max: Limits,
}

#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub name: Option<Name>,
    pub if_not_exists: bool,
    /// Name or id.
    pub image: String,
    pub driver: String,
    pub limits: Limits,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub user: Option<String>,
    pub lifetime: Lifetime,
    pub services: BTreeMap<Name, ServiceSpec>,
    pub idempotency: Option<Idempotency>,
}

/// What is `None` or absent stays as it is; a `None` value removes.
#[derive(Clone, Debug)]
pub struct UpdateOptions {
    pub name: Option<Name>,
    pub limits: LimitsChange,
    pub labels: BTreeMap<String, Option<String>>,
    pub env: BTreeMap<String, Option<String>>,
    pub services: BTreeMap<Name, Option<ServiceSpec>>,
}

#[derive(Clone, Copy, Debug)]
pub struct LimitsChange {
    pub ram_mib: Option<u32>,
    pub cpu_millis: Option<u32>,
    pub pids: Option<u32>,
    pub disk_mib: Option<u32>,
}

impl LimitsChange {
    pub fn apply(self, limits: Limits) -> Limits {
        Limits {
            ram_mib: self.ram_mib.unwrap_or(limits.ram_mib),
            cpu_millis: self.cpu_millis.unwrap_or(limits.cpu_millis),
            pids: self.pids.unwrap_or(limits.pids),
            disk_mib: self.disk_mib.unwrap_or(limits.disk_mib),
        }
    }
}
