//! Simulated machines, without a kernel.
//!
//! A [`Sim`] keeps its machines in a map and behaves as the real drivers promise, and no better: it passes the same
//! conformance suite. Tests inspect it with [`Sim::live`] and [`Sim::machine`], and make a machine end by itself with
//! [`Sim::end`].
//!
//! A machine has some [`SimMachine::ram`], which only changes while it runs: [`Sim::set_ram`]. A dump stores it in a
//! file, if there is a directory for it, and in the dump's description, so simulations without files keep it too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use burrow_model::{Limits, MountPath, SandboxId};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};

use crate::{
    Ability, BootOptions, Capabilities, DumpInfo, DumpOptions, FinishOptions, Incidents, Machine, Mount,
    Obstacle, Precreate, PrecreatedMachine, RestoreOptions, RestoredKinds, Runtime, RuntimeError, Trials,
};

/// The one file of a simulated dump.
const RAM_FILE: &str = "ram.json";
/// The kind of every machine, for trials.
const MACHINE: &str = "machine";

/// A driver whose machines exist only in this process.
#[derive(Debug, Default)]
pub struct Sim {
    world: Mutex<World>,
    /// Why it does not support disk rates.
    no_disk_rate: Option<&'static str>,
}

/// One simulated machine, as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimMachine {
    pub machine: Machine,
    pub paused: bool,
    pub limits: Limits,
    /// Bytes per second; stored, without effect.
    pub disk_rate: Option<u64>,
    pub hostname: String,
    pub boot_document: Vec<u8>,
    pub oom_kills: u64,
    /// State that is lost when the machine ends, and survives a dump.
    pub ram: BTreeMap<String, String>,
    pub obstacles: Vec<Obstacle>,
    pub cpu_us: u64,
    /// Number of times that a restored machine received its identity.
    pub introduced: u32,
    pub mounts: Vec<Mount>,
}

/// The description of a simulated dump.
#[derive(Debug, Serialize, Deserialize)]
struct SimDumpDescription {
    driver: String,
    hostname: String,
    ram: BTreeMap<String, String>,
    /// The mount paths of volumes.
    #[serde(default)]
    places: Vec<MountPath>,
}

#[derive(Debug)]
struct World {
    machines: BTreeMap<SandboxId, Slot>,
    next_pid: u32,
    boot_id: String,
    /// Names of RAM values that a trial has restored.
    tried: BTreeSet<String>,
    /// Part of the record of those.
    kernel: String,
    /// The reason why every trial fails, if set.
    refused: Option<String>,
    /// The next trials are interrupted this many times.
    trials_to_cut: u32,
    /// Whether the host lacks the RAM for a trial.
    no_room: bool,
    /// The next restores that are no trials fail this many times.
    restores_to_fail: u32,
    /// Trials wait until it is closed.
    gate: Option<Arc<Semaphore>>,
    /// The mounts of each trial that succeeded.
    trial_mounts: Vec<Vec<Mount>>,
}

#[derive(Debug)]
struct Slot {
    seen: SimMachine,
    /// Becomes true once, when the machine ends; a dropped sender means the same.
    ended: watch::Sender<bool>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            machines: BTreeMap::new(),
            next_pid: 1000,
            boot_id: "simulated-boot-1".to_owned(),
            tried: BTreeSet::new(),
            kernel: "simulated-kernel-1".to_owned(),
            refused: None,
            trials_to_cut: 0,
            no_room: false,
            restores_to_fail: 0,
            gate: None,
            trial_mounts: Vec::new(),
        }
    }
}

impl Sim {
    /// A driver that cannot limit the rate of a disk.
    pub fn without_disk_rate(reason: &'static str) -> Self {
        Self { no_disk_rate: Some(reason), ..Self::default() }
    }

    /// The sandboxes whose machine has not ended.
    pub fn live(&self) -> Vec<SandboxId> {
        let world = self.world();
        world.machines.iter().filter(|(_, slot)| !*slot.ended.borrow()).map(|(id, _)| id.clone()).collect()
    }

    /// The machine of a sandbox, ended or not.
    pub fn machine(&self, id: &SandboxId) -> Option<SimMachine> {
        self.world().machines.get(id).map(|slot| slot.seen.clone())
    }

