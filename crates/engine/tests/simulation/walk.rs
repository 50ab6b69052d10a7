//! Tests one failure at every step of every operation, both before and after the step has acted.

use burrow_engine::{Engine, ForkOptions, FromSnapshot, SnapshotOptions};
use burrow_model::{FailMode, SandboxId, SnapshotId, SnapshotKind, State};

use crate::world::{FAILS_ONCE, Fault, GRACE, Seam, World, create};

#[derive(Clone, Copy, Debug)]
enum LifecycleAction {
    Create,
    Start,
    Stop,
    Delete,
    Pause,
    Resume,
    Hibernate,
    Wake,
    Snapshot,
    SnapshotAsleep,
    Restore,
    RestoreAsleep,
    Fork,
    ForkAsleep,
    FromSnapshot,
    DeleteSnapshot,
    StopAsleep,
    DeleteAsleep,
}

const ACTS: [LifecycleAction; 18] = [
    LifecycleAction::Create,
    LifecycleAction::Start,
    LifecycleAction::Stop,
    LifecycleAction::Delete,
    LifecycleAction::Pause,
    LifecycleAction::Resume,
    LifecycleAction::Hibernate,
    LifecycleAction::Wake,
    LifecycleAction::Snapshot,
    LifecycleAction::SnapshotAsleep,
    LifecycleAction::Restore,
    LifecycleAction::RestoreAsleep,
    LifecycleAction::Fork,
    LifecycleAction::ForkAsleep,
    LifecycleAction::FromSnapshot,
    LifecycleAction::DeleteSnapshot,
    LifecycleAction::StopAsleep,
    LifecycleAction::DeleteAsleep,
];

const SEAMS: [Seam; 4] = [Seam::Disks, Seam::Network, Seam::Egress, Seam::Runtime];

impl LifecycleAction {
    /// Whether the sandbox's state must be kept, whatever failed.
    fn keeps_state(self) -> bool {
        match self {
            Self::Hibernate
            | Self::Wake
            | Self::Pause
            | Self::Resume
            | Self::Snapshot
            | Self::SnapshotAsleep
            | Self::Fork
            | Self::ForkAsleep
            | Self::FromSnapshot
            | Self::DeleteSnapshot => true,
            Self::Create
            | Self::Start
            | Self::Stop
            | Self::Delete
            | Self::StopAsleep
            | Self::DeleteAsleep => false,
            // Tested separately: its state is the one before or after.
            Self::Restore | Self::RestoreAsleep => false,
        }
    }
}

/// Brings a sandbox into the state in which the operation begins.
async fn prepare(engine: &Engine, world: &World, act: LifecycleAction) -> Option<SandboxId> {
    if matches!(act, LifecycleAction::Create) {
        return None;
    }
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.ok()?.row.id;
    match act {
        LifecycleAction::Start => drop(engine.stop_sandbox(&world.tenant, &id, GRACE).await.ok()?),
        LifecycleAction::Resume => drop(engine.pause(&world.tenant, &id).await.ok()?),
        LifecycleAction::Create
        | LifecycleAction::Stop
        | LifecycleAction::Delete
        | LifecycleAction::Pause => {}
        LifecycleAction::Hibernate
        | LifecycleAction::Wake
        | LifecycleAction::Snapshot
        | LifecycleAction::SnapshotAsleep
        | LifecycleAction::Restore
        | LifecycleAction::RestoreAsleep
        | LifecycleAction::Fork
        | LifecycleAction::ForkAsleep
        | LifecycleAction::FromSnapshot
        | LifecycleAction::DeleteSnapshot
        | LifecycleAction::StopAsleep
        | LifecycleAction::DeleteAsleep => prepare_state(engine, world, act, &id).await?,
    }
    Some(id)
}

/// State "1" is in its only snapshot, state "2" is its present state.
async fn prepare_state(engine: &Engine, world: &World, act: LifecycleAction, id: &SandboxId) -> Option<()> {
    let tenant = &world.tenant;
    put(engine, world, id, "1").await;
    if matches!(
        act,
        LifecycleAction::Restore
            | LifecycleAction::RestoreAsleep
            | LifecycleAction::FromSnapshot
            | LifecycleAction::DeleteSnapshot
    ) {
        engine.snapshot(tenant, id, manual()).await.ok()?;
    }
    put(engine, world, id, "2").await;
    let asleep = [
        LifecycleAction::Wake,
        LifecycleAction::SnapshotAsleep,
        LifecycleAction::RestoreAsleep,
        LifecycleAction::ForkAsleep,
        LifecycleAction::StopAsleep,
        LifecycleAction::DeleteAsleep,
    ];
    if asleep.iter().any(|asleep| *asleep as u8 == act as u8) {
        engine.hibernate(tenant, id).await.ok()?;
    }
    Some(())
}

