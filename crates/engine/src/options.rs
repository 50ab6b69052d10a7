//! The options that callers pass to the engine. All fields are required; there are no defaults here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::{Catalog, Idempotency};
use burrow_disks::Disks;
use burrow_egress::Egress;
use burrow_memory::Memory;
use burrow_memory::artifacts::DiskFloor;
use burrow_model::network::{
    DENIED_MAX, REQUEST_RULES_MAX, RULES_MAX, RequestRule, SETS_MAX, SealedTransforms, overlapping,
};
use burrow_model::{
    AttachedSpace, EgressRule, IpRange, Lease, Lifetime, Limits, MemorySpec, Name, NetworkMode,
    NetworkPolicy, Rates, RememberMode, RotatePolicy, ServiceSpec, SleepPolicy, SnapshotPolicy, SpaceId,
    VolumeMount,
};
use burrow_network::Network;
use burrow_runtime::Runtime;
use burrow_vault::Vault;

use crate::{Clock, EgressSettings, EngineError, ExecObserver, ImageBuilder, Maximum, MovingPolicy, OwnApi};

/// The drivers of this host.
#[derive(Clone, Debug)]
pub struct Seams {
    pub catalog: Catalog,
    pub disks: Arc<dyn Disks>,
    pub network: Arc<dyn Network>,
    pub egress: Arc<dyn Egress>,
    pub runtimes: Vec<Arc<dyn Runtime>>,
    pub images: Arc<dyn ImageBuilder>,
    pub clock: Arc<dyn Clock>,
    pub memory: Memory,
    /// Encrypts secrets for the catalog.
    pub vault: Vault,
    pub own: Arc<dyn OwnApi>,
    pub execs: Arc<dyn ExecObserver>,
}

/// The limits that the operator configured.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Sandboxes on this host, in any state.
    pub sandboxes_max: usize,
    /// Space that must stay free in the pool for a create to be admitted.
    pub pool_reserve_bytes: u64,
    /// The highest limits that one sandbox may request.
    pub limits_max: Limits,
    pub warm_pool: WarmPoolPolicy,
    pub images: ImagePolicy,
    pub moving: MovingPolicy,
    pub egress: EgressSettings,
    pub idle: IdlePolicy,
    /// How long a start waits for sandboxes that are being recovered. The rest are recovered while the engine serves.
    pub start_patience: Duration,
}

/// How idleness is detected, and what happens to unused sandboxes.
#[derive(Clone, Copy, Debug)]
pub struct IdlePolicy {
    /// A sandbox that uses more than this many thousandths of a processor is not idle.
    pub cpu_millis: u32,
    /// Whether `gc` may remove sandboxes, or only reports them.
    pub gc_sandboxes: bool,
}

/// Limits on the work with images.
#[derive(Clone, Debug)]
pub struct ImagePolicy {
    /// A directory on a real disk for temporary files of imports and exports. Empty at start.
    pub scratch: PathBuf,
    /// The disk of `scratch`, and what must stay free of it; `None` where nothing else is on it.
    pub floor: Option<DiskFloor>,
    /// Largest archive, both as received and unpacked.
    pub archive_bytes_max: u64,
    /// Pulls, imports, builds, commits and exports that run concurrently; others wait.
    pub at_once: usize,
}

/// The warm pool: which sandboxes are pre-created, so that a create need not wait.
#[derive(Clone, Debug)]
pub struct WarmPoolPolicy {
    /// How many are kept of each kind that is in use; 0 disables the warm pool.
    pub ready: usize,
    /// Name of the image, driver and limits of a create with default options.
    pub image: String,
    pub driver: String,
    pub limits: Limits,
}

#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub name: Option<Name>,
    pub if_not_exists: bool,
    /// Name or id.
    pub image: String,
    pub driver: String,
    pub limits: Limits,
    pub rates: Rates,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub user: Option<String>,
    pub lifetime: Lifetime,
    pub services: BTreeMap<Name, ServiceSpec>,
    /// Its network policy; the operator's default if `None`.
    pub network: Option<NetworkPolicy>,
    pub sleep: SleepPolicy,
    pub snapshots: Option<SnapshotPolicy>,
    pub rotate: Option<RotatePolicy>,
    /// Its memory settings: whether it remembers, and in which space.
    pub memory: MemorySpec,
    /// Set for a sandbox that an E2B client creates.
    pub lease: Option<Lease>,
    /// The volumes mounted in it.
    pub volumes: Vec<VolumeMount>,
    pub idempotency: Option<Idempotency>,
}

