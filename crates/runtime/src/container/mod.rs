//! The container driver: namespaces, cgroups, seccomp.
//!
//! ```text
//!   boot:     root/ prepares the files ─► cgroup/ sets the limits ─► launcher/ starts PID 1 ─► wait for its report
//!   dump:     criu/ checks for obstacles ─► freezes ─► dumps all processes; they stay frozen
//!   restore:  cgroup/ sets the limits ─► criu/ creates the processes in the cgroup, frozen
//! ```
//!
//! Isolation: a user namespace (root inside has no rights outside) with its own pid, mount, ipc, uts, cgroup and
//! network namespaces, a system call filter, a handful of capabilities, and limits for RAM, CPU and processes. The
//! machine runs in the sandbox's own files, which are never trusted.
//!
//! The driver has no state in memory that it could not find again: the cgroup trees are the state, and a machine is
//! found by its [`Machine`]. A machine is a child of the launcher, later of the host's init, and is not affected when
//! the daemon ends.
//!
//! Invariant: everything that is created on the host for a sandbox is in cgroups and a work directory named by its id,
//! so `destroy` needs nothing else. (Files inside the root belong to the disk.)

pub mod apparmor;
mod boot;
pub mod bounds;
mod compatibility;
pub(crate) mod criu;
mod hibernate;
mod ids;
mod netlink_watch;
mod open;
mod precreated;
pub(crate) mod probe;
mod restore;
mod root;
pub mod seccomp;
mod shared_state;
mod trial;
mod volumes;
mod work_dir;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};

use crate::cgroup::Groups;
use crate::launcher::{LaunchError, Launcher, raise_core_limit};
use crate::process::Process;
use crate::sandbox_locks::SandboxLocks;
use crate::{
    Ability, BootOptions, Capabilities, DumpInfo, DumpOptions, FinishOptions, Incidents, Machine, Obstacle,
    OpenFile, Precreate, PrecreatedMachine, RestoreOptions, RestoredKinds, Runtime, RuntimeError, Trials,
};
use boot::{Start, StartedMachine, await_report, ended_early};
use criu::Criu;
use hibernate::Tool;
use ids::Ranges;
use root::Root;
use shared_state::{Shared, step};
use trial::TriedKinds;
use work_dir::WorkDir;

pub use crate::launcher::launcher_main;
pub use ids::probe_own_ids;

#[derive(Clone, Debug)]
pub struct Options {
    /// Program and arguments of the launcher role, which calls [`launcher_main`].
    pub launcher: Vec<OsString>,
    /// The agent, a static program. On the disks' file system, copying it costs nothing.
    pub guest_binary: PathBuf,
    /// Directory of the cgroup trees that contains one directory per sandbox.
    pub cgroup_parent: String,
    /// For files that must not outlive the host's boot.
    pub run_dir: PathBuf,
    /// The path of CRIU, if it is installed.
    pub criu: Option<PathBuf>,
    /// Whether containers run in the AppArmor profile.
    pub apparmor: apparmor::ProfileUse,
}

/// Runs sandboxes as containers.
#[derive(Debug)]
pub struct ContainerRuntime {
    shared: Arc<Shared>,
    capabilities: Capabilities,
    locks: SandboxLocks,
}

// === impl ContainerRuntime ===

