//! What every driver must do, `sim` included: that keeps the fake honest.
//!
//! A driver's tests give a [`Fixture`] and run [`all`]. The functions assert, and their names are the promises of
//! [`Runtime`]; a driver that cannot keep one of them must say so in its `capabilities`.

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use burrow_model::{Limits, MountMode, MountPath, SandboxId};
use burrow_network::Attachment;

use crate::{
    Ability, BootOptions, DumpOptions, Incidents, Introduce, Machine, Mount, RestoreOptions, Runtime,
    RuntimeError,
};

/// Room enough for a guest agent and little else.
pub const LIMITS: Limits = Limits { ram_mib: 64, cpu_millis: 1000, pids: 64, disk_mib: 64 };

/// Bytes per second that any disk can do.
const DISK_RATE: u64 = 1 << 20;

/// A driver and what it needs to boot a machine.
#[async_trait]
pub trait Fixture: Send + Sync {
    fn runtime(&self) -> &dyn Runtime;

    /// A root and an attachment that no machine uses yet.
    async fn options(&self, limits: Limits) -> BootOptions;

    /// Makes the machine end as a crash of its PID 1 would.
    async fn end_by_itself(&self, id: &SandboxId, machine: &Machine);

    /// An empty directory for a dump.
    async fn images(&self) -> PathBuf;

    /// What a restored machine is plugged into.
    async fn attachment_later(&self) -> Attachment;

    /// A directory that can be a volume.
    async fn source(&self) -> PathBuf;

