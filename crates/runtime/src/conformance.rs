//! The conformance suite: every driver passes it, including `sim`, so the simulation matches the real drivers.
//!
//! The tests of a driver provide a [`Fixture`] and run [`all`]. The functions contain assertions, and their names
//! describe the behaviour that [`Runtime`] promises. A driver that lacks one of these abilities must report that in its
//! `capabilities`.

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use burrow_model::{Limits, MountMode, MountPath, SandboxId};
use burrow_network::Attachment;

use crate::{
    Ability, BootOptions, DumpOptions, Incidents, IntroduceFn, Machine, Mount, RestoreOptions, Runtime,
    RuntimeError,
};

/// Enough for a guest agent and little else.
pub const LIMITS: Limits = Limits { ram_mib: 64, cpu_millis: 1000, pids: 64, disk_mib: 64 };

/// Bytes per second that any disk can provide.
const DISK_RATE: u64 = 1 << 20;

/// A driver, and the resources that it needs to boot a machine.
#[async_trait]
pub trait Fixture: Send + Sync {
    fn runtime(&self) -> &dyn Runtime;

    /// A root and an attachment that no machine uses yet.
    async fn options(&self, limits: Limits) -> BootOptions;

    /// Ends the machine as a crash of its PID 1 would.
    async fn end_by_itself(&self, id: &SandboxId, machine: &Machine);

    /// An empty directory for a dump.
    async fn images(&self) -> PathBuf;

    /// The attachment of a restored machine.
    async fn attachment_later(&self) -> Attachment;

    /// A directory that can be mounted as a volume.
    async fn source(&self) -> PathBuf;

    /// The access mode of the volume at this path, as seen in the machine; `None`: no volume is mounted there.
    async fn sees(&self, id: &SandboxId, machine: &Machine, target: &MountPath) -> Option<MountMode>;
}

