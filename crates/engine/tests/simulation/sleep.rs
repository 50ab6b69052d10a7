//! Sleep policies, snapshots by policy, rotation, and the errors for clients whose sandbox goes to sleep.

use std::time::Duration;

use burrow_catalog::{PageRequest, SnapshotFilter};
use burrow_egress::Counters;
use burrow_engine::{
    Engine, EngineError, ForkOptions, FromSnapshot, GcAction, GcObject, GcOptions, ObjectKind,
    SnapshotOptions, TreeItem, UpdateOptions,
};
use burrow_guest::protocol::Request;
use burrow_model::{
    Lifetime, NetworkMode, NetworkPolicy, Refusal, RotatePolicy, SandboxId, SleepPolicy, SnapshotId,
    SnapshotKind, SnapshotPolicy, State, StopReason,
};
use burrow_runtime::{Obstacle, RuntimeError};

use crate::world::{World, create, name, no_change};

const MINUTE_MS: u64 = 60_000;

/// Polls for as long as a few rounds of the engine take on a disk that stalls.
pub(crate) async fn eventually(what: &str, look: impl AsyncFn() -> bool) {
    for _ in 0..2_400 {
        if look().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("timed out waiting for {what}");
}

fn tiers() -> SleepPolicy {
    SleepPolicy {
        pause_after_ms: Some(MINUTE_MS),
        hibernate_after_ms: Some(10 * MINUTE_MS),
        stop_after_ms: Some(100 * MINUTE_MS),
        ..SleepPolicy::never()
    }
}

async fn with_policy(world: &World, engine: &Engine, sleep: SleepPolicy) -> SandboxId {
    let options = burrow_engine::CreateOptions { sleep, ..create(Some("alpha")) };
    engine.create(&world.tenant, options).await.unwrap().row.id
}

async fn state(world: &World, id: &SandboxId) -> State {
    world.catalog.sandbox(&world.tenant, id).await.unwrap().unwrap().state
}

fn stuck() -> Obstacle {
    Obstacle { pid: 7, process: "redis".to_owned(), reason: "uses io_uring".to_owned(), passes: false }
}

pub(crate) fn manual(files_only: bool) -> SnapshotOptions {
    SnapshotOptions::automatic(SnapshotKind::Manual, files_only)
}

pub(crate) fn fork(count: usize) -> ForkOptions {
    ForkOptions { count, names: Vec::new(), files_only: false, labels: None, lifetime: None }
}

#[tokio::test]
async fn an_idle_sandbox_sleeps_deeper_with_time_and_wakes_when_used() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = with_policy(&world, &engine, tiers()).await;
    world.runtime.inner.set_ram(&id, "value", "kept");
    for (minutes, expected) in [(2, State::Paused), (10, State::Hibernated)] {
        world.clock.advance(minutes * MINUTE_MS);
        eventually("it to sleep", async || state(&world, &id).await == expected).await;
    }
    engine.guest(&world.tenant, &id).await.unwrap();
    assert_eq!(state(&world, &id).await, State::Running);
    assert_eq!(world.runtime.inner.ram(&id, "value").as_deref(), Some("kept"));

    world.clock.advance(200 * MINUTE_MS);
    eventually("it to stop", async || state(&world, &id).await == State::Stopped).await;
    let row = world.catalog.sandbox(&world.tenant, &id).await.unwrap().unwrap();
    assert_eq!(row.stop_reason, Some(StopReason::Idle));
    // It was stopped because it was idle, and is used now.
    engine.guest(&world.tenant, &id).await.unwrap();
    assert_eq!(state(&world, &id).await, State::Running);
}

#[tokio::test]
async fn statistics_do_not_wake_a_sandbox_that_falls_asleep_meanwhile() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    world.runtime.inner.hold_trials();
    let hibernate = engine.hibernate(&world.tenant, &id);
    let stats = async {
        let is_tried = || world.runtime.inner.machine(&id).unwrap().paused;
        eventually("its trial", async || is_tried()).await;
        let release = async {
            // Until then, the request is queued behind the hibernate.
            tokio::time::sleep(Duration::from_millis(200)).await;
            world.runtime.inner.release_trials();
        };
        tokio::join!(engine.stats(&world.tenant, &id), release).0
    };
    let (hibernated, stats) = tokio::join!(hibernate, stats);
    hibernated.unwrap();
    let (row, stats, ..) = stats.unwrap();
    assert_eq!((row.state, stats.processes), (State::Hibernated, 0));
    assert_eq!(state(&world, &id).await, State::Hibernated);
}

