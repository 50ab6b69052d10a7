//! Network access of sandboxes: applies their policies, and logs their traffic.
//!
//! ```text
//!   start, adopt ─► attach with the policy of the row       egress process ─► log ─┬─► recent denials, for execs
//!   update       ─► row first, then the egress process                             ├─► totals, for metrics
//!   the egress process does not run ─► applied again as soon as it is back         └─► catalog, in batches
//! ```
//!
//! A sandbox whose policy could not be applied gains no access: while no process holds its listeners it has no network, and a
//! policy that can no longer be compiled is treated as one without rules.

mod apply;
pub(crate) mod former_secrets;
pub(crate) mod interception;
mod log;
pub(crate) mod rates;
pub(crate) mod secret_changes;
pub(crate) mod secrets;
mod settings;
pub(crate) mod transforms;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::Duration;

use burrow_catalog::{EgressRow, SandboxRow};
use burrow_egress::{BudgetLeft, Counters, EgressError, PendingApproval, Target, Trial};
use burrow_model::{EgressRule, Name, NetworkPolicy, SandboxId, TenantId};
use tokio::sync::watch;

use crate::{Engine, EngineError};

pub(crate) use apply::{adopt, apply_due_policies, attach, detach, follow, spawn};
pub(crate) use log::EgressLog;
use log::RECENT_MAX;
pub use log::{DeniedTraffic, EgressTotals};
pub use settings::{EgressInForce, EgressSettings};

/// Denials reported with one exec: enough to see what is missing.
pub const DENIED_MAX: usize = 16;

/// How a denial begins that a rule would have prevented.
const MISSING_RULE: &str = "no rule allows";

/// How long to wait for the egress process to report what it has recorded.
const SETTLE_TIME: Duration = Duration::from_millis(500);

impl Engine {
    /// What a sandbox may reach, with its sets replaced by their rules.
    pub fn egress_in_force(&self, row: &SandboxRow) -> EgressInForce {
        self.shared.policy.egress.in_force(&row.tenant, &row.spec.network)
    }

    /// Secrets that a running sandbox's rules name but that were not granted, and why.
    pub fn egress_problems(&self, id: &SandboxId) -> HashMap<Name, String> {
        self.shared.egress.withheld(id)
    }

    /// The named host sets of this daemon.
    pub fn host_sets(&self) -> &BTreeMap<Name, Vec<EgressRule>> {
        &self.shared.policy.egress.sets
    }

    /// The host set that allows connections to a host on a port, or, without a port, its name.
    pub fn host_set_for(&self, host: &str, port: Option<u16>) -> Option<&Name> {
        self.shared.policy.egress.set_for(host, port)
    }

    /// The policy of a sandbox whose creator specifies none.
    pub fn default_network(&self) -> &NetworkPolicy {
        &self.shared.policy.egress.default
    }

    /// Whether the egress process responds.
    pub async fn egress_ready(&self) -> Result<(), EngineError> {
        self.shared.seams.egress.attached().await?;
        Ok(())
    }

    pub fn egress_totals(&self) -> EgressTotals {
        self.shared.egress.totals()
    }

