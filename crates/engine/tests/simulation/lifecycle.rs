//! The behaviour of sandboxes, in single scenarios.

use std::collections::BTreeSet;

use burrow_catalog::{Idempotency, PageRequest};
use burrow_engine::{EngineError, LimitsChange, ObjectKind, UpdateOptions};
use burrow_model::{Lifetime, Refusal, SleepPolicy, State, StopReason, TenantId};

use crate::world::{GRACE, World, create, no_change};

#[tokio::test]
async fn concurrent_creates_of_one_name_share_one_sandbox() {
    let world = World::new().await;
    let engine = world.engine().await;
    let mut options = create(Some("shared"));
    options.if_not_exists = true;
    let creates = (0..20).map(|_| {
        let (engine, tenant, options) = (engine.clone(), world.tenant.clone(), options.clone());
        tokio::spawn(async move { engine.create(&tenant, options).await.unwrap() })
    });
    let mut ids = BTreeSet::new();
    let mut fresh = 0;
    for created in futures_util::future::join_all(creates).await {
        let created = created.unwrap();
        assert_eq!(created.row.state, State::Running);
        fresh += usize::from(created.fresh);
        ids.insert(created.row.id);
    }
    assert_eq!((ids.len(), fresh), (1, 1));
    world.check(&world.rows().await, "after 20 creates of one name");
}

#[tokio::test]
async fn a_stopped_or_paused_sandbox_is_woken_by_create_if_not_exists() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("shared"))).await.unwrap().row.id;
    let mut options = create(Some("shared"));
    options.if_not_exists = true;
    engine.stop_sandbox(&world.tenant, &id, GRACE).await.unwrap();
    let woken = engine.create(&world.tenant, options.clone()).await.unwrap();
    assert_eq!((woken.row.id.clone(), woken.row.state, woken.fresh), (id.clone(), State::Running, false));
    engine.pause(&world.tenant, &id).await.unwrap();
    let woken = engine.create(&world.tenant, options).await.unwrap();
    assert_eq!((woken.row.id, woken.row.state), (id, State::Running));
}

#[tokio::test]
async fn a_taken_name_is_refused_and_its_owner_is_named() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    let error = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap_err();
    assert!(matches!(error, EngineError::NameTaken { existing, .. } if existing == id));
    world.check(&world.rows().await, "after a refused create");
}

#[tokio::test]
async fn the_same_idempotency_key_creates_one_sandbox_even_across_a_restart() {
    let world = World::new().await;
    let engine = world.engine().await;
    let mut options = create(None);
    options.idempotency = Some(Idempotency::of("k1", b"body"));
    let first = engine.create(&world.tenant, options.clone()).await.unwrap();
    let again = engine.create(&world.tenant, options.clone()).await.unwrap();
    assert_eq!((again.row.id, again.fresh), (first.row.id.clone(), false));
    engine.shutdown().await;
    let engine = world.engine().await;
    let after = engine.create(&world.tenant, options.clone()).await.unwrap();
    assert_eq!((after.row.id, after.fresh), (first.row.id, false));
    options.idempotency = Some(Idempotency::of("k1", b"another body"));
    let error = engine.create(&world.tenant, options).await.unwrap_err();
    assert!(
        matches!(error, EngineError::Catalog(burrow_catalog::CatalogError::IdempotencyMismatch)),
        "{error}"
    );
}

#[tokio::test]
async fn a_restarted_daemon_adopts_running_sandboxes() {
    let world = World::new().await;
    let engine = world.engine().await;
    let running = engine.create(&world.tenant, create(Some("running"))).await.unwrap().row;
    let paused = engine.create(&world.tenant, create(Some("paused"))).await.unwrap().row;
    engine.pause(&world.tenant, &paused.id).await.unwrap();
    let before = world.runtime.inner.machine(&running.id).unwrap();
    engine.shutdown().await;

    let engine = world.engine().await;
    assert_eq!(world.runtime.inner.machine(&running.id).unwrap(), before, "the machine was not touched");
    assert_eq!(engine.get(&world.tenant, &running.id).await.unwrap().state, State::Running);
    assert!(world.runtime.inner.machine(&paused.id).unwrap().paused);
    engine.guest(&world.tenant, &paused.id).await.unwrap();
    assert!(!world.runtime.inner.machine(&paused.id).unwrap().paused, "using it wakes it");
}

#[tokio::test]
async fn after_a_reboot_persistent_sandboxes_are_stopped_and_ephemeral_ones_removed() {
    let world = World::new().await;
    let engine = world.engine().await;
    let kept = engine.create(&world.tenant, create(Some("kept"))).await.unwrap().row.id;
    let mut ephemeral = create(Some("fleeting"));
    ephemeral.lifetime = Lifetime::Ephemeral { expires_ms: None };
    engine.create(&world.tenant, ephemeral).await.unwrap();
    engine.shutdown().await;
    world.runtime.inner.reboot_host();

    let engine = world.engine().await;
    let rows = world.rows().await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), [&kept]);
    assert_eq!(rows[&kept].state, State::Stopped);
    assert_eq!(rows[&kept].stop_reason, Some(StopReason::HostRestarted));
    world.check(&rows, "after a reboot");
    assert_eq!(engine.start_sandbox(&world.tenant, &kept).await.unwrap().state, State::Running);
}

#[tokio::test]
async fn the_end_of_a_machine_is_detected() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    world.runtime.inner.end(&id);
    let row = eventually(|| async {
        let row = engine.get(&world.tenant, &id).await.unwrap();
        (row.state == State::Stopped).then_some(row)
    })
    .await;
    assert_eq!(row.stop_reason, Some(StopReason::GuestExited));
    world.check(&world.rows().await, "after a machine ended");
}

