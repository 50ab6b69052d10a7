//! Rows for tests, complete and simple.

use std::collections::BTreeMap;

use burrow_catalog::{
    Catalog, ExecRow, ExecState, InsertResult, NewEvent, NewKey, OperationRow, PageRequest, SandboxRow,
    SnapshotRow, SpaceRow, WarmRow,
};
use burrow_model::{
    Changes, ExecId, Image, ImageConfig, ImageId, Lifetime, Limits, OperationId, Rates, SandboxId,
    SandboxSpec, Scope, Snapshot, SnapshotId, SnapshotKind, SpaceId, State, TenantId,
};
use serde_json::json;

pub(crate) const NOW: u64 = 1_800_000_000_000;

pub(crate) fn spec() -> SandboxSpec {
    SandboxSpec {
        image: "base".parse().unwrap(),
        driver: "container".to_owned(),
        limits: Limits { ram_mib: 512, cpu_millis: 1000, pids: 256, disk_mib: 1024 },
        rates: Rates::unlimited(),
        env: BTreeMap::from([("LANG".to_owned(), "C.UTF-8".to_owned())]),
        labels: BTreeMap::new(),
        workdir: None,
        user: None,
        lifetime: Lifetime::Persistent { expires_ms: None },
        services: BTreeMap::new(),
        network: burrow_model::NetworkPolicy::closed(),
        sleep: burrow_model::SleepPolicy::never(),
        snapshots: None,
        rotate: None,
        memory: burrow_model::MemorySpec::quiet(),
        lease: None,
        volumes: Vec::new(),
    }
}

pub(crate) fn sandbox(tenant: &TenantId, created_ms: u64) -> SandboxRow {
    SandboxRow {
        id: SandboxId::generate(),
        tenant: tenant.clone(),
        name: None,
        spec: spec(),
        state: State::Creating,
        stop_reason: None,
        image: ImageId::generate(),
        token: "very-secret-token".to_owned(),
        machine: None,
        created_ms,
        updated_ms: created_ms,
        started_ms: None,
        stopped_ms: None,
        failure: None,
        generation: 0,
        dump: None,
        origin: None,
        active_ms: None,
        slept_ms: None,
        rotated_ms: None,
        snapshotted_ms: None,
        branch: None,
    }
}

/// A snapshot of a sandbox, files only.
pub(crate) fn snapshot(of: &SandboxRow, created_ms: u64) -> Snapshot {
    Snapshot {
        id: SnapshotId::generate(),
        sandbox: of.id.clone(),
        sandbox_name: of.name.clone(),
        name: None,
        description: "as it was".to_owned(),
        labels: BTreeMap::new(),
        kind: SnapshotKind::Manual,
        parent: None,
        image: of.image.clone(),
        spec: of.spec.clone(),
        dump: None,
        ram_bytes: 0,
        disk_bytes: 4096,
        pause_us: 1500,
        changes: Changes::none(None),
        created_ms,
        expires_ms: None,
        memory: None,
    }
}

pub(crate) fn space(tenant: &TenantId, name: &str, created_ms: u64) -> SpaceRow {
    SpaceRow {
        id: SpaceId::generate(),
        tenant: tenant.clone(),
        name: name.parse().unwrap(),
        description: String::new(),
        labels: BTreeMap::new(),
        created_ms,
    }
}

/// Stores the intent to take a snapshot. Returns the operation for it.
pub(crate) async fn begin(catalog: &Catalog, of: &SandboxRow, snapshot: &Snapshot) -> OperationId {
    let operation = operation(of, "snapshot");
    let id = operation.id.clone();
    let row = SnapshotRow { tenant: of.tenant.clone(), snapshot: snapshot.clone(), ready: false };
    catalog.begin_snapshot(row, operation).await.unwrap();
    id
}

/// Stores a ready snapshot.
pub(crate) async fn take(catalog: &Catalog, of: &SandboxRow, snapshot: &Snapshot) {
    let operation = begin(catalog, of, snapshot).await;
    catalog.finish_snapshot(snapshot.clone(), Some(operation)).await.unwrap();
}

pub(crate) fn warm_pool(tenant: &TenantId, made_ms: u64) -> WarmRow {
    WarmRow {
        id: SandboxId::generate(),
        tenant: tenant.clone(),
        image: ImageId::generate(),
        disk_bytes: 1 << 30,
        made_ms,
    }
}

pub(crate) fn operation(sandbox: &SandboxRow, kind: &str) -> OperationRow {
    OperationRow {
        id: OperationId::generate(),
        tenant: sandbox.tenant.clone(),
        sandbox: sandbox.id.clone(),
        kind: kind.to_owned(),
        steps: json!(["disk", "network", "machine"]),
        started_ms: sandbox.created_ms,
        detail: json!({}),
    }
}

/// Stores a sandbox whose creation is complete.
pub(crate) async fn store(catalog: &Catalog, row: &SandboxRow) {
    let operation = operation(row, "create");
    let id = operation.id.clone();
    let inserted = catalog.insert_sandbox_with_operation(row.clone(), operation, None).await.unwrap();
    assert_eq!(inserted, InsertResult::New);
    catalog.finish_operation(&id).await.unwrap();
}

pub(crate) fn exec(sandbox: &SandboxRow, started_ms: u64) -> ExecRow {
    ExecRow {
        id: ExecId::generate(),
        tenant: sandbox.tenant.clone(),
        sandbox: sandbox.id.clone(),
        argv: vec!["sh".to_owned(), "-c".to_owned(), "exit 3".to_owned()],
        command: json!({ "env": ["LANG"] }),
        started_ms,
        ended_ms: None,
        outcome: None,
        state: ExecState::Running,
        generation: 1,
    }
}

pub(crate) fn key(tenant: &TenantId, scope: Scope) -> NewKey {
    let name = "a key".to_owned();
    NewKey {
        tenant: tenant.clone(),
        name,
        scope,
        sandbox: None,
        forks: false,
        parent: None,
        created_ms: NOW,
        expires_ms: None,
    }
}

pub(crate) fn image(name: &str, created_ms: u64) -> Image {
    let config = ImageConfig { user: Some("user".to_owned()), ..ImageConfig::default() };
    Image {
        id: ImageId::generate(),
        names: vec![name.parse().unwrap()],
        config,
        origin: burrow_model::ImageOrigin::default(),
        layer: None,
        size_bytes: 1 << 20,
        created_ms,
    }
}

pub(crate) fn event(tenant: &TenantId, kind: &str) -> NewEvent {
    let detail = json!({ "by": "test" });
    NewEvent { tenant: tenant.clone(), at_ms: NOW, kind: kind.to_owned(), sandbox: None, exec: None, detail }
}

pub(crate) fn page(limit: u32) -> PageRequest {
    PageRequest { cursor: None, limit }
}

/// A tenant other than the default one.
pub(crate) async fn stranger(catalog: &Catalog) -> TenantId {
    catalog.create_tenant("stranger", NOW).await.unwrap()
}
