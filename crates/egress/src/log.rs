//! Reports about sandboxes' traffic: log entries, counters, trials.

mod journal;

use burrow_model::SandboxId;
use serde::{Deserialize, Serialize};

use crate::policy::DetectedProtocol;

pub(crate) use journal::Journal;

/// One event, or several similar ones combined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    pub sandbox: SandboxId,
    /// The time of the (first) event, in milliseconds since the epoch.
    pub at_ms: u64,
    /// The time of the last event.
    pub last_ms: u64,
    pub kind: LogKind,
    /// The name, or the address if there is no name. Printable ASCII of at most 255 bytes.
    pub host: String,
    /// 0 for a DNS question.
    pub port: u16,
    /// `None` for a DNS question.
    pub protocol: Option<DetectedProtocol>,
    pub verdict: Verdict,
    /// The rule that allowed it.
    pub rule: Option<String>,
    /// Why it was refused; for an allowed flow, why it failed or ended early.
    pub reason: Option<String>,
    /// The address that was connected to.
    pub address: Option<std::net::IpAddr>,
    /// From the host to the sandbox.
    pub bytes_in: u64,
    /// From the sandbox to the host.
    pub bytes_out: u64,
    /// `None` while the flow is open: an allowed flow that lasts is logged twice, while it is open and when it ends.
    pub duration_ms: Option<u64>,
    /// How many similar events this entry stands for.
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogKind {
    /// A DNS question.
    Dns,
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Allow,
    Deny,
}

/// The usage of a sandbox since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub connections_open: u64,
    pub connections_allowed: u64,
    pub connections_denied: u64,
    /// Allowed connections whose host could not be reached.
    pub connections_failed: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub questions: u64,
    pub questions_denied: u64,
    /// Log entries that were not read in time and audit events that exceeded the queue, of all sandboxes.
    pub log_dropped: u64,
}

/// The result of a trial.
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
    /// A sentence: the rule, the addresses, or the error.
    pub detail: String,
    pub micros: u64,
}
