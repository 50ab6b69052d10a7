//! Volumes that outlive sandboxes: a failure at every step, a crash at every step, and never two writers.

use burrow_catalog::CatalogError;
use burrow_engine::{CreateOptions, Engine, EngineError, ForkOptions, MountWish, ShelfOptions};
use burrow_model::{Fails, MountMode, Shelf, ShelfMount, ShelfState};
use burrow_volumes::Volumes as _;

use crate::world::{FAILS_ONCE, Fault, GRACE, Seam, World, create, name};

fn options(text: &str) -> ShelfOptions {
    ShelfOptions { name: name(text), disk_mib: 64, from: None }
}

async fn write(world: &World, shelf: &Shelf, content: &str) {
    let root = world.volumes.inner.locate_shelf(&shelf.id).await.unwrap();
    std::fs::write(root.join("file"), content).unwrap();
}

async fn read(world: &World, shelf: &Shelf) -> String {
    let root = world.volumes.inner.locate_shelf(&shelf.id).await.unwrap();
    std::fs::read_to_string(root.join("file")).unwrap()
}

async fn mounts(engine: &Engine, world: &World, mode: MountMode) -> Vec<ShelfMount> {
    let wish = MountWish { volume: "data".to_owned(), path: "/data".parse().unwrap(), mode };
    engine.find_mounts(&world.tenant, vec![wish]).await.unwrap()
}

/// Invariant 2, of volumes: the pool holds exactly what the catalog says, and nothing is under way.
async fn assert_in_order(world: &World, context: &str) {
    let found = world.volumes.inner.inventory().await.unwrap();
    let rows = world.catalog.all_shelves().await.unwrap();
    let known: Vec<_> = rows.iter().map(|row| row.shelf.id.clone()).collect();
    assert!(rows.iter().all(|row| row.shelf.state == ShelfState::Ready), "{context}: {rows:?}");
    let mut shelves = known.clone();
    shelves.sort();
    assert_eq!(found.shelves, shelves, "{context}");
    let rows = world.catalog.all_shelf_snapshots().await.unwrap();
    assert!(rows.iter().all(|row| row.ready), "{context}: {rows:?}");
    let mut snapshots: Vec<_> = rows.into_iter().map(|row| row.snapshot.id).collect();
    snapshots.sort();
    assert_eq!(found.shelf_snapshots, snapshots, "{context}");
}

/// Everything that is done to a volume, one after the other, until something fails.
async fn live(engine: &Engine, world: &World) -> Result<(), EngineError> {
    let tenant = &world.tenant;
    let data = engine.create_shelf(tenant, options("data")).await?;
    write(world, &data, "first").await;
    let snapshot = engine.snapshot_shelf(tenant, &data, Some(name("good"))).await?;
    write(world, &data, "second").await;
    let from = Some(snapshot.id.clone());
    let copy = engine.create_shelf(tenant, ShelfOptions { from, ..options("copy") }).await?;
    assert_eq!(read(world, &copy).await, "first");
    engine.restore_shelf(tenant, &data, &snapshot).await?;
    assert_eq!(read(world, &data).await, "first");
    let passing = engine.snapshot_shelf(tenant, &copy, None).await?;
    engine.delete_shelf_snapshot(tenant, &passing).await?;
    engine.delete_shelf(tenant, &copy, false).await?;
    engine.delete_shelf(tenant, &data, true).await
}

#[tokio::test]
async fn a_failure_at_any_step_of_a_volumes_life_leaves_the_host_in_order() {
    for fails in FAILS_ONCE {
        for call in 0.. {
            let world = World::with(Some(Fault { seam: Seam::Volumes, call, fails })).await;
            let engine = world.engine().await;
            let lived = live(&engine, &world).await;
            let context = format!("call {call}, {fails:?}");
            if !world.volumes.has_failed() {
                lived.unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(call > 5, "every step was walked: {call}");
                assert_in_order(&world, &context).await;
                break;
            }
            // What could not be undone or completed at once is, at the next start.
            engine.shutdown().await;
            let engine = world.engine().await;
            assert_in_order(&world, &context).await;
            for row in world.catalog.all_shelves().await.unwrap() {
                engine.delete_shelf(&world.tenant, &row.shelf, true).await.unwrap();
            }
            live(&engine, &world).await.unwrap_or_else(|error| panic!("once more, {context}: {error}"));
        }
    }
}

