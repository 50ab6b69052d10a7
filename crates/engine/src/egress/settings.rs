//! The operator's settings for sandboxes' networks, and the policies that result from them.

use std::collections::BTreeMap;

use burrow_egress::{Directives, Policy};
use burrow_model::network::HeaderTransform;
use burrow_model::{EgressRule, IpRange, Name, NetworkPolicy, TenantId};

use crate::EngineError;

/// The operator's configuration of sandboxes' networks.
#[derive(Clone, Debug)]
pub struct EgressSettings {
    /// The policy of a sandbox whose creator specifies none.
    pub default: NetworkPolicy,
    /// Named sets of rules.
    pub sets: BTreeMap<Name, Vec<EgressRule>>,
    /// Ranges that are not public but may be dialled all the same.
    pub allow_ranges: Vec<IpRange>,
}

/// A sandbox's policy with its sets replaced by their rules.
#[derive(Clone, Debug)]
pub struct EgressInForce {
    pub policy: Policy,
    /// Each rule with its set; `None` for the sandbox's own rules.
    pub rules: Vec<(EgressRule, Option<Name>)>,
    /// Sets it names that the configuration no longer contains.
    pub missing: Vec<Name>,
}

impl EgressSettings {
    /// Refuses a policy that names unknown host sets.
    pub(crate) fn check(&self, network: &NetworkPolicy) -> Result<(), EngineError> {
        match Policy::new(network, &self.sets, &self.allow_ranges) {
            Ok(_) => Ok(()),
            Err(burrow_egress::PolicyError::UnknownSet { set }) => {
                let known: Vec<String> = self.sets.keys().map(|set| format!("`{set}`")).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(EngineError::SetUnknown { set, known })
            }
            Err(source) => Err(EngineError::NetworkPolicy { source }),
        }
    }

    /// The policy of an existing sandbox under the present configuration: a policy that does not compile allows nothing. Includes its
    /// request rules but no secrets, so requests that need a secret are denied.
    pub(crate) fn in_force(&self, tenant: &TenantId, network: &NetworkPolicy) -> EgressInForce {
        let (sets, missing): (Vec<Name>, Vec<Name>) =
            network.sets.iter().cloned().partition(|set| self.sets.contains_key(set));
        let own = network.rules.iter().map(|rule| (rule.clone(), None));
        let of_set = |set: &Name| {
            let rules = self.sets.get(set).into_iter().flatten();
            rules.map(|rule| (rule.clone(), Some(set.clone()))).collect::<Vec<_>>()
        };
        let rules = own.chain(sets.iter().flat_map(of_set)).collect();
        let known = NetworkPolicy { sets, ..network.clone() };
        match Policy::new(&known, &self.sets, &self.allow_ranges) {
            Ok(policy) if network.requests.is_empty() && network.transforms.is_none() => {
                EgressInForce { policy, rules, missing }
            }
            Ok(policy) => {
                let policy = policy.with_directives(Directives {
                    tenant: tenant.clone(),
                    generation: 0,
                    authority: None,
                    rules: network.requests.clone(),
                    grants: Vec::new(),
                    transforms: without_headers(network),
                });
                EgressInForce { policy, rules, missing }
            }
            Err(error) => {
                tracing::warn!(%error, "a sandbox's network policy cannot be applied; all its traffic is denied");
                EgressInForce { policy: Policy::closed(), rules: Vec::new(), missing }
            }
        }
    }
}

/// The hosts of a policy without their headers: what is known of it without the key.
pub(crate) fn without_headers(network: &NetworkPolicy) -> Vec<HeaderTransform> {
    let hosts = network.transforms.iter().flat_map(|transforms| &transforms.hosts);
    hosts.map(|host| HeaderTransform { host: host.clone(), headers: Vec::new() }).collect()
}
