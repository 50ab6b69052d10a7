//! What a sandbox may reach, what it tried to reach, and why something is or is not let through.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::{Approve, BudgetDocument, RuleDocument};

/// How far a sandbox may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// Nothing at all.
    None,
    /// What its rules and host sets name.
    Allowlist,
    /// Any public host; never private, link-local, loopback or metadata addresses.
    Open,
}

impl NetworkMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allowlist => "allowlist",
            Self::Open => "open",
        }
    }
}

/// What a new sandbox may reach. What is absent takes the daemon's default; rules or sets without a mode mean
/// `allowlist`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<NetworkMode>,
    /// Rules like `example.com`, `*.example.com:443`, `https://example.com`, `tcp://db.example.com:5432`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub allow: Option<Vec<String>>,
    /// Names of host sets in the daemon's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub sets: Option<Vec<String>>,
    /// Rules about requests, as in a policy document: which are decrypted, and what is put into them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 200)]
    pub requests: Option<Vec<RuleDocument>>,
    /// Blocks of addresses that are not dialled, such as `203.0.113.0/24`, whatever name leads to them. A rule about an
    /// address or a block is an exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub deny: Option<Vec<String>>,
}

/// What a sandbox may reach from now on. What is absent stays; connections that are no longer allowed are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateNetwork {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<NetworkMode>,
    /// All rules there are afterwards, instead of those there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub allow: Option<Vec<String>>,
    /// All host sets there are afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub sets: Option<Vec<String>>,
    /// Rules to add; one that is there already stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub add: Vec<String>,
    /// Rules to remove; one that is not there is an error, since its remover believes it to be in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub remove: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub add_sets: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub remove_sets: Vec<String>,
    /// All rules about requests there are afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 200)]
    pub requests: Option<Vec<RuleDocument>>,
    /// Rules about requests to add; one that is there already stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub add_requests: Vec<RuleDocument>,
    /// All blocks of addresses that are denied afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub deny: Option<Vec<String>>,
    /// Blocks to deny; one that is denied already stays so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub add_deny: Vec<String>,
    /// Blocks to deny no longer; one that is not denied is an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub remove_deny: Vec<String>,
}

/// What a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Network {
    pub mode: NetworkMode,
    /// Its own rules, as they are written.
    pub allow: Vec<String>,
    /// Names of host sets.
    pub sets: Vec<String>,
    /// Its rules about requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RuleDocument>,
    /// Blocks of addresses that are not dialled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

impl Default for Network {
    /// What a sandbox of a daemon that does not tell has: nothing.
    fn default() -> Self {
        let mode = NetworkMode::None;
        Self { mode, allow: Vec::new(), sets: Vec::new(), requests: Vec::new(), deny: Vec::new() }
    }
}

/// Something that was not let through while an exec ran. By time, not by process: a neighbour of the exec in the same
/// sandbox may have asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressDenied {
    /// The name that was asked for, or the address where there was none.
    pub host: String,
    /// Absent when it was the name that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub reason: String,
}

/// One line of a sandbox's egress log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressEntry {
    /// Grows; names a place in the log.
    pub seq: u64,
    pub at_ms: u64,
    pub kind: EgressKind,
    pub verdict: EgressVerdict,
    /// The name that was asked for, or the address where there was none.
    pub host: String,
    pub port: Option<u16>,
    /// The rule that let it through.
    pub rule: Option<String>,
    /// Why not, or what went wrong.
    pub reason: Option<String>,
    /// Where it was connected to.
    pub address: Option<String>,
    /// Of a connection that has ended: bytes the sandbox sent and received, and how long it lasted.
    pub sent_bytes: Option<u64>,
    pub received_bytes: Option<u64>,
    pub duration_ms: Option<u64>,
    /// How many alike it stands for: repeats are counted instead of listed.
    pub times: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EgressKind {
    /// A name was looked up.
    Dns,
    Tls,
    Http,
    /// A connection of some other protocol.
    Tcp,
}

