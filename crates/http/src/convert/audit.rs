//! Converts events and proofs of the audit log to types of the API.

use burrow_api::{AuditConsistency, AuditEvent, AuditInclusion};
use burrow_audit::tree::Hash;
use burrow_audit::{ConsistencyProof, Entry, InclusionProof};

pub fn audit_event(entry: Entry) -> AuditEvent {
    let Entry { index, event } = entry;
    AuditEvent {
        index,
        at_ms: event.at_ms,
        action: event.action.to_string(),
        outcome: event.outcome.to_string(),
        actor: event.actor.map(String::from),
        sandbox_id: event.sandbox.map(String::from),
        rule: event.rule.map(String::from),
        host: event.host.map(String::from),
        port: event.port,
        method: event.method.map(String::from),
        path: event.path.map(String::from),
        status: event.status,
        secret: event.secret.map(String::from),
        bytes_in: event.bytes_in,
        bytes_out: event.bytes_out,
        duration_ms: event.duration_ms,
        reason: event.reason.map(String::from),
        target: event.target.map(String::from),
        request_id: event.request_id.map(String::from),
    }
}

fn hex(hashes: &[Hash]) -> Vec<String> {
    hashes.iter().map(Hash::hex).collect()
}

pub fn audit_inclusion(proof: &InclusionProof) -> AuditInclusion {
    AuditInclusion {
        index: proof.index,
        size: proof.size,
        leaf: proof.leaf.hex(),
        path: hex(&proof.path),
        root: proof.root.hex(),
    }
}

pub fn audit_consistency(proof: &ConsistencyProof) -> AuditConsistency {
    AuditConsistency {
        from: proof.from,
        from_root: proof.from_root.hex(),
        to: proof.to,
        to_root: proof.to_root.hex(),
        path: hex(&proof.path),
    }
}
