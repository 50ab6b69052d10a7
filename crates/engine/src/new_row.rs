//! The row of a new sandbox.

use burrow_catalog::SandboxRow;
use burrow_model::{ImageId, SandboxId, SandboxSpec, State, TenantId};

/// A sandbox that is about to be created, without a name, an origin or a branch of another sandbox.
pub(crate) fn new_row(
    id: SandboxId,
    tenant: &TenantId,
    spec: SandboxSpec,
    image: ImageId,
    now_ms: u64,
) -> SandboxRow {
    SandboxRow {
        id,
        tenant: tenant.clone(),
        name: None,
        spec,
        state: State::Creating,
        stop_reason: None,
        image,
        token: new_token(),
        machine: None,
        created_ms: now_ms,
        updated_ms: now_ms,
        started_ms: None,
        stopped_ms: None,
        failure: None,
        generation: 0,
        dump: None,
        origin: None,
        active_ms: Some(now_ms),
        slept_ms: None,
        rotated_ms: None,
        snapshotted_ms: None,
        branch: None,
    }
}

/// 256 random bits with which the host authenticates to the guest.
fn new_token() -> String {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
    data_encoding::HEXLOWER.encode(&bytes)
}