#[tokio::test]
async fn statistics_do_not_start_a_sandbox_that_was_stopped_because_it_was_idle() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = with_policy(&world, &engine, tiers()).await;
    world.clock.advance(200 * MINUTE_MS);
    eventually("it to stop", async || state(&world, &id).await == State::Stopped).await;
    let error = engine.stats(&world.tenant, &id).await.expect_err("it does not run");
    assert!(matches!(error, EngineError::Refused { refusal: Refusal::Stopped, .. }), "{error:?}");
    assert_eq!(state(&world, &id).await, State::Stopped);
}

#[tokio::test]
async fn an_active_sandbox_stays_awake() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = with_policy(&world, &engine, tiers()).await;
    let egress = |bytes| Counters { bytes_out: bytes, ..Counters::default() };
    let mut bytes = 0;
    // Each kind of activity, for longer than the policy waits; in the last round an open stream holds the guest.
    for kind in ["cpu", "traffic", "stream"] {
        let guest = engine.guest(&world.tenant, &id).await.unwrap();
        let held = (kind == "stream").then(|| guest.clone());
        drop(guest);
        for _ in 0..4 {
            match kind {
                "cpu" => assert!(world.runtime.inner.use_cpu(&id, 60_000_000)),
                "traffic" => {
                    bytes += 1;
                    world.egress.inner.set_counters(&id, egress(bytes));
                }
                _ => {}
            }
            world.clock.advance(30_000);
            // At least two rounds have checked it.
            tokio::time::sleep(Duration::from_millis(2300)).await;
            assert_eq!(state(&world, &id).await, State::Running, "{kind}");
        }
        drop(held);
    }
    world.clock.advance(61_000);
    eventually("it to sleep at last", async || state(&world, &id).await == State::Paused).await;
}

#[tokio::test]
async fn processes_that_cannot_be_dumped_are_refused_with_a_reason_and_continue() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = with_policy(&world, &engine, tiers()).await;
    world.runtime.inner.hinder(&id, vec![stuck()]);
    for refused in [
        engine.hibernate(&world.tenant, &id).await.err(),
        engine.snapshot(&world.tenant, &id, manual(false)).await.err(),
        engine.fork(&world.tenant, &id, fork(1)).await.err(),
    ] {
        let error = refused.expect("it is refused");
        assert!(matches!(&error, EngineError::Runtime(RuntimeError::Obstacles { .. })), "{error:?}");
        assert!(error.to_string().contains("`redis` (process 7) uses io_uring"), "{error}");
    }
    assert_eq!(state(&world, &id).await, State::Running);
    assert!(!world.runtime.inner.machine(&id).unwrap().paused);
    engine.snapshot(&world.tenant, &id, manual(true)).await.unwrap();
    // By policy it is paused instead, which only costs RAM, and the hibernate is not repeated at once.
    world.clock.advance(11 * MINUTE_MS);
    eventually("it to sleep", async || state(&world, &id).await == State::Paused).await;
    world.check(&world.rows().await, "after refusals");
    world.check_kept("after refusals").await;
}

#[tokio::test]
async fn processes_that_cannot_be_restored_are_not_hibernated_and_continue() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = with_policy(&world, &engine, tiers()).await;
    world.runtime.inner.refuse_trials("process 7 (`redis`), descriptor 3: bad size");
    let error = engine.hibernate(&world.tenant, &id).await.expect_err("it is refused");
    assert!(matches!(&error, EngineError::Runtime(RuntimeError::TrialFailed { .. })), "{error:?}");
    assert!(error.to_string().contains("process 7 (`redis`), descriptor 3"), "{error}");
    assert!(error.to_string().contains(id.as_str()), "the sandbox is named, not its trial: {error}");
    assert_eq!(state(&world, &id).await, State::Running);
    assert!(!world.runtime.inner.machine(&id).unwrap().paused);
    world.check(&world.rows().await, "after a trial that failed");
    world.check_kept("after a trial that failed").await;
    // By policy it is paused instead.
    world.clock.advance(11 * MINUTE_MS);
    eventually("it to sleep", async || state(&world, &id).await == State::Paused).await;
}

