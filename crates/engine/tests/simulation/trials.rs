//! Trial restores: what is not known to be restorable costs no running process.

use std::time::Duration;

use burrow_disks::Disks as _;
use burrow_engine::{CreateOptions, EngineError, MountRequest, RestoreFailure, VolumeOptions};
use burrow_model::{MountMode, SandboxId, SleepPolicy, SnapshotKind, State};
use burrow_runtime::{Obstacle, RuntimeError};

use crate::sleep::{eventually, manual};
use crate::world::{World, create, name};

const REASON: &str = "process 7 (`redis`), descriptor 3: bad size";

/// The simulated kernel at first.
const SAME_KERNEL: &str = "simulated-kernel-1";

async fn state(world: &World, id: &SandboxId) -> State {
    world.catalog.sandbox(&world.tenant, id).await.unwrap().unwrap().state
}

fn is_paused(world: &World, id: &SandboxId) -> bool {
    world.runtime.inner.machine(id).unwrap().paused
}

async fn has_event(world: &World, kind: &str) -> bool {
    let events = world.catalog.events_since(&world.tenant, 0, 1_000).await.unwrap();
    events.iter().any(|event| event.kind == kind)
}

/// It runs as if nothing had been requested, and nothing is left of the attempt.
async fn check_unchanged(world: &World, id: &SandboxId, context: &str) {
    assert_eq!(state(world, id).await, State::Running, "{context}");
    assert!(!is_paused(world, id), "{context}");
    world.check(&world.rows().await, context);
    world.check_kept(context).await;
    assert_eq!(world.catalog.open_operations().await.unwrap(), [], "{context}");
}

fn traced() -> Vec<Obstacle> {
    let (process, reason) = ("gdb".to_owned(), "is being traced".to_owned());
    vec![Obstacle { pid: 7, process, reason, passes: false }]
}

#[tokio::test]
async fn a_trial_that_is_interrupted_is_repeated_once() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    world.runtime.inner.cut_trials(2);
    let error = engine.hibernate(&world.tenant, &id).await.expect_err("it was interrupted twice");
    assert!(matches!(&error, EngineError::TrialCut { .. }), "{error:?}");
    assert!(error.to_string().contains("CRIU was killed"), "{error}");
    check_unchanged(&world, &id, "after two interruptions").await;
    world.runtime.inner.cut_trials(1);
    engine.hibernate(&world.tenant, &id).await.unwrap();
    world.check_kept("after one interruption").await;
}

#[tokio::test]
async fn slow_trials_do_not_delay_other_sandboxes() {
    let world = World::new().await;
    let engine = world.engine().await;
    let mut ids = Vec::new();
    for kind in ["known", "first", "second", "third"] {
        let id = engine.create(&world.tenant, create(Some(kind))).await.unwrap().row.id;
        assert!(world.runtime.inner.set_ram(&id, kind, "1"));
        ids.push(id);
    }
    engine.hibernate(&world.tenant, &ids[0]).await.unwrap();
    engine.wake(&world.tenant, &ids[0]).await.unwrap();
    world.runtime.inner.hold_trials();
    let slow = ids[1..3].iter().map(|id| engine.hibernate(&world.tenant, id));
    let others = async {
        for id in &ids[1..3] {
            eventually("it to be tried", async || is_paused(&world, id)).await;
        }
        // Its kinds were restored before.
        engine.hibernate(&world.tenant, &ids[0]).await.unwrap();
        // It cannot be tried now, so it continues to run instead of waiting frozen.
        let began = std::time::Instant::now();
        let error = engine.hibernate(&world.tenant, &ids[3]).await.expect_err("it cannot be tried");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(matches!(&error, EngineError::TrialBusy { .. }), "{error:?}");
        assert_eq!(state(&world, &ids[3]).await, State::Running);
        assert!(!is_paused(&world, &ids[3]));
        world.runtime.inner.release_trials();
    };
    let (slow, ()) = tokio::join!(futures_util::future::join_all(slow), others);
    for hibernated in slow {
        hibernated.unwrap();
    }
    engine.hibernate(&world.tenant, &ids[3]).await.unwrap();
    world.check_kept("after slow trials").await;
}

