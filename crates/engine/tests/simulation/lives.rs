//! Random lives: long sequences of requests, crashes and reboots, each step compared with a simple model.
//!
//! A seed that fails is printed; put it into `SEEDS` and it stays a test.

use std::collections::BTreeMap;

use burrow_engine::Engine;
use burrow_model::{SandboxId, State};

use crate::world::{GRACE, World, create};

const SEEDS: [u64; 4] = [1, 2, 3, 0xb077_0e5e];
const STEPS: usize = 800;
const SANDBOXES_MAX: usize = 6;

/// Seeds of `make test-all`, which has the time.
const MORE_SEEDS: u64 = 100;

/// A small, fast generator, so that a seed means the same everywhere and for ever (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// What must be true of each sandbox.
type Model = BTreeMap<SandboxId, State>;

async fn step(random: &mut Random, world: &World, engine: &mut Engine, model: &mut Model) -> String {
    let tenant = &world.tenant;
    let some = |random: &mut Random, model: &Model| {
        let index = random.below(model.len().max(1));
        model.iter().nth(index).map(|(id, state)| (id.clone(), *state))
    };
    match random.below(20) {
        0..=4 if model.len() < SANDBOXES_MAX => {
            let row = engine.create(tenant, create(None)).await.unwrap().row;
            model.insert(row.id, State::Running);
            "create".to_owned()
        }
        18 => {
            engine.shutdown().await;
            *engine = world.engine().await;
            "daemon restart".to_owned()
        }
        19 => {
            engine.shutdown().await;
            world.runtime.inner.reboot_host();
            *engine = world.engine().await;
            model.values_mut().for_each(|state| *state = State::Stopped);
            "reboot".to_owned()
        }
        choice => match some(random, model) {
            Some((id, state)) => act(choice, world, engine, model, &id, state).await,
            None => "nothing".to_owned(),
        },
    }
}

async fn act(
    choice: usize,
    world: &World,
    engine: &Engine,
    model: &mut Model,
    id: &SandboxId,
    state: State,
) -> String {
    let tenant = &world.tenant;
    let up = matches!(state, State::Running | State::Paused);
    match choice {
        0..=6 => {
            engine.start_sandbox(tenant, id).await.unwrap();
            model.insert(id.clone(), State::Running);
        }
        7..=9 => {
            engine.stop_sandbox(tenant, id, GRACE).await.unwrap();
            model.insert(id.clone(), State::Stopped);
        }
        10..=12 => {
            assert_eq!(engine.pause(tenant, id).await.is_ok(), up);
            model.insert(id.clone(), if up { State::Paused } else { state });
        }
        13..=15 => {
            assert_eq!(engine.guest(tenant, id).await.is_ok(), up);
            model.insert(id.clone(), if up { State::Running } else { state });
        }
        _ => {
            engine.delete(tenant, id).await.unwrap();
            model.remove(id);
        }
    }
    format!("{choice} on a {state:?} sandbox")
}

async fn live(seed: u64, steps: usize) {
    let world = World::new().await;
    let mut engine = world.engine().await;
    let mut random = Random(seed | 1);
    let mut model = Model::new();
    for number in 0..steps {
        let what = step(&mut random, &world, &mut engine, &mut model).await;
        let rows = world.rows().await;
        let context = format!("seed {seed}, step {number}: {what}");
        let states: Model = rows.iter().map(|(id, row)| (id.clone(), row.state)).collect();
        assert_eq!(states, model, "{context}");
        world.check(&rows, &context);
    }
}

#[tokio::test]
async fn random_lives_always_match_the_model() {
    for seed in SEEDS {
        live(seed, STEPS).await;
    }
    if std::env::var_os("BURROW_TEST_ALL").is_some() {
        for seed in 1000..1000 + MORE_SEEDS {
            live(seed, STEPS).await;
        }
    }
}
