//! Volumes that outlive sandboxes: a failure at every step, a crash at every step, and never two writers.

use burrow_catalog::CatalogError;
use burrow_disks::Disks as _;
use burrow_engine::{CreateOptions, Engine, EngineError, ForkOptions, MountRequest, VolumeOptions};
use burrow_model::{FailMode, MountMode, Volume, VolumeMount, VolumeState};

use crate::world::{FAILS_ONCE, Fault, GRACE, Seam, World, create, name};

fn options(text: &str) -> VolumeOptions {
    VolumeOptions { name: name(text), disk_mib: 64, from: None }
}

async fn write(world: &World, volume: &Volume, content: &str) {
    let root = world.disks.inner.locate((&volume.id).into()).await.unwrap();
    std::fs::write(root.join("file"), content).unwrap();
}

async fn read(world: &World, volume: &Volume) -> String {
    let root = world.disks.inner.locate((&volume.id).into()).await.unwrap();
    std::fs::read_to_string(root.join("file")).unwrap()
}

async fn mounts(engine: &Engine, world: &World, mode: MountMode) -> Vec<VolumeMount> {
    let wish = MountRequest { volume: "data".to_owned(), path: "/data".parse().unwrap(), mode };
    engine.find_mounts(&world.tenant, vec![wish]).await.unwrap()
}

/// Invariant 2, for volumes: the pool holds exactly what the catalog lists, and no operation is unfinished.
async fn assert_consistent(world: &World, context: &str) {
    let found = world.disks.inner.inventory().await.unwrap();
    let rows = world.catalog.all_volumes().await.unwrap();
    let known: Vec<_> = rows.iter().map(|row| row.volume.id.clone()).collect();
    assert!(rows.iter().all(|row| row.volume.state == VolumeState::Ready), "{context}: {rows:?}");
    let mut volumes = known.clone();
    volumes.sort();
    assert_eq!(found.volumes, volumes, "{context}");
    let rows = world.catalog.all_volume_snapshots().await.unwrap();
    assert!(rows.iter().all(|row| row.ready), "{context}: {rows:?}");
    let mut snapshots: Vec<_> = rows.into_iter().map(|row| row.snapshot.id).collect();
    snapshots.sort();
    assert_eq!(found.volume_snapshots, snapshots, "{context}");
}

/// A sequence of all operations on a volume, up to the first failure.
async fn live(engine: &Engine, world: &World) -> Result<(), EngineError> {
    let tenant = &world.tenant;
    let data = engine.create_volume(tenant, options("data")).await?;
    write(world, &data, "first").await;
    let snapshot = engine.snapshot_volume(tenant, &data, Some(name("good"))).await?;
    write(world, &data, "second").await;
    let from = Some(snapshot.id.clone());
    let copy = engine.create_volume(tenant, VolumeOptions { from, ..options("copy") }).await?;
    assert_eq!(read(world, &copy).await, "first");
    engine.restore_volume(tenant, &data, &snapshot).await?;
    assert_eq!(read(world, &data).await, "first");
    let passing = engine.snapshot_volume(tenant, &copy, None).await?;
    engine.delete_volume_snapshot(tenant, &passing).await?;
    engine.delete_volume(tenant, &copy, false).await?;
    engine.delete_volume(tenant, &data, true).await
}

#[tokio::test]
async fn a_failure_at_any_step_of_a_volume_operation_leaves_a_consistent_host() {
    for fails in FAILS_ONCE {
        for call in 0.. {
            let world = World::with(Some(Fault { seam: Seam::Disks, call, fails })).await;
            let engine = world.engine().await;
            let lived = live(&engine, &world).await;
            let context = format!("call {call}, {fails:?}");
            if !world.disks.has_failed() {
                lived.unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(call > 5, "too few steps were tested: {call}");
                assert_consistent(&world, &context).await;
                break;
            }
            // What could not be undone or completed at once is undone or completed at the next start.
            engine.shutdown().await;
            let engine = world.engine().await;
            assert_consistent(&world, &context).await;
            for row in world.catalog.all_volumes().await.unwrap() {
                engine.delete_volume(&world.tenant, &row.volume, true).await.unwrap();
            }
            live(&engine, &world).await.unwrap_or_else(|error| panic!("once more, {context}: {error}"));
        }
    }
}