#[tokio::test]
async fn without_ram_for_a_trial_a_sandbox_is_hibernated_only_on_request() {
    let world = World::new().await;
    let engine = world.engine().await;
    let sleep = SleepPolicy { hibernate_after_ms: Some(60_000), ..SleepPolicy::never() };
    let options = CreateOptions { sleep, ..create(None) };
    let id = engine.create(&world.tenant, options).await.unwrap().row.id;
    world.runtime.inner.set_no_room(true);
    let error = engine.hibernate(&world.tenant, &id).await.expect_err("it is not known to be restorable");
    assert!(matches!(&error, EngineError::Runtime(RuntimeError::NoRoomForTrial { .. })), "{error:?}");
    assert!(error.to_string().contains(id.as_str()), "the sandbox is named, not its trial: {error}");
    check_unchanged(&world, &id, "without RAM for a trial").await;
    // By policy, its RAM is kept.
    world.clock.advance(61_000);
    eventually("it to sleep", async || state(&world, &id).await == State::Paused).await;
    eventually("the event", async || has_event(&world, "sandbox.hibernate-refused").await).await;
    engine.hibernate_untried(&world.tenant, &id).await.unwrap();
    eventually("the event", async || has_event(&world, "sandbox.hibernate-untried").await).await;
    engine.wake(&world.tenant, &id).await.unwrap();
    world.check(&world.rows().await, "after an untried hibernate");
}

/// A second daemon on this host, whose driver was opened again. Without RAM for a trial, only known kinds are hibernated.
async fn is_known_after_a_restart(world: &World, kernel: &str) -> bool {
    world.runtime.inner.reopen(kernel);
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    assert!(world.runtime.inner.set_ram(&id, "kind", "1"));
    world.runtime.inner.set_no_room(true);
    let hibernated = engine.hibernate(&world.tenant, &id).await;
    world.runtime.inner.set_no_room(false);
    engine.delete(&world.tenant, &id).await.unwrap();
    engine.shutdown().await;
    match hibernated {
        Ok(_) => true,
        Err(EngineError::Runtime(RuntimeError::NoRoomForTrial { .. })) => false,
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn kinds_that_were_restored_are_remembered_across_restarts() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    assert!(world.runtime.inner.set_ram(&id, "kind", "1"));
    engine.hibernate(&world.tenant, &id).await.unwrap();
    engine.shutdown().await;
    assert!(is_known_after_a_restart(&world, SAME_KERNEL).await);
    assert!(!is_known_after_a_restart(&world, "another kernel").await, "trials on another kernel count");
    assert!(is_known_after_a_restart(&world, SAME_KERNEL).await, "a failed trial removed the record");
    let record = world.catalog.restored_kinds("sim").await.unwrap().unwrap();
    for damaged in [String::new(), "[]".to_owned(), record[..record.len() / 2].to_owned()] {
        world.catalog.set_restored_kinds("sim", damaged.clone()).await.unwrap();
        assert!(!is_known_after_a_restart(&world, SAME_KERNEL).await, "{damaged:?}");
    }
}

#[tokio::test]
async fn kinds_of_a_restore_that_failed_are_tried_again() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    assert!(world.runtime.inner.set_ram(&id, "kind", "1"));
    engine.hibernate(&world.tenant, &id).await.unwrap();
    world.runtime.inner.fail_restores(1);
    engine.wake(&world.tenant, &id).await.expect_err("a test made it fail");
    engine.shutdown().await;
    assert!(!is_known_after_a_restart(&world, SAME_KERNEL).await);
}

#[tokio::test]
async fn an_untried_hibernate_still_refuses_what_cannot_be_restored() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    world.runtime.inner.refuse_trials(REASON);
    let error = engine.hibernate_untried(&world.tenant, &id).await.expect_err("a trial failed");
    assert!(matches!(&error, EngineError::Runtime(RuntimeError::TrialFailed { .. })), "{error:?}");
    check_unchanged(&world, &id, "after a trial failed").await;
}