#[tokio::test]
async fn an_ephemeral_sandbox_is_removed_when_it_stops() {
    let world = World::new().await;
    let engine = world.engine().await;
    let mut options = create(Some("fleeting"));
    options.lifetime = Lifetime::Ephemeral { expires_ms: None };
    let stopped = engine.create(&world.tenant, options.clone()).await.unwrap().row.id;
    engine.stop_sandbox(&world.tenant, &stopped, GRACE).await.unwrap();
    assert!(world.rows().await.is_empty());
    let ended = engine.create(&world.tenant, options).await.unwrap().row.id;
    world.runtime.inner.end(&ended);
    eventually(|| async { world.rows().await.is_empty().then_some(()) }).await;
    world.check(&world.rows().await, "after two ephemeral lives");
}

#[tokio::test(start_paused = true)]
async fn an_expired_sandbox_is_deleted_in_every_state() {
    let world = World::new().await;
    let engine = world.engine().await;
    let now = engine.now_ms();
    let mut options = create(Some("brief"));
    options.lifetime = Lifetime::Persistent { expires_ms: Some(now + 5_000) };
    let id = engine.create(&world.tenant, options).await.unwrap().row.id;
    engine.stop_sandbox(&world.tenant, &id, GRACE).await.unwrap();
    world.clock.advance(4_999);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(world.rows().await.len(), 1, "not a moment early");
    world.clock.advance(1);
    eventually(|| async { world.rows().await.is_empty().then_some(()) }).await;
}

#[tokio::test]
async fn a_sandbox_of_another_tenant_answers_like_an_unknown_one() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    let stranger = TenantId::generate();
    for error in [
        engine.get(&stranger, &id).await.unwrap_err(),
        engine.delete(&stranger, &id).await.unwrap_err(),
        engine.guest(&stranger, &id).await.unwrap_err(),
        engine.resolve(&stranger, "alpha").await.unwrap_err(),
    ] {
        assert!(matches!(error, EngineError::NotFound { kind: ObjectKind::Sandbox, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_use_starts_a_stopped_sandbox_unless_its_policy_refuses_this() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    engine.stop_sandbox(&world.tenant, &id, GRACE).await.unwrap();

    // Information, and uses of processes that no longer exist, do not start it.
    engine.execs(&world.tenant, &id, PageRequest { cursor: None, limit: 10 }).await.unwrap();
    engine.services(&world.tenant, &id).await.unwrap();
    engine.ports(&world.tenant, &id).await.unwrap();
    let refused =
        |error: EngineError| matches!(error, EngineError::Refused { refusal: Refusal::Stopped, .. });
    assert!(refused(engine.guest_with_processes(&world.tenant, &id).await.unwrap_err()));
    assert!(refused(engine.guest_if_awake(&world.tenant, &id).await.unwrap_err()));
    assert_eq!(engine.get(&world.tenant, &id).await.unwrap().state, State::Stopped);

    engine.guest(&world.tenant, &id).await.unwrap();
    assert_eq!(engine.get(&world.tenant, &id).await.unwrap().state, State::Running);

    engine.stop_sandbox(&world.tenant, &id, GRACE).await.unwrap();
    let sleep = SleepPolicy { start_on_use: false, ..SleepPolicy::never() };
    let update = UpdateOptions { sleep: Some(sleep), ..no_change() };
    engine.update(&world.tenant, &id, update).await.unwrap();
    assert!(refused(engine.guest(&world.tenant, &id).await.unwrap_err()));
    engine.start_sandbox(&world.tenant, &id).await.unwrap();
    engine.guest(&world.tenant, &id).await.unwrap();
}

#[tokio::test]
async fn limits_change_while_running_and_hold_after_a_restart() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    let limits = LimitsChange { ram_mib: Some(256), cpu_millis: None, pids: Some(99), disk_mib: Some(512) };
    engine.update(&world.tenant, &id, UpdateOptions { limits, ..no_change() }).await.unwrap();
    let machine = world.runtime.inner.machine(&id).unwrap();
    assert_eq!((machine.limits.ram_mib, machine.limits.pids), (256, 99));
    assert_eq!(world.disks.inner.limit(&id), Some(512 << 20));
    let too_much = LimitsChange { ram_mib: Some(100_000), ..limits };
    let error = engine
        .update(&world.tenant, &id, UpdateOptions { limits: too_much, ..no_change() })
        .await
        .unwrap_err();
    assert!(matches!(error, EngineError::LimitAboveMax { field: "ram_mib", .. }), "{error}");
    let engine = world.engine().await;
    assert_eq!(engine.get(&world.tenant, &id).await.unwrap().spec.limits.pids, 99);
}

#[tokio::test]
async fn twenty_creates_and_deletes_at_once_leave_nothing_behind() {
    let world = World::new().await;
    let engine = world.engine().await;
    let lives = (0..20).map(|_| {
        let (engine, tenant) = (engine.clone(), world.tenant.clone());
        tokio::spawn(async move {
            let id = engine.create(&tenant, create(None)).await.unwrap().row.id;
            engine.delete(&tenant, &id).await.unwrap();
        })
    });
    for life in futures_util::future::join_all(lives).await {
        life.unwrap();
    }
    assert!(world.rows().await.is_empty());
    world.check(&world.rows().await, "after 20 lives");
}

/// Polls, and lets other tasks run.
async fn eventually<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> T {
    for _ in 0..10_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("timed out");
}
