//! What every driver must do, `sim` included: that keeps the fake honest.
//!
//! A driver's tests give a [`Fixture`] and run [`all`]. The functions assert, and their names are the promises of
//! [`Runtime`]; a driver that cannot keep one of them must say so in its `capabilities`.

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};

use crate::{Ability, BootOptions, Incidents, Machine, Runtime, RuntimeError};

/// Room enough for a guest agent and little else.
pub const LIMITS: Limits = Limits { ram_mib: 64, cpu_millis: 1000, pids: 64, disk_mib: 64 };

/// A driver and what it needs to boot a machine.
#[async_trait]
pub trait Fixture: Send + Sync {
    fn runtime(&self) -> &dyn Runtime;

    /// A root and an attachment that no machine uses yet.
    async fn options(&self, limits: Limits) -> BootOptions;

    /// Makes the machine end as a crash of its PID 1 would.
    async fn end_by_itself(&self, id: &SandboxId, machine: &Machine);
}

/// Runs the whole suite.
pub async fn all(fixture: &dyn Fixture) {
    a_booted_machine_is_in_the_inventory_and_a_destroyed_one_is_not(fixture).await;
    destroying_twice_or_what_never_was_is_fine(fixture).await;
    booting_again_replaces_the_machine(fixture).await;
    pausing_and_resuming_may_be_repeated(fixture).await;
    a_paused_machine_is_destroyed_like_any_other(fixture).await;
    what_has_no_machine_is_refused_by_name(fixture).await;
    a_machine_is_adopted_by_all_it_is_known_by(fixture).await;
    an_end_is_noticed_whoever_caused_it(fixture).await;
    an_ended_machine_is_not_adopted(fixture).await;
    limits_change_while_the_machine_runs(fixture).await;
    machines_do_not_touch_each_other(fixture).await;
}

async fn boot(fixture: &dyn Fixture, id: &SandboxId) -> Machine {
    let options = fixture.options(LIMITS).await;
    fixture.runtime().boot(id, options).await.expect("a machine boots")
}

async fn destroy(fixture: &dyn Fixture, id: &SandboxId) {
    fixture.runtime().destroy(id).await.expect("a machine is destroyed");
}

async fn inventory_has(fixture: &dyn Fixture, id: &SandboxId) -> bool {
    fixture.runtime().inventory().await.expect("the inventory is read").contains(id)
}

pub async fn a_booted_machine_is_in_the_inventory_and_a_destroyed_one_is_not(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    assert!(!inventory_has(fixture, &id).await);
    boot(fixture, &id).await;
    assert!(inventory_has(fixture, &id).await);
    destroy(fixture, &id).await;
    assert!(!inventory_has(fixture, &id).await);
}

pub async fn destroying_twice_or_what_never_was_is_fine(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    destroy(fixture, &id).await;
    boot(fixture, &id).await;
    destroy(fixture, &id).await;
    destroy(fixture, &id).await;
}

pub async fn booting_again_replaces_the_machine(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let first = boot(fixture, &id).await;
    let second = boot(fixture, &id).await;
    assert_ne!(first, second);
    fixture.runtime().ended(&first).await.expect("the replaced machine has ended");
    assert!(!fixture.runtime().adopt(&id, &first).await.expect("adoption answers"));
    assert!(fixture.runtime().adopt(&id, &second).await.expect("adoption answers"));
    destroy(fixture, &id).await;
}

pub async fn pausing_and_resuming_may_be_repeated(fixture: &dyn Fixture) {
    if fixture.runtime().capabilities().pause != Ability::Yes {
        return;
    }
    let id = SandboxId::generate();
    let machine = boot(fixture, &id).await;
    for _ in 0..3 {
        fixture.runtime().resume(&id).await.expect("a running machine resumes");
        fixture.runtime().pause(&id).await.expect("a machine pauses");
        fixture.runtime().pause(&id).await.expect("a paused machine pauses");
        assert!(fixture.runtime().adopt(&id, &machine).await.expect("a paused machine is adopted"));
        fixture.runtime().resume(&id).await.expect("a paused machine resumes");
    }
    destroy(fixture, &id).await;
}

