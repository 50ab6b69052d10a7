//! What is made ahead: taken, made again, given up, and never left behind.

use std::collections::BTreeSet;
use std::time::Duration;

use burrow_catalog::Idempotency;
use burrow_engine::{CreateOptions, Engine, EngineError};
use burrow_model::{Limits, SandboxId, State};
use burrow_volumes::Volumes as _;

use crate::world::{FAILS_ONCE, Fault, Seam, World, create, limits};

const READY: usize = 2;

/// Far more than it ever takes.
const LOOKS_MAX: usize = 4000;

async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if look().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited in vain for {what}");
}

async fn full(engine: &Engine) {
    until("a full stock", async || engine.stock_ready() == READY).await;
}

/// Everything on the host belongs to a sandbox or is in stock, and what is in stock is whole.
async fn check(world: &World, context: &str) {
    let stocked = world.stocked().await;
    let rows = world.rows().await;
    let known: BTreeSet<SandboxId> = rows.keys().chain(&stocked).cloned().collect();
    let volumes = world.volumes.inner.inventory().await.unwrap().sandboxes;
    assert_eq!(volumes.into_iter().collect::<BTreeSet<_>>(), known, "volumes, {context}");
    let machines: BTreeSet<SandboxId> = world.runtime.inner.live().into_iter().collect();
    assert_eq!(machines, known, "machines, {context}");
    let networks: BTreeSet<SandboxId> = world.network.inner.live().into_iter().collect();
    assert_eq!(networks, known, "networks, {context}");
}

#[tokio::test]
async fn a_create_takes_what_was_made_ahead_and_another_takes_its_place() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    let ahead = world.stocked().await;
    check(&world, "full").await;

    let row = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row;
    assert!(ahead.contains(&row.id), "it was made anew");
    assert_eq!(row.state, State::Running);
    assert!(!world.stocked().await.contains(&row.id));
    let machine = world.runtime.inner.machine(&row.id).unwrap();
    assert_eq!(machine.hostname, "alpha");
    assert!(!machine.boot_document.is_empty());

    full(&engine).await;
    check(&world, "full again").await;
    engine.shutdown().await;
    assert_eq!(world.stocked().await, BTreeSet::new());
    world.check(&world.rows().await, "after an orderly end");
}

#[tokio::test]
async fn what_a_dead_daemon_had_in_stock_is_removed_by_the_next() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    // Nobody tells it to end: all that it made stays.
    drop(engine);
    assert_eq!(world.stocked().await.len(), READY);
    check(&world, "after the crash").await;
    let _engine = world.engine().await;
    assert_eq!(world.stocked().await, BTreeSet::new());
    world.check(&world.rows().await, "after the next start");
}

#[tokio::test]
async fn many_creates_at_once_get_one_each_whatever_is_ready() {
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
async fn a_create_that_is_refused_leaves_nothing_of_what_it_took() {
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
async fn other_limits_are_made_ahead_from_their_second_use_on() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    let ahead = world.stocked().await;
    let small = CreateOptions { limits: Limits { ram_mib: 64, ..limits() }, ..create(None) };
    for _ in 0..2 {
        let row = engine.create(&world.tenant, small.clone()).await.unwrap().row;
        assert!(!ahead.contains(&row.id), "it was made with other limits");
        assert_eq!(world.runtime.inner.machine(&row.id).unwrap().limits.ram_mib, 64);
    }
    until("stock of both kinds", async || engine.stock_ready() == 2 * READY).await;
    let ahead = world.stocked().await;
    let row = engine.create(&world.tenant, small).await.unwrap().row;
    assert!(ahead.contains(&row.id), "the second kind is not used");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_machine_that_died_in_stock_costs_time_and_nothing_else() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    for id in world.stocked().await {
        world.runtime.inner.end(&id);
    }
    let row = engine.create(&world.tenant, create(None)).await.unwrap().row;
    assert_eq!(row.state, State::Running);
    assert!(world.runtime.inner.live().contains(&row.id));
    engine.shutdown().await;
    world.check(&world.rows().await, "after the end");
}

#[tokio::test]
async fn an_image_that_goes_takes_its_stock_along() {
    let world = World::new().await;
    let engine = world.try_engine_with(READY).await.unwrap();
    full(&engine).await;
    let image = world.catalog.all_stock().await.unwrap()[0].image.clone();
    engine.forget_stock_of(&image).await;
    assert_eq!((engine.stock_ready(), world.stocked().await.len()), (0, 0));
    world.check(&world.rows().await, "after the image's end");
    engine.shutdown().await;
}

/// One run with one fault. Returns whether the fault was met.
async fn walk(fault: Fault) -> bool {
    let context = format!("{fault:?}");
    let world = World::with(Some(fault)).await;
    let engine = match world.try_engine_with(READY).await {
        Ok(engine) => engine,
        Err(_) => world.try_engine_with(READY).await.unwrap(),
    };
    full(&engine).await;
    // A failure of what was made ahead is not a failure of the create, which then makes its own.
    let _ = engine.create(&world.tenant, create(Some("alpha"))).await;
    full(&engine).await;
    engine.shutdown().await;
    let met = match fault.seam {
        Seam::Volumes => world.volumes.has_failed(),
        Seam::Network => world.network.has_failed(),
        Seam::Runtime => world.runtime.has_failed(),
        Seam::Egress => world.egress.has_failed(),
    };
    // What could not be removed is still named.
    let known: BTreeSet<SandboxId> = world.rows().await.into_keys().chain(world.stocked().await).collect();
    for id in world.volumes.inner.inventory().await.unwrap().sandboxes {
        assert!(known.contains(&id), "{id} is named by nothing, {context}");
    }
    let _engine = world.engine().await;
    assert_eq!(world.stocked().await, BTreeSet::new(), "{context}");
    world.check(&world.rows().await, &context);
    met
}

#[tokio::test]
async fn a_failure_at_any_step_into_stock_or_out_of_it_leaves_nothing_behind() {
    let mut met = 0;
    for seam in [Seam::Volumes, Seam::Network, Seam::Runtime] {
        for fails in FAILS_ONCE {
            for call in 0.. {
                if !walk(Fault { seam, call, fails }).await {
                    break; // No call is left to fail.
                }
                met += 1;
            }
        }
    }
    assert!(met > 30, "the walk met only {met} faults");
}
