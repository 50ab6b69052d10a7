//! Random sequences of requests, crashes and reboots. After each step, every sandbox and every snapshot is compared with a simple
//! model.
//!
//! A seed that fails is printed; put it into `SEEDS` to keep it as a test.

use std::collections::BTreeMap;

use burrow_engine::{Engine, ForkOptions, FromSnapshot, SnapshotOptions};
use burrow_model::{SandboxId, SnapshotId, SnapshotKind, State};

use crate::world::{GRACE, World, create};

const SEEDS: [u64; 4] = [1, 2, 3, 0xb077_0e5e];
const STEPS: usize = 800;
const SANDBOXES_MAX: usize = 6;
const SNAPSHOTS_MAX: usize = 8;

/// The number of seeds of `make test-all`, which may take longer.
const MORE_SEEDS: u64 = 100;

/// A small, fast generator whose sequence for a seed never changes (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// The expected state of a sandbox: a file, and RAM while its processes exist.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExpectedSandbox {
    state: State,
    file: Option<String>,
    ram: Option<String>,
    /// The value that it stored last in its memory, in any state.
    memory: Option<String>,
}

/// The expected contents of a snapshot.
#[derive(Clone, Debug)]
struct ExpectedSnapshot {
    file: Option<String>,
    ram: Option<String>,
    memory: Option<String>,
}

impl ExpectedSandbox {
    fn up(&self) -> bool {
        matches!(self.state, State::Running | State::Paused)
    }

    fn stop(&mut self) {
        (self.state, self.ram) = (State::Stopped, None);
    }

    /// It runs: from the files alone if no processes were kept.
    fn run(&mut self) {
        self.state = State::Running;
    }
}

/// The expected state.
#[derive(Debug, Default)]
struct Model {
    sandboxes: BTreeMap<SandboxId, ExpectedSandbox>,
    snapshots: BTreeMap<SnapshotId, ExpectedSnapshot>,
    /// Counts writes, so that every value is different.
    writes: u64,
}

struct SimulatedRun {
    world: World,
    engine: Engine,
    random: Random,
    model: Model,
}

impl SimulatedRun {
    fn some_sandbox(&mut self) -> Option<(SandboxId, ExpectedSandbox)> {
        let index = self.random.below(self.model.sandboxes.len().max(1));
        self.model.sandboxes.iter().nth(index).map(|(id, held)| (id.clone(), held.clone()))
    }

    fn some_snapshot(&mut self) -> Option<SnapshotId> {
        let index = self.random.below(self.model.snapshots.len().max(1));
        self.model.snapshots.keys().nth(index).cloned()
    }

    fn room(&self) -> bool {
        self.model.sandboxes.len() < SANDBOXES_MAX
    }

    async fn step(&mut self) -> String {
        let tenant = self.world.tenant.clone();
        match self.random.below(32) {
            0..=3 if self.room() => {
                let row = self.engine.create(&tenant, create(None)).await.unwrap().row;
                let held = ExpectedSandbox { state: State::Running, file: None, ram: None, memory: None };
                self.model.sandboxes.insert(row.id, held);
                "create".to_owned()
            }
            30 => {
                self.engine.shutdown().await;
                self.start_again().await;
                "daemon restart".to_owned()
            }
            31 => {
                self.engine.shutdown().await;
                self.world.runtime.inner.reboot_host();
                self.model.sandboxes.values_mut().filter(|held| held.up()).for_each(ExpectedSandbox::stop);
                self.start_again().await;
                "reboot".to_owned()
            }
            choice @ 0..=14 => match self.some_sandbox() {
                Some((id, held)) => self.power(choice, &id, held).await,
                None => "nothing".to_owned(),
            },
            choice => match self.some_sandbox() {
                Some((id, held)) => self.keep(choice, &id, held).await,
                None => "nothing".to_owned(),
            },
        }
    }