#[tokio::test]
async fn concurrent_callers_wake_a_sandbox_once() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    engine.hibernate(&world.tenant, &id).await.unwrap();
    let before = world.catalog.sandbox(&world.tenant, &id).await.unwrap().unwrap();
    let callers = (0..20).map(|_| engine.guest(&world.tenant, &id));
    for guest in futures_util::future::join_all(callers).await {
        guest.unwrap();
    }
    let after = world.catalog.sandbox(&world.tenant, &id).await.unwrap().unwrap();
    assert_eq!(after.generation, before.generation + 1, "woken once");
    assert_eq!(after.started_ms, before.started_ms, "its processes were started then");
}

#[tokio::test]
async fn streams_end_when_their_sandbox_is_hibernated_or_restored() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    let snapshot = engine.snapshot(&world.tenant, &id, manual(false)).await.unwrap();

    let guest = engine.guest(&world.tenant, &id).await.unwrap();
    let mut stream = guest.open(&Request::Ping).await.unwrap();
    guest.reply::<serde_json::Value>(&mut stream).await.unwrap();
    engine.hibernate(&world.tenant, &id).await.unwrap();
    let error = guest.call::<()>(&Request::Ping).await.unwrap_err();
    assert!(matches!(error, EngineError::Asleep { .. }), "{error:?}");

    let guest = engine.guest(&world.tenant, &id).await.unwrap();
    engine.restore(&world.tenant, &id, &snapshot.id, false).await.unwrap();
    let error = guest.call::<()>(&Request::Ping).await.unwrap_err();
    assert!(matches!(error, EngineError::Replaced { .. }), "{error:?}");
}

#[tokio::test]
async fn policy_snapshots_are_taken_while_a_sandbox_is_active_and_the_oldest_are_removed() {
    let world = World::new().await;
    let engine = world.engine().await;
    let snapshots = Some(SnapshotPolicy { every_ms: MINUTE_MS, keep: 2, files_only: false });
    let options = burrow_engine::CreateOptions { snapshots, ..create(None) };
    let id = engine.create(&world.tenant, options).await.unwrap().row.id;
    let taken = async || world.catalog.snapshots_of(&id).await.unwrap();
    let mut newest = None;
    for round in 1..=4usize {
        world.clock.advance(61_000);
        drop(engine.guest(&world.tenant, &id).await.unwrap());
        eventually("a snapshot", async || taken().await.first().map(|found| found.id.clone()) != newest)
            .await;
        newest = taken().await.first().map(|found| found.id.clone());
        eventually("old ones to be removed", async || taken().await.len() == round.min(2)).await;
    }
    assert!(taken().await.iter().all(|found| found.kind == SnapshotKind::Policy && found.dump.is_some()));
    // Nothing was changed since: no new snapshot is due.
    world.clock.advance(600_000);
    tokio::time::sleep(Duration::from_millis(2300)).await;
    assert_eq!(taken().await.first().map(|found| found.id.clone()), newest);
}

#[tokio::test]
async fn a_rotation_policy_restores_a_sandbox_periodically() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    world.disks.inner.write(&id, "/file", "good").unwrap();
    let expires_ms = Some(engine.now_ms() + MINUTE_MS);
    let options = SnapshotOptions { expires_ms, ..manual(false) };
    let good = engine.snapshot(&world.tenant, &id, options).await.unwrap();
    world.disks.inner.write(&id, "/file", "stale").unwrap();
    let every_ms = 10 * MINUTE_MS;
    let unknown = RotatePolicy { every_ms, snapshot: SnapshotId::generate() };
    let update = UpdateOptions { rotate: Some(Some(unknown.clone())), ..no_change() };
    let error = engine.update(&world.tenant, &id, update).await.unwrap_err();
    assert!(matches!(error, EngineError::NotFound { kind: ObjectKind::Snapshot, .. }), "{error:?}");
    let options = burrow_engine::CreateOptions { rotate: Some(unknown), ..create(None) };
    let error = engine.create(&world.tenant, options).await.unwrap_err();
    assert!(matches!(error, EngineError::NotFound { kind: ObjectKind::Snapshot, .. }), "{error:?}");
    let rotate = Some(Some(RotatePolicy { every_ms, snapshot: good.id.clone() }));
    engine.update(&world.tenant, &id, UpdateOptions { rotate, ..no_change() }).await.unwrap();
    // However old the sandbox is, and although the snapshot has expired: one whole period from now.
    world.clock.advance(9 * MINUTE_MS);
    tokio::time::sleep(Duration::from_millis(2300)).await;
    assert_eq!(world.disks.inner.read(&id, "/file").as_deref(), Some("stale"));
    let error = engine.delete_snapshot(&world.tenant, &good.id).await.unwrap_err();
    assert!(matches!(error, EngineError::SnapshotInUse { .. }), "{error:?}");
    let child = engine.fork(&world.tenant, &id, fork(1)).await.unwrap().children.remove(0).unwrap();
    assert_eq!(child.spec.rotate, None, "a child does not inherit its parent's rotation");
    world.clock.advance(61_000);
    let file = async || world.disks.inner.read(&id, "/file");
    let renewed = async || {
        // A policy that failed is not repeated until it is due again: report the failure instead of waiting.
        let events = world.catalog.events_since(&world.tenant, 0, 1_000).await.unwrap();
        let failed = events.iter().find(|event| event.kind == "policy.failed");
        assert!(failed.is_none(), "{failed:?}");
        file().await.as_deref() == Some("good")
    };
    eventually("it to be restored", renewed).await;
    eventually("it to run", async || state(&world, &id).await == State::Running).await;
    let kept = world.catalog.snapshots_of(&id).await.unwrap();
    assert!(kept.iter().any(|found| found.kind == SnapshotKind::BeforeRotate), "{kept:?}");
}