/// Fields that are `None` or absent stay unchanged; a `None` value removes.
#[derive(Clone, Debug)]
pub struct UpdateOptions {
    pub name: Option<Name>,
    pub limits: LimitsChange,
    pub rates: RatesChange,
    pub labels: BTreeMap<String, Option<String>>,
    pub env: BTreeMap<String, Option<String>>,
    pub services: BTreeMap<Name, Option<ServiceSpec>>,
    pub network: Option<NetworkChange>,
    pub sleep: Option<SleepPolicy>,
    pub snapshots: Option<Option<SnapshotPolicy>>,
    pub rotate: Option<Option<RotatePolicy>>,
    pub memory: Option<MemoryChange>,
    pub lease: Option<LeaseChange>,
    /// Replaces all of them; only for a stopped sandbox.
    pub volumes: Option<Vec<VolumeMount>>,
}

/// A new lease, and when its current period ends: `None` while the sandbox is paused.
#[derive(Clone, Debug)]
pub struct LeaseChange {
    pub lease: Lease,
    pub expires_ms: Option<u64>,
}

/// A change of a sandbox's memory settings. `None` leaves a field unchanged.
#[derive(Clone, Debug)]
pub struct MemoryChange {
    /// `Some(None)`: back to its own space.
    pub space: Option<Option<SpaceId>>,
    pub attached: Option<Vec<AttachedSpace>>,
    pub remember: Option<RememberMode>,
}

impl MemoryChange {
    pub fn apply(&self, memory: &MemorySpec) -> MemorySpec {
        MemorySpec {
            space: self.space.clone().unwrap_or_else(|| memory.space.clone()),
            attached: self.attached.clone().unwrap_or_else(|| memory.attached.clone()),
            remember: self.remember.unwrap_or(memory.remember),
        }
    }
}

/// A change of a network policy. `None` leaves a field unchanged; additions and removals are applied after that.
#[derive(Clone, Debug)]
pub struct NetworkChange {
    pub mode: Option<NetworkMode>,
    pub rules: Option<Vec<EgressRule>>,
    pub sets: Option<Vec<Name>>,
    pub add: Vec<EgressRule>,
    pub remove: Vec<EgressRule>,
    pub add_sets: Vec<Name>,
    pub remove_sets: Vec<Name>,
    pub requests: Option<Vec<RequestRule>>,
    pub add_requests: Vec<RequestRule>,
    pub deny: Option<Vec<IpRange>>,
    pub add_deny: Vec<IpRange>,
    pub remove_deny: Vec<IpRange>,
    /// `Some(None)`: headers are no longer set.
    pub transforms: Option<Option<SealedTransforms>>,
}

impl NetworkChange {
    pub fn apply(&self, policy: &NetworkPolicy) -> Result<NetworkPolicy, EngineError> {
        let rules = self.rules.as_ref().unwrap_or(&policy.rules);
        let sets = self.sets.as_ref().unwrap_or(&policy.sets);
        let missing = |what: String| EngineError::RuleNotFound { what };
        let rules = changed(rules, &self.add, &self.remove).map_err(|rule| missing(rule.to_string()))?;
        let sets =
            changed(sets, &self.add_sets, &self.remove_sets).map_err(|set| missing(set.to_string()))?;
        if rules.len() > RULES_MAX || sets.len() > SETS_MAX {
            return Err(EngineError::Maximum(Maximum::Rules { rules: RULES_MAX, sets: SETS_MAX }));
        }
        let requests = self.requests.as_ref().unwrap_or(&policy.requests);
        let Ok(requests) = changed(requests, &self.add_requests, &[]) else {
            unreachable!("nothing is removed")
        };
        if requests.len() > REQUEST_RULES_MAX {
            return Err(EngineError::Maximum(Maximum::RequestRules { max: REQUEST_RULES_MAX }));
        }
        if let Some((earlier, later)) = overlapping(&requests) {
            let [earlier, later] = [earlier, later].map(|index| requests[index].to_string());
            return Err(EngineError::RulesOverlap { earlier, later });
        }
        let deny = self.deny.as_ref().unwrap_or(&policy.deny);
        let deny =
            changed(deny, &self.add_deny, &self.remove_deny).map_err(|block| missing(block.to_string()))?;
        if deny.len() > DENIED_MAX {
            return Err(EngineError::Maximum(Maximum::Rules { rules: DENIED_MAX, sets: SETS_MAX }));
        }
        let transforms = self.transforms.as_ref().unwrap_or(&policy.transforms).clone();
        Ok(NetworkPolicy { mode: self.mode.unwrap_or(policy.mode), rules, sets, requests, deny, transforms })
    }
}