impl EgressKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EgressVerdict {
    Allowed,
    Denied,
    /// Allowed, and the host could not be reached.
    Failed,
    /// A connection that was allowed has ended.
    Closed,
}

impl EgressVerdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Closed => "closed",
        }
    }
}

/// `POST …/egress/explain` and `…/egress/test`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressQuestion {
    /// `https://host/path`, `http://host`, `tcp://host:port`, `host:port` or `host`, which means HTTPS.
    #[schema(min_length = 1, max_length = 2048)]
    pub target: String,
    /// Of the request that is asked about, where its host is decrypted; `GET` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 32)]
    pub method: Option<String>,
}

/// What would happen, without anything being looked up or dialled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressExplanation {
    /// As it was understood.
    pub host: String,
    pub port: u16,
    pub protocol: EgressKind,
    pub allowed: bool,
    /// The rule that decides, if one does.
    pub rule: Option<String>,
    /// The host set the rule is of; absent for the sandbox's own rules.
    pub set: Option<String>,
    pub mode: NetworkMode,
    /// In words.
    pub because: String,
    /// What to do to have it otherwise.
    pub hint: Option<String>,
    /// What is done to the request; absent where nothing is decrypted and no rule about requests is about the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<EgressRequestExplained>,
}

/// What would be done to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressRequestExplained {
    pub method: String,
    /// As it is matched.
    pub path: String,
    /// Whether it would be decrypted.
    pub decrypted: bool,
    /// The secret that would be put in.
    pub secret: Option<String>,
    /// Where: `header authorization`, `query key`, …
    pub slot: Option<String>,
    /// What is left of the rule's budget; absent without one, or while the sandbox does not run.
    pub left: Option<BudgetLeft>,
    /// Whether a person is asked before.
    pub approval: bool,
}

/// What is left of a rule's budget now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetLeft {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_this_minute: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_today: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out_today: Option<u64>,
}

/// A rule about requests, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressRequestRule {
    pub rule: RuleDocument,
    /// In one line.
    pub text: String,
    /// Why it lets nothing through now, if so: its secret is gone, cannot be opened, or may not go there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetDocument>,
    /// Absent without a budget, or while the sandbox does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<BudgetLeft>,
}

/// A request that waits for somebody to agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressApproval {
    /// In its sandbox, until its network is opened anew.
    pub id: u64,
    /// The rule that asks, in one line.
    pub rule: String,
    /// How far a yes goes.
    pub approve: Approve,
    pub method: String,
    pub host: String,
    pub port: u16,
    /// Without its query.
    pub path: String,
    /// The secret that would go along.
    pub secret: Option<String>,
    /// Since when it waits.
    pub since_ms: u64,
}

/// `POST …/egress/approvals/{approval}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerApproval {
    pub allow: bool,
}

/// What did happen when the egress process tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressTrial {
    pub host: String,
    pub port: u16,
    /// Whether it came all the way.
    pub reached: bool,
    /// In order; the last one is where it ended.
    pub steps: Vec<EgressStep>,
    pub hint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressStep {
    /// `decide`, `resolve`, `check`, `dial`.
    pub step: String,
    pub ok: bool,
    pub detail: String,
    pub took_us: u64,
}

/// `GET …/egress`: what is in force, and what came of it since the sandbox started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressStatus {
    pub network: Network,
    /// Every rule in force, those of its host sets included.
    pub rules: Vec<EgressRuleInForce>,
    /// Its rules about requests, and how they stand.
    #[serde(default)]
    pub requests: Vec<EgressRequestRule>,
    /// Host sets it names that the configuration does not have any more.
    pub missing_sets: Vec<String>,
    /// Absent while the sandbox does not run.
    pub counters: Option<EgressCounters>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressRuleInForce {
    pub rule: String,
    /// Absent for the sandbox's own.
    pub set: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressCounters {
    pub allowed: u64,
    pub denied: u64,
    pub failed: u64,
    pub connections_open: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Log entries that were dropped since they came too fast.
    pub log_dropped: u64,
}
