//! Export and import of snapshots between simulated hosts: all of a snapshot arrives, or nothing.

use std::io::{Cursor, Read};

use burrow_engine::{
    Engine, EngineError, ExportOptions, FromSnapshot, ImportOptions, ImportedSnapshot, SnapshotOptions,
};
use burrow_model::{Snapshot, SnapshotKind, TenantId};

use crate::world::{FAILS_ONCE, Fault, Seam, World, create, name};

const EXPORT: ExportOptions = ExportOptions { files_only: false, since: None };
const IMPORT: ImportOptions = ImportOptions { name: None, files_only: false, trust: None };

async fn snapshot(engine: &Engine, world: &World, value: &str) -> Snapshot {
    let tenant = &world.tenant;
    let id = match engine.resolve(tenant, "alpha").await {
        Ok(row) => row.id,
        Err(_) => engine.create(tenant, create(Some("alpha"))).await.unwrap().row.id,
    };
    world.remember(engine, &id, value).await;
    world.disks.inner.write(&id, "/file", value).unwrap();
    world.disks.inner.write(&id, "/folder/kept", "always").unwrap();
    assert!(world.runtime.inner.set_ram(&id, "value", value));
    engine.snapshot(tenant, &id, SnapshotOptions::automatic(SnapshotKind::Manual, false)).await.unwrap()
}

async fn export(engine: &Engine, tenant: &TenantId, of: &Snapshot, options: ExportOptions) -> Vec<u8> {
    let mut exporting = engine.export_snapshot(tenant, &of.id, options).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = exporting.pieces.recv().await {
        bytes.extend(piece.unwrap());
    }
    bytes
}

async fn import(
    engine: &Engine,
    tenant: &TenantId,
    bytes: &[u8],
    options: ImportOptions,
) -> Result<ImportedSnapshot, EngineError> {
    let stream: Box<dyn Read + Send> = Box::new(Cursor::new(bytes.to_vec()));
    engine.import_snapshot(tenant, stream, options).await
}

/// Files, RAM and memory of a sandbox created from a snapshot.
async fn held(engine: &Engine, world: &World, of: &Snapshot) -> [Option<String>; 3] {
    let options = FromSnapshot {
        name: None,
        files_only: false,
        labels: None,
        lifetime: None,
        change: None,
        idempotency: None,
    };
    let made = engine.create_from_snapshot(&world.tenant, &of.id, options).await.unwrap().row.id;
    let ram = world.runtime.inner.ram(&made, "value");
    [world.disks.inner.read(&made, "/file"), ram, world.remembered(engine, &made).await]
}

