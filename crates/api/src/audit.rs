//! The audit log: who did what, and proof that nothing was changed or removed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One event of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEvent {
    /// Its position in the log, from 0, without gaps: the number of its leaf.
    pub index: u64,
    /// By the clock of the process that recorded it; the order is that of `index`.
    pub at_ms: u64,
    /// `egress.inject`, `exec.start`, `key.create`, `api.call`, …
    pub action: String,
    /// `allowed`, `denied`, `done` or `failed`.
    pub outcome: String,
    /// Who did it: the id and name of a key, `sandbox` or `daemon`.
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
    /// The path without its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Status of the response.
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
    /// The id or name of the other object it concerns: a key, a snapshot, an exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The size and root of the log, signed. Store it elsewhere, to compare the log with it later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditCheckpoint {
    /// Number of events in the log.
    pub size: u64,
    /// The root of the tree, in hexadecimal digits.
    pub root: String,
    /// The checkpoint as text, a signed note: origin, size, root, signature.
    pub note: String,
    /// The public key that signed it: `burrow-audit+…+…`.
    pub public_key: String,
}

/// Proof that an event is in the log (RFC 6962). Hashes are in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditInclusion {
    pub index: u64,
    /// The size of the tree that the proof is for.
    pub size: u64,
    pub leaf: String,
    /// The audit path, from the leaf to the root.
    pub path: Vec<String>,
    pub root: String,
}

/// Proof that the log of `to` events begins with the log of `from` events (RFC 6962). Hashes are in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditConsistency {
    pub from: u64,
    pub from_root: String,
    pub to: u64,
    pub to_root: String,
    pub path: Vec<String>,
}