/// Runs the whole suite.
pub async fn all(fixture: &dyn Fixture) {
    a_booted_machine_is_in_the_inventory_and_a_destroyed_one_is_not(fixture).await;
    destroying_twice_or_an_unknown_machine_succeeds(fixture).await;
    booting_again_replaces_the_machine(fixture).await;
    pausing_and_resuming_may_be_repeated(fixture).await;
    a_paused_machine_can_be_destroyed(fixture).await;
    operations_without_a_machine_fail_with_no_such_machine(fixture).await;
    a_machine_is_adopted_only_if_its_whole_identity_matches(fixture).await;
    the_end_of_a_machine_is_noticed_whatever_its_cause(fixture).await;
    an_ended_machine_is_not_adopted(fixture).await;
    limits_change_while_the_machine_runs(fixture).await;
    a_disk_has_a_rate_or_the_driver_reports_why_not(fixture).await;
    machines_do_not_affect_each_other(fixture).await;
    a_volume_appears_at_its_path_with_its_access_mode(fixture).await;
    if fixture.runtime().capabilities().hibernate != Ability::Yes {
        return;
    }
    a_dump_leaves_the_machine_paused_and_may_be_repeated(fixture).await;
    a_restored_machine_behaves_like_any_other(fixture).await;
    only_the_requested_machine_is_dumped(fixture).await;
    volumes_survive_a_dump_and_a_restore_sets_their_access_mode(fixture).await;
    an_invalid_dump_and_a_failed_introduction_leave_no_machine(fixture).await;
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

pub async fn destroying_twice_or_an_unknown_machine_succeeds(fixture: &dyn Fixture) {
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

pub async fn a_paused_machine_can_be_destroyed(fixture: &dyn Fixture) {
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

pub async fn operations_without_a_machine_fail_with_no_such_machine(fixture: &dyn Fixture) {
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
        runtime.recover(&id, &Machine { pid: 1, start_ticks: 1, boot_id: String::new() }, false).await,
    ];
    for answer in answers {
        match answer {
            Err(RuntimeError::NoMachine { id: named }) => assert_eq!(named, id),
            other => panic!("expected `NoMachine`, got {other:?}"),
        }
    }
}

pub async fn a_machine_is_adopted_only_if_its_whole_identity_matches(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let machine = boot(fixture, &id).await;
    let runtime = fixture.runtime();
    assert!(runtime.adopt(&id, &machine).await.expect("adoption answers"));

    let strangers = [
        Machine { start_ticks: machine.start_ticks + 1, ..machine.clone() },
        Machine { boot_id: format!("{}-not", machine.boot_id), ..machine.clone() },
        // A pid that no process has: the next pid may belong to a machine that another test started at the same moment.
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

pub async fn the_end_of_a_machine_is_noticed_whatever_its_cause(fixture: &dyn Fixture) {
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
    fixture.runtime().ended(&second).await.expect("waiting for an ended machine returns at once");
}

pub async fn an_ended_machine_is_not_adopted(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let machine = boot(fixture, &id).await;
    fixture.end_by_itself(&id, &machine).await;
    fixture.runtime().ended(&machine).await.expect("waiting works");
    assert!(!fixture.runtime().adopt(&id, &machine).await.expect("adoption answers"));
    assert!(inventory_has(fixture, &id).await, "its remains are still listed");
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

pub async fn a_disk_has_a_rate_or_the_driver_reports_why_not(fixture: &dyn Fixture) {
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
                runtime.set_disk_rate(&id, rate).await.expect("a rate can be changed repeatedly");
            }
            runtime.pause(&id).await.expect("a machine pauses");
            for rate in [None, Some(DISK_RATE)] {
                runtime.set_disk_rate(&id, rate).await.expect("a paused machine has a rate, too");
            }
            runtime.resume(&id).await.expect("a machine resumes");
            let unknown = SandboxId::generate();
            let refused = runtime.set_disk_rate(&unknown, Some(DISK_RATE)).await;
            assert!(matches!(refused, Err(RuntimeError::NoMachine { .. })), "{refused:?}");
        }
    }
    // If no rate can be set, removing it succeeds.
    runtime.set_disk_rate(&id, None).await.expect("a rate is removed");
    destroy(fixture, &id).await;
}

pub async fn machines_do_not_affect_each_other(fixture: &dyn Fixture) {
    let (one, other) = (SandboxId::generate(), SandboxId::generate());
    boot(fixture, &one).await;
    let machine = boot(fixture, &other).await;
    destroy(fixture, &one).await;
    assert!(fixture.runtime().adopt(&other, &machine).await.expect("adoption answers"));
    assert!(inventory_has(fixture, &other).await);
    destroy(fixture, &other).await;
}

/// A machine with a known root, for dumps of it.
struct DumpableMachine {
    id: SandboxId,
    root: PathBuf,
    machine: Machine,
    mounts: Vec<Mount>,
}

/// A dump of the machine.
struct StoredDump {
    images: PathBuf,
    about: String,
}

impl DumpableMachine {
    async fn boot(fixture: &dyn Fixture) -> Self {
        let (id, options) = (SandboxId::generate(), fixture.options(LIMITS).await);
        let root = options.root.clone();
        let machine = fixture.runtime().boot(&id, options).await.expect("a machine boots");
        Self { id, root, machine, mounts: Vec::new() }
    }

    async fn dump(&self, fixture: &dyn Fixture) -> StoredDump {
        let images = fixture.images().await;
        let options = DumpOptions {
            machine: self.machine.clone(),
            root: self.root.clone(),
            images: images.clone(),
            mounts: self.mounts.clone(),
        };
        let dumped = fixture.runtime().dump(&self.id, options).await.expect("a machine is dumped");
        StoredDump { images, about: dumped.about }
    }

    async fn restored(&self, fixture: &dyn Fixture, kept: &StoredDump) -> RestoreOptions {
        RestoreOptions {
            root: self.root.clone(),
            images: kept.images.clone(),
            about: kept.about.clone(),
            attachment: fixture.attachment_later().await,
            limits: LIMITS,
            hostname: None,
            mounts: self.mounts.clone(),
            introduce: None,
            trial: false,
        }
    }
}

/// Two volumes, one read-write and one read-only.
async fn two_volumes(fixture: &dyn Fixture) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for (target, mode) in [("/data", MountMode::Rw), ("/srv/models", MountMode::Ro)] {
        let target = target.parse().expect("the path is valid");
        mounts.push(Mount { source: fixture.source().await, target, mode });
    }
    mounts
}

async fn assert_seen(fixture: &dyn Fixture, id: &SandboxId, machine: &Machine, mounts: &[Mount]) {
    for Mount { target, mode, .. } in mounts {
        assert_eq!(fixture.sees(id, machine, target).await, Some(*mode), "{target}");
    }
    let elsewhere = "/elsewhere".parse().expect("the path is valid");
    assert_eq!(fixture.sees(id, machine, &elsewhere).await, None);
}

pub async fn a_volume_appears_at_its_path_with_its_access_mode(fixture: &dyn Fixture) {
    if fixture.runtime().capabilities().volumes != Ability::Yes {
        return;
    }
    let (id, mounts) = (SandboxId::generate(), two_volumes(fixture).await);
    // Twice: the second time, the mount points already exist.
    for _ in 0..2 {
        let options = BootOptions { mounts: mounts.clone(), ..fixture.options(LIMITS).await };
        let machine = fixture.runtime().boot(&id, options).await.expect("a machine boots");
        assert_seen(fixture, &id, &machine, &mounts).await;
        destroy(fixture, &id).await;
    }
}

pub async fn volumes_survive_a_dump_and_a_restore_sets_their_access_mode(fixture: &dyn Fixture) {
    let runtime = fixture.runtime();
    if runtime.capabilities().volumes != Ability::Yes {
        return;
    }
    let (id, mut mounts) = (SandboxId::generate(), two_volumes(fixture).await);
    let options = BootOptions { mounts: mounts.clone(), ..fixture.options(LIMITS).await };
    let root = options.root.clone();
    let machine = runtime.boot(&id, options).await.expect("a machine boots");
    let mut dumpable = DumpableMachine { id, root, machine, mounts: mounts.clone() };
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
    let dumpable = DumpableMachine::boot(fixture).await;
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
        runtime.recover(id, machine, paused).await.expect("an intact machine is recovered");
    }
    dumpable.dump(fixture).await;
    destroy(fixture, id).await;
    assert!(!inventory_has(fixture, id).await);
}