fn manual() -> SnapshotOptions {
    SnapshotOptions::automatic(SnapshotKind::Manual, false)
}

async fn put(engine: &Engine, world: &World, id: &SandboxId, value: &str) {
    world.remember(engine, id, value).await;
    world.disks.inner.write(id, "/file", value).unwrap();
    assert!(world.runtime.inner.set_ram(id, "value", value));
}

async fn only_snapshot(world: &World) -> Option<SnapshotId> {
    let all = world.catalog.all_snapshots().await.unwrap();
    all.into_iter().find(|row| row.snapshot.kind == SnapshotKind::Manual).map(|row| row.snapshot.id)
}

async fn perform(engine: &Engine, world: &World, act: LifecycleAction, id: Option<SandboxId>) -> bool {
    let tenant = &world.tenant;
    match (act, id) {
        (LifecycleAction::Create, _) => engine.create(tenant, create(Some("alpha"))).await.is_ok(),
        (LifecycleAction::Start, Some(id)) => engine.start_sandbox(tenant, &id).await.is_ok(),
        (LifecycleAction::Stop | LifecycleAction::StopAsleep, Some(id)) => {
            engine.stop_sandbox(tenant, &id, GRACE).await.is_ok()
        }
        (LifecycleAction::Delete, Some(id)) => engine.delete(tenant, &id).await.is_ok(),
        (LifecycleAction::Pause, Some(id)) => engine.pause(tenant, &id).await.is_ok(),
        (LifecycleAction::Resume, Some(id)) => engine.resume(tenant, &id).await.is_ok(),
        (LifecycleAction::Hibernate, Some(id)) => engine.hibernate(tenant, &id).await.is_ok(),
        (LifecycleAction::Wake, Some(id)) => engine.wake(tenant, &id).await.is_ok(),
        (LifecycleAction::Snapshot | LifecycleAction::SnapshotAsleep, Some(id)) => {
            engine.snapshot(tenant, &id, manual()).await.is_ok()
        }
        (LifecycleAction::Restore | LifecycleAction::RestoreAsleep, Some(id)) => {
            match only_snapshot(world).await {
                Some(snapshot) => engine.restore(tenant, &id, &snapshot, false).await.is_ok(),
                None => false,
            }
        }
        (LifecycleAction::Fork | LifecycleAction::ForkAsleep, Some(id)) => {
            engine.fork(tenant, &id, two()).await.is_ok()
        }
        (LifecycleAction::FromSnapshot, Some(_)) => match only_snapshot(world).await {
            Some(snapshot) => engine.create_from_snapshot(tenant, &snapshot, plain()).await.is_ok(),
            None => false,
        },
        (LifecycleAction::DeleteSnapshot, Some(_)) => match only_snapshot(world).await {
            Some(snapshot) => engine.delete_snapshot(tenant, &snapshot).await.is_ok(),
            None => false,
        },
        (LifecycleAction::DeleteAsleep, Some(id)) => engine.delete(tenant, &id).await.is_ok(),
        (_, None) => false,
    }
}

fn two() -> ForkOptions {
    ForkOptions { count: 2, names: Vec::new(), files_only: false, labels: None, lifetime: None }
}

fn plain() -> FromSnapshot {
    FromSnapshot {
        name: None,
        files_only: false,
        labels: None,
        lifetime: None,
        change: None,
        idempotency: None,
    }
}

/// The state of a sandbox, once it is awake: its file, and its RAM if that was kept.
async fn held(engine: &Engine, world: &World, id: &SandboxId) -> (Option<String>, Option<String>) {
    engine.wake(&world.tenant, id).await.expect("it wakes");
    (world.disks.inner.read(id, "/file"), world.runtime.inner.ram(id, "value"))
}

/// Nothing is lost, and nothing is mixed: file, RAM and memory are of the same moment.
async fn check_state(engine: &Engine, world: &World, act: LifecycleAction, alpha: &SandboxId, context: &str) {
    let two = (Some("2".to_owned()), Some("2".to_owned()));
    for row in world.rows().await.into_values() {
        let (file, ram) = held(engine, world, &row.id).await;
        let memory = world.remembered(engine, &row.id).await;
        let whole = (ram.is_none() || file == ram) && file == memory;
        assert!(whole, "{:?} of {:?} are of two moments, {context}", (&file, &ram, &memory), row.id);
        if row.id == *alpha && act.keeps_state() {
            assert_eq!((file, ram), two, "{context}");
        } else if row.id != *alpha {
            // A child that exists is complete, including its processes.
            assert!(ram.is_some(), "a child without its processes, {context}");
        }
    }
}

