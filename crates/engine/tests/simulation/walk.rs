//! Walks one failure through every step of every operation, both before and after the step has acted.

use burrow_engine::Engine;
use burrow_model::SandboxId;

use crate::world::{Fault, GRACE, Seam, World, create};

#[derive(Clone, Copy, Debug)]
enum Act {
    Create,
    Start,
    Stop,
    Delete,
    Pause,
    Resume,
}

const ACTS: [Act; 6] = [Act::Create, Act::Start, Act::Stop, Act::Delete, Act::Pause, Act::Resume];

/// Brings a sandbox to where the act begins.
async fn prepare(engine: &Engine, world: &World, act: Act) -> Option<SandboxId> {
    if matches!(act, Act::Create) {
        return None;
    }
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.ok()?.row.id;
    match act {
        Act::Start => drop(engine.stop_sandbox(&world.tenant, &id, GRACE).await.ok()?),
        Act::Resume => drop(engine.pause(&world.tenant, &id).await.ok()?),
        Act::Create | Act::Stop | Act::Delete | Act::Pause => {}
    }
    Some(id)
}

async fn perform(engine: &Engine, world: &World, act: Act, id: Option<SandboxId>) -> bool {
    let tenant = &world.tenant;
    match (act, id) {
        (Act::Create, _) => engine.create(tenant, create(Some("alpha"))).await.is_ok(),
        (Act::Start, Some(id)) => engine.start_sandbox(tenant, &id).await.is_ok(),
        (Act::Stop, Some(id)) => engine.stop_sandbox(tenant, &id, GRACE).await.is_ok(),
        (Act::Delete, Some(id)) => engine.delete(tenant, &id).await.is_ok(),
        (Act::Pause, Some(id)) => engine.pause(tenant, &id).await.is_ok(),
        (Act::Resume, Some(id)) => engine.resume(tenant, &id).await.is_ok(),
        (_, None) => false,
    }
}

/// One run with one fault. Returns whether the fault was met.
async fn run(act: Act, fault: Fault) -> bool {
    let context = format!("{act:?} with {fault:?}");
    let world = World::with(Some(fault)).await;
    // The engine itself lists inventories at its start, which a fault may hit too: then the next start must do.
    let engine = match world.try_engine().await {
        Ok(engine) => engine,
        Err(_) => world.engine().await,
    };
    let id = prepare(&engine, &world, act).await;
    perform(&engine, &world, act, id).await;
    engine.shutdown().await;

    let met = match fault.seam {
        Seam::Volumes => world.volumes.has_failed(),
        Seam::Network => world.network.has_failed(),
        Seam::Egress => world.egress.has_failed(),
        Seam::Runtime => world.runtime.has_failed(),
    };
    if !met {
        return false;
    }

    // Whatever happened, the next start finds or makes order.
    let engine = world.engine().await;
    let rows = world.rows().await;
    world.check(&rows, &context);
    assert_eq!(world.catalog.open_operations().await.unwrap(), [], "{context}");

    // And the host is as good as new.
    let fresh = engine.create(&world.tenant, create(Some("omega"))).await.expect("a create after the fault");
    engine.delete(&world.tenant, &fresh.row.id).await.expect("a delete after the fault");
    for id in rows.keys() {
        engine.delete(&world.tenant, id).await.expect("a delete of what was left");
    }
    world.check(&world.rows().await, &context);
    true
}

#[tokio::test]
async fn a_failure_at_any_step_of_any_operation_leaves_nothing_half_made() {
    let mut met = 0;
    for act in ACTS {
        for seam in [Seam::Volumes, Seam::Network, Seam::Egress, Seam::Runtime] {
            for acts in [false, true] {
                for call in 0.. {
                    if !run(act, Fault { seam, call, acts }).await {
                        break; // No call is left to fail: every failure has been walked.
                    }
                    met += 1;
                }
            }
        }
    }
    assert!(met > 50, "the walk met only {met} faults");
}