#[tokio::test]
async fn a_restore_keeps_present_permissions_and_names() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    let set = |value: &str| [("KEY".to_owned(), Some(value.to_owned()))].into();
    engine.update(&world.tenant, &id, UpdateOptions { env: set("then"), ..no_change() }).await.unwrap();
    engine.publish_port(&world.tenant, &id, 80).await.unwrap();
    let snapshot = engine.snapshot(&world.tenant, &id, manual(false)).await.unwrap();
    engine.unpublish_port(&world.tenant, &id, 80).await.unwrap();
    let open = burrow_engine::NetworkChange {
        mode: Some(NetworkMode::None),
        rules: None,
        sets: None,
        add: Vec::new(),
        remove: Vec::new(),
        add_sets: Vec::new(),
        remove_sets: Vec::new(),
        requests: None,
        add_requests: Vec::new(),
        deny: None,
        add_deny: Vec::new(),
        remove_deny: Vec::new(),
        transforms: None,
    };
    let limits =
        burrow_engine::LimitsChange { ram_mib: Some(256), cpu_millis: None, pids: None, disk_mib: None };
    let update = UpdateOptions {
        name: Some(name("beta")),
        network: Some(open),
        env: set("now"),
        limits,
        ..no_change()
    };
    engine.update(&world.tenant, &id, update).await.unwrap();
    let row = engine.restore(&world.tenant, &id, &snapshot.id, false).await.unwrap().row;
    assert_eq!(row.id, id);
    assert_eq!(row.name, Some(name("beta")));
    assert_eq!(row.spec.network.mode, NetworkMode::None);
    assert_eq!(row.spec.limits.ram_mib, 256);
    assert_eq!(row.spec.env.get("KEY").map(String::as_str), Some("then"));
    assert!(engine.catalog().published_ports(&world.tenant, &id).is_empty());
}

#[tokio::test]
async fn children_share_one_moment_and_have_their_own_identities() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("parent"))).await.unwrap().row.id;
    world.disks.inner.write(&id, "/file", "1").unwrap();
    world.runtime.inner.set_ram(&id, "value", "1");
    let options = ForkOptions { names: vec![name("one"), name("two"), name("three")], ..fork(3) };
    let forked = engine.fork(&world.tenant, &id, options).await.unwrap();
    world.runtime.inner.set_ram(&id, "value", "2");
    let parent = engine.get(&world.tenant, &id).await.unwrap();
    let children: Vec<_> = forked.children.into_iter().map(Result::unwrap).collect();
    for child in &children {
        assert_eq!(world.runtime.inner.ram(&child.id, "value").as_deref(), Some("1"));
        assert_eq!(world.disks.inner.read(&child.id, "/file").as_deref(), Some("1"));
        let machine = world.runtime.inner.machine(&child.id).unwrap();
        assert_eq!(machine.introduced, 1, "received its identity before any process ran");
        assert_eq!(machine.hostname, child.name.clone().unwrap().to_string());
        assert!(!machine.paused);
        assert_ne!(child.token, parent.token);
    }
    assert_eq!(world.runtime.inner.ram(&id, "value").as_deref(), Some("2"));
    world.check(&world.rows().await, "after a fork");
    world.check_kept("after a fork").await;

    // Their common snapshot is removed with the last of them, even if the parent is deleted first.
    engine.delete(&world.tenant, &id).await.unwrap();
    for child in &children {
        assert_eq!(world.catalog.all_snapshots().await.unwrap().len(), 1);
        engine.delete(&world.tenant, &child.id).await.unwrap();
    }
    assert!(world.catalog.all_snapshots().await.unwrap().is_empty());
    world.check_kept("after the children").await;
}

