//! The warm pool: pre-created sandboxes are used, replaced, given up, and never left behind.

use std::collections::BTreeSet;
use std::time::Duration;

use burrow_catalog::Idempotency;
use burrow_disks::Disks as _;
use burrow_engine::{CreateOptions, Engine, EngineError};
use burrow_model::{Limits, SandboxId, State};

use crate::world::{FAILS_ONCE, Fault, Seam, World, create, limits};

const READY: usize = 2;

/// Far more polls than are ever needed.
const LOOKS_MAX: usize = 4000;

async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if look().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("timed out waiting for {what}");
}

async fn full(engine: &Engine) {
    until("a full warm pool", async || engine.warm_ready() == READY).await;
}

/// Every resource on the host belongs to a sandbox or to the warm pool, and pre-created sandboxes are complete.
async fn check(world: &World, context: &str) {
    let warm = world.warm().await;
    let rows = world.rows().await;
    let known: BTreeSet<SandboxId> = rows.keys().chain(&warm).cloned().collect();
    let disks = world.disks.inner.inventory().await.unwrap().sandboxes;
    assert_eq!(disks.into_iter().collect::<BTreeSet<_>>(), known, "volumes, {context}");
    let machines: BTreeSet<SandboxId> = world.runtime.inner.live().into_iter().collect();
    assert_eq!(machines, known, "machines, {context}");
    let networks: BTreeSet<SandboxId> = world.network.inner.live().into_iter().collect();
    assert_eq!(networks, known, "networks, {context}");
}

#[tokio::test]
async fn a_create_takes_a_pre_created_sandbox_which_is_replaced() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    let precreated = world.warm().await;
    check(&world, "full").await;

    let row = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row;
    assert!(precreated.contains(&row.id), "it was not taken from the warm pool");
    assert_eq!(row.state, State::Running);
    assert!(!world.warm().await.contains(&row.id));
    let machine = world.runtime.inner.machine(&row.id).unwrap();
    assert_eq!(machine.hostname, "alpha");
    assert!(!machine.boot_document.is_empty());

    full(&engine).await;
    check(&world, "full again").await;
    engine.shutdown().await;
    assert_eq!(world.warm().await, BTreeSet::new());
    world.check(&world.rows().await, "after an orderly shutdown");
}

#[tokio::test]
async fn the_next_start_removes_the_warm_pool_of_a_killed_daemon() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    // It is not shut down: all its resources stay.
    drop(engine);
    assert_eq!(world.warm().await.len(), READY);
    check(&world, "after the crash").await;
    let _engine = world.engine().await;
    assert_eq!(world.warm().await, BTreeSet::new());
    world.check(&world.rows().await, "after the next start");
}

#[tokio::test]
async fn a_start_removes_an_earlier_warm_pool_and_keeps_its_own() {
    let mut world = World::new().await;
    world.start_patience = Duration::ZERO;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    let row = engine.create(&world.tenant, create(Some("kept"))).await.unwrap().row;
    full(&engine).await;
    drop(engine);
    let before = world.warm().await;
    let engine = world.hasty_engine(READY).await;
    let made = engine.create(&world.tenant, create(None)).await.unwrap().row;
    engine.started().await;
    full(&engine).await;
    assert!(world.warm().await.is_disjoint(&before));
    let rows = world.rows().await;
    assert!(rows[&row.id].state == State::Running && rows[&made.id].state == State::Running);
    check(&world, "after the next start").await;
    engine.shutdown().await;
    world.check(&world.rows().await, "after the end");
}

#[tokio::test]
async fn concurrent_creates_get_one_sandbox_each() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    let creates = (0..20).map(|_| {
        let (engine, tenant) = (engine.clone(), world.tenant.clone());
        tokio::spawn(async move { engine.create(&tenant, create(None)).await.unwrap().row.id })
    });
    let ids: Vec<_> = futures_util::future::join_all(creates).await;
    let ids: BTreeSet<SandboxId> = ids.into_iter().map(Result::unwrap).collect();
    assert_eq!(ids.len(), 20);
    full(&engine).await;
    check(&world, "after 20 creates").await;
    engine.shutdown().await;
    world.check(&world.rows().await, "after the end");
}