/// As a daemon that was killed between a row and what it names leaves it.
#[tokio::test]
async fn the_next_start_completes_or_undoes_what_a_row_says() {
    let world = World::new().await;
    let engine = world.engine().await;
    let tenant = &world.tenant;
    let (data, gone) = (
        engine.create_shelf(tenant, options("data")).await.unwrap(),
        engine.create_shelf(tenant, options("gone")).await.unwrap(),
    );
    write(&world, &data, "first").await;
    let snapshot = engine.snapshot_shelf(tenant, &data, None).await.unwrap();
    engine.snapshot_shelf(tenant, &gone, None).await.unwrap();
    write(&world, &data, "second").await;
    engine.shutdown().await;

    let catalog = &world.catalog;
    catalog.begin_shelf_restore(tenant, &data.id, &snapshot.id).await.unwrap();
    catalog.begin_shelf_removal(tenant, &gone.id, true).await.unwrap();
    let half = Shelf {
        id: burrow_model::ShelfId::generate(),
        name: name("half"),
        state: ShelfState::Making,
        ..data.clone()
    };
    catalog.insert_shelf(tenant, half.clone()).await.unwrap();
    world.volumes.inner.create_shelf(&half.id, None, 1).await.unwrap();
    let stray = burrow_model::ShelfId::generate();
    world.volumes.inner.create_shelf(&stray, None, 1).await.unwrap();
    let lost = burrow_model::ShelfSnapshotId::generate();
    world.volumes.inner.snapshot_shelf(&lost, &stray).await.unwrap();

    world.engine().await;
    assert_in_order(&world, "after a crash").await;
    assert_eq!(read(&world, &data).await, "first", "it went on going back");
    let left: Vec<_> = catalog.all_shelves().await.unwrap().into_iter().map(|row| row.shelf.name).collect();
    assert_eq!(left, [name("data")]);
}

#[tokio::test]
async fn a_create_that_fails_gives_the_volume_back_and_two_at_once_do_not_both_write() {
    let world = World::new().await;
    let engine = world.engine().await;
    let data = engine.create_shelf(&world.tenant, options("data")).await.unwrap();
    let volumes = mounts(&engine, &world, MountMode::Rw).await;
    let wish = |sandbox: Option<&str>| CreateOptions { volumes: volumes.clone(), ..create(sandbox) };
    let (one, two) = tokio::join!(
        engine.create(&world.tenant, wish(Some("one"))),
        engine.create(&world.tenant, wish(Some("two")))
    );
    let writers = [&one, &two].iter().filter(|made| made.is_ok()).count();
    assert_eq!(writers, 1, "{one:?} {two:?}");
    let refused = [one, two].into_iter().find_map(Result::err).unwrap();
    assert!(matches!(refused, EngineError::Catalog(CatalogError::ShelfWritten { .. })), "{refused}");
    let users = engine.users_of_shelf(&data.id).await.unwrap();
    engine.delete(&world.tenant, &users[0].sandbox).await.unwrap();

    let mut failed = 0;
    for call in 0..4 {
        let world = World::with(Some(Fault { seam: Seam::Runtime, call, fails: Fails::AfterActing })).await;
        let engine = world.engine().await;
        engine.create_shelf(&world.tenant, options("data")).await.unwrap();
        let volumes = mounts(&engine, &world, MountMode::Rw).await;
        let wish = || CreateOptions { volumes: volumes.clone(), ..create(Some("one")) };
        if engine.create(&world.tenant, wish()).await.is_err() {
            failed += 1;
            engine.create(&world.tenant, wish()).await.expect("nobody has it any more");
        }
    }
    assert!(failed > 0, "no step of a create failed");
}

#[tokio::test]
async fn a_fork_reads_what_its_parent_writes_and_a_volume_goes_back_under_nobody() {
    let world = World::new().await;
    let engine = world.engine().await;
    let tenant = &world.tenant;
    let data = engine.create_shelf(tenant, options("data")).await.unwrap();
    let snapshot = engine.snapshot_shelf(tenant, &data, None).await.unwrap();
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
    let refused = engine.restore_shelf(tenant, &data, &snapshot).await.unwrap_err();
    assert!(matches!(refused, EngineError::Catalog(CatalogError::ShelfInUse { .. })), "{refused}");
    engine.stop_sandbox(tenant, &id, GRACE).await.unwrap();
    let open = engine.open_shelf(tenant, &data.id).await.unwrap();
    let refused = engine.restore_shelf(tenant, &data, &snapshot).await.unwrap_err();
    assert!(matches!(refused, EngineError::Catalog(CatalogError::ShelfBusy { .. })), "its files are open");
    drop(open);
    engine.restore_shelf(tenant, &data, &snapshot).await.unwrap();
    engine.start_sandbox(tenant, &id).await.unwrap();
    assert_eq!(world.runtime.inner.machine(&id).unwrap().mounts[0].mode, MountMode::Rw);
}