#[tokio::test]
async fn a_trial_writes_to_copies_of_volumes() {
    let world = World::new().await;
    let engine = world.engine().await;
    let options = VolumeOptions { name: name("data"), disk_mib: 64, from: None };
    let data = engine.create_volume(&world.tenant, options).await.unwrap();
    let wish =
        MountRequest { volume: "data".to_owned(), path: "/data".parse().unwrap(), mode: MountMode::Rw };
    let volumes = engine.find_mounts(&world.tenant, vec![wish]).await.unwrap();
    let options = CreateOptions { volumes, ..create(None) };
    let id = engine.create(&world.tenant, options).await.unwrap().row.id;
    let own = world.runtime.inner.machine(&id).unwrap().mounts;
    world.runtime.inner.refuse_trials(REASON);
    engine.hibernate(&world.tenant, &id).await.expect_err("a trial failed");
    let inventory = async || {
        let found = world.disks.inner.inventory().await.unwrap();
        (found.volumes, found.volume_snapshots)
    };
    assert_eq!(inventory().await, (vec![data.id.clone()], Vec::new()));
    world.runtime.inner.allow_trials();
    engine.hibernate(&world.tenant, &id).await.unwrap();
    let tried = world.runtime.inner.trial_mounts();
    assert_eq!((tried.len(), tried[0].len()), (1, 1));
    assert_eq!((&tried[0][0].target, tried[0][0].mode), (&own[0].target, MountMode::Rw));
    assert_ne!(tried[0][0].source, own[0].source, "a trial has written to the volume itself");
    assert_eq!(inventory().await, (vec![data.id], Vec::new()));
    engine.wake(&world.tenant, &id).await.unwrap();
    assert_eq!(world.runtime.inner.machine(&id).unwrap().mounts, own);
}

/// A sandbox whose snapshot holds "then", and that itself holds "now".
async fn changed_since(
    world: &World,
    engine: &burrow_engine::Engine,
) -> (SandboxId, burrow_model::SnapshotId) {
    let id = engine.create(&world.tenant, create(None)).await.unwrap().row.id;
    let put = |value: &str| {
        world.disks.inner.write(&id, "/file", value).unwrap();
        assert!(world.runtime.inner.set_ram(&id, "value", value));
    };
    put("then");
    let snapshot = engine.snapshot(&world.tenant, &id, manual(false)).await.unwrap().id;
    put("now");
    (id, snapshot)
}

fn holds(world: &World, id: &SandboxId, value: &str) -> bool {
    let ram = world.runtime.inner.ram(id, "value");
    let file = world.disks.inner.read(id, "/file");
    ram.as_deref() == Some(value) && file.as_deref() == Some(value)
}

#[tokio::test]
async fn a_restore_in_place_ends_no_process_for_processes_that_cannot_be_restored() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (id, snapshot) = changed_since(&world, &engine).await;
    let machine = world.runtime.inner.machine(&id).unwrap().machine;
    world.runtime.inner.refuse_trials(REASON);
    let error = engine.restore(&world.tenant, &id, &snapshot, false).await.expect_err("a trial failed");
    assert!(matches!(&error, EngineError::Restore(RestoreFailure::Refused { .. })), "{error:?}");
    assert!(error.to_string().contains(REASON), "{error}");
    check_unchanged(&world, &id, "after a restore was refused").await;
    assert_eq!(world.runtime.inner.machine(&id).unwrap().machine, machine, "its machine was replaced");
    assert!(holds(&world, &id, "now"));
    // Of the files only, it is restored.
    engine.restore(&world.tenant, &id, &snapshot, true).await.unwrap();
    assert_eq!(world.disks.inner.read(&id, "/file").as_deref(), Some("then"));
    eventually("the event", async || has_event(&world, "sandbox.undo-without-processes").await).await;
}

#[tokio::test]
async fn a_restore_that_fails_after_its_trial_returns_to_the_state_before() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (id, snapshot) = changed_since(&world, &engine).await;
    world.runtime.inner.fail_restores(1);
    let error = engine.restore(&world.tenant, &id, &snapshot, false).await.expect_err("the restore failed");
    assert!(matches!(&error, EngineError::Restore(RestoreFailure::Undone { .. })), "{error:?}");
    assert_eq!(state(&world, &id).await, State::Running);
    assert!(holds(&world, &id, "now"), "its processes are lost");
    // If that fails too, they are in a dump, and the next use restores them.
    world.runtime.inner.fail_restores(2);
    let restored = engine.restore(&world.tenant, &id, &snapshot, false).await;
    let error = restored.expect_err("both restores failed");
    assert!(matches!(&error, EngineError::Restore(RestoreFailure::NotUndone { .. })), "{error:?}");
    assert_eq!(state(&world, &id).await, State::Hibernated);
    eventually("the event", async || has_event(&world, "sandbox.restore-not-undone").await).await;
    engine.guest(&world.tenant, &id).await.unwrap();
    assert!(holds(&world, &id, "now"), "its processes are lost");
    world.check(&world.rows().await, "after failed restores");
    world.check_kept("after failed restores").await;
}