fn all(value: &str) -> [Option<String>; 3] {
    [Some(value.to_owned()), Some(value.to_owned()), Some(value.to_owned())]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_arrives_with_files_processes_and_memory() {
    let (here, there) = (World::new().await, World::new().await);
    let (from, to) = (here.engine().await, there.engine().await);
    let one = snapshot(&from, &here, "1").await;
    let bytes = export(&from, &here.tenant, &one, EXPORT).await;
    let imported = import(&to, &there.tenant, &bytes, IMPORT).await.unwrap();
    assert_ne!(imported.snapshot.id, one.id);
    assert_eq!(imported.origin, one.id.to_string());
    assert_eq!(held(&to, &there, &imported.snapshot).await, all("1"));
    // Again, under a name, in addition to the first.
    let named = ImportOptions { name: Some(name("again")), ..IMPORT };
    let again = import(&to, &there.tenant, &bytes, named.clone()).await.unwrap();
    assert_eq!(again.identity, imported.identity);
    let taken = import(&to, &there.tenant, &bytes, named).await.unwrap_err();
    assert!(matches!(taken, EngineError::SnapshotNameTaken { .. }), "{taken}");
    // The exported snapshot is removed, and the imported ones stay.
    from.delete_snapshot(&here.tenant, &one.id).await.unwrap();
    there.check_kept("after imports").await;
    there.check_spaces(&to, "after imports").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incremental_file_requires_its_base() {
    let (here, there) = (World::new().await, World::new().await);
    let (from, to) = (here.engine().await, there.engine().await);
    let one = snapshot(&from, &here, "1").await;
    let since = |base: &Snapshot| ExportOptions { since: Some(base.clone()), ..EXPORT };
    let early = from.export_snapshot(&here.tenant, &one.id, since(&one)).await.unwrap_err();
    assert!(matches!(early, EngineError::NeverMoved { .. }), "{early}");
    let whole = export(&from, &here.tenant, &one, EXPORT).await;
    let two = snapshot(&from, &here, "2").await;
    let part = export(&from, &here.tenant, &two, since(&one)).await;
    let missing = import(&to, &there.tenant, &part, IMPORT).await.unwrap_err();
    assert!(matches!(missing, EngineError::BaseMissing { .. }), "{missing}");
    let first = import(&to, &there.tenant, &whole, IMPORT).await.unwrap();
    let second = import(&to, &there.tenant, &part, IMPORT).await.unwrap();
    assert_eq!(second.snapshot.parent, Some(first.snapshot.id.clone()));
    assert_eq!(held(&to, &there, &second.snapshot).await, all("2"));
    assert_eq!(held(&to, &there, &first.snapshot).await, all("1"));
    // And on to a third host, from the imported snapshots.
    let third = World::new().await;
    let further = third.engine().await;
    import(&further, &third.tenant, &export(&to, &there.tenant, &first.snapshot, EXPORT).await, IMPORT)
        .await
        .unwrap();
    let part = export(&to, &there.tenant, &second.snapshot, since(&first.snapshot)).await;
    let last = import(&further, &third.tenant, &part, IMPORT).await.unwrap();
    assert_eq!(held(&further, &third, &last.snapshot).await, all("2"));
    // Another tenant does not have the base.
    let stranger = third.catalog.create_tenant("other", 1).await.unwrap();
    let foreign = import(&further, &stranger, &part, IMPORT).await.unwrap_err();
    assert!(matches!(foreign, EngineError::BaseMissing { .. }), "{foreign}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_or_damaged_file_leaves_nothing() {
    let (here, there) = (World::new().await, World::new().await);
    let (from, to) = (here.engine().await, there.engine().await);
    let one = snapshot(&from, &here, "1").await;
    let bytes = export(&from, &here.tenant, &one, EXPORT).await;
    for cut in (0..bytes.len()).step_by(bytes.len() / 60 + 1) {
        assert!(import(&to, &there.tenant, &bytes[..cut], IMPORT).await.is_err(), "at {cut}");
        let mut flipped = bytes.clone();
        flipped[cut] ^= 0x10;
        assert!(import(&to, &there.tenant, &flipped, IMPORT).await.is_err(), "at {cut}");
    }
    assert!(there.catalog.all_snapshots().await.unwrap().is_empty());
    assert_eq!(there.catalog.open_operations().await.unwrap(), []);
    there.check_kept("after refused imports").await;
    there.check_spaces(&to, "after refused imports").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_at_any_step_of_an_import_leaves_no_partial_state() {
    let here = World::new().await;
    let from = here.engine().await;
    let one = snapshot(&from, &here, "1").await;
    let bytes = export(&from, &here.tenant, &one, EXPORT).await;
    for fails in FAILS_ONCE {
        for call in 0.. {
            let context = format!("call {call} of the volumes fails, {fails:?}");
            let there = World::with(Some(Fault { seam: Seam::Disks, call, fails })).await;
            let to = there.engine().await;
            let imported = import(&to, &there.tenant, &bytes, IMPORT).await;
            to.shutdown().await;
            if !there.disks.has_failed() {
                assert!(imported.is_ok());
                break; // There was no further call to fail: every failure was tested.
            }
            assert!(imported.is_err(), "{context}");
            let to = there.engine().await;
            assert!(there.catalog.all_snapshots().await.unwrap().is_empty(), "{context}");
            assert_eq!(there.catalog.open_operations().await.unwrap(), [], "{context}");
            there.check_kept(&context).await;
            there.check_spaces(&to, &context).await;
            let again = import(&to, &there.tenant, &bytes, IMPORT).await.unwrap();
            assert_eq!(held(&to, &there, &again.snapshot).await, all("1"), "{context}");
        }
    }
}
