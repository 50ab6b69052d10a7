//! The microVM driver: a machine with a kernel of its own, emulated by QEMU.
//!
//! ```text
//!   boot:     place/ sockets ─► plug: a tap ─► launcher/: the emulator, confined ─► agent/: boot message, its report
//!   pause:    agent/: hold ─► qmp/: stop ─► cgroup: freeze
//!   dump:     pages/: what the RAM started from ─► hold, stop ─► devices ─► pages/: what has changed since
//!   restore:  the emulator on the dump's RAM, which it never writes ─► devices ─► introduced ─► paused
//! ```
//!
//! Isolation: the guest's kernel is its own, and what it breaks out into is a process without rights (see
//! [`crate::launcher`]). Where the processor can run it (KVM), that was tried by booting one; else it is emulated, ten to
//! thirty times slower.
//!
//! A machine's directory holds [`disk::NAME`] instead of a tree of files. The machine is told everything over a serial
//! port, by its first process; the host never looks into its disk.
//!
//! The driver keeps nothing in memory that it could not find again: what exists is what the cgroup trees and the run
//! directory say. A machine that stands still is held by its own agent too, so whatever is made of its dump wakes up with
//! only the agent running.
//!
//! Invariant: all that is made on the host for a sandbox is in cgroups and a directory that bear its id, so that
//! `destroy` needs nothing else. Taps and namespaces go with the emulator.

mod about;
mod agent;
mod boot;
mod clock;
pub mod disk;
mod hibernate;
mod initramfs;
mod model;
mod pages;
mod place;
mod probe;
mod qmp;
mod reader;
mod restore;
mod session;
mod stream;
mod template;
mod throttle;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};
use tokio::sync::Semaphore;

use crate::cgroup::{Group, Groups};
use crate::disks::{Disks, Give, OpenDisks};
use crate::launcher::Launcher;
use crate::process::Process;
use crate::turns::Turns;
use crate::{
    Ability, Begun, BootOptions, Capabilities, DumpOptions, Dumped, FinishOptions, Form, Incidents, Machine,
    Obstacle, RestoreOptions, Runtime, RuntimeError, TemplateOptions,
};
use about::{About, Here};
use model::Model;
use place::Places;
use session::Link;

pub use model::Accelerator;
pub use probe::Acceleration;

/// Between two questions to an emulator whether it is there.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// How long an end waits for its turn before it makes one.
const KILL_EVERY: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub struct Options {
    /// Program and arguments of the launcher role, which calls [`crate::container::launcher_main`].
    pub launcher: Vec<OsString>,
    /// The agent, a static program.
    pub guest_binary: PathBuf,
    /// Directory of the cgroup trees that holds one directory per sandbox; no other driver's.
    pub cgroup_parent: String,
    /// For what must not outlive the host's uptime.
    pub run_dir: PathBuf,
    /// Where `scripts/get-qemu.sh` put QEMU.
    pub qemu: PathBuf,
    /// Where it put the kernel and its modules.
    pub kernel: PathBuf,
    /// `None`: what a trial boot says.
    pub accelerator: Option<Accelerator>,
}

/// Runs sandboxes as microVMs.
#[derive(Debug)]
pub struct MicrovmRuntime {
    shared: Arc<Shared>,
    capabilities: Capabilities,
    acceleration: Acceleration,
    turns: Turns,
    /// As many machines that read disks as may be at once.
    readers: Arc<Semaphore>,
}

/// What work off the async threads needs.
#[derive(Debug)]
struct Shared {
    launcher: Launcher,
    qemu: PathBuf,
    kernel: PathBuf,
    /// `None` where the host has no usable cgroups; `capabilities` says why.
    groups: Option<Groups>,
    places: Places,
    here: Here,
    /// Tells the kernels and agents apart that machines boot with.
    booted_with: String,
    /// Connections to machines, each taken out by whoever has the sandbox's turn.
    links: Mutex<HashMap<SandboxId, Link>>,
}

