//! Rate limits are set whenever a sandbox is up, however it was started.

use burrow_engine::{CreateOptions, EngineError, ForkOptions, RatesChange, SnapshotOptions, UpdateOptions};
use burrow_model::{Rates, SandboxId, SnapshotKind};

use crate::sleep::{eventually, fork};
use crate::world::{FAILS_ONCE, Fault, GRACE, Seam, World, create, no_change, rates};

fn change(disk: Option<Option<u32>>, network: Option<Option<u32>>) -> UpdateOptions {
    let rates = RatesChange { disk_mib_per_second: disk, network_mib_per_second: network };
    UpdateOptions { rates, ..no_change() }
}

/// The rates that the drivers enforce for a sandbox.
fn in_force(world: &World, id: &SandboxId) -> Rates {
    let mib = |bytes: u64| u32::try_from(bytes >> 20).unwrap();
    Rates {
        disk_mib_per_second: world.runtime.inner.machine(id).unwrap().disk_rate.map(mib),
        network_mib_per_second: world.network.inner.rate(id).map(|rate| mib(rate.bytes_per_second)),
    }
}

#[tokio::test]
async fn rates_apply_from_the_start_change_live_and_apply_to_every_new_machine() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    assert_eq!(in_force(&world, &id), rates());
    engine.update(&world.tenant, &id, change(None, Some(Some(3)))).await.unwrap();
    let changed = Rates { network_mib_per_second: Some(3), ..rates() };
    assert_eq!(in_force(&world, &id), changed);

    engine.pause(&world.tenant, &id).await.unwrap();
    engine.update(&world.tenant, &id, change(Some(Some(7)), None)).await.unwrap();
    let changed = Rates { disk_mib_per_second: Some(7), ..changed };
    engine.resume(&world.tenant, &id).await.unwrap();
    assert_eq!(in_force(&world, &id), changed);

    engine.stop_sandbox(&world.tenant, &id, GRACE).await.unwrap();
    engine.update(&world.tenant, &id, change(None, Some(Some(4)))).await.unwrap();
    let changed = Rates { network_mib_per_second: Some(4), ..changed };
    engine.start_sandbox(&world.tenant, &id).await.unwrap();
    assert_eq!(in_force(&world, &id), changed, "after a start");

    engine.hibernate(&world.tenant, &id).await.unwrap();
    engine.start_sandbox(&world.tenant, &id).await.unwrap();
    assert_eq!(in_force(&world, &id), changed, "after a wake");

    engine.update(&world.tenant, &id, change(Some(None), Some(None))).await.unwrap();
    assert_eq!(in_force(&world, &id), Rates::unlimited());
    assert_eq!(engine.get(&world.tenant, &id).await.unwrap().spec.rates, Rates::unlimited());
}

#[tokio::test]
async fn a_child_has_its_parents_rates_and_a_restore_keeps_the_present_ones() {
    let world = World::new().await;
    let engine = world.engine().await;
    let tenant = &world.tenant;
    let id = engine.create(tenant, create(None)).await.unwrap().row.id;
    let manual = SnapshotOptions::automatic(SnapshotKind::Manual, false);
    let snapshot = engine.snapshot(tenant, &id, manual).await.unwrap();
    engine.update(tenant, &id, change(None, Some(None))).await.unwrap();
    let now = Rates { network_mib_per_second: None, ..rates() };
    for files_only in [false, true] {
        let forked = engine.fork(tenant, &id, ForkOptions { files_only, ..fork(1) }).await.unwrap();
        let child = forked.children.into_iter().next().unwrap().unwrap();
        assert_eq!(in_force(&world, &child.id), now, "files only: {files_only}");
    }
    engine.restore(tenant, &id, &snapshot.id, false).await.unwrap();
    assert_eq!(in_force(&world, &id), now);
}

#[tokio::test]
async fn invalid_rates_are_refused_and_change_nothing() {
    let world = World::new().await;
    let engine = world.engine().await;
    let nothing = Rates { disk_mib_per_second: Some(0), ..rates() };
    let refused = engine.create(&world.tenant, CreateOptions { rates: nothing, ..create(None) }).await;
    assert!(matches!(refused, Err(EngineError::Limits(_))), "{refused:?}");
    assert!(world.rows().await.is_empty());
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    let refused = engine.update(&world.tenant, &id, change(None, Some(Some(9_000)))).await.unwrap_err();
    assert!(matches!(refused, EngineError::Limits(_)), "{refused}");
    assert_eq!(in_force(&world, &id), rates());
}

#[tokio::test]
async fn a_pre_created_sandbox_gets_the_rates_of_its_create() {
    let world = World::new().await;
    let engine = world.try_engine_with(2).await.unwrap();
    // The first create has a kind that is not in the warm pool yet.
    for count in 0..4 {
        if count > 0 {
            eventually("a pre-created sandbox", async || engine.warm_ready() > 0).await;
        }
        let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
        assert_eq!(in_force(&world, &id), rates());
    }
    engine.shutdown().await;
}

/// An update that fails halfway leaves the previous rates, in the drivers and in the row.
#[tokio::test]
async fn a_failed_change_is_undone() {
    let mut failed = 0;
    for seam in [Seam::Network, Seam::Runtime] {
        for call in 0..20 {
            for fails in FAILS_ONCE {
                let world = World::with(Some(Fault { seam, call, fails })).await;
                let Ok(engine) = world.try_engine().await else { continue };
                let Ok(created) = engine.create(&world.tenant, create(None)).await else { continue };
                let id = created.row.id;
                let asked = Rates { disk_mib_per_second: None, network_mib_per_second: Some(3) };
                let updated = engine.update(&world.tenant, &id, change(Some(None), Some(Some(3)))).await;
                let wanted = if updated.is_ok() { asked } else { rates() };
                failed += u32::from(updated.is_err());
                assert_eq!(in_force(&world, &id), wanted, "{seam:?} {call} {fails:?}");
                assert_eq!(engine.get(&world.tenant, &id).await.unwrap().spec.rates, wanted);
            }
        }
    }
    assert!(failed > 0, "no fault occurred in an update");
}