#[tokio::test]
async fn a_child_has_its_parents_present_policy_and_a_snapshot_of_a_deleted_sandbox_the_default() {
    let world = World::new().await;
    let engine = world.engine().await;
    let open = NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() };
    let options = burrow_engine::CreateOptions { network: Some(open), ..create(None) };
    let id = engine.create(&world.tenant, options).await.unwrap().row.id;
    let snapshot = engine.snapshot(&world.tenant, &id, manual(false)).await.unwrap();
    let plain = || FromSnapshot {
        name: None,
        files_only: false,
        labels: None,
        lifetime: None,
        change: None,
        idempotency: None,
    };
    let child = engine.create_from_snapshot(&world.tenant, &snapshot.id, plain()).await.unwrap().row;
    assert_eq!(child.spec.network.mode, NetworkMode::Open);
    engine.delete(&world.tenant, &id).await.unwrap();
    let child = engine.create_from_snapshot(&world.tenant, &snapshot.id, plain()).await.unwrap().row;
    assert_eq!(child.spec.network, NetworkPolicy::closed(), "a policy is never restored");
    let lifetime = Some(Lifetime::Ephemeral { expires_ms: None });
    let options = FromSnapshot { lifetime, ..plain() };
    let child = engine.create_from_snapshot(&world.tenant, &snapshot.id, options).await.unwrap().row;
    assert!(child.spec.lifetime.is_ephemeral());
}

#[tokio::test]
async fn a_sandbox_from_a_snapshot_never_runs_without_the_policy_that_was_requested() {
    let world = World::new().await;
    let engine = world.engine().await;
    let open = NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() };
    let options = burrow_engine::CreateOptions { network: Some(open), ..create(None) };
    let id = engine.create(&world.tenant, options).await.unwrap().row.id;
    let snapshot = engine.snapshot(&world.tenant, &id, manual(false)).await.unwrap();
    let network = burrow_engine::NetworkChange {
        mode: Some(NetworkMode::None),
        rules: None,
        sets: None,
        add: Vec::new(),
        remove: Vec::new(),
        add_sets: Vec::new(),
        remove_sets: Vec::new(),
        requests: None,
        add_requests: Vec::new(),
        deny: None,
        add_deny: Vec::new(),
        remove_deny: Vec::new(),
        transforms: None,
    };
    let labels = [("e2b/auto-resume".to_owned(), Some("false".to_owned()))].into();
    let change = Some(Box::new(UpdateOptions { network: Some(network), labels, ..no_change() }));
    let (name, labels, lifetime) = (None, None, None);
    let options = FromSnapshot { name, files_only: false, labels, lifetime, change, idempotency: None };
    let child = engine.create_from_snapshot(&world.tenant, &snapshot.id, options).await.unwrap().row;
    assert_eq!(child.spec.network.mode, NetworkMode::None);
    assert_eq!(child.spec.labels.get("e2b/auto-resume").map(String::as_str), Some("false"));
    assert_eq!(world.egress.inner.policy(&child.id).unwrap().mode(), NetworkMode::None);
    // Nothing was changed after its processes began to run.
    let events = world.catalog.events_since(&world.tenant, 0, 1_000).await.unwrap();
    assert!(events.iter().all(|event| event.kind != "sandbox.updated"), "{events:?}");
}