// === impl MicrovmRuntime ===

impl MicrovmRuntime {
    /// Looks at the host and, if it has KVM, tries to boot a machine by it. A host that cannot run machines is no error:
    /// `capabilities` says what it lacks, and `boot` refuses. Blocks; call it once, at start-up.
    pub fn open(options: Options) -> Result<Arc<Self>, RuntimeError> {
        probe::open(options)
    }

    /// By what machines run here, and why.
    pub fn acceleration(&self) -> &Acceleration {
        &self.acceleration
    }

    /// Boots a machine that ends itself at once, by what machines run by here: whether they do. Else why not, in words.
    pub async fn trial(&self) -> Result<(), String> {
        let accelerator = self.acceleration.accelerator;
        self.off_thread(move |shared| shared.trial(accelerator)).await
    }

    /// Runs blocking work about one sandbox, after all other work about it. The work goes on, and keeps its turn, when
    /// the caller is dropped: whoever comes next finds it done.
    async fn work<T: Send + 'static>(
        &self,
        id: &SandboxId,
        work: impl FnOnce(&Shared, &SandboxId) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let turn = self.turns.take(id).await;
        let id = id.clone();
        self.off_thread(move |shared| {
            let done = work(shared, &id);
            drop(turn);
            done
        })
        .await
    }

    /// Runs blocking work where it may block.
    async fn off_thread<T: Send + 'static>(&self, work: impl FnOnce(&Shared) -> T + Send + 'static) -> T {
        let shared = Arc::clone(&self.shared);
        match tokio::task::spawn_blocking(move || work(&shared)).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The async runtime is shutting down, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

#[async_trait]
impl Runtime for MicrovmRuntime {
    fn name(&self) -> &'static str {
        about::DRIVER
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn form(&self) -> Form {
        Form::Disk
    }

    async fn make_disk(&self, tree: &Path, into: &Path) -> io::Result<()> {
        let (tree, into) = (tree.to_owned(), into.to_owned());
        self.off_thread(move |_| disk::make_fitting(&tree, &into).map(drop)).await
    }

    fn template_kind(&self, limits: &Limits) -> Option<String> {
        if self.capabilities.available != Ability::Yes {
            return None;
        }
        let model = Model::new(limits, self.acceleration.accelerator, self.shared.here.tsc_khz);
        let Shared { booted_with, here, .. } = &*self.shared;
        Some(format!("{}:{}:{}:{booted_with}", model.fingerprint(), limits.disk_mib, here.emulator))
    }

    async fn make_template(&self, id: &SandboxId, options: TemplateOptions) -> Result<Dumped, RuntimeError> {
        self.check_available(id)?;
        self.work(id, move |shared, id| {
            let made = shared.make_template(id, options);
            shared.clean_up(id);
            made
        })
        .await
    }

    async fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        self.check_available(id)?;
        self.work(id, move |shared, id| match options.template.clone() {
            Some(template) => shared.cleaned(id, |shared| shared.boot_template(id, options, &template)),
            None => shared.boot(id, options),
        })
        .await
    }

    /// Of a template only: a machine that has to boot takes as long either way.
    fn begins_ahead(&self) -> bool {
        self.capabilities.available == Ability::Yes
    }

    async fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<Begun, RuntimeError> {
        self.check_available(id)?;
        self.work(id, move |shared, id| shared.cleaned(id, |shared| shared.begin(id, options))).await
    }

    async fn finish(
        &self,
        id: &SandboxId,
        begun: Begun,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        self.work(id, move |shared, id| shared.finish(id, begun, options)).await
    }

    async fn settle_files(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.work(id, |shared, id| shared.settle_files(id)).await
    }

    async fn open_disks(&self, options: OpenDisks) -> Result<Box<dyn Disks>, RuntimeError> {
        Ok(Box::new(self.open_reader(options).await?))
    }

    async fn change_files(&self, id: &SandboxId, give: Give) -> Result<(), RuntimeError> {
        self.work(id, move |shared, id| shared.change_files(id, give)).await
    }

    async fn adopt(&self, id: &SandboxId, machine: &Machine) -> Result<bool, RuntimeError> {
        let machine = machine.clone();
        self.work(id, move |shared, id| match shared.group_of(id, &machine) {
            Ok(_) => Ok(true),
            Err(RuntimeError::NoMachine { .. }) => Ok(false),
            Err(error) => Err(error),
        })
        .await
    }

    /// Meanwhile the emulator is asked from time to time whether it is there: one that is not is ended.
    async fn ended(&self, machine: &Machine) -> Result<(), RuntimeError> {
        let failed = |source| RuntimeError::Host { step: "wait for a machine's end", source };
        let Some(process) = Process::find(machine).map_err(failed)? else { return Ok(()) };
        let known = machine.clone();
        let id = self.off_thread(move |shared| shared.sandbox_of(&known)).await;
        let ended = process.ended();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                ended = &mut ended => return ended.map_err(failed),
                () = tokio::time::sleep(HEARTBEAT), if id.is_some() => {
                    if let Some(id) = &id {
                        self.work(id, |shared, id| { shared.heartbeat(id); Ok(()) }).await?;
                    }
                }
            }
        }
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.work(id, |shared, id| shared.pause(id)).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.work(id, |shared, id| shared.resume(id)).await
    }

    /// None, ever: a machine is written down as a whole, whatever its processes do.
    async fn obstacles(&self, id: &SandboxId) -> Result<Vec<Obstacle>, RuntimeError> {
        self.work(id, |shared, id| shared.live(id).map(|_| Vec::new())).await
    }

    async fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.work(id, |shared, id| shared.dump_bytes(id)).await
    }

    async fn dump(&self, id: &SandboxId, options: DumpOptions) -> Result<Dumped, RuntimeError> {
        self.work(id, move |shared, id| shared.dump(id, &options)).await
    }

    async fn restore(&self, id: &SandboxId, options: RestoreOptions) -> Result<Machine, RuntimeError> {
        if let Ability::No { reason, .. } = &self.capabilities.available {
            return Err(RuntimeError::Restore { id: id.clone(), reason: reason.clone() });
        }
        let handle = tokio::runtime::Handle::current();
        self.work(id, move |shared, id| shared.restore(id, options, &handle)).await
    }

    async fn misfit(&self, about: &str) -> Option<String> {
        if let Ability::No { reason, .. } = &self.capabilities.available {
            return Some(reason.clone());
        }
        match About::read(about) {
            Ok(about) => about.misfit(&self.shared.here),
            Err(reason) => Some(reason),
        }
    }

    async fn mend(&self, id: &SandboxId, machine: &Machine, paused: bool) -> Result<(), RuntimeError> {
        let machine = machine.clone();
        self.work(id, move |shared, id| {
            shared.group_of(id, &machine)?;
            if paused { shared.pause(id) } else { shared.resume(id) }
        })
        .await
    }

    /// Of the emulator, which uses some even when the guest is idle: about a hundredth of a processor.
    async fn cpu_us(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.work(id, |shared, id| shared.live(id)?.cpu_us().map_err(step("read the processor time", id)))
            .await
    }

    /// CPU time, the number of processes, and a larger disk, at once. How much RAM and how many processors the machine
    /// has, it has for its life: those are another at its next boot.
    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError> {
        let limits = *limits;
        self.work(id, move |shared, id| shared.set_limits(id, &limits)).await
    }

    async fn set_disk_rate(&self, id: &SandboxId, bytes_per_second: Option<u64>) -> Result<(), RuntimeError> {
        self.work(id, move |shared, id| shared.set_disk_rate(id, bytes_per_second)).await
    }

    async fn incidents(&self, id: &SandboxId) -> Result<Incidents, RuntimeError> {
        self.work(id, |shared, id| {
            let group = shared.group(id)?;
            if !group.exists() {
                return Err(RuntimeError::NoMachine { id: id.clone() });
            }
            let oom_kills = group.oom_kills().map_err(step("read what happened", id))?;
            Ok(Incidents { oom_kills })
        })
        .await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        // Whoever waits for the machine now, a boot that hangs say, hears of its end and makes way.
        let turn = loop {
            tokio::select! {
                turn = self.turns.take(id) => break turn,
                () = tokio::time::sleep(KILL_EVERY) => {
                    let id = id.clone();
                    self.off_thread(move |shared| shared.kill(&id)).await?;
                }
            }
        };
        let id = id.clone();
        self.off_thread(move |shared| {
            let done = shared.destroy(&id);
            drop(turn);
            done
        })
        .await
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        let found = self.off_thread(Shared::inventory).await;
        found.map_err(|source| RuntimeError::Host { step: "list the machines", source })
    }
}

