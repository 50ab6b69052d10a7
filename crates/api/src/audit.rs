//! The audit log: who did what, and the proof that nothing was changed or removed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One event of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEvent {
    /// Its place in the log, from 0, without gaps: the number of its leaf.
    pub index: u64,
    /// By the clock of who tells; the order is that of `index`.
    pub at_ms: u64,
    /// `egress.inject`, `exec.start`, `key.create`, `api.call`, …
    pub action: String,
    /// `allowed`, `denied`, `done` or `failed`.
    pub outcome: String,
    /// Who did it: a key's id and name, `sandbox`, `daemon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Without its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The name of a secret, never its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// From the host to the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// From the sandbox to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The id or name of whatever else it is about: a key, a snapshot, an exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The log's size and root, signed: to be kept elsewhere, and compared with later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditCheckpoint {
    /// Events in the log.
    pub size: u64,
    /// The root of the tree, in hexadecimal digits.
    pub root: String,
    /// The checkpoint as text, a signed note: origin, size, root, signature.
    pub note: String,
    /// The public key that signed it: `burrow-audit+…+…`.
    pub public_key: String,
}

/// That an event is in the log (RFC 6962). Hashes are in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditInclusion {
    pub index: u64,
    /// Of the tree it is proven for.
    pub size: u64,
    pub leaf: String,
    /// From the leaf to the root.
    pub path: Vec<String>,
    pub root: String,
}

/// That the log of `to` events begins with that of `from` (RFC 6962). Hashes are in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditConsistency {
    pub from: u64,
    pub from_root: String,
    pub to: u64,
    pub to_root: String,
    pub path: Vec<String>,
}