#[tokio::test]
async fn the_tree_shows_the_origin_of_sandboxes_and_snapshots() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("parent"))).await.unwrap().row.id;
    world.clock.advance(1);
    engine.snapshot(&world.tenant, &id, manual(true)).await.unwrap();
    world.clock.advance(1);
    engine.fork(&world.tenant, &id, fork(2)).await.unwrap();
    let nodes = engine.tree(&world.tenant).await.unwrap();
    let shown: Vec<_> = nodes
        .iter()
        .map(|node| {
            let what = match &node.what {
                TreeItem::Sandbox(_) => "sandbox",
                TreeItem::Snapshot(snapshot) => snapshot.kind.as_str(),
            };
            (what, node.parent)
        })
        .collect();
    let expected = [
        ("sandbox", None),
        ("manual", Some(0)),
        ("fork", Some(0)),
        ("sandbox", Some(2)),
        ("sandbox", Some(2)),
    ];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn stale_items_are_reported_and_only_automatic_ones_are_removed() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("old"))).await.unwrap().row.id;
    let by_hand = engine.snapshot(&world.tenant, &id, manual(true)).await.unwrap();
    let restored = engine.restore(&world.tenant, &id, &by_hand.id, true).await.unwrap();
    engine.hibernate(&world.tenant, &id).await.unwrap();
    world.clock.advance(40 * 24 * 60 * MINUTE_MS);
    let options = GcOptions { apply: false, unused_for_ms: 30 * 24 * 60 * MINUTE_MS };
    let actions = |report: &burrow_engine::GcReport| {
        let mut shown: Vec<_> = report
            .items
            .iter()
            .filter(|item| item.thing != GcObject::Image)
            .map(|item| (item.id.clone(), item.action.clone()))
            .collect();
        shown.sort_by(|a, b| a.0.cmp(&b.0));
        shown
    };
    let report = engine.gc(&world.tenant, options).await.unwrap();
    let expected = [(id.to_string(), GcAction::Kept), (restored.undo.id.to_string(), GcAction::WouldRemove)];
    assert_eq!(actions(&report), expected);
    let report = engine.gc(&world.tenant, GcOptions { apply: true, ..options }).await.unwrap();
    assert_eq!(actions(&report)[1].1, GcAction::Removed);
    let page = PageRequest { cursor: None, limit: 10 };
    let filter = SnapshotFilter { sandbox: None, labels: Vec::new(), kinds: Vec::new() };
    let left = engine.snapshots(&world.tenant, filter, page).await.unwrap();
    assert_eq!(left.rows.into_iter().map(|found| found.id).collect::<Vec<_>>(), [by_hand.id]);
    world.check_kept("after a clean-up").await;
}

#[tokio::test]
async fn an_expired_snapshot_is_removed() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    let expires_ms = Some(engine.now_ms() + MINUTE_MS);
    let options = SnapshotOptions { expires_ms, ..manual(false) };
    engine.snapshot(&world.tenant, &id, options).await.unwrap();
    world.clock.advance(61_000);
    eventually("it to be removed", async || world.catalog.all_snapshots().await.unwrap().is_empty()).await;
    world.check_kept("after it expired").await;
}

#[tokio::test]
async fn children_of_a_sleeping_parent_use_its_dump_only_while_they_start() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    world.runtime.inner.set_ram(&id, "value", "1");
    engine.hibernate(&world.tenant, &id).await.unwrap();
    // The parent wakes, and so removes its dump, while the children are created from it.
    let (forked, woken) =
        tokio::join!(engine.fork(&world.tenant, &id, fork(4)), engine.wake(&world.tenant, &id));
    woken.unwrap();
    for child in forked.unwrap().children {
        assert_eq!(world.runtime.inner.ram(&child.unwrap().id, "value").as_deref(), Some("1"));
    }
    world.check_kept("after a fork of a sleeping sandbox").await;
    assert_eq!(world.runtime.inner.ram(&id, "value").as_deref(), Some("1"));
}

#[tokio::test]
async fn a_start_removes_unfinished_snapshots_of_deleted_sandboxes() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    let forked = engine.fork(&world.tenant, &id, fork(1)).await.unwrap();
    let child = forked.children.into_iter().next().unwrap().unwrap();
    let base = world.catalog.snapshot(&world.tenant, &forked.base).await.unwrap().unwrap();
    // As if the daemon had died while a snapshot was being sealed whose sandbox was then deleted, and while a child was being undone.
    let making = burrow_model::Snapshot { id: burrow_model::SnapshotId::generate(), name: None, ..base };
    let detail = burrow_engine::journal::Detail { snapshot: Some(making.id.clone()), ..Default::default() };
    let gone = SandboxId::generate();
    let operation = burrow_engine::journal::Operation::Snapshot.row(&world.tenant, &gone, &detail, 1);
    let row = burrow_catalog::SnapshotRow { tenant: world.tenant.clone(), snapshot: making, ready: false };
    world.catalog.begin_snapshot(row, operation).await.unwrap();
    world.runtime.inner.end(&child.id);
    engine.shutdown().await;
    world.catalog.delete_sandbox(&child.id, None, 1).await.unwrap();
    world.engine().await;
    assert!(world.catalog.all_snapshots().await.unwrap().is_empty());
    assert_eq!(world.catalog.open_operations().await.unwrap(), []);
    world.check_kept("after the start").await;
}