// === impl Shared ===

impl Shared {
    fn group(&self, id: &SandboxId) -> Result<Group<'_>, RuntimeError> {
        match &self.groups {
            Some(groups) => Ok(groups.group(id)),
            None => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }

    /// The group of a sandbox that has a machine.
    fn live(&self, id: &SandboxId) -> Result<Group<'_>, RuntimeError> {
        let group = self.group(id)?;
        match group.is_populated() {
            Ok(true) => Ok(group),
            Ok(false) => Err(RuntimeError::NoMachine { id: id.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(RuntimeError::NoMachine { id: id.clone() })
            }
            Err(source) => Err(step("look for the machine", id)(source)),
        }
    }

    /// The group of a machine that lives and is the one meant.
    fn group_of(&self, id: &SandboxId, machine: &Machine) -> Result<Group<'_>, RuntimeError> {
        let group = self.live(id)?;
        let looking = "look for the machine";
        let in_group = group.has(machine.pid).map_err(step(looking, id))?;
        // Asked last: a process that is still the same one was so when its cgroup was read.
        match in_group && Process::find(machine).map_err(step(looking, id))?.is_some() {
            true => Ok(group),
            false => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }

    /// Whose a machine is.
    fn sandbox_of(&self, machine: &Machine) -> Option<SandboxId> {
        let groups = self.groups.as_ref()?;
        groups.inventory().ok()?.into_iter().find(|id| groups.group(id).has(machine.pid).unwrap_or(false))
    }