/// The items in order, each once. The error is an item to remove that does not exist.
fn changed<T: Clone + PartialEq>(from: &[T], add: &[T], remove: &[T]) -> Result<Vec<T>, T> {
    let mut items: Vec<T> = Vec::with_capacity(from.len() + add.len());
    for item in from.iter().chain(add) {
        if !items.contains(item) {
            items.push(item.clone());
        }
    }
    for gone in remove {
        let place = items.iter().position(|item| item == gone).ok_or_else(|| gone.clone())?;
        items.remove(place);
    }
    Ok(items)
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

/// `None` leaves a rate unchanged; `Some(None)` removes the limit.
#[derive(Clone, Copy, Debug)]
pub struct RatesChange {
    pub disk_mib_per_second: Option<Option<u32>>,
    pub network_mib_per_second: Option<Option<u32>>,
}

impl RatesChange {
    pub fn none() -> Self {
        Self { disk_mib_per_second: None, network_mib_per_second: None }
    }

    pub fn apply(self, rates: Rates) -> Rates {
        Rates {
            disk_mib_per_second: self.disk_mib_per_second.unwrap_or(rates.disk_mib_per_second),
            network_mib_per_second: self.network_mib_per_second.unwrap_or(rates.network_mib_per_second),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<EgressRule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_change_of_rules_adds_each_once_and_removes_only_existing_ones() {
        let policy = NetworkPolicy { rules: rules(&["a.example", "b.example"]), ..NetworkPolicy::closed() };
        let nothing = NetworkChange {
            mode: None,
            rules: None,
            sets: None,
            add: Vec::new(),
            remove: Vec::new(),
            add_sets: Vec::new(),
            remove_sets: Vec::new(),
            requests: None,
            add_requests: Vec::new(),
            deny: None,
            add_deny: Vec::new(),
            remove_deny: Vec::new(),
            transforms: None,
        };
        assert_eq!(nothing.apply(&policy).unwrap(), policy);
        let change = NetworkChange {
            mode: Some(NetworkMode::Open),
            add: rules(&["B.example", "c.example"]),
            remove: rules(&["a.example"]),
            ..nothing.clone()
        };
        let changed = change.apply(&policy).unwrap();
        assert_eq!(changed.mode, NetworkMode::Open);
        assert_eq!(changed.rules, rules(&["b.example", "c.example"]));
        let unknown = NetworkChange { remove: rules(&["d.example"]), ..nothing.clone() };
        let error = unknown.apply(&policy).unwrap_err();
        assert_eq!(error.to_string(), "the sandbox has no rule or host set `d.example` of its own");
        let blocks =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpRange>>();
        let denied = NetworkChange { deny: Some(blocks(&["192.0.2.0/24"])), ..nothing.clone() };
        let denied = denied.apply(&policy).unwrap();
        let other = NetworkChange {
            add_deny: blocks(&["198.51.100.0/24"]),
            remove_deny: blocks(&["192.0.2.0/24"]),
            ..nothing.clone()
        };
        assert_eq!(other.apply(&denied).unwrap().deny, blocks(&["198.51.100.0/24"]));
        assert!(other.apply(&policy).is_err(), "it is not denied there");
        let replaced = NetworkChange { rules: Some(rules(&["x.example"])), ..nothing };
        assert_eq!(replaced.apply(&policy).unwrap().rules, rules(&["x.example"]));
    }
}
