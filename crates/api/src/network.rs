//! Network access on the wire: what a sandbox may connect to, what it tried, and why that is or is not allowed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::{Approve, BudgetDocument, RuleDocument};

/// How much network access a sandbox has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// No access.
    None,
    /// Only hosts that its rules and host sets name.
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

/// The network access of a new sandbox. Absent fields take the daemon's default; rules or sets without a mode mean
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
    /// Names of host sets, such as `pypi`; `GET /v1/egress/sets` lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub sets: Option<Vec<String>>,
    /// Request rules, as in a policy document: which requests are decrypted, and which secrets are inserted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 200)]
    pub requests: Option<Vec<RuleDocument>>,
    /// Address blocks that are denied, such as `203.0.113.0/24`, whatever name resolves to them. A rule about an
    /// address or a block is an exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub deny: Option<Vec<String>>,
}

/// Changes the network access of a sandbox. Absent fields stay as they are; connections that are no longer allowed are
/// closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateNetwork {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<NetworkMode>,
    /// All rules; replaces the existing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub allow: Option<Vec<String>>,
    /// All host sets; replaces the existing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub sets: Option<Vec<String>>,
    /// Rules to add; existing ones stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub add: Vec<String>,
    /// Rules to remove. A missing rule is an error, because the client believes it to be in effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub remove: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub add_sets: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub remove_sets: Vec<String>,
    /// All request rules; replaces the existing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 200)]
    pub requests: Option<Vec<RuleDocument>>,
    /// Request rules to add; existing ones stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub add_requests: Vec<RuleDocument>,
    /// All denied address blocks; replaces the existing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub deny: Option<Vec<String>>,
    /// Blocks to deny; blocks that are denied already stay denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub add_deny: Vec<String>,
    /// Blocks to deny no longer; a block that is not denied is an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub remove_deny: Vec<String>,
}

/// The network access of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Network {
    pub mode: NetworkMode,
    /// Its own rules, as written.
    pub allow: Vec<String>,
    /// Names of host sets.
    pub sets: Vec<String>,
    /// Its request rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RuleDocument>,
    /// Denied address blocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

impl Default for Network {
    /// No access, for a response of a daemon that does not report it.
    fn default() -> Self {
        let mode = NetworkMode::None;
        Self { mode, allow: Vec::new(), sets: Vec::new(), requests: Vec::new(), deny: Vec::new() }
    }
}

/// A connection that was denied while an exec ran. Found by time, not by process: another process of the same sandbox
/// may have tried it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressDenied {
    /// The requested name, or the address if there was none.
    pub host: String,
    /// Absent if the name was denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub reason: String,
    /// The host set that allows it; `burrow egress allow SANDBOX --set NAME` adds it. Absent if none does, or if a rule
    /// would not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

/// A named list of rules that policies refer to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressSet {
    pub name: String,
    /// Its rules.
    pub rules: Vec<String>,
}

/// One line of a sandbox's egress log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressEntry {
    /// Increases; the position in the log.
    pub seq: u64,
    pub at_ms: u64,
    pub kind: EgressKind,
    pub verdict: EgressVerdict,
    /// The requested name, or the address if there was none.
    pub host: String,
    pub port: Option<u16>,
    /// The rule that allowed it.
    pub rule: Option<String>,
    /// Why it was denied, or what failed.
    pub reason: Option<String>,
    /// The address that it was connected to.
    pub address: Option<String>,
    /// For a closed connection: bytes that the sandbox sent and received, and its duration.
    pub sent_bytes: Option<u64>,
    pub received_bytes: Option<u64>,
    pub duration_ms: Option<u64>,
    /// Number of equal entries that it represents: repeats are counted instead of listed.
    pub times: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EgressKind {
    /// A DNS lookup.
    Dns,
    Tls,
    Http,
    /// A connection with another protocol.
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
    /// Allowed, but the host could not be reached.
    Failed,
    /// An allowed connection has ended.
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
    /// Method of the request, if its host is decrypted; `GET` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 32)]
    pub method: Option<String>,
}

/// What would happen. Nothing is resolved or connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressExplanation {
    /// The host, as parsed.
    pub host: String,
    pub port: u16,
    pub protocol: EgressKind,
    pub allowed: bool,
    /// The rule that decides, if any.
    pub rule: Option<String>,
    /// The host set that contains the rule; absent for the sandbox's own rules.
    pub set: Option<String>,
    pub mode: NetworkMode,
    /// A description for people.
    pub because: String,
    /// How to change the decision.
    pub hint: Option<String>,
    /// What is done to the request; absent if nothing is decrypted and no request rule applies to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<EgressRequestExplained>,
}

/// What would be done to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressRequestExplained {
    pub method: String,
    /// The path in normal form.
    pub path: String,
    /// Whether it would be decrypted.
    pub decrypted: bool,
    /// The secret that would be inserted.
    pub secret: Option<String>,
    /// The position: `header authorization`, `query key`, …
    pub slot: Option<String>,
    /// The rest of the rule's budget; absent without a budget, or while the sandbox is not running.
    pub left: Option<BudgetLeft>,
    /// Whether a person has to approve it first.
    pub approval: bool,
}

/// The rest of a rule's budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetLeft {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_this_minute: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_today: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out_today: Option<u64>,
}

/// A request rule, and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressRequestRule {
    pub rule: RuleDocument,
    /// The rule in one line.
    pub text: String,
    /// Why it allows nothing now, if so: its secret was deleted, cannot be decrypted, or is no longer allowed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetDocument>,
    /// Absent without a budget, or while the sandbox is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<BudgetLeft>,
}

/// A request that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressApproval {
    /// Unique within its sandbox, until its network is started again.
    pub id: u64,
    /// The rule that requires approval, in one line.
    pub rule: String,
    /// What an approval covers.
    pub approve: Approve,
    pub method: String,
    pub host: String,
    pub port: u16,
    /// The path without its query.
    pub path: String,
    /// The secret that would be inserted.
    pub secret: Option<String>,
    /// When it began to wait.
    pub since_ms: u64,
}

/// `POST …/egress/approvals/{approval}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerApproval {
    pub allow: bool,
}

/// The result of a trial by the egress process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressTrial {
    pub host: String,
    pub port: u16,
    /// Whether the connection succeeded.
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

/// `GET …/egress`: the rules in effect, and counters since the sandbox was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressStatus {
    pub network: Network,
    /// Every rule in effect, including those of its host sets.
    pub rules: Vec<EgressRuleInForce>,
    /// Its request rules, and their state.
    #[serde(default)]
    pub requests: Vec<EgressRequestRule>,
    /// Host sets that it names and that the configuration no longer has.
    pub missing_sets: Vec<String>,
    /// Absent while the sandbox is not running.
    pub counters: Option<EgressCounters>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressRuleInForce {
    pub rule: String,
    /// The host set that contains it; absent for the sandbox's own rules.
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
    /// Log entries that were dropped because they came too fast.
    pub log_dropped: u64,
}