    /// The next daemon is used at once, even if it is still recovering the other sandboxes.
    async fn start_again(&mut self) {
        self.engine = self.world.hasty_engine(0).await;
        if self.room() {
            let row = self.engine.create(&self.world.tenant, create(None)).await.unwrap().row;
            let held = ExpectedSandbox { state: State::Running, file: None, ram: None, memory: None };
            self.model.sandboxes.insert(row.id, held);
        }
        self.engine.started().await;
    }

    async fn power(&mut self, choice: usize, id: &SandboxId, mut held: ExpectedSandbox) -> String {
        let (tenant, state) = (self.world.tenant.clone(), held.state);
        match choice {
            0..=4 => {
                self.engine.start_sandbox(&tenant, id).await.unwrap();
                held.run();
            }
            5..=6 => {
                self.engine.stop_sandbox(&tenant, id, GRACE).await.unwrap();
                held.stop();
            }
            7..=8 => {
                let may = held.up() || state == State::Hibernated;
                assert_eq!(self.engine.pause(&tenant, id).await.is_ok(), may);
                held.state = if held.up() { State::Paused } else { state };
            }
            9..=10 => {
                self.engine
                    .guest(&tenant, id)
                    .await
                    .unwrap_or_else(|error| panic!("use while {state:?}: {error}"));
                held.run();
            }
            11..=13 => {
                let may = held.up() || state == State::Hibernated;
                assert_eq!(self.engine.hibernate(&tenant, id).await.is_ok(), may);
                held.state = if may { State::Hibernated } else { state };
            }
            _ => {
                self.engine.delete(&tenant, id).await.unwrap();
                self.model.sandboxes.remove(id);
                return "delete".to_owned();
            }
        }
        self.model.sandboxes.insert(id.clone(), held);
        format!("{choice} on a {state:?} sandbox")
    }

    async fn keep(&mut self, choice: usize, id: &SandboxId, mut held: ExpectedSandbox) -> String {
        let (tenant, state) = (self.world.tenant.clone(), held.state);
        match choice {
            18..=19 if state == State::Running => {
                self.model.writes += 1;
                let value = self.model.writes.to_string();
                self.world.disks.inner.write(id, "/file", &value).unwrap();
                assert!(self.world.runtime.inner.set_ram(id, "value", &value));
                (held.file, held.ram) = (Some(value.clone()), Some(value));
                self.model.sandboxes.insert(id.clone(), held);
            }
            15..=17 => {
                self.model.writes += 1;
                let value = self.model.writes.to_string();
                self.world.remember(&self.engine, id, &value).await;
                held.memory = Some(value);
                self.model.sandboxes.insert(id.clone(), held);
            }
            20..=22 if self.model.snapshots.len() < SNAPSHOTS_MAX => {
                let files_only = self.random.below(3) == 0;
                let options = SnapshotOptions::automatic(SnapshotKind::Manual, files_only);
                let snapshot = self.engine.snapshot(&tenant, id, options).await.unwrap();
                let ram = held.ram.filter(|_| snapshot.dump.is_some());
                assert_eq!(snapshot.dump.is_some(), !files_only && state != State::Stopped);
                self.model
                    .snapshots
                    .insert(snapshot.id, ExpectedSnapshot { file: held.file, ram, memory: held.memory });
            }
            23..=24 => {
                let Some(snapshot) = self.some_snapshot() else { return "nothing".to_owned() };
                return self.restore(id, held, snapshot).await;
            }
            25..=26 if self.room() => {
                let files_only = self.random.below(3) == 0;
                let options =
                    ForkOptions { count: 1, names: Vec::new(), files_only, labels: None, lifetime: None };
                let forked = self.engine.fork(&tenant, id, options).await.unwrap();
                let child = forked.children.into_iter().next().unwrap().unwrap();
                held.ram = held.ram.filter(|_| !files_only);
                held.run();
                self.model.sandboxes.insert(child.id, held);
            }
            27 if self.room() => {
                let Some(snapshot) = self.some_snapshot() else { return "nothing".to_owned() };
                let options = FromSnapshot {
                    name: None,
                    files_only: false,
                    labels: None,
                    lifetime: None,
                    change: None,
                    idempotency: None,
                };
                let made = self.engine.create_from_snapshot(&tenant, &snapshot, options).await.unwrap();
                let ExpectedSnapshot { file, ram, memory } = self.model.snapshots[&snapshot].clone();
                self.model
                    .sandboxes
                    .insert(made.row.id, ExpectedSandbox { state: State::Running, file, ram, memory });
            }
            28..=29 => {
                let Some(snapshot) = self.some_snapshot() else { return "nothing".to_owned() };
                self.engine.delete_snapshot(&tenant, &snapshot).await.unwrap();
                self.model.snapshots.remove(&snapshot);
            }
            _ => return "nothing".to_owned(),
        }
        format!("{choice} on a {state:?} sandbox")
    }

