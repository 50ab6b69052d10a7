//! What sandboxes may reach: their policies put in force, and what they asked for written down.
//!
//! ```text
//!   start, adopt ─► attach by the policy of the row         egress process ─► log ─┬─► recent denials, for execs
//!   update       ─► row first, then the process                                    ├─► totals, for metrics
//!   the process is away ─► owed: put in force again as soon as it is back          └─► catalog, in batches
//! ```
//!
//! A sandbox whose policy could not be put in force reaches nothing it did not reach before: with nobody behind its
//! doors it has no network, and a policy that cannot be compiled any more counts as one without rules.

mod force;
mod log;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::Duration;

use burrow_catalog::{EgressRow, SandboxRow};
use burrow_egress::{BudgetLeft, Counters, Directives, EgressError, Policy, Target, Trial, Waiting};
use burrow_model::{EgressRule, IpRange, Name, NetworkPolicy, SandboxId, TenantId};

use tokio::sync::watch;

use crate::{Engine, EngineError};

pub(crate) use force::{adopt, attach, detach, follow, put_in_force, spawn};
pub(crate) use log::EgressLog;
use log::RECENT_MAX;

/// Denials told with one exec: enough to see what is missing.
pub const DENIED_MAX: usize = 16;

/// How long the end of an exec waits for the egress process to tell what it denied.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// What the operator decided about sandboxes' networks.
#[derive(Clone, Debug)]
pub struct EgressSettings {
    /// Of a sandbox whose creator does not say.
    pub default: NetworkPolicy,
    /// Named sets of rules.
    pub sets: BTreeMap<Name, Vec<EgressRule>>,
    /// Ranges that are not public and may be dialled all the same.
    pub allow_ranges: Vec<IpRange>,
}

/// A sandbox's policy with its sets replaced by their rules.
#[derive(Clone, Debug)]
pub struct EgressInForce {
    pub policy: Policy,
    /// Each rule with the set it is of; `None` for the sandbox's own.
    pub rules: Vec<(EgressRule, Option<Name>)>,
    /// Sets it names that the configuration does not have any more.
    pub missing: Vec<Name>,
}

/// Counted since the daemon started, over all sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressTotals {
    pub allowed: u64,
    pub denied: u64,
    pub failed: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// Something a sandbox was not let through to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub at_ms: u64,
    /// Of several alike that are told of together: when the last of them can have been.
    pub until_ms: u64,
    pub host: String,
    /// `None` when it was the name that was refused.
    pub port: Option<u16>,
    pub reason: String,
}

// === impl EgressSettings ===

impl EgressSettings {
    /// Refuses a policy that names what is not there.
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

    /// Of a sandbox that is there, whatever has become of the configuration: what cannot be understood allows nothing.
    /// Its rules about requests are in it, and no secret: what needs one is refused.
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
            Ok(policy) if network.requests.is_empty() => EgressInForce { policy, rules, missing },
            Ok(policy) => {
                let policy = policy.with_directives(Directives {
                    tenant: tenant.clone(),
                    generation: 0,
                    authority: None,
                    rules: network.requests.clone(),
                    grants: Vec::new(),
                });
                EgressInForce { policy, rules, missing }
            }
            Err(error) => {
                tracing::warn!(%error, "a sandbox's network policy cannot be put in force; it is closed");
                EgressInForce { policy: Policy::closed(), rules: Vec::new(), missing }
            }
        }
    }
}

// === What the daemon's surfaces ask ===

impl Engine {
    /// What a sandbox may reach, with its sets replaced by their rules.
    pub fn egress_in_force(&self, row: &SandboxRow) -> EgressInForce {
        self.shared.policy.egress.in_force(&row.tenant, &row.spec.network)
    }

    /// Secrets that a running sandbox's rules name and that it was not given, and why.
    pub fn egress_problems(&self, id: &SandboxId) -> HashMap<Name, String> {
        self.shared.egress.withheld(id)
    }

    /// What a sandbox gets whose creator does not say.
    pub fn default_network(&self) -> &NetworkPolicy {
        &self.shared.policy.egress.default
    }

    /// Whether the egress process answers.
    pub async fn egress_ready(&self) -> Result<(), EngineError> {
        self.shared.seams.egress.attached().await?;
        Ok(())
    }

    pub fn egress_totals(&self) -> EgressTotals {
        self.shared.egress.totals()
    }