pub async fn a_paused_machine_is_destroyed_like_any_other(fixture: &dyn Fixture) {
    if fixture.runtime().capabilities().pause != Ability::Yes {
        return;
    }
    let id = SandboxId::generate();
    let machine = boot(fixture, &id).await;
    fixture.runtime().pause(&id).await.expect("a machine pauses");
    destroy(fixture, &id).await;
    fixture.runtime().ended(&machine).await.expect("a destroyed machine has ended");
    assert!(!inventory_has(fixture, &id).await);
}

pub async fn what_has_no_machine_is_refused_by_name(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let runtime = fixture.runtime();
    let answers = [
        runtime.pause(&id).await,
        runtime.resume(&id).await,
        runtime.set_limits(&id, &LIMITS).await,
        runtime.incidents(&id).await.map(drop),
    ];
    for answer in answers {
        match answer {
            Err(RuntimeError::NoMachine { id: named }) => assert_eq!(named, id),
            other => panic!("expected `NoMachine`, got {other:?}"),
        }
    }
}

pub async fn a_machine_is_adopted_by_all_it_is_known_by(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let machine = boot(fixture, &id).await;
    let runtime = fixture.runtime();
    assert!(runtime.adopt(&id, &machine).await.expect("adoption answers"));

    let strangers = [
        Machine { start_ticks: machine.start_ticks + 1, ..machine.clone() },
        Machine { boot_id: format!("{}-not", machine.boot_id), ..machine.clone() },
        Machine { pid: machine.pid + 1, ..machine.clone() },
    ];
    for stranger in &strangers {
        assert!(!runtime.adopt(&id, stranger).await.expect("adoption answers"), "{stranger:?}");
        runtime.ended(stranger).await.expect("a stranger counts as ended");
    }
    let other = SandboxId::generate();
    assert!(!runtime.adopt(&other, &machine).await.expect("adoption answers"), "under another sandbox's id");
    destroy(fixture, &id).await;
    assert!(!runtime.adopt(&id, &machine).await.expect("adoption answers"));
}

pub async fn an_end_is_noticed_whoever_caused_it(fixture: &dyn Fixture) {
    let (crashed, destroyed) = (SandboxId::generate(), SandboxId::generate());
    let first = boot(fixture, &crashed).await;
    let waiting = fixture.runtime().ended(&first);
    let (waited, ()) = tokio::join!(waiting, fixture.end_by_itself(&crashed, &first));
    waited.expect("waiting works");
    destroy(fixture, &crashed).await;

    let second = boot(fixture, &destroyed).await;
    let waiting = fixture.runtime().ended(&second);
    let (waited, ()) = tokio::join!(waiting, destroy(fixture, &destroyed));
    waited.expect("waiting works");
    fixture.runtime().ended(&second).await.expect("asking late answers at once");
}

pub async fn an_ended_machine_is_not_adopted(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let machine = boot(fixture, &id).await;
    fixture.end_by_itself(&id, &machine).await;
    fixture.runtime().ended(&machine).await.expect("waiting works");
    assert!(!fixture.runtime().adopt(&id, &machine).await.expect("adoption answers"));
    assert!(inventory_has(fixture, &id).await, "what it left behind is still known");
    assert!(matches!(fixture.runtime().pause(&id).await, Err(RuntimeError::NoMachine { .. })));
    destroy(fixture, &id).await;
    assert!(!inventory_has(fixture, &id).await);
}

pub async fn limits_change_while_the_machine_runs(fixture: &dyn Fixture) {
    if fixture.runtime().capabilities().limits != Ability::Yes {
        return;
    }
    let id = SandboxId::generate();
    boot(fixture, &id).await;
    let larger = Limits { ram_mib: 128, cpu_millis: 1500, pids: 128, ..LIMITS };
    for limits in [larger, LIMITS, LIMITS] {
        fixture.runtime().set_limits(&id, &limits).await.expect("limits change");
    }
    let incidents = fixture.runtime().incidents(&id).await.expect("incidents are read");
    assert_eq!(incidents, Incidents { oom_kills: 0 });
    destroy(fixture, &id).await;
}

pub async fn machines_do_not_touch_each_other(fixture: &dyn Fixture) {
    let (one, other) = (SandboxId::generate(), SandboxId::generate());
    boot(fixture, &one).await;
    let machine = boot(fixture, &other).await;
    destroy(fixture, &one).await;
    assert!(fixture.runtime().adopt(&other, &machine).await.expect("adoption answers"));
    assert!(inventory_has(fixture, &other).await);
    destroy(fixture, &other).await;
}