#[tokio::test]
async fn a_refused_create_leaves_nothing_of_a_pre_created_sandbox() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    let key = Idempotency::of("once", b"body");
    let options = CreateOptions { idempotency: Some(key), ..create(None) };
    let first = engine.create(&world.tenant, options.clone()).await.unwrap();
    let again = engine.create(&world.tenant, options).await.unwrap();
    assert_eq!((first.fresh, again.fresh, &first.row.id), (true, false, &again.row.id));
    engine.create(&world.tenant, create(Some("alpha"))).await.unwrap();
    let taken = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap_err();
    assert!(matches!(taken, EngineError::NameTaken { .. }), "{taken}");
    full(&engine).await;
    check(&world, "after a repeat and a refusal").await;
    engine.shutdown().await;
    world.check(&world.rows().await, "after the end");
}

#[tokio::test]
async fn sandboxes_with_other_limits_are_pre_created_from_their_second_use() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    let precreated = world.warm().await;
    let small = CreateOptions { limits: Limits { ram_mib: 64, ..limits() }, ..create(None) };
    for _ in 0..2 {
        let row = engine.create(&world.tenant, small.clone()).await.unwrap().row;
        assert!(!precreated.contains(&row.id), "it has other limits");
        assert_eq!(world.runtime.inner.machine(&row.id).unwrap().limits.ram_mib, 64);
    }
    until("warm sandboxes of both kinds", async || engine.warm_ready() == 2 * READY).await;
    let precreated = world.warm().await;
    let row = engine.create(&world.tenant, small).await.unwrap().row;
    assert!(precreated.contains(&row.id), "the second kind is not used");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_warm_machine_that_died_costs_only_time() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    for id in world.warm().await {
        world.runtime.inner.end(&id);
    }
    let row = engine.create(&world.tenant, create(None)).await.unwrap().row;
    assert_eq!(row.state, State::Running);
    assert!(world.runtime.inner.live().contains(&row.id));
    engine.shutdown().await;
    world.check(&world.rows().await, "after the end");
}

#[tokio::test]
async fn removing_an_image_removes_its_warm_sandboxes() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    let image = world.catalog.all_warm().await.unwrap()[0].image.clone();
    engine.forget_warm_of(&image).await;
    assert_eq!((engine.warm_ready(), world.warm().await.len()), (0, 0));
    world.check(&world.rows().await, "after the image's end");
    engine.shutdown().await;
}

/// One run with one fault. Returns whether the fault occurred.
async fn walk(fault: Fault) -> bool {
    let context = format!("{fault:?}");
    let world = World::with(Some(fault)).await;
    let engine = match world.try_engine_with(READY).await {
        Ok(engine) => engine,
        Err(_) => world.try_engine_with(READY).await.unwrap(),
    };
    full(&engine).await;
    // If a pre-created sandbox fails, the create does not fail: it creates a new one.
    let _ = engine.create(&world.tenant, create(Some("alpha"))).await;
    full(&engine).await;
    engine.shutdown().await;
    let met = match fault.seam {
        Seam::Disks => world.disks.has_failed(),
        Seam::Network => world.network.has_failed(),
        Seam::Runtime => world.runtime.has_failed(),
        Seam::Egress => world.egress.has_failed(),
    };
    // What could not be removed is still named by a row.
    let known: BTreeSet<SandboxId> = world.rows().await.into_keys().chain(world.warm().await).collect();
    for id in world.disks.inner.inventory().await.unwrap().sandboxes {
        assert!(known.contains(&id), "no row names {id}, {context}");
    }
    let _engine = world.engine().await;
    assert_eq!(world.warm().await, BTreeSet::new(), "{context}");
    world.check(&world.rows().await, &context);
    met
}

#[tokio::test]
async fn a_failure_at_any_step_of_the_warm_pool_leaves_nothing_behind() {
    let mut met = 0;
    for seam in [Seam::Disks, Seam::Network, Seam::Runtime] {
        for fails in FAILS_ONCE {
            for call in 0.. {
                if !walk(Fault { seam, call, fails }).await {
                    break; // There was no further call to fail.
                }
                met += 1;
            }
        }
    }
    assert!(met > 30, "only {met} faults occurred");
}