    async fn restore(&mut self, id: &SandboxId, mut held: ExpectedSandbox, snapshot: SnapshotId) -> String {
        let (tenant, state) = (self.world.tenant.clone(), held.state);
        let restored = self.engine.restore(&tenant, id, &snapshot, false).await.unwrap();
        // Its previous state can be restored, and is; then the restore is repeated.
        let kept = (held.file.clone(), held.ram.clone());
        let back = self.engine.restore(&tenant, id, &restored.undo.id, false).await.unwrap();
        assert_eq!(self.world.disks.inner.read(id, "/file"), kept.0, "undone");
        assert_eq!(self.world.remembered(&self.engine, id).await, held.memory, "undone");
        if state != State::Stopped {
            assert_eq!(self.world.runtime.inner.ram(id, "value"), kept.1, "undone");
        }
        let again = self.engine.restore(&tenant, id, &snapshot, false).await.unwrap();
        for undo in [restored.undo, back.undo, again.undo] {
            self.engine.delete_snapshot(&tenant, &undo.id).await.unwrap();
        }
        let ExpectedSnapshot { file, ram, memory } = self.model.snapshots[&snapshot].clone();
        held.state = again.row.state;
        (held.file, held.ram, held.memory) = (file, ram, memory);
        self.model.sandboxes.insert(id.clone(), held);
        format!("restore of a {state:?} sandbox")
    }

    /// Every sandbox and every snapshot has its expected contents, and the host contains nothing else.
    async fn check(&self, context: &str) {
        let rows = self.world.rows().await;
        let states: BTreeMap<_, _> = rows.iter().map(|(id, row)| (id.clone(), row.state)).collect();
        let expected: BTreeMap<_, _> =
            self.model.sandboxes.iter().map(|(id, held)| (id.clone(), held.state)).collect();
        assert_eq!(states, expected, "{context}");
        for (id, held) in &self.model.sandboxes {
            assert_eq!(self.world.disks.inner.read(id, "/file"), held.file, "the file of {id}, {context}");
            if held.up() {
                assert_eq!(self.world.runtime.inner.ram(id, "value"), held.ram, "the RAM of {id}, {context}");
            }
        }
        for (id, held) in &self.model.sandboxes {
            let remembered = self.world.remembered(&self.engine, id).await;
            assert_eq!(remembered, held.memory, "the memory of {id}, {context}");
        }
        self.world.check(&rows, context);
        self.world.check_kept(context).await;
        self.world.check_spaces(&self.engine, context).await;
    }
}

async fn live(seed: u64, steps: usize) {
    let mut world = World::new().await;
    // With even seeds, starts do not wait for recovery.
    if seed.is_multiple_of(2) {
        world.start_patience = std::time::Duration::ZERO;
    }
    let engine = world.engine().await;
    let mut life = SimulatedRun { world, engine, random: Random(seed | 1), model: Model::default() };
    for number in 0..steps {
        let what = life.step().await;
        life.check(&format!("seed {seed}, step {number}: {what}")).await;
    }
}

#[tokio::test]
async fn random_request_sequences_match_the_model() {
    for seed in SEEDS {
        live(seed, STEPS).await;
    }
    if std::env::var_os("BURROW_TEST_ALL").is_some() {
        for seed in 1000..1000 + MORE_SEEDS {
            live(seed, STEPS).await;
        }
    }
}
