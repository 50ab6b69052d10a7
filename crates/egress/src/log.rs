//! What is told about sandboxes' traffic: log entries, counters, trials.

mod journal;

use burrow_model::SandboxId;
use serde::{Deserialize, Serialize};

use crate::policy::ProtocolSeen;

pub(crate) use journal::Journal;

/// One thing that happened, or several alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    pub sandbox: SandboxId,
    /// When it happened (first), in milliseconds since the epoch.
    pub at_ms: u64,
    pub kind: LogKind,
    /// The name, or the address where there is no name. Printable ASCII of at most 255 bytes.
    pub host: String,
    /// 0 for a question to the resolver.
    pub port: u16,
    /// `None` for a question to the resolver.
    pub protocol: Option<ProtocolSeen>,
    pub verdict: Verdict,
    /// The rule that allowed it.
    pub rule: Option<String>,
    /// Why it was refused; or, of an allowed flow, why it did not come about or ended early.
    pub reason: Option<String>,
    /// The address that was dialled.
    pub address: Option<std::net::IpAddr>,
    /// From the host to the sandbox.
    pub bytes_in: u64,
    /// From the sandbox to the host.
    pub bytes_out: u64,
    /// `None` while the flow lasts: an allowed flow is told of twice, when it begins and when it ends.
    pub duration_ms: Option<u64>,
    /// How many alike this entry stands for.
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogKind {
    /// A question to the resolver.
    Dns,
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Allow,
    Deny,
}

/// What a sandbox has used since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub connections_open: u64,
    pub connections_allowed: u64,
    pub connections_denied: u64,
    /// Allowed, and then the host could not be reached.
    pub connections_failed: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub questions: u64,
    pub questions_denied: u64,
    /// Log entries that nobody took away in time, and audit events that found no room; of all sandboxes.
    pub log_dropped: u64,
}

/// What became of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub reachable: bool,
    pub steps: Vec<Step>,
}

/// One step of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// `decide`, `resolve`, `check`, `dial`.
    pub name: String,
    pub ok: bool,
    /// A sentence: the rule, the addresses, or what went wrong.
    pub detail: String,
    pub micros: u64,
}
