//! The microVM driver: machines with their own kernel, emulated by QEMU.
//!
//! ```text
//!   boot:     run_dir/ sockets ─► plug: a tap ─► launcher/: the emulator, confined ─► agent/: boot message, its report
//!   pause:    agent/: hold ─► qmp/: stop ─► cgroup: freeze
//!   dump:     pages/: the RAM's base file ─► hold, stop ─► devices ─► pages/: the changes since
//!   restore:  the emulator on the dump's RAM, which it never writes ─► devices ─► identity ─► paused
//! ```
//!
//! Isolation: the guest has its own kernel, and an attacker that breaks out of the machine is in a process without
//! privileges (see [`crate::launcher`]). If the processor can execute the guest (KVM), a trial boot has verified that;
//! else the guest is emulated, ten to thirty times slower.
//!
//! A machine's directory contains [`disk::NAME`] instead of a tree of files. The driver communicates with the machine's
//! first process over a serial port; the host never parses the disk.
//!
//! The driver has no state in memory that it could not find again: the cgroup trees and the run directory are the
//! state. The agent of a paused machine has frozen the other processes too, so a machine restored from its dump starts
//! with only the agent running.
//!
//! Invariant: everything that is created on the host for a sandbox is in cgroups and a directory named by its id, so
//! `destroy` needs nothing else. Taps and namespaces disappear with the emulator.

mod agent;
mod boot;
mod clock;
mod compatibility;
pub mod disk;
mod hibernate;
mod initramfs;
mod model;
mod options;
mod pages;
mod probe;
mod qmp;
mod reader;
mod restore;
mod run_dir;
mod session;
mod shared_state;
mod stream;
mod template;
mod throttle;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};
use tokio::sync::Semaphore;

use crate::disks::{DiskAccess, OpenDisks, SendFn};
use crate::process::Process;
use crate::sandbox_locks::SandboxLocks;
use crate::{
    Ability, BootOptions, Capabilities, DumpInfo, DumpOptions, FinishOptions, Incidents, Machine, Obstacle,
    OwnDisks, Precreate, PrecreatedMachine, RestoreOptions, Runtime, RuntimeError, TemplateOptions,
};
use compatibility::DumpOrigin;
use model::Model;
use shared_state::{Shared, step};

pub use model::Accelerator;
pub use options::Options;
pub use probe::Acceleration;

/// Interval between two health checks of an emulator.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// How long a destroy waits for the lock before it kills the machine.
const KILL_EVERY: Duration = Duration::from_millis(200);

/// Runs sandboxes as microVMs.
#[derive(Debug)]
pub struct MicrovmRuntime {
    shared: Arc<Shared>,
    capabilities: Capabilities,
    acceleration: Acceleration,
    locks: SandboxLocks,
    /// Limits the number of simultaneous reader machines.
    readers: Arc<Semaphore>,
}

// === impl MicrovmRuntime ===

impl MicrovmRuntime {
    /// Checks the host and, if it has KVM, tries to boot a machine with it. A host that cannot run machines is no
    /// error: `capabilities` reports what is missing, and `boot` fails. Blocks; call it once, at start-up.
    pub fn open(options: Options) -> Result<Arc<Self>, RuntimeError> {
        let (shared, capabilities, acceleration) = probe::open(options)?;
        Ok(Arc::new(Self {
            shared: Arc::new(shared),
            capabilities,
            acceleration,
            locks: SandboxLocks::default(),
            readers: Arc::new(Semaphore::new(reader::READERS_MAX)),
        }))
    }

    /// How machines are executed on this host, and why.
    pub fn acceleration(&self) -> &Acceleration {
        &self.acceleration
    }

    /// Boots a machine that ends itself at once, with this host's accelerator, to test whether machines run. Else the
    /// reason.
    pub async fn trial(&self) -> Result<(), String> {
        let accelerator = self.acceleration.accelerator;
        self.off_thread(move |shared| shared.trial(accelerator)).await
    }