    /// How the machine sees a volume at this place; `None`: there is none.
    async fn sees(&self, id: &SandboxId, machine: &Machine, target: &MountPath) -> Option<MountMode>;
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
    a_disk_has_a_rate_or_the_driver_says_why_not(fixture).await;
    machines_do_not_touch_each_other(fixture).await;
    a_volume_is_seen_where_it_was_put_and_as_it_was_given(fixture).await;
    if fixture.runtime().capabilities().hibernate != Ability::Yes {
        return;
    }
    a_dump_leaves_the_machine_paused_and_may_be_repeated(fixture).await;
    a_restored_machine_is_a_machine_like_any_other(fixture).await;
    only_the_machine_that_is_meant_is_dumped(fixture).await;
    volumes_survive_a_dump_and_who_may_write_is_said_anew(fixture).await;
    what_is_no_dump_is_unfit_and_a_machine_that_cannot_be_introduced_is_none(fixture).await;
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
        runtime.obstacles(&id).await.map(drop),
        runtime.dump_bytes(&id).await.map(drop),
        runtime.cpu_us(&id).await.map(drop),
        runtime.mend(&id, &Machine { pid: 1, start_ticks: 1, boot_id: String::new() }, false).await,
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
        // A number that no process has: the next one may be a neighbour's that was started at the same moment.
        Machine { pid: i32::MAX.unsigned_abs(), ..machine.clone() },
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

pub async fn a_disk_has_a_rate_or_the_driver_says_why_not(fixture: &dyn Fixture) {
    let runtime = fixture.runtime();
    let id = SandboxId::generate();
    boot(fixture, &id).await;
    let outcome = runtime.set_disk_rate(&id, Some(DISK_RATE)).await;
    match runtime.capabilities().disk_rate {
        Ability::No { reason: known, .. } => match outcome {
            Err(RuntimeError::NoDiskRate { id: named, reason }) => {
                assert_eq!((named, reason), (id.clone(), known))
            }
            other => panic!("expected `NoDiskRate`, got {other:?}"),
        },
        Ability::Yes => {
            outcome.expect("a rate is set");
            for rate in [Some(DISK_RATE), None, None, Some(2 * DISK_RATE)] {
                runtime.set_disk_rate(&id, rate).await.expect("a rate is another as often as anybody likes");
            }
            runtime.pause(&id).await.expect("a machine pauses");
            for rate in [None, Some(DISK_RATE)] {
                runtime.set_disk_rate(&id, rate).await.expect("a paused machine has a rate, too");
            }
            runtime.resume(&id).await.expect("a machine goes on");
            let unknown = SandboxId::generate();
            let refused = runtime.set_disk_rate(&unknown, Some(DISK_RATE)).await;
            assert!(matches!(refused, Err(RuntimeError::NoMachine { .. })), "{refused:?}");
        }
    }
    // Where there cannot be one, there is none to take away.
    runtime.set_disk_rate(&id, None).await.expect("a rate is taken away");
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

/// A machine whose root is known, for dumps of it.
struct Dumpable {
    id: SandboxId,
    root: PathBuf,
    machine: Machine,
    mounts: Vec<Mount>,
}

/// A dump of it.
struct Kept {
    images: PathBuf,
    about: String,
}

impl Dumpable {
    async fn boot(fixture: &dyn Fixture) -> Self {
        let (id, options) = (SandboxId::generate(), fixture.options(LIMITS).await);
        let root = options.root.clone();
        let machine = fixture.runtime().boot(&id, options).await.expect("a machine boots");
        Self { id, root, machine, mounts: Vec::new() }
    }

    async fn dump(&self, fixture: &dyn Fixture) -> Kept {
        let images = fixture.images().await;
        let options = DumpOptions {
            machine: self.machine.clone(),
            root: self.root.clone(),
            images: images.clone(),
            mounts: self.mounts.clone(),
        };
        let dumped = fixture.runtime().dump(&self.id, options).await.expect("a machine is dumped");
        Kept { images, about: dumped.about }
    }

    async fn restored(&self, fixture: &dyn Fixture, kept: &Kept) -> RestoreOptions {
        RestoreOptions {
            root: self.root.clone(),
            images: kept.images.clone(),
            about: kept.about.clone(),
            attachment: fixture.attachment_later().await,
            limits: LIMITS,
            hostname: None,
            mounts: self.mounts.clone(),
            introduce: None,
        }
    }
}

/// Two volumes, one to write to and one to read from.
async fn two_volumes(fixture: &dyn Fixture) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for (target, mode) in [("/data", MountMode::Rw), ("/srv/models", MountMode::Ro)] {
        let target = target.parse().expect("it is a place");
        mounts.push(Mount { source: fixture.source().await, target, mode });
    }
    mounts
}

async fn assert_seen(fixture: &dyn Fixture, id: &SandboxId, machine: &Machine, mounts: &[Mount]) {
    for Mount { target, mode, .. } in mounts {
        assert_eq!(fixture.sees(id, machine, target).await, Some(*mode), "{target}");
    }
    let elsewhere = "/elsewhere".parse().expect("it is a place");
    assert_eq!(fixture.sees(id, machine, &elsewhere).await, None);
}

pub async fn a_volume_is_seen_where_it_was_put_and_as_it_was_given(fixture: &dyn Fixture) {
    if fixture.runtime().capabilities().volumes != Ability::Yes {
        return;
    }
    let (id, mounts) = (SandboxId::generate(), two_volumes(fixture).await);
    // Twice: the places are there already then.
    for _ in 0..2 {
        let options = BootOptions { mounts: mounts.clone(), ..fixture.options(LIMITS).await };
        let machine = fixture.runtime().boot(&id, options).await.expect("a machine boots");
        assert_seen(fixture, &id, &machine, &mounts).await;
        destroy(fixture, &id).await;
    }
}

pub async fn volumes_survive_a_dump_and_who_may_write_is_said_anew(fixture: &dyn Fixture) {
    let runtime = fixture.runtime();
    if runtime.capabilities().volumes != Ability::Yes {
        return;
    }
    let (id, mut mounts) = (SandboxId::generate(), two_volumes(fixture).await);
    let options = BootOptions { mounts: mounts.clone(), ..fixture.options(LIMITS).await };
    let root = options.root.clone();
    let machine = runtime.boot(&id, options).await.expect("a machine boots");
    let mut dumpable = Dumpable { id, root, machine, mounts: mounts.clone() };
    for (first, second) in
        [(MountMode::Rw, MountMode::Ro), (MountMode::Ro, MountMode::Ro), (MountMode::Rw, MountMode::Rw)]
    {
        let kept = dumpable.dump(fixture).await;
        destroy(fixture, &dumpable.id).await;
        (mounts[0].mode, mounts[1].mode) = (first, second);
        dumpable.mounts.clone_from(&mounts);
        let options = dumpable.restored(fixture, &kept).await;
        dumpable.machine = runtime.restore(&dumpable.id, options).await.expect("a machine is restored");
        assert_seen(fixture, &dumpable.id, &dumpable.machine, &mounts).await;
        runtime.resume(&dumpable.id).await.expect("a restored machine resumes");
    }
    let kept = dumpable.dump(fixture).await;
    destroy(fixture, &dumpable.id).await;
    let bare = RestoreOptions { mounts: Vec::new(), ..dumpable.restored(fixture, &kept).await };
    let refused = runtime.restore(&dumpable.id, bare).await;
    assert!(matches!(refused, Err(RuntimeError::Restore { .. })), "without its volumes: {refused:?}");
    assert!(!inventory_has(fixture, &dumpable.id).await);
}

pub async fn a_dump_leaves_the_machine_paused_and_may_be_repeated(fixture: &dyn Fixture) {
    let dumpable = Dumpable::boot(fixture).await;
    let (runtime, id, machine) = (fixture.runtime(), &dumpable.id, &dumpable.machine);
    assert_eq!(runtime.obstacles(id).await.expect("obstacles are looked for"), []);
    runtime.dump_bytes(id).await.expect("the size of a dump is estimated");
    for _ in 0..2 {
        dumpable.dump(fixture).await;
        assert!(runtime.adopt(id, machine).await.expect("adoption answers"));
        let used = runtime.cpu_us(id).await.expect("processor time is read");
        assert_eq!(runtime.cpu_us(id).await.expect("processor time is read"), used, "it is paused");
        runtime.resume(id).await.expect("a dumped machine resumes");
    }
    for paused in [true, false] {
        runtime.mend(id, machine, paused).await.expect("a whole machine is mended");
    }
    dumpable.dump(fixture).await;
    destroy(fixture, id).await;
    assert!(!inventory_has(fixture, id).await);
}

pub async fn a_restored_machine_is_a_machine_like_any_other(fixture: &dyn Fixture) {
    let mut dumpable = Dumpable::boot(fixture).await;
    let runtime = fixture.runtime();
    // Once in the place of a machine that is still there, once of one that is gone.
    for gone in [false, true] {
        // Anew each time: a machine that runs changes the files, and then they are not those of an older dump.
        let kept = dumpable.dump(fixture).await;
        if gone {
            destroy(fixture, &dumpable.id).await;
        }
        let options = dumpable.restored(fixture, &kept).await;
        let restored = runtime.restore(&dumpable.id, options).await.expect("a machine is restored");
        assert_ne!(restored, dumpable.machine);
        runtime.ended(&dumpable.machine).await.expect("the one before has ended");
        assert!(!runtime.adopt(&dumpable.id, &dumpable.machine).await.expect("adoption answers"));
        assert!(runtime.adopt(&dumpable.id, &restored).await.expect("adoption answers"));
        assert!(inventory_has(fixture, &dumpable.id).await);
        runtime.resume(&dumpable.id).await.expect("a restored machine resumes");
        runtime.set_limits(&dumpable.id, &LIMITS).await.expect("limits change");
        if runtime.capabilities().disk_rate == Ability::Yes {
            runtime
                .set_disk_rate(&dumpable.id, Some(DISK_RATE))
                .await
                .expect("a restored machine has a rate");
        }
        dumpable.machine = restored;
    }
    dumpable.dump(fixture).await;
    destroy(fixture, &dumpable.id).await;
    runtime.ended(&dumpable.machine).await.expect("a destroyed machine has ended");
    assert!(!inventory_has(fixture, &dumpable.id).await);
}

pub async fn only_the_machine_that_is_meant_is_dumped(fixture: &dyn Fixture) {
    let dumpable = Dumpable::boot(fixture).await;
    let runtime = fixture.runtime();
    let stranger = Machine { start_ticks: dumpable.machine.start_ticks + 1, ..dumpable.machine.clone() };
    let images = fixture.images().await;
    let options =
        DumpOptions { machine: stranger.clone(), root: dumpable.root.clone(), images, mounts: Vec::new() };
    let refused = runtime.dump(&dumpable.id, options).await;
    assert!(matches!(refused, Err(RuntimeError::NoMachine { .. })), "{refused:?}");
    let refused = runtime.mend(&dumpable.id, &stranger, true).await;
    assert!(matches!(refused, Err(RuntimeError::NoMachine { .. })), "{refused:?}");
    destroy(fixture, &dumpable.id).await;
}

pub async fn what_is_no_dump_is_unfit_and_a_machine_that_cannot_be_introduced_is_none(fixture: &dyn Fixture) {
    let dumpable = Dumpable::boot(fixture).await;
    let kept = dumpable.dump(fixture).await;
    let runtime = fixture.runtime();
    destroy(fixture, &dumpable.id).await;
    let nonsense = RestoreOptions { about: "nonsense".to_owned(), ..dumpable.restored(fixture, &kept).await };
    let refused = runtime.restore(&dumpable.id, nonsense).await;
    assert!(matches!(refused, Err(RuntimeError::Unfit { .. })), "{refused:?}");
    let known: Introduce = Box::new(|| Box::pin(async { Ok(()) }));
    let again = RestoreOptions { introduce: Some(known), ..dumpable.restored(fixture, &kept).await };
    let machine = runtime.restore(&dumpable.id, again).await.expect("a machine is restored and introduced");

    let dumpable = Dumpable { machine, ..dumpable };
    let kept = dumpable.dump(fixture).await;
    destroy(fixture, &dumpable.id).await;
    let silent: Introduce = Box::new(|| Box::pin(async { Err(io::ErrorKind::NotConnected.into()) }));
    let unknown = RestoreOptions { introduce: Some(silent), ..dumpable.restored(fixture, &kept).await };
    let refused = runtime.restore(&dumpable.id, unknown).await;
    assert!(matches!(refused, Err(RuntimeError::Restore { .. })), "{refused:?}");
    assert!(!inventory_has(fixture, &dumpable.id).await);
}