    /// Ends the emulator, if there is one.
    fn kill(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let Some(groups) = &self.groups else { return Ok(()) };
        match groups.group(id).kill() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(step("end the machine", id)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Leaves nothing of a machine that did not come up.
    fn cleaned<T>(
        &self,
        id: &SandboxId,
        work: impl FnOnce(&Self) -> Result<T, RuntimeError>,
    ) -> Result<T, RuntimeError> {
        let done = work(self);
        if done.is_err() {
            self.clean_up(id);
        }
        done
    }

    fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.forget_link(id);
        let Some(groups) = &self.groups else { return Ok(()) };
        let group = groups.group(id);
        if group.exists() {
            group.kill().map_err(step("end the machine", id))?;
        }
        self.places.remove(id).map_err(step("remove the machine's directory", id))?;
        group.remove().map_err(step("remove the cgroups", id))
    }

    fn inventory(&self) -> io::Result<Vec<SandboxId>> {
        let mut found = BTreeSet::new();
        if let Some(groups) = &self.groups {
            found.extend(groups.inventory()?);
        }
        found.extend(self.places.inventory()?);
        Ok(found.into_iter().collect())
    }
}

fn step(step: &'static str, id: &SandboxId) -> impl FnOnce(io::Error) -> RuntimeError {
    let id = id.clone();
    move |source| RuntimeError::Step { step, id, source }
}