/// One run with one fault. Returns whether the fault occurred.
async fn run(act: LifecycleAction, fault: Fault) -> bool {
    let context = format!("{act:?} with {fault:?}");
    let world = World::with(Some(fault)).await;
    // The engine itself lists inventories at its start, which the fault may hit too: then the next start must succeed.
    let engine = match world.try_engine().await {
        Ok(engine) => engine,
        Err(_) => world.engine().await,
    };
    let id = prepare(&engine, &world, act).await;
    perform(&engine, &world, act, id.clone()).await;
    engine.shutdown().await;

    if !world.has_failed(fault.seam) {
        return false;
    }

    // In any case, the next start leaves a consistent state.
    let engine = world.engine().await;
    let rows = world.rows().await;
    world.check(&rows, &context);
    world.check_kept(&context).await;
    assert_eq!(world.catalog.open_operations().await.unwrap(), [], "{context}");
    let states = !matches!(
        act,
        LifecycleAction::Create
            | LifecycleAction::Start
            | LifecycleAction::Stop
            | LifecycleAction::Delete
            | LifecycleAction::Pause
            | LifecycleAction::Resume
    );
    if let (Some(id), true) = (&id, states) {
        check_state(&engine, &world, act, id, &context).await;
    }

    // And the host is fully usable.
    let fresh = engine.create(&world.tenant, create(Some("omega"))).await.expect("a create after the fault");
    engine.delete(&world.tenant, &fresh.row.id).await.expect("a delete after the fault");
    for id in rows.keys() {
        engine.delete(&world.tenant, id).await.expect("a delete of what was left");
    }
    world.check(&world.rows().await, &context);
    world.check_kept(&context).await;
    world.check_spaces(&engine, &context).await;
    true
}

#[tokio::test]
async fn a_failure_at_any_step_of_any_operation_leaves_no_partial_state() {
    let mut met = 0;
    for act in ACTS {
        for seam in SEAMS {
            for fails in FAILS_ONCE {
                for call in 0.. {
                    if !run(act, Fault { seam, call, fails }).await {
                        break; // There was no further call to fail: every failure was tested.
                    }
                    met += 1;
                }
            }
        }
    }
    assert!(met > 50, "only {met} faults occurred");
}

/// One run in which a driver fails and keeps failing during the next start, which can undo nothing either. Returns whether the fault
/// occurred.
async fn run_broken(act: LifecycleAction, fault: Fault) -> bool {
    let context = format!("{act:?} with {fault:?}");
    let world = World::with(Some(fault)).await;
    let Ok(engine) = world.try_engine().await else { return true };
    let id = prepare(&engine, &world, act).await;
    perform(&engine, &world, act, id.clone()).await;
    engine.shutdown().await;
    if !world.has_failed(fault.seam) {
        return false;
    }
    let before = world.rows().await;
    if let Ok(engine) = world.try_engine().await {
        engine.shutdown().await;
    }

    world.repair();
    let engine = world.engine().await;
    let rows = world.rows().await;
    world.check(&rows, &context);
    world.check_kept(&context).await;
    assert_eq!(world.catalog.open_operations().await.unwrap(), [], "{context}");
    for (id, row) in &rows {
        if row.state == State::Failed {
            engine.start_sandbox(&world.tenant, id).await.expect("its files are usable");
        }
        engine.wake(&world.tenant, id).await.expect("it wakes");
        if before.get(id).is_some_and(|row| matches!(row.state, State::Hibernated | State::Waking)) {
            assert!(world.runtime.inner.ram(id, "value").is_some(), "its processes are lost, {context}");
        }
        let (file, memory) = (world.disks.inner.read(id, "/file"), world.remembered(&engine, id).await);
        assert_eq!(file, memory, "files and memory are of two moments, {context}");
    }
    for id in rows.keys() {
        engine.delete(&world.tenant, id).await.expect("a delete of what was left");
    }
    world.check(&world.rows().await, &context);
    world.check_kept(&context).await;
    true
}

/// Concurrently, since a start waits some seconds for a host that may recover. One operation for each way in which the journal settles
/// operations, except merges: all of them would take minutes.
#[tokio::test]
async fn a_driver_that_keeps_failing_during_a_start_leaves_no_partial_state() {
    let acts = [
        LifecycleAction::Stop,
        LifecycleAction::Hibernate,
        LifecycleAction::Wake,
        LifecycleAction::Restore,
        LifecycleAction::Delete,
    ];
    let walks =
        acts.into_iter().flat_map(|act| SEAMS.map(|seam| (act, seam))).map(|(act, seam)| async move {
            let mut met = 0;
            for call in 0.. {
                if !run_broken(act, Fault { seam, call, fails: FailMode::FromThenOn }).await {
                    break;
                }
                met += 1;
            }
            met
        });
    let met: u32 = futures_util::future::join_all(walks).await.into_iter().sum();
    assert!(met > 50, "only {met} faults occurred");
}