    /// Ends a machine as a crash of its PID 1 would: the resources that `boot` created remain until `destroy`.
    pub fn end(&self, id: &SandboxId) {
        if let Some(slot) = self.world().machines.get(id) {
            slot.ended.send_replace(true);
        }
    }

    /// Counts an out-of-memory kill inside a machine.
    pub fn kill_by_oom(&self, id: &SandboxId) {
        if let Some(slot) = self.world().machines.get_mut(id) {
            slot.seen.oom_kills += 1;
        }
    }

    /// Changes its RAM from inside; `false` if no machine runs, or it is paused.
    pub fn set_ram(&self, id: &SandboxId, name: &str, value: &str) -> bool {
        match self.world().machines.get_mut(id) {
            Some(slot) if !slot.seen.paused && !*slot.ended.borrow() => {
                slot.seen.ram.insert(name.to_owned(), value.to_owned());
                true
            }
            Some(_) | None => false,
        }
    }

    /// A value in the RAM of a machine that has not ended, paused or not.
    pub fn ram(&self, id: &SandboxId, name: &str) -> Option<String> {
        let world = self.world();
        let slot = world.machines.get(id).filter(|slot| !*slot.ended.borrow())?;
        slot.seen.ram.get(name).cloned()
    }

    /// Makes every trial restore fail for this reason.
    pub fn refuse_trials(&self, reason: &str) {
        self.world().refused = Some(reason.to_owned());
    }

    /// Trials succeed again after [`Self::refuse_trials`].
    pub fn allow_trials(&self) {
        self.world().refused = None;
    }

    /// Interrupts this many trials, as if the program that restores them was killed.
    pub fn cut_trials(&self, times: u32) {
        self.world().trials_to_cut = times;
    }

    /// Whether the host lacks the RAM for a trial.
    pub fn set_no_room(&self, no_room: bool) {
        self.world().no_room = no_room;
    }

    /// Makes this many restores fail that are no trials.
    pub fn fail_restores(&self, times: u32) {
        self.world().restores_to_fail = times;
    }

    /// Makes trials wait until [`Self::release_trials`].
    pub fn hold_trials(&self) {
        self.world().gate = Some(Arc::new(Semaphore::new(0)));
    }

    pub fn release_trials(&self) {
        if let Some(gate) = self.world().gate.take() {
            gate.close();
        }
    }

    /// Forgets which kinds were restored, as a driver that is opened again, on this kernel.
    pub fn reopen(&self, kernel: &str) {
        let mut world = self.world();
        world.tried.clear();
        kernel.clone_into(&mut world.kernel);
    }

    /// The mounts of each trial that succeeded.
    pub fn trial_mounts(&self) -> Vec<Vec<Mount>> {
        self.world().trial_mounts.clone()
    }

    /// Makes every dump of a machine fail with these obstacles; an empty list removes them.
    pub fn hinder(&self, id: &SandboxId, obstacles: Vec<Obstacle>) {
        if let Some(slot) = self.world().machines.get_mut(id) {
            slot.seen.obstacles = obstacles;
        }
    }

