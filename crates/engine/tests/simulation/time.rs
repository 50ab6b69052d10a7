//! A host whose date is wrong, or jumps: this deletes no sandbox, puts none to sleep, and takes no snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use burrow_catalog::SandboxRow;
use burrow_engine::{CreateOptions, Engine, SnapshotOptions, SteadyClock, TimeSource};
use burrow_model::{Lifetime, SandboxId, SleepPolicy, SnapshotId, SnapshotKind, SnapshotPolicy, State};

use crate::world::{World, create};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const YEAR_MS: u64 = 365 * DAY_MS;
const SOME_DAY_MS: u64 = 1_700_000_000_000;

/// Rounds of the engine's upkeep and policies, one per second, in which an action would have happened.
const ROUNDS: Duration = Duration::from_millis(2_500);

#[derive(Debug)]
struct Host {
    date_ms: AtomicU64,
    uptime_ms: AtomicU64,
}

impl Host {
    fn new() -> Arc<Self> {
        Arc::new(Self { date_ms: AtomicU64::new(SOME_DAY_MS), uptime_ms: AtomicU64::new(HOUR_MS) })
    }

    fn pass(&self, ms: u64) {
        self.date_ms.fetch_add(ms, Ordering::SeqCst);
        self.uptime_ms.fetch_add(ms, Ordering::SeqCst);
    }

    fn set_date(&self, ms: u64) {
        self.date_ms.store(ms, Ordering::SeqCst);
    }
}

#[derive(Clone, Debug)]
struct HostTimes(Arc<Host>);

impl TimeSource for HostTimes {
    fn date_ms(&self) -> u64 {
        self.0.date_ms.load(Ordering::SeqCst)
    }

    fn uptime_ms(&self) -> u64 {
        self.0.uptime_ms.load(Ordering::SeqCst)
    }
}

/// A daemon starts on the host.
async fn start(world: &World, host: &Arc<Host>) -> Engine {
    let known_ms = world.catalog.newest_ms().await.unwrap();
    world.engine_by(Arc::new(SteadyClock::new(HostTimes(host.clone()), known_ms))).await
}

/// A sandbox with a day to live, policies of every kind, and a snapshot that expires.
async fn with_all(world: &World, engine: &Engine) -> (SandboxId, SnapshotId) {
    let expires_ms = Some(engine.now_ms() + DAY_MS);
    let hours = |count: u64| Some(count * HOUR_MS);
    let options = CreateOptions {
        lifetime: Lifetime::Persistent { expires_ms },
        sleep: SleepPolicy {
            pause_after_ms: hours(1),
            hibernate_after_ms: hours(2),
            stop_after_ms: hours(3),
            ..SleepPolicy::never()
        },
        snapshots: Some(SnapshotPolicy { every_ms: HOUR_MS, keep: 3, files_only: true }),
        ..create(Some("alpha"))
    };
    let id = engine.create(&world.tenant, options).await.unwrap().row.id;
    let options = SnapshotOptions { expires_ms, ..SnapshotOptions::automatic(SnapshotKind::Manual, true) };
    let snapshot = engine.snapshot(&world.tenant, &id, options).await.unwrap().id;
    (id, snapshot)
}

async fn row(world: &World, id: &SandboxId) -> Option<SandboxRow> {
    world.catalog.sandbox(&world.tenant, id).await.unwrap()
}

/// It runs as before, and has exactly one snapshot.
async fn check_untouched(world: &World, id: &SandboxId, snapshot: &SnapshotId, context: &str) {
    tokio::time::sleep(ROUNDS).await;
    let found = row(world, id).await.unwrap_or_else(|| panic!("it was deleted, {context}"));
    assert_eq!(found.state, State::Running, "{context}");
    let kept = world.catalog.snapshots_of(id).await.unwrap();
    assert_eq!(kept.iter().map(|one| &one.id).collect::<Vec<_>>(), [snapshot], "{context}");
}

