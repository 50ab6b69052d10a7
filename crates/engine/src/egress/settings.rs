//! The operator's settings for sandboxes' networks, and the policies that result from them.

use std::collections::BTreeMap;

use burrow_egress::{Decision, Destination, DetectedProtocol, Directives, Host, Policy};
use burrow_model::network::HeaderTransform;
use burrow_model::{EgressRule, HostName, HostPattern, IpRange, Name, NetworkMode, NetworkPolicy, TenantId};

use crate::EngineError;

/// Host set, variable and value. The first retry of pip follows at once, and it is the one that reports the reason:
/// without any, pip only states that it found no version of the package. npm reports the reason in any case.
const RETRY_LIMITS: [(&str, &str, &str); 4] = [
    ("pypi", "PIP_RETRIES", "1"),
    ("pypi", "UV_HTTP_RETRIES", "0"),
    ("npm", "npm_config_fetch_retries", "0"),
    ("crates", "CARGO_NET_RETRY", "0"),
];

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

    /// The smallest set that allows connections to a host on a port; without a port, one that allows its name.
    pub(crate) fn set_for(&self, host: &str, port: Option<u16>) -> Option<&Name> {
        let name: HostName = host.parse().ok()?;
        let allows = |rules: &[EgressRule]| {
            if !rules.iter().any(|rule| rule.host.matches(&name)) {
                return false;
            }
            let Some(port) = port else { return true };
            let destination = Destination { host: Host::Name(name.clone()), port };
            let alone = NetworkPolicy { rules: rules.to_vec(), ..NetworkPolicy::closed() };
            let protocols = [DetectedProtocol::Tls, DetectedProtocol::Http, DetectedProtocol::Tcp];
            Policy::new(&alone, &BTreeMap::new(), &[]).is_ok_and(|policy| {
                let decide = |protocol| policy.decide(&destination, protocol);
                protocols.into_iter().any(|protocol| matches!(decide(protocol), Decision::Allow { .. }))
            })
        };
        let fitting = self.sets.iter().filter(|(_, rules)| allows(rules));
        fitting.min_by_key(|(_, rules)| rules.len()).map(|(name, _)| name)
    }

    /// Variables that limit the retries of package managers whose hosts a policy does not allow: they retry a name that
    /// does not exist, some of them for more than a minute.
    pub(crate) fn retry_limits(
        &self,
        network: &NetworkPolicy,
    ) -> impl Iterator<Item = (&'static str, &'static str)> {
        let denied = |set: &str| {
            let hosts = self.sets.iter().find(|(name, _)| name.as_str() == set).map(|(_, rules)| rules);
            hosts.is_some_and(|hosts| !hosts.iter().any(|rule| self.allows_name_of(network, rule)))
        };
        RETRY_LIMITS.into_iter().filter(move |(set, ..)| denied(set)).map(|(_, name, value)| (name, value))
    }

    /// Whether a policy allows the host of a rule, on any port.
    fn allows_name_of(&self, network: &NetworkPolicy, rule: &EgressRule) -> bool {
        match network.mode {
            NetworkMode::None => return false,
            NetworkMode::Open => return true,
            NetworkMode::Allowlist => {}
        }
        let HostPattern::Exact(host) = &rule.host else {
            // A set with a pattern is not a list of known hosts; assume that it is used.
            return true;
        };
        let of_sets = network.sets.iter().filter_map(|set| self.sets.get(set)).flatten();
        let patterns = network.rules.iter().chain(of_sets).map(|rule| &rule.host);
        let requests = network.requests.iter().map(|rule| &rule.scope.host);
        patterns.chain(requests).any(|pattern| pattern.matches(host))
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