pub async fn a_restored_machine_behaves_like_any_other(fixture: &dyn Fixture) {
    let mut dumpable = DumpableMachine::boot(fixture).await;
    let runtime = fixture.runtime();
    // Once while the earlier machine still exists, and once after it was destroyed.
    for gone in [false, true] {
        // A new dump each time: a running machine changes its files, so they no longer match an older dump.
        let kept = dumpable.dump(fixture).await;
        if gone {
            destroy(fixture, &dumpable.id).await;
        }
        let options = dumpable.restored(fixture, &kept).await;
        let restored = runtime.restore(&dumpable.id, options).await.expect("a machine is restored");
        assert_ne!(restored, dumpable.machine);
        runtime.ended(&dumpable.machine).await.expect("the earlier machine has ended");
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

pub async fn only_the_requested_machine_is_dumped(fixture: &dyn Fixture) {
    let dumpable = DumpableMachine::boot(fixture).await;
    let runtime = fixture.runtime();
    let stranger = Machine { start_ticks: dumpable.machine.start_ticks + 1, ..dumpable.machine.clone() };
    let images = fixture.images().await;
    let options =
        DumpOptions { machine: stranger.clone(), root: dumpable.root.clone(), images, mounts: Vec::new() };
    let refused = runtime.dump(&dumpable.id, options).await;
    assert!(matches!(refused, Err(RuntimeError::NoMachine { .. })), "{refused:?}");
    let refused = runtime.recover(&dumpable.id, &stranger, true).await;
    assert!(matches!(refused, Err(RuntimeError::NoMachine { .. })), "{refused:?}");
    destroy(fixture, &dumpable.id).await;
}

pub async fn an_invalid_dump_and_a_failed_introduction_leave_no_machine(fixture: &dyn Fixture) {
    let dumpable = DumpableMachine::boot(fixture).await;
    let kept = dumpable.dump(fixture).await;
    let runtime = fixture.runtime();
    destroy(fixture, &dumpable.id).await;
    let nonsense = RestoreOptions { about: "nonsense".to_owned(), ..dumpable.restored(fixture, &kept).await };
    let refused = runtime.restore(&dumpable.id, nonsense).await;
    assert!(matches!(refused, Err(RuntimeError::Unfit { .. })), "{refused:?}");
    let known: IntroduceFn = Box::new(|| Box::pin(async { Ok(()) }));
    let again = RestoreOptions { introduce: Some(known), ..dumpable.restored(fixture, &kept).await };
    let machine =
        runtime.restore(&dumpable.id, again).await.expect("a machine is restored and receives its identity");

    let dumpable = DumpableMachine { machine, ..dumpable };
    let kept = dumpable.dump(fixture).await;
    destroy(fixture, &dumpable.id).await;
    let silent: IntroduceFn = Box::new(|| Box::pin(async { Err(io::ErrorKind::NotConnected.into()) }));
    let unknown = RestoreOptions { introduce: Some(silent), ..dumpable.restored(fixture, &kept).await };
    let refused = runtime.restore(&dumpable.id, unknown).await;
    assert!(matches!(refused, Err(RuntimeError::Restore { .. })), "{refused:?}");
    assert!(!inventory_has(fixture, &dumpable.id).await);
}