#[tokio::test]
async fn a_jump_of_the_date_deletes_nothing_and_triggers_no_policies() {
    for (jump, context) in [
        (SOME_DAY_MS + HOUR_MS, "an hour ahead"),
        (SOME_DAY_MS + 10 * YEAR_MS, "ten years ahead"),
        (SOME_DAY_MS - HOUR_MS, "an hour back"),
        (0, "in 1970"),
    ] {
        let (world, host) = (World::new().await, Host::new());
        let engine = start(&world, &host).await;
        let (id, snapshot) = with_all(&world, &engine).await;
        host.set_date(jump);
        check_untouched(&world, &id, &snapshot, context).await;
        // What is due by the time that really passed happens all the same.
        host.pass(DAY_MS + 1);
        for _ in 0..2_400 {
            if row(&world, &id).await.is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        assert!(row(&world, &id).await.is_none(), "its day is over, {context}");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_wrong_date_at_the_start_deletes_nothing_for_an_hour() {
    let (world, host) = (World::new().await, Host::new());
    let engine = start(&world, &host).await;
    let options = CreateOptions {
        lifetime: Lifetime::Persistent { expires_ms: Some(engine.now_ms() + DAY_MS) },
        ..create(Some("alpha"))
    };
    let id = engine.create(&world.tenant, options).await.unwrap().row.id;
    engine.shutdown().await;
    host.set_date(SOME_DAY_MS + 10 * YEAR_MS);
    let engine = start(&world, &host).await;
    tokio::time::sleep(ROUNDS).await;
    assert!(row(&world, &id).await.is_some(), "the clock could not be corrected yet");
    engine.shutdown().await;
    // The clock was corrected: the daemon continues as usual.
    host.set_date(SOME_DAY_MS);
    let engine = start(&world, &host).await;
    tokio::time::sleep(ROUNDS).await;
    assert!(row(&world, &id).await.is_some());
    assert!(engine.now_ms() < SOME_DAY_MS + DAY_MS);
    engine.shutdown().await;
}

#[tokio::test]
async fn times_stored_by_a_clock_that_was_ahead_do_not_keep_a_sandbox_awake() {
    let (world, host) = (World::new().await, Host::new());
    host.set_date(SOME_DAY_MS + 10 * YEAR_MS);
    let engine = start(&world, &host).await;
    let sleep = SleepPolicy { pause_after_ms: Some(HOUR_MS), ..SleepPolicy::never() };
    let id =
        engine.create(&world.tenant, CreateOptions { sleep, ..create(Some("alpha")) }).await.unwrap().row.id;
    engine.shutdown().await;
    host.set_date(SOME_DAY_MS);
    let engine = start(&world, &host).await;
    tokio::time::sleep(ROUNDS).await;
    assert_eq!(row(&world, &id).await.unwrap().state, State::Running, "it has just been used");
    host.pass(HOUR_MS + 1);
    for _ in 0..2_400 {
        if row(&world, &id).await.unwrap().state == State::Paused {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(row(&world, &id).await.unwrap().state, State::Paused);
    engine.shutdown().await;
}

#[tokio::test]
async fn the_end_of_a_lease_puts_a_sandbox_to_sleep_and_a_use_begins_a_new_lease() {
    use burrow_model::{AUTO_RESUME_MS_MIN, AtTimeout, Lease};
    let cases = [
        (HOUR_MS, HOUR_MS, AtTimeout::Hibernate, State::Hibernated),
        (1_000, AUTO_RESUME_MS_MIN, AtTimeout::Stop, State::Stopped),
    ];
    for (timeout_ms, renewed_ms, then, asleep) in cases {
        let (world, host) = (World::new().await, Host::new());
        let engine = start(&world, &host).await;
        let lease = Lease { timeout_ms, then, public: false, metadata: Default::default() };
        let expires_ms = Some(engine.now_ms() + HOUR_MS);
        let lifetime = Lifetime::Persistent { expires_ms };
        let options = CreateOptions { lifetime, lease: Some(lease), ..create(Some("alpha")) };
        let id = engine.create(&world.tenant, options).await.unwrap().row.id;
        host.pass(HOUR_MS + 1);
        for _ in 0..2_400 {
            let found = row(&world, &id).await.expect("it is kept");
            if found.state == asleep && found.spec.lifetime.expires_ms().is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        let found = row(&world, &id).await.expect("it is kept");
        assert_eq!((found.state, found.spec.lifetime.expires_ms()), (asleep, None), "{then:?}");
        // It stays asleep for any time; the next use begins a new lease.
        host.pass(DAY_MS);
        tokio::time::sleep(ROUNDS).await;
        assert_eq!(row(&world, &id).await.map(|row| row.state), Some(asleep), "{then:?}");
        engine.guest(&world.tenant, &id).await.unwrap();
        let found = row(&world, &id).await.unwrap();
        let expires_ms = found.spec.lifetime.expires_ms().expect("it has a new lease");
        assert_eq!(found.state, State::Running);
        let left_ms = expires_ms - engine.now_ms();
        assert!(left_ms > renewed_ms / 2 && left_ms <= renewed_ms, "{left_ms}");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_hibernated_at_the_end_of_its_lease_is_paused() {
    use burrow_model::{AtTimeout, Lease};
    use burrow_runtime::Obstacle;

    use crate::sleep::eventually;
    for obstructed in [true, false] {
        let (world, host) = (World::new().await, Host::new());
        let engine = start(&world, &host).await;
        let (then, metadata) = (AtTimeout::Hibernate, Default::default());
        let lease = Lease { timeout_ms: HOUR_MS, then, public: false, metadata };
        let lifetime = Lifetime::Persistent { expires_ms: Some(engine.now_ms() + HOUR_MS) };
        let options = CreateOptions { lifetime, lease: Some(lease), ..create(Some("alpha")) };
        let id = engine.create(&world.tenant, options).await.unwrap().row.id;
        assert!(world.runtime.inner.set_ram(&id, "value", "kept"));
        let machine = world.runtime.inner.machine(&id).unwrap().machine;
        if obstructed {
            let (process, reason) = ("gdb".to_owned(), "is being traced".to_owned());
            let obstacle = Obstacle { pid: 7, process, reason, passes: false };
            world.runtime.inner.hinder(&id, vec![obstacle]);
        } else {
            world.runtime.inner.refuse_trials("it has a file open in `/proc`");
        }
        let is = async |state| row(&world, &id).await.unwrap().state == state;
        host.pass(HOUR_MS + 1);
        eventually("it to sleep", async || is(State::Paused).await).await;
        let is_endless = async || row(&world, &id).await.unwrap().spec.lifetime.expires_ms().is_none();
        eventually("its lease to end", is_endless).await;
        let refused = async || {
            let events = world.catalog.events_since(&world.tenant, 0, 1_000).await.unwrap();
            events.iter().any(|event| event.kind == "sandbox.hibernate-refused")
        };
        eventually("the event", refused).await;
        // A use resumes it with a new lease, and with the processes it had.
        engine.guest(&world.tenant, &id).await.unwrap();
        assert!(is(State::Running).await && !is_endless().await);
        assert_eq!(world.runtime.inner.machine(&id).unwrap().machine, machine);
        assert_eq!(world.runtime.inner.ram(&id, "value").as_deref(), Some("kept"));
        // What is in the way goes later: then it is hibernated after all.
        host.pass(HOUR_MS + 1);
        eventually("it to sleep again", async || is(State::Paused).await).await;
        eventually("its lease to end again", is_endless).await;
        world.runtime.inner.hinder(&id, Vec::new());
        world.runtime.inner.allow_trials();
        host.pass(HOUR_MS);
        eventually("it to be hibernated", async || is(State::Hibernated).await).await;
        engine.guest(&world.tenant, &id).await.unwrap();
        assert_eq!(world.runtime.inner.ram(&id, "value").as_deref(), Some("kept"));
        engine.shutdown().await;
    }
}