    /// Makes a machine's processes use CPU time; `false` if no machine runs, or it is paused.
    pub fn use_cpu(&self, id: &SandboxId, us: u64) -> bool {
        match self.world().machines.get_mut(id) {
            Some(slot) if !slot.seen.paused && !*slot.ended.borrow() => {
                slot.seen.cpu_us += us;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Simulates a reboot of the host: no machine is left, and the boot id changes.
    pub fn reboot_host(&self) {
        let mut world = self.world();
        world.machines.clear();
        world.boot_id.push('\'');
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // Every change under the lock is a single step, so a panicking test leaves no partial change.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new machine, replacing an existing one. Waiters for the end of the old one are notified by the dropped
    /// sender.
    fn place(&self, id: &SandboxId, make: impl FnOnce(Machine) -> SimMachine) -> Machine {
        let mut world = self.world();
        let pid = world.next_pid;
        world.next_pid += 1;
        let machine = Machine { pid, start_ticks: u64::from(pid) * 10, boot_id: world.boot_id.clone() };
        let slot = Slot { seen: make(machine.clone()), ended: watch::Sender::new(false) };
        world.machines.insert(id.clone(), slot);
        machine
    }

    fn inspect<T>(&self, id: &SandboxId, inspect: impl FnOnce(&SimMachine) -> T) -> Result<T, RuntimeError> {
        match self.world().machines.get(id) {
            Some(slot) if !*slot.ended.borrow() => Ok(inspect(&slot.seen)),
            Some(_) | None => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }

    fn change(&self, id: &SandboxId, change: impl FnOnce(&mut SimMachine)) -> Result<(), RuntimeError> {
        match self.world().machines.get_mut(id) {
            Some(slot) if !*slot.ended.borrow() => {
                change(&mut slot.seen);
                Ok(())
            }
            Some(_) | None => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }
}

impl Sim {
    /// A trial, as far as tests have it fail.
    async fn pass_trial(
        &self,
        id: &SandboxId,
        kinds: Vec<String>,
        mounts: &[Mount],
    ) -> Result<(), RuntimeError> {
        let gate = self.world().gate.clone();
        if let Some(gate) = gate {
            // It is closed when trials are released.
            let _ = gate.acquire().await;
        }
        let mut world = self.world();
        if world.no_room {
            let (needed_bytes, available_bytes) = (2 << 30, 1 << 30);
            return Err(RuntimeError::NoRoomForTrial { id: id.clone(), needed_bytes, available_bytes });
        }
        if world.trials_to_cut > 0 {
            world.trials_to_cut -= 1;
            return Err(RuntimeError::RestoreCut { id: id.clone(), reason: "CRIU was killed".to_owned() });
        }
        if let Some(reason) = &world.refused {
            return Err(RuntimeError::Restore { id: id.clone(), reason: reason.clone() });
        }
        world.tried.extend(kinds);
        world.trial_mounts.push(mounts.to_vec());
        Ok(())
    }

    /// The same for a restore that is no trial.
    fn pass_restore(&self, id: &SandboxId, kinds: &[String]) -> Result<(), RuntimeError> {
        let mut world = self.world();
        if world.restores_to_fail == 0 {
            return Ok(());
        }
        world.restores_to_fail -= 1;
        world.tried.retain(|kind| !kinds.contains(kind));
        Err(RuntimeError::Restore { id: id.clone(), reason: "a test made it fail".to_owned() })
    }
}

#[async_trait]
impl Runtime for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn capabilities(&self) -> Capabilities {
        let yes = Ability::Yes;
        Capabilities {
            available: yes.clone(),
            pause: yes.clone(),
            hibernate: yes.clone(),
            limits: yes.clone(),
            disk_rate: self
                .no_disk_rate
                .map_or(yes.clone(), |reason| Ability::No { reason: reason.to_owned(), fix: None }),
            volumes: yes,
            isolates_by_hardware: false,
            note: None,
        }
    }

    fn precreate(&self) -> Option<&dyn Precreate> {
        Some(self)
    }

    fn trials(&self) -> Option<&dyn Trials> {
        Some(self)
    }

    async fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        let BootOptions { limits, hostname, boot_document, mounts, root: _, attachment: _, template: _ } =
            options;
        let fresh = |machine| SimMachine {
            machine,
            paused: false,
            limits,
            disk_rate: None,
            hostname,
            boot_document,
            oom_kills: 0,
            ram: BTreeMap::new(),
            obstacles: Vec::new(),
            cpu_us: 0,
            introduced: 0,
            mounts,
        };
        Ok(self.place(id, fresh))
    }

    async fn adopt(&self, id: &SandboxId, machine: &Machine) -> Result<bool, RuntimeError> {
        let world = self.world();
        Ok(world.machines.get(id).is_some_and(|slot| slot.seen.machine == *machine && !*slot.ended.borrow()))
    }

    async fn ended(&self, machine: &Machine) -> Result<(), RuntimeError> {
        let mut ended = {
            let world = self.world();
            match world.machines.values().find(|slot| slot.seen.machine == *machine) {
                Some(slot) => slot.ended.subscribe(),
                None => return Ok(()),
            }
        };
        // An error means that the machine was destroyed or replaced, which is also an end.
        let _ = ended.wait_for(|ended| *ended).await;
        Ok(())
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.change(id, |seen| seen.paused = true)
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.change(id, |seen| seen.paused = false)
    }

    async fn obstacles(&self, id: &SandboxId) -> Result<Vec<Obstacle>, RuntimeError> {
        self.inspect(id, |seen| seen.obstacles.clone())
    }

    async fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.inspect(id, |seen| seen.ram.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum())
    }

    async fn dump(&self, id: &SandboxId, options: DumpOptions) -> Result<DumpInfo, RuntimeError> {
        let seen = self.inspect(id, SimMachine::clone)?;
        if seen.machine != options.machine {
            return Err(RuntimeError::NoMachine { id: id.clone() });
        }
        if seen.obstacles.iter().any(|obstacle| !obstacle.passes) {
            return Err(RuntimeError::Obstacles { id: id.clone(), obstacles: seen.obstacles });
        }
        let failed = |error: io::Error| RuntimeError::Dump { id: id.clone(), reason: error.to_string() };
        if options.images.is_dir() {
            let ram = serde_json::to_vec(&seen.ram).map_err(|error| failed(error.into()))?;
            fs::write(options.images.join(RAM_FILE), ram).map_err(failed)?;
        }
        let places = seen.mounts.iter().map(|mount| mount.target.clone()).collect();
        let about = SimDumpDescription {
            driver: self.name().to_owned(),
            hostname: seen.hostname,
            ram: seen.ram,
            places,
        };
        let about = serde_json::to_string(&about).map_err(|error| failed(error.into()))?;
        self.change(id, |seen| seen.paused = true)?;
        Ok(DumpInfo { about, paused_us: u64::from(!seen.paused) })
    }

    async fn restore(&self, id: &SandboxId, options: RestoreOptions) -> Result<Machine, RuntimeError> {
        let unfit = |reason: String| RuntimeError::Unfit { id: id.clone(), reason };
        let about: SimDumpDescription =
            serde_json::from_str(&options.about).map_err(|error| unfit(error.to_string()))?;
        if about.driver != self.name() {
            return Err(unfit(format!("the dump was created by the driver `{}`", about.driver)));
        }
        let failed = |error: io::Error| RuntimeError::Restore { id: id.clone(), reason: error.to_string() };
        let places: Vec<MountPath> = options.mounts.iter().map(|mount| mount.target.clone()).collect();
        if places != about.places {
            return Err(failed(io::Error::other("the volumes differ from those of the dump")));
        }
        let ram = read_ram(&options.images, about.ram).map_err(failed)?;
        let hostname = options.hostname.unwrap_or(about.hostname);
        let kinds: Vec<_> = kinds(&ram).collect();
        match options.trial {
            true => self.pass_trial(id, kinds, &options.mounts).await?,
            false => self.pass_restore(id, &kinds)?,
        }
        let restored = |machine| SimMachine {
            machine,
            paused: true,
            limits: options.limits,
            disk_rate: None,
            hostname,
            boot_document: Vec::new(),
            oom_kills: 0,
            ram,
            obstacles: Vec::new(),
            cpu_us: 0,
            introduced: 0,
            mounts: options.mounts,
        };
        let machine = self.place(id, restored);
        if let Some(introduce) = options.introduce {
            let introduced = introduce().await;
            match introduced {
                Ok(()) => self.change(id, |seen| seen.introduced += 1)?,
                Err(error) => {
                    self.destroy(id).await?;
                    return Err(failed(error));
                }
            }
        }
        Ok(machine)
    }

    async fn misfit(&self, about: &str) -> Option<String> {
        match serde_json::from_str::<SimDumpDescription>(about) {
            Ok(about) if about.driver == self.name() => None,
            Ok(about) => Some(format!("the dump was created by the driver `{}`", about.driver)),
            Err(error) => Some(error.to_string()),
        }
    }

    async fn recover(&self, id: &SandboxId, machine: &Machine, paused: bool) -> Result<(), RuntimeError> {
        if self.inspect(id, |seen| seen.machine != *machine)? {
            return Err(RuntimeError::NoMachine { id: id.clone() });
        }
        self.change(id, |seen| seen.paused = paused)
    }

    async fn cpu_us(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.inspect(id, |seen| seen.cpu_us)
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError> {
        self.change(id, |seen| seen.limits = *limits)
    }

    async fn set_disk_rate(&self, id: &SandboxId, bytes_per_second: Option<u64>) -> Result<(), RuntimeError> {
        match (bytes_per_second, self.no_disk_rate) {
            (Some(_), Some(reason)) => {
                Err(RuntimeError::NoDiskRate { id: id.clone(), reason: reason.to_owned() })
            }
            (None, Some(_)) => Ok(()),
            (_, None) => self.change(id, |seen| seen.disk_rate = bytes_per_second),
        }
    }

    async fn incidents(&self, id: &SandboxId) -> Result<Incidents, RuntimeError> {
        match self.world().machines.get(id) {
            Some(slot) => Ok(Incidents { oom_kills: slot.seen.oom_kills }),
            None => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.world().machines.remove(id);
        Ok(())
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        Ok(self.world().machines.keys().cloned().collect())
    }
}

#[async_trait]
impl Precreate for Sim {
    async fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<PrecreatedMachine, RuntimeError> {
        let (hostname, root) = (options.hostname.clone(), options.root.clone());
        let machine = self.boot(id, BootOptions { boot_document: Vec::new(), ..options }).await?;
        Ok(PrecreatedMachine { machine, hostname, root, socket: None })
    }

    async fn finish(
        &self,
        id: &SandboxId,
        begun: PrecreatedMachine,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        self.change(id, |seen| {
            seen.hostname = options.hostname;
            seen.boot_document = options.boot_document;
        })?;
        Ok(begun.machine)
    }
}

#[async_trait]
impl Trials for Sim {
    /// A machine is one kind, and each name in its RAM another.
    async fn untried(&self, id: &SandboxId, images: &Path) -> Result<Vec<String>, RuntimeError> {
        let failed = |error: io::Error| RuntimeError::Dump { id: id.clone(), reason: error.to_string() };
        let ram = read_ram(images, BTreeMap::new()).map_err(failed)?;
        let tried = &self.world().tried;
        Ok(kinds(&ram).filter(|kind| !tried.contains(kind)).collect())
    }

    fn restored_kinds(&self) -> Option<RestoredKinds> {
        let world = self.world();
        Some(RestoredKinds { host: world.kernel.clone(), kinds: world.tried.clone() })
    }

    fn recall_kinds(&self, record: RestoredKinds) -> bool {
        let mut world = self.world();
        let applies = record.host == world.kernel;
        if applies {
            world.tried.extend(record.kinds);
        }
        applies
    }
}

/// From the file, if there are files.
fn kinds(ram: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    ram.keys().cloned().chain([MACHINE.to_owned()])
}

fn read_ram(images: &Path, described: BTreeMap<String, String>) -> io::Result<BTreeMap<String, String>> {
    if !images.is_dir() {
        return Ok(described);
    }
    Ok(serde_json::from_slice(&fs::read(images.join(RAM_FILE))?)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use burrow_model::MountMode;
    use burrow_network::Attachment;

    use super::*;
    use crate::conformance::{self, Fixture};

    #[derive(Debug, Default)]
    struct SimFixture(Sim);

    #[async_trait]
    impl Fixture for SimFixture {
        fn runtime(&self) -> &dyn Runtime {
            &self.0
        }

        async fn options(&self, limits: Limits) -> BootOptions {
            BootOptions {
                root: PathBuf::from("/nowhere"),
                attachment: Attachment::None,
                hostname: "conformance".to_owned(),
                limits,
                boot_document: b"{}".to_vec(),
                template: None,
                mounts: Vec::new(),
            }
        }

        async fn source(&self) -> PathBuf {
            PathBuf::from("/nowhere")
        }

        async fn sees(&self, id: &SandboxId, _: &Machine, target: &MountPath) -> Option<MountMode> {
            let seen = self.0.machine(id)?;
            seen.mounts.iter().find(|mount| mount.target == *target).map(|mount| mount.mode)
        }

        async fn end_by_itself(&self, id: &SandboxId, _machine: &Machine) {
            self.0.end(id);
        }

        async fn images(&self) -> PathBuf {
            PathBuf::from("/nowhere")
        }

        async fn attachment_later(&self) -> Attachment {
            Attachment::None
        }
    }

    #[tokio::test]
    async fn the_simulation_conforms() {
        conformance::all(&SimFixture::default()).await;
        conformance::all(&SimFixture(Sim::without_disk_rate("the driver has no disk"))).await;
    }

    #[tokio::test]
    async fn after_a_reboot_there_are_no_machines_and_the_boot_id_differs() {
        let simulated = SimFixture::default();
        let id = SandboxId::generate();
        let options = simulated.options(conformance::LIMITS).await;
        let before = simulated.0.boot(&id, options).await.unwrap();
        simulated.0.reboot_host();
        assert!(!simulated.0.adopt(&id, &before).await.unwrap());
        simulated.0.ended(&before).await.unwrap();
        let options = simulated.options(conformance::LIMITS).await;
        assert_ne!(simulated.0.boot(&id, options).await.unwrap().boot_id, before.boot_id);
    }

    /// Dumps the contents of a machine's RAM, and restores it under another id.
    async fn dump_and_restore(images: PathBuf) -> (Sim, SandboxId, SandboxId) {
        let simulated = SimFixture::default();
        let (id, child) = (SandboxId::generate(), SandboxId::generate());
        let boot = simulated.options(conformance::LIMITS).await;
        let machine = simulated.0.boot(&id, boot).await.unwrap();
        assert!(simulated.0.set_ram(&id, "count", "41"));
        let root = PathBuf::from("/nowhere");
        let dump = DumpOptions { machine, root: root.clone(), images: images.clone(), mounts: Vec::new() };
        let dumped = simulated.0.dump(&id, dump).await.unwrap();
        assert!(!simulated.0.set_ram(&id, "count", "42"), "it is paused");
        assert!(!simulated.0.use_cpu(&id, 1));
        simulated.0.resume(&id).await.unwrap();
        assert!(simulated.0.set_ram(&id, "count", "42"));
        let options = RestoreOptions {
            root,
            images,
            about: dumped.about,
            attachment: Attachment::None,
            limits: conformance::LIMITS,
            hostname: Some("child".to_owned()),
            mounts: Vec::new(),
            introduce: Some(Box::new(|| Box::pin(async { Ok(()) }))),
            trial: false,
        };
        simulated.0.restore(&child, options).await.unwrap();
        (simulated.0, id, child)
    }

    #[tokio::test]
    async fn ram_survives_a_dump_with_files_and_without() {
        let directory = tempfile::tempdir().unwrap();
        for images in [directory.path().to_owned(), PathBuf::from("/nowhere")] {
            let (sim, id, child) = dump_and_restore(images).await;
            assert_eq!(sim.ram(&child, "count").as_deref(), Some("41"));
            assert_eq!(sim.ram(&id, "count").as_deref(), Some("42"));
            let seen = sim.machine(&child).unwrap();
            assert_eq!((seen.hostname.as_str(), seen.introduced, seen.paused), ("child", 1, true));
        }
        assert!(directory.path().join(RAM_FILE).exists());
    }

    #[tokio::test]
    async fn a_machine_with_obstacles_is_not_dumped_and_continues_to_run() {
        let simulated = SimFixture::default();
        let id = SandboxId::generate();
        let boot = simulated.options(conformance::LIMITS).await;
        let machine = simulated.0.boot(&id, boot).await.unwrap();
        let (process, reason) = ("gdb".to_owned(), "is being traced".to_owned());
        simulated.0.hinder(&id, vec![Obstacle { pid: 7, process, reason, passes: false }]);
        let (root, images) = (PathBuf::new(), PathBuf::new());
        let error = simulated
            .0
            .dump(&id, DumpOptions { machine, root, images, mounts: Vec::new() })
            .await
            .unwrap_err();
        assert!(
            matches!(&error, RuntimeError::Obstacles { obstacles, .. } if obstacles.len() == 1),
            "{error}"
        );
        assert!(simulated.0.set_ram(&id, "still", "running"));
    }
}