    /// What is left of the budgets of a running sandbox's rules; of one that does not run: nothing.
    pub async fn egress_budgets(&self, id: &SandboxId) -> Result<Vec<BudgetLeft>, EngineError> {
        match self.shared.seams.egress.budgets(id).await {
            Ok(budgets) => Ok(budgets),
            Err(EgressError::NotAttached { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Requests of a sandbox that wait for somebody to agree; of one that does not run: none.
    pub async fn egress_waiting(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<Vec<Waiting>, EngineError> {
        self.get(tenant, id).await?;
        match self.shared.seams.egress.approvals(id).await {
            Ok(waiting) => Ok(waiting),
            Err(EgressError::NotAttached { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets a request that waits go on, or refuses it.
    pub async fn answer_waiting(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        number: u64,
        yes: bool,
    ) -> Result<(), EngineError> {
        self.get(tenant, id).await?;
        let gone = || EngineError::ApprovalNotFound { number };
        match self.shared.seams.egress.decide(id, number, yes).await {
            Ok(()) => {
                let kind = if yes { "egress.approved" } else { "egress.refused" };
                let detail = serde_json::json!({ "approval": number });
                self.shared.event(tenant, kind, Some(id), detail);
                Ok(())
            }
            Err(EgressError::NotWaiting { .. } | EgressError::NotAttached { .. }) => Err(gone()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the egress process the file it writes down in what it decides. Answers when it writes there.
    pub async fn give_spool(&self, file: OwnedFd) -> Result<(), EngineError> {
        Ok(self.shared.seams.egress.set_spool(file).await?)
    }

    /// Raised whenever another egress process serves.
    pub fn egress_epoch(&self) -> watch::Receiver<u64> {
        self.shared.seams.egress.epoch()
    }

    /// What a running sandbox has used since it started; `None` of one that does not run.
    pub async fn egress_counters(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<Option<Counters>, EngineError> {
        self.get(tenant, id).await?;
        match self.shared.seams.egress.counters(id).await {
            Ok(counters) => Ok(Some(counters)),
            Err(EgressError::NotAttached { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Has the egress process try, for a sandbox that runs.
    pub async fn egress_trial(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        target: &Target,
    ) -> Result<Trial, EngineError> {
        self.get(tenant, id).await?;
        Ok(self.shared.seams.egress.trial(id, target).await?)
    }

    /// What a sandbox was denied in a span of time, each host and port once, the first [`DENIED_MAX`] of them.
    /// `settle` waits for what the egress process may have to tell still.
    pub async fn denied_during(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        from_ms: u64,
        to_ms: u64,
        settle: bool,
    ) -> Vec<Denied> {
        if settle {
            // It tells what happened before it answers what it is asked afterwards.
            let _ = tokio::time::timeout(SETTLE_TIME, self.shared.seams.egress.counters(id)).await;
            self.shared.egress.take_in().await;
        }
        let found = match self.shared.egress.recent(id, from_ms, to_ms) {
            Some(found) => found,
            None => self.denied_before(tenant, id, from_ms, to_ms).await,
        };
        let mut seen = HashSet::new();
        let mut first_of = |denied: &Denied| seen.insert((denied.host.clone(), denied.port));
        found.into_iter().filter(|denied| first_of(denied)).take(DENIED_MAX).collect()
    }

    async fn denied_before(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        from_ms: u64,
        to_ms: u64,
    ) -> Vec<Denied> {
        let limit = u32::try_from(RECENT_MAX).unwrap_or(u32::MAX);
        let rows = self.shared.seams.catalog.egress_denied(tenant, id, from_ms, to_ms, limit).await;
        let rows = rows.unwrap_or_else(|error| {
            tracing::warn!(sandbox = %id, %error, "could not look up what a sandbox was denied");
            Vec::new()
        });
        let denied = |row: EgressRow| Denied {
            at_ms: row.at_ms,
            until_ms: row.at_ms,
            host: row.host,
            port: row.port,
            reason: row.reason.unwrap_or_default(),
        };
        rows.into_iter().map(denied).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_model::NetworkMode;

    fn settings() -> EgressSettings {
        let sets = [("ours".parse().unwrap(), vec!["*.example.com".parse().unwrap()])];
        EgressSettings { default: NetworkPolicy::closed(), sets: sets.into(), allow_ranges: Vec::new() }
    }

    fn network(sets: &[&str]) -> NetworkPolicy {
        NetworkPolicy {
            mode: NetworkMode::Allowlist,
            rules: vec!["example.org".parse().unwrap()],
            sets: sets.iter().map(|set| set.parse().unwrap()).collect(),
            requests: Vec::new(),
            deny: Vec::new(),
        }
    }

    #[test]
    fn an_unknown_set_is_refused_with_those_there_are() {
        settings().check(&network(&["ours"])).unwrap();
        let error = settings().check(&network(&["theirs"])).unwrap_err();
        assert_eq!(error.to_string(), "no host set `theirs`; there are `ours`");
    }

    #[test]
    fn a_set_that_went_from_the_configuration_allows_nothing_and_is_told() {
        let in_force = settings().in_force(&TenantId::generate(), &network(&["ours", "theirs"]));
        assert_eq!(in_force.missing, ["theirs".parse().unwrap()]);
        let rules: Vec<_> = in_force
            .rules
            .iter()
            .map(|(rule, set)| (rule.to_string(), set.as_ref().map(Name::to_string)))
            .collect();
        let ours = ("*.example.com".to_owned(), Some("ours".to_owned()));
        assert_eq!(rules, [("example.org".to_owned(), None), ours]);
    }
}