#[tokio::test]
async fn processes_that_cannot_be_dumped_end_only_for_processes_that_a_trial_restored() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (id, snapshot) = changed_since(&world, &engine).await;
    // Its kinds are known from here on.
    engine.hibernate(&world.tenant, &id).await.unwrap();
    engine.wake(&world.tenant, &id).await.unwrap();
    world.runtime.inner.hinder(&id, traced());
    world.runtime.inner.refuse_trials(REASON);
    let error = engine.restore(&world.tenant, &id, &snapshot, false).await.expect_err("a trial failed");
    assert!(matches!(&error, EngineError::Restore(RestoreFailure::Refused { .. })), "{error:?}");
    check_unchanged(&world, &id, "after a restore was refused").await;
    world.runtime.inner.allow_trials();
    let restored = engine.restore(&world.tenant, &id, &snapshot, false).await.unwrap();
    assert!(holds(&world, &id, "then"));
    assert_eq!(restored.undo.kind, SnapshotKind::BeforeRestore);
    assert_eq!(restored.undo.dump, None);
    eventually("the event", async || has_event(&world, "sandbox.undo-without-processes").await).await;
}

#[tokio::test]
async fn without_ram_for_a_trial_nothing_is_restored_in_place_but_files() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (id, snapshot) = changed_since(&world, &engine).await;
    world.runtime.inner.set_no_room(true);
    let error = engine.restore(&world.tenant, &id, &snapshot, false).await.expect_err("neither can be tried");
    assert!(matches!(&error, EngineError::Runtime(RuntimeError::NoRoomForTrial { .. })), "{error:?}");
    check_unchanged(&world, &id, "after a restore was refused").await;
    let restored = engine.restore(&world.tenant, &id, &snapshot, true).await.unwrap();
    assert!(restored.undo.dump.is_some(), "the processes are kept, though they could not be tried");
    eventually("the event", async || has_event(&world, "sandbox.undo-untried").await).await;
}

#[tokio::test]
async fn without_ram_for_a_trial_a_rollback_continues_but_not_after_a_failed_trial() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (id, snapshot) = changed_since(&world, &engine).await;
    world.runtime.inner.refuse_trials(REASON);
    let error = engine.restore_untried(&world.tenant, &id, &snapshot).await.expect_err("a trial failed");
    assert!(matches!(&error, EngineError::Restore(RestoreFailure::Refused { .. })), "{error:?}");
    check_unchanged(&world, &id, "after a rollback was refused").await;
    world.runtime.inner.allow_trials();
    world.runtime.inner.set_no_room(true);
    let restored = engine.restore_untried(&world.tenant, &id, &snapshot).await.unwrap();
    assert!(holds(&world, &id, "then"));
    assert!(restored.undo.dump.is_some(), "the processes are kept, though they could not be tried");
    eventually("the event", async || has_event(&world, "sandbox.undo-untried").await).await;
}

#[tokio::test]
async fn interrupted_trials_cost_no_process() {
    let world = World::new().await;
    let engine = world.engine().await;
    let (id, snapshot) = changed_since(&world, &engine).await;
    // Twice for the snapshot and twice for the present processes.
    world.runtime.inner.cut_trials(4);
    let error = engine.restore(&world.tenant, &id, &snapshot, false).await.expect_err("neither was tried");
    assert!(matches!(&error, EngineError::TrialCut { .. }), "{error:?}");
    check_unchanged(&world, &id, "after four interruptions").await;
    assert!(holds(&world, &id, "now"));
    // Of the files only: no trial of the snapshot, so both interruptions are of the trial of the present processes.
    world.runtime.inner.cut_trials(2);
    let restored = engine.restore(&world.tenant, &id, &snapshot, true).await.unwrap();
    assert!(restored.undo.dump.is_some(), "the processes are kept, though they could not be tried");
    eventually("the event", async || has_event(&world, "sandbox.undo-untried").await).await;
    engine.restore(&world.tenant, &id, &restored.undo.id, false).await.unwrap();
    assert!(holds(&world, &id, "now"), "its processes are lost");
}