/// A daemon was killed after it stored a row and before it created or removed what the row names.
#[tokio::test]
async fn the_next_start_completes_or_undoes_unfinished_volume_operations() {
    let world = World::new().await;
    let engine = world.engine().await;
    let tenant = &world.tenant;
    let (data, gone) = (
        engine.create_volume(tenant, options("data")).await.unwrap(),
        engine.create_volume(tenant, options("gone")).await.unwrap(),
    );
    write(&world, &data, "first").await;
    let snapshot = engine.snapshot_volume(tenant, &data, None).await.unwrap();
    engine.snapshot_volume(tenant, &gone, None).await.unwrap();
    write(&world, &data, "second").await;
    engine.shutdown().await;

    let catalog = &world.catalog;
    catalog.begin_volume_restore(tenant, &data.id, &snapshot.id).await.unwrap();
    catalog.begin_volume_removal(tenant, &gone.id, true).await.unwrap();
    let half = Volume {
        id: burrow_model::VolumeId::generate(),
        name: name("half"),
        state: VolumeState::Making,
        ..data.clone()
    };
    catalog.insert_volume(tenant, half.clone()).await.unwrap();
    world.disks.inner.create((&half.id).into(), None, 1).await.unwrap();
    let stray = burrow_model::VolumeId::generate();
    world.disks.inner.create((&stray).into(), None, 1).await.unwrap();
    let lost = burrow_model::VolumeSnapshotId::generate();
    world.disks.inner.snapshot((&lost).into(), (&stray).into()).await.unwrap();

    world.engine().await;
    assert_consistent(&world, "after a crash").await;
    assert_eq!(read(&world, &data).await, "first", "the restore was completed");
    let left: Vec<_> = catalog.all_volumes().await.unwrap().into_iter().map(|row| row.volume.name).collect();
    assert_eq!(left, [name("data")]);
}

#[tokio::test]
async fn a_failed_create_releases_its_volumes_and_a_volume_has_one_writer() {
    let world = World::new().await;
    let engine = world.engine().await;
    let data = engine.create_volume(&world.tenant, options("data")).await.unwrap();
    let volumes = mounts(&engine, &world, MountMode::Rw).await;
    let wish = |sandbox: Option<&str>| CreateOptions { volumes: volumes.clone(), ..create(sandbox) };
    let (one, two) = tokio::join!(
        engine.create(&world.tenant, wish(Some("one"))),
        engine.create(&world.tenant, wish(Some("two")))
    );
    let writers = [&one, &two].iter().filter(|made| made.is_ok()).count();
    assert_eq!(writers, 1, "{one:?} {two:?}");
    let refused = [one, two].into_iter().find_map(Result::err).unwrap();
    assert!(matches!(refused, EngineError::Catalog(CatalogError::VolumeWritten { .. })), "{refused}");
    let users = engine.users_of_volume(&data.id).await.unwrap();
    engine.delete(&world.tenant, &users[0].sandbox).await.unwrap();

    let mut failed = 0;
    for call in 0..4 {
        let world =
            World::with(Some(Fault { seam: Seam::Runtime, call, fails: FailMode::AfterActing })).await;
        let engine = world.engine().await;
        engine.create_volume(&world.tenant, options("data")).await.unwrap();
        let volumes = mounts(&engine, &world, MountMode::Rw).await;
        let wish = || CreateOptions { volumes: volumes.clone(), ..create(Some("one")) };
        if engine.create(&world.tenant, wish()).await.is_err() {
            failed += 1;
            engine.create(&world.tenant, wish()).await.expect("no sandbox has the volume any more");
        }
    }
    assert!(failed > 0, "no step of a create failed");
}

#[tokio::test]
async fn a_fork_mounts_volumes_read_only_and_a_volume_in_use_is_not_restored() {
    let world = World::new().await;
    let engine = world.engine().await;
    let tenant = &world.tenant;
    let data = engine.create_volume(tenant, options("data")).await.unwrap();
    let snapshot = engine.snapshot_volume(tenant, &data, None).await.unwrap();
    let volumes = mounts(&engine, &world, MountMode::Rw).await;
    let id = engine.create(tenant, CreateOptions { volumes, ..create(None) }).await.unwrap().row.id;
    let fork = ForkOptions { count: 2, names: Vec::new(), files_only: false, labels: None, lifetime: None };
    let forked = engine.fork(tenant, &id, fork).await.unwrap();
    for child in forked.children {
        let row = child.unwrap();
        assert_eq!(row.spec.volumes[0].mode, MountMode::Ro);
        let seen = world.runtime.inner.machine(&row.id).unwrap().mounts;
        assert_eq!((seen.len(), seen[0].mode), (1, MountMode::Ro));
        engine.delete(tenant, &row.id).await.unwrap();
    }
    engine.hibernate(tenant, &id).await.unwrap();
    let refused = engine.restore_volume(tenant, &data, &snapshot).await.unwrap_err();
    assert!(matches!(refused, EngineError::Catalog(CatalogError::VolumeInUse { .. })), "{refused}");
    engine.stop_sandbox(tenant, &id, GRACE).await.unwrap();
    let open = engine.open_volume(tenant, &data.id).await.unwrap();
    let refused = engine.restore_volume(tenant, &data, &snapshot).await.unwrap_err();
    assert!(matches!(refused, EngineError::Catalog(CatalogError::VolumeBusy { .. })), "its files are open");
    drop(open);
    engine.restore_volume(tenant, &data, &snapshot).await.unwrap();
    engine.start_sandbox(tenant, &id).await.unwrap();
    assert_eq!(world.runtime.inner.machine(&id).unwrap().mounts[0].mode, MountMode::Rw);
}