    /// What is left of the budgets of a running sandbox's rules; empty if it does not run.
    pub async fn egress_budgets(&self, id: &SandboxId) -> Result<Vec<BudgetLeft>, EngineError> {
        match self.shared.seams.egress.budgets(id).await {
            Ok(budgets) => Ok(budgets),
            Err(EgressError::NotAttached { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Requests of a sandbox that wait for approval; empty if it does not run.
    pub async fn egress_waiting(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<Vec<PendingApproval>, EngineError> {
        self.get(tenant, id).await?;
        match self.shared.seams.egress.approvals(id).await {
            Ok(waiting) => Ok(waiting),
            Err(EgressError::NotAttached { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Approves or denies a waiting request.
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

    /// Passes the audit spool file to the egress process, which records its injections there. Returns when it uses the file.
    pub async fn give_spool(&self, file: OwnedFd) -> Result<(), EngineError> {
        Ok(self.shared.seams.egress.set_spool(file).await?)
    }

    /// Incremented whenever a new egress process starts to serve.
    pub fn egress_epoch(&self) -> watch::Receiver<u64> {
        self.shared.seams.egress.epoch()
    }

    /// The traffic of a running sandbox since it started; `None` if it does not run.
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

    /// Makes the egress process test access to a target, for a running sandbox.
    pub async fn egress_trial(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        target: &Target,
    ) -> Result<Trial, EngineError> {
        self.get(tenant, id).await?;
        Ok(self.shared.seams.egress.trial(id, target).await?)
    }

    /// Stores what the egress process has recorded about a sandbox, unless the process takes too long to report it.
    pub async fn settle_egress_log(&self, id: &SandboxId) {
        let settled = async {
            // It reports past events before it answers a later request.
            let _ = self.shared.seams.egress.counters(id).await;
            self.shared.egress.store_received().await;
        };
        let _ = tokio::time::timeout(SETTLE_TIME, settled).await;
    }

    /// Denials of a sandbox in a time span, each host and port once, the first [`DENIED_MAX`] of them. `settle` waits for denials that
    /// the egress process may not have reported yet.
    pub async fn denied_during(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        from_ms: u64,
        to_ms: u64,
        settle: bool,
    ) -> Vec<DeniedTraffic> {
        if settle {
            self.settle_egress_log(id).await;
        }
        let found = match self.shared.egress.recent(id, from_ms, to_ms) {
            Some(found) => found,
            None => self.denied_before(tenant, id, from_ms, to_ms).await,
        };
        let mut seen = HashSet::new();
        let mut first_of = |denied: &DeniedTraffic| seen.insert((denied.host.clone(), denied.port));
        let sets = &self.shared.policy.egress;
        let with_set = |denied: DeniedTraffic| {
            let missing = denied.reason.starts_with(MISSING_RULE);
            let set = if missing { sets.set_for(&denied.host, denied.port) } else { None };
            DeniedTraffic { set: set.cloned(), ..denied }
        };
        found.into_iter().filter(|denied| first_of(denied)).take(DENIED_MAX).map(with_set).collect()
    }

    async fn denied_before(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        from_ms: u64,
        to_ms: u64,
    ) -> Vec<DeniedTraffic> {
        let limit = u32::try_from(RECENT_MAX).unwrap_or(u32::MAX);
        let rows = self.shared.seams.catalog.egress_denied(tenant, id, from_ms, to_ms, limit).await;
        let rows = rows.unwrap_or_else(|error| {
            tracing::warn!(sandbox = %id, %error, "could not look up what a sandbox was denied");
            Vec::new()
        });
        let denied = |row: EgressRow| DeniedTraffic {
            at_ms: row.at_ms,
            until_ms: row.at_ms,
            host: row.host,
            port: row.port,
            reason: row.reason.unwrap_or_default(),
            set: None,
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
            transforms: None,
        }
    }

    #[test]
    fn an_unknown_host_set_is_refused_and_the_known_sets_are_listed() {
        settings().check(&network(&["ours"])).unwrap();
        let error = settings().check(&network(&["theirs"])).unwrap_err();
        assert_eq!(error.to_string(), "unknown host set `theirs`; known host sets: `ours`");
    }

    #[test]
    fn the_smallest_set_that_allows_a_connection_is_named() {
        let mut settings = settings();
        let rules = ["*.example.com", "pypi.org", "tcp://db.example.com:5432"];
        let all = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        settings.sets.insert("packages".parse().unwrap(), all);
        let named = |host: &str, port| settings.set_for(host, port).map(Name::as_str);
        assert_eq!(named("www.example.com", None), Some("ours"));
        assert_eq!(named("www.example.com", Some(443)), Some("ours"));
        assert_eq!(named("db.example.com", Some(5432)), Some("packages"));
        assert_eq!(named("www.example.com", Some(22)), None);
        assert_eq!(named("pypi.org", None), Some("packages"));
        assert_eq!(named("example.com", None), None);
        assert_eq!(named("not a name", None), None);
    }

    #[test]
    fn package_managers_are_told_not_to_retry_only_while_no_host_of_their_set_is_allowed() {
        let mut settings = settings();
        let hosts = vec!["https://pypi.example".parse().unwrap(), "https://files.example".parse().unwrap()];
        settings.sets.insert("pypi".parse().unwrap(), hosts);
        let names = |network: &NetworkPolicy| settings.retry_limits(network).map(|(name, _)| name).collect();
        let pip: Vec<&str> = names(&network(&["ours"]));
        assert_eq!(pip, ["PIP_RETRIES", "UV_HTTP_RETRIES"], "the other sets are not configured");
        let allowed: [NetworkPolicy; 3] = [
            network(&["pypi"]),
            NetworkPolicy { rules: vec!["*.example".parse().unwrap()], ..NetworkPolicy::closed() },
            NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() },
        ];
        for network in allowed {
            let pip: Vec<&str> = names(&network);
            assert_eq!(pip, [""; 0], "{network:?}");
        }
        let off = NetworkPolicy { mode: NetworkMode::None, ..network(&["pypi"]) };
        let pip: Vec<&str> = names(&off);
        assert_eq!(pip.len(), 2);
    }

    #[test]
    fn a_host_set_removed_from_the_configuration_allows_nothing_and_is_reported() {
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