    /// Runs blocking work about one sandbox, after all earlier work about it. The work continues, and keeps the lock,
    /// when the caller is dropped, so that the next operation finds it complete.
    async fn work<T: Send + 'static>(
        &self,
        id: &SandboxId,
        work: impl FnOnce(&Shared, &SandboxId) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let lock = self.locks.lock(id).await;
        let id = id.clone();
        self.off_thread(move |shared| {
            let done = work(shared, &id);
            drop(lock);
            done
        })
        .await
    }

    /// Runs blocking work on a thread that may block.
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
        compatibility::DRIVER
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    /// Only of a template: a machine that has to boot takes as long either way.
    fn precreate(&self) -> Option<&dyn Precreate> {
        (self.capabilities.available == Ability::Yes).then_some(self)
    }

    fn own_disks(&self) -> Option<&dyn OwnDisks> {
        Some(self)
    }

    async fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        self.check_available(id)?;
        self.work(id, move |shared, id| match options.template.clone() {
            Some(template) => shared.cleaned(id, |shared| shared.boot_template(id, options, &template)),
            None => shared.boot(id, options),
        })
        .await
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

    /// Meanwhile the emulator is checked periodically, and ended if it does not answer.
    async fn ended(&self, machine: &Machine) -> Result<(), RuntimeError> {
        let failed = |source| RuntimeError::Host { step: "wait for the end of a machine", source };
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

    /// None: a machine is dumped as a whole, whatever its processes do.
    async fn obstacles(&self, id: &SandboxId) -> Result<Vec<Obstacle>, RuntimeError> {
        self.work(id, |shared, id| shared.live(id).map(|_| Vec::new())).await
    }

    async fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.work(id, |shared, id| shared.dump_bytes(id)).await
    }

    async fn dump(&self, id: &SandboxId, options: DumpOptions) -> Result<DumpInfo, RuntimeError> {
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
        match DumpOrigin::read(about) {
            Ok(about) => about.misfit(&self.shared.here),
            Err(reason) => Some(reason),
        }
    }

    async fn recover(&self, id: &SandboxId, machine: &Machine, paused: bool) -> Result<(), RuntimeError> {
        let machine = machine.clone();
        self.work(id, move |shared, id| {
            shared.group_of(id, &machine)?;
            if paused { shared.pause(id) } else { shared.resume(id) }
        })
        .await
    }

    /// Of the emulator, which uses some CPU time even when the guest is idle: about a hundredth of a processor.
    async fn cpu_us(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.work(id, |shared, id| shared.live(id)?.cpu_us().map_err(step("read the processor time", id)))
            .await
    }

    /// CPU time, the number of processes, and a larger disk take effect at once. RAM and the number of processors are
    /// fixed while the machine exists, and change at its next boot.
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
            let oom_kills = group.oom_kills().map_err(step("read the machine's OOM kills", id))?;
            Ok(Incidents { oom_kills })
        })
        .await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        // Another operation that waits for the machine, for example a boot that hangs, fails at its end and releases
        // the lock.
        let lock = loop {
            tokio::select! {
                lock = self.locks.lock(id) => break lock,
                () = tokio::time::sleep(KILL_EVERY) => {
                    let id = id.clone();
                    self.off_thread(move |shared| shared.kill(&id)).await?;
                }
            }
        };
        let id = id.clone();
        self.off_thread(move |shared| {
            let done = shared.destroy(&id);
            drop(lock);
            done
        })
        .await
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        let found = self.off_thread(Shared::inventory).await;
        found.map_err(|source| RuntimeError::Host { step: "list the machines", source })
    }
}

#[async_trait]
impl Precreate for MicrovmRuntime {
    async fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<PrecreatedMachine, RuntimeError> {
        self.check_available(id)?;
        self.work(id, move |shared, id| shared.cleaned(id, |shared| shared.begin(id, options))).await
    }

    async fn finish(
        &self,
        id: &SandboxId,
        begun: PrecreatedMachine,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        self.work(id, move |shared, id| shared.finish(id, begun, options)).await
    }
}

#[async_trait]
impl OwnDisks for MicrovmRuntime {
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

    async fn make_template(
        &self,
        id: &SandboxId,
        options: TemplateOptions,
    ) -> Result<DumpInfo, RuntimeError> {
        self.check_available(id)?;
        self.work(id, move |shared, id| {
            let made = shared.make_template(id, options);
            shared.clean_up(id);
            made
        })
        .await
    }

    async fn settle_files(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.work(id, |shared, id| shared.settle_files(id)).await
    }

    async fn open_disks(&self, options: OpenDisks) -> Result<Box<dyn DiskAccess>, RuntimeError> {
        Ok(Box::new(self.open_reader(options).await?))
    }

    async fn change_files(&self, id: &SandboxId, give: SendFn) -> Result<(), RuntimeError> {
        self.work(id, move |shared, id| shared.change_files(id, give)).await
    }
}