impl ContainerRuntime {
    /// Starts the launcher and checks the host. A host that cannot run machines is no error: `capabilities` reports
    /// what is missing, and `boot` fails. Blocks; call it once, at start-up.
    pub fn open(options: Options) -> Result<Arc<Self>, RuntimeError> {
        // The launcher and CRIU inherit it. Without it, a boot fails and reports the reason.
        if let Err(error) = raise_core_limit() {
            tracing::warn!(
                %error,
                "could not raise the hard limit of core dumps from 0 to 1 byte, so no sandbox will start; start the \
                 daemon with a higher limit (`LimitCORE=1`) or with CAP_SYS_RESOURCE"
            );
        }
        let launcher = Launcher::new(options.launcher);
        let namespaces = match launcher.probe() {
            Ok(()) => None,
            Err(LaunchError::Refused(failure)) => Some(failure),
            Err(LaunchError::Gone(source)) => return Err(RuntimeError::Launcher { source }),
        };
        let mut found = probe::HostSupport::look(namespaces, &options.cgroup_parent, options.criu.as_deref());
        // The agent's program is on the file system of the disks.
        let pool = options.guest_binary.parent().unwrap_or(Path::new("/"));
        let own_ids = probe_own_ids(pool);
        if let Err(error) = &own_ids {
            tracing::warn!(%error, directory = %pool.display(), "{}", probe::SHARED_IDS);
            found.capabilities.add_note(&format!("{}: {error}", probe::SHARED_IDS));
        }
        if let Some(reason) = found.groups.as_ref().and_then(Groups::sockets_unlimited) {
            found.capabilities.add_note(&format!("{}: {reason}", probe::SOCKETS_UNLIMITED));
        }
        let tool = options.criu.zip(found.criu);
        let tool = tool.map(|(program, version)| Tool { criu: Criu { program }, version });
        let tried = TriedKinds::of_host(tool.as_ref());
        let work_dir = WorkDir::open(&options.run_dir)
            .map_err(|source| RuntimeError::Host { step: "create CRIU's directory", source })?;
        let profile = apparmor::prepare(options.apparmor).map_err(|source| RuntimeError::Host {
            step: "load the AppArmor profile of containers, which `runtime.apparmor = true` requires",
            source,
        })?;
        let guest_binary = options.guest_binary;
        let shared = Shared {
            launcher,
            guest_binary,
            groups: found.groups,
            tool,
            work_dir,
            own_ids: own_ids.is_ok(),
            ranges: Ranges::default(),
            profile,
            tried,
        };
        let shared = Arc::new(shared);
        netlink_watch::spawn(&shared).map_err(|source| RuntimeError::Host {
            step: "start the thread that watches netlink sockets",
            source,
        })?;
        Ok(Arc::new(Self { shared, capabilities: found.capabilities, locks: SandboxLocks::default() }))
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

    /// After a failure. The error of the clean-up is only logged: the first error matters more, and `destroy` repeats
    /// the clean-up.
    async fn clean_up(&self, id: &SandboxId) {
        if let Err(left) = self.destroy(id).await {
            tracing::warn!(%id, error = &left as &dyn std::error::Error, "could not clean up after a failed boot");
        }
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
impl Runtime for ContainerRuntime {
    fn name(&self) -> &'static str {
        "container"
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn precreate(&self) -> Option<&dyn Precreate> {
        (self.capabilities.available == Ability::Yes).then_some(self)
    }

    fn trials(&self) -> Option<&dyn Trials> {
        Some(self)
    }

    async fn prepare_image(&self, root: &Path) -> io::Result<()> {
        let path = root.to_owned();
        let prepare = move |shared: &Shared| Root::open(&path)?.prepare_image(&shared.guest_binary);
        self.off_thread(prepare).await.map_err(|error| {
            let message = format!("could not {} in `{}`: {}", error.step, root.display(), error.source);
            io::Error::new(error.source.kind(), message)
        })
    }

    async fn prepare_moved(&self, root: &Path, keeps_agent: bool) -> io::Result<()> {
        let path = root.to_owned();
        let prepare =
            move |shared: &Shared| Root::open(&path)?.prepare_moved(&shared.guest_binary, keeps_agent);
        self.off_thread(prepare).await.map_err(|error| {
            let message = format!("could not {} in `{}`: {}", error.step, root.display(), error.source);
            io::Error::new(error.source.kind(), message)
        })
    }

    async fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        if let Ability::No { reason, .. } = &self.capabilities.available {
            // Incomplete isolation is not acceptable.
            let step = "run machines on this host".to_owned();
            return Err(RuntimeError::Boot { id: id.clone(), step, message: reason.clone() });
        }
        let (start, boot_document) = Start::of(id, options)?;
        let StartedMachine { machine, socket } = self.work(id, move |shared, _| shared.start(&start)).await?;
        let ready = await_report(id, socket, &boot_document).await;
        match (ready, machine) {
            (Ok(()), Some(machine)) => Ok(machine),
            (Ok(()), None) => {
                self.destroy(id).await?;
                Err(ended_early(id))
            }
            (Err(error), _) => {
                self.clean_up(id).await;
                Err(error)
            }
        }
    }

    async fn adopt(&self, id: &SandboxId, machine: &Machine) -> Result<bool, RuntimeError> {
        let machine = machine.clone();
        self.work(id, move |shared, id| {
            let Some(groups) = &shared.groups else { return Ok(false) };
            let in_group = groups.group(id).has(machine.pid).map_err(step("find the machine", id))?;
            // Checked last: if the process is still the same one, it was so when its cgroup was read.
            let lives = in_group && Process::find(&machine).map_err(step("find the machine", id))?.is_some();
            if lives {
                shared.ranges.adopt(id, machine.pid).map_err(step("read the uids of the machine", id))?;
            }
            Ok(lives)
        })
        .await
    }

    async fn ended(&self, machine: &Machine) -> Result<(), RuntimeError> {
        let wait = async {
            match Process::find(machine)? {
                Some(process) => process.ended().await,
                None => Ok(()),
            }
        };
        wait.await
            .map_err(|source: io::Error| RuntimeError::Host { step: "wait for the end of a machine", source })
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.work(id, |shared, id| shared.live(id)?.freeze().map_err(step("pause the machine", id))).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.work(id, |shared, id| shared.resume(id)).await
    }

    async fn obstacles(&self, id: &SandboxId) -> Result<Vec<Obstacle>, RuntimeError> {
        self.work(id, |shared, id| shared.obstacles(id)).await
    }

    async fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.work(id, |shared, id| shared.dump_bytes(id)).await
    }

    async fn dump(&self, id: &SandboxId, options: DumpOptions) -> Result<DumpInfo, RuntimeError> {
        self.work(id, move |shared, id| shared.dump(id, &options)).await
    }

    async fn restore(&self, id: &SandboxId, options: RestoreOptions) -> Result<Machine, RuntimeError> {
        let handle = tokio::runtime::Handle::current();
        self.work(id, move |shared, id| shared.restore(id, options, &handle)).await
    }

    async fn misfit(&self, about: &str) -> Option<String> {
        let Some(tool) = &self.shared.tool else { return Some(hibernate::UNABLE.to_owned()) };
        let here = match compatibility::DumpOrigin::here(&tool.version) {
            Ok(here) => here,
            Err(error) => return Some(format!("could not inspect this host: {error}")),
        };
        match compatibility::DumpOrigin::read(about) {
            Ok(about) => about.misfit(&here).or_else(|| about.is_of_newer_kernel(&here)),
            Err(reason) => Some(reason),
        }
    }

    async fn recover(&self, id: &SandboxId, machine: &Machine, paused: bool) -> Result<(), RuntimeError> {
        let machine = machine.clone();
        self.work(id, move |shared, id| shared.recover(id, &machine, paused)).await
    }

    async fn cpu_us(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.work(id, |shared, id| shared.cpu_us(id)).await
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError> {
        let limits = *limits;
        self.work(id, move |shared, id| {
            shared.live(id)?.set_limits(&limits).map_err(step("change the limits", id))
        })
        .await
    }

    async fn set_disk_rate(&self, id: &SandboxId, bytes_per_second: Option<u64>) -> Result<(), RuntimeError> {
        match bytes_per_second {
            None => Ok(()),
            Some(_) => {
                let reason = probe::NO_DISK_RATE.to_owned();
                Err(RuntimeError::NoDiskRate { id: id.clone(), reason })
            }
        }
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

    async fn open_files(&self, id: &SandboxId) -> Result<Vec<OpenFile>, RuntimeError> {
        self.work(id, |shared, id| {
            let pids = shared.live(id)?.pids().map_err(step("list the processes", id))?;
            Ok(open::files(&pids))
        })
        .await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.work(id, |shared, id| shared.destroy(id)).await
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        let found = self.off_thread(Shared::inventory).await;
        found.map_err(|source| RuntimeError::Host { step: "list the machines", source })
    }
}

#[async_trait]
impl Precreate for ContainerRuntime {
    async fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<PrecreatedMachine, RuntimeError> {
        let (start, _) = Start::of(id, options)?;
        let (hostname, root) = (start.hostname.clone(), start.root.clone());
        let started = self.work(id, move |shared, _| {
            let started = shared.start(&start)?;
            precreated::warm(&start.root);
            Ok(started)
        });
        match started.await? {
            StartedMachine { machine: Some(machine), socket } => {
                Ok(PrecreatedMachine { machine, hostname, root, socket: Some(socket) })
            }
            StartedMachine { machine: None, .. } => {
                self.clean_up(id).await;
                Err(ended_early(id))
            }
        }
    }

    async fn finish(
        &self,
        id: &SandboxId,
        begun: PrecreatedMachine,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        let PrecreatedMachine { machine, hostname, root, socket } = begun;
        let Some(socket) = socket else { return Err(ended_early(id)) };
        if hostname != options.hostname {
            let renamed = machine.clone();
            self.work(id, move |_, id| precreated::rename(id, &renamed, &root, &options.hostname)).await?;
        }
        await_report(id, socket, &options.boot_document).await?;
        Ok(machine)
    }
}

#[async_trait]
impl Trials for ContainerRuntime {
    async fn untried(&self, id: &SandboxId, images: &Path) -> Result<Vec<String>, RuntimeError> {
        let images = images.to_owned();
        self.work(id, move |shared, id| shared.untried(id, &images)).await
    }

    fn restored_kinds(&self) -> Option<RestoredKinds> {
        self.shared.tried.record()
    }

    fn recall_kinds(&self, record: RestoredKinds) -> bool {
        self.shared.tried.recall(record)
    }
}
