//! Seam: runs sandboxes' machines on this host.
//!
//! A driver is handed a disk (a directory of the sandbox's volume) and a network attachment, and answers with a
//! [`Machine`]. Everything inside the machine — files, execs, statistics — goes through its guest agent over the
//! network, so a microVM with a disk image of its own fits behind the same trait.
//!
//! What is absent: volumes, network (they are handed in), policy.

mod cgroup;
pub mod conformance;
pub mod container;
pub mod disks;
mod dump;
pub mod faulty;
mod launcher;
pub mod microvm;
mod process;
mod report;
pub mod sim;
mod turns;

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use burrow_model::{Limits, MountMode, MountPath, SandboxId};
use burrow_network::Attachment;
use serde::{Deserialize, Serialize};

pub use dump::{DumpOptions, Dumped, Introduce, Obstacle, RestoreOptions};

/// A driver that runs machines.
///
/// Methods are idempotent, since the engine repeats a step it cannot prove it finished. A future dropped midway
/// leaves at most what `destroy` removes.
#[async_trait]
pub trait Runtime: fmt::Debug + Send + Sync {
    /// `container`, `microvm`: what users write as the driver.
    fn name(&self) -> &'static str;

    /// What this driver can do here, probed once at start-up.
    fn capabilities(&self) -> Capabilities;

    /// What its machines keep their files in.
    fn form(&self) -> Form {
        Form::Tree
    }

    /// Makes of a tree of files the disk that machines of this driver start from, in the empty directory `into`. Only of a
    /// driver whose form is [`Form::Disk`].
    async fn make_disk(&self, tree: &Path, into: &Path) -> io::Result<()> {
        let _ = (tree, into);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Tells templates apart: machines with these limits can be made of one that was made under the same text. `None`: this
    /// driver has no templates.
    fn template_kind(&self, limits: &Limits) -> Option<String> {
        let _ = limits;
        None
    }

    /// Boots a machine up to where it would be told who it is, writes it down, and ends it. `id` is of no sandbox; what is
    /// left under it after a crash, `destroy` removes.
    async fn make_template(&self, id: &SandboxId, options: TemplateOptions) -> Result<Dumped, RuntimeError> {
        let _ = options;
        Err(RuntimeError::NotAhead { id: id.clone() })
    }

    /// Returns when what the machine's processes have written so far is in its files, as the host sees them. Of a paused
    /// one it is already.
    async fn settle_files(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let _ = id;
        Ok(())
    }

    /// Reads disks of this driver's machines in a machine of its own, which has nothing else and is thrown away.
    async fn open_disks(&self, options: disks::OpenDisks) -> Result<Box<dyn disks::Disks>, RuntimeError> {
        let _ = options;
        Err(RuntimeError::Disks { reason: format!("machines of the driver `{}` have none", self.name()) })
    }

    /// Does to the files of a *paused* machine what `give` writes, as [`burrow_trees::carry::send_actions`] does, by its
    /// agent and while nobody else runs in it; it is on the disk then, and the machine is paused as before. After a failure
    /// some of it may have been done. Only of a driver whose form is [`Form::Disk`].
    async fn change_files(&self, id: &SandboxId, give: disks::Give) -> Result<(), RuntimeError> {
        let _ = (id, give);
        Err(RuntimeError::Disks { reason: format!("machines of the driver `{}` have none", self.name()) })
    }

    /// Puts into an image's files what every machine from it would else be given at its boot. Called once, while the
    /// image can still be written; a boot from files that were never prepared works too, and takes longer.
    async fn prepare_image(&self, root: &Path) -> io::Result<()> {
        let _ = root;
        Ok(())
    }

    /// Puts into files that came from elsewhere what no file can bring: devices, and what belongs to the host. With
    /// `keeps_agent` the agent's program is left as it came, since processes that came with it go on running it; whoever
    /// says so trusts where it came from.
    async fn prepare_moved(&self, root: &Path, keeps_agent: bool) -> io::Result<()> {
        let _ = (root, keeps_agent);
        Ok(())
    }

    /// Starts the machine and returns when its guest agent listens. The machine outlives this process.
    async fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError>;

    /// Whether [`Self::begin`] and [`Self::finish`] work here.
    fn begins_ahead(&self) -> bool {
        false
    }

    /// Starts a machine as far as it gets without knowing whose it will be: its agent waits for its boot document, and
    /// [`Self::finish`] takes no longer than the agent itself. `boot_document` is not looked at. What `begin` made is
    /// ended and removed by [`Self::destroy`], as any machine is; without `finish`, it does not outlive this process.
    async fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<Begun, RuntimeError> {
        let _ = options;
        Err(RuntimeError::NotAhead { id: id.clone() })
    }

    /// Gives a begun machine its name and its boot document, and returns when its agent listens. After a failure the
    /// machine is of no use, and `destroy` removes what is left.
    async fn finish(
        &self,
        id: &SandboxId,
        begun: Begun,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        let _ = (begun, options);
        Err(RuntimeError::NotAhead { id: id.clone() })
    }

    /// Finds again a machine that ran before this daemon did: by pid, start time and boot id, never by pid alone.
    /// `None`: it is gone.
    async fn adopt(&self, id: &SandboxId, machine: &Machine) -> Result<bool, RuntimeError>;

    /// Returns when the machine has ended, for whatever reason.
    async fn ended(&self, machine: &Machine) -> Result<(), RuntimeError>;

    /// Stops all its processors; RAM stays. Of a paused machine: nothing to do.
    async fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    async fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// Why its processes cannot be written down, as they are now; empty: nothing is in the way. Changes nothing, and a
    /// machine that runs may have others a moment later.
    async fn obstacles(&self, id: &SandboxId) -> Result<Vec<Obstacle>, RuntimeError>;

    /// The bytes that a dump takes at most: the RAM of all its processes.
    async fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError>;

    /// Writes the state of all its processes into the empty directory `images`, and leaves the machine *paused*, whatever
    /// it was before. After a failure it is as it was before. Nothing is made durable: that is the caller's. Copies of the
    /// files are to be made before [`Self::resume`]: until then they have in them what a restore will look for.
    ///
    /// A future dropped midway does not end the dump: whatever is asked about this sandbox next waits for its end, and
    /// then finds it paused. After the death of this process, [`Self::mend`] is needed.
    async fn dump(&self, id: &SandboxId, options: DumpOptions) -> Result<Dumped, RuntimeError>;

    /// Makes a machine from a dump, with the files as they were then, and leaves it *paused*: nothing of it has run, but
    /// for its first process while `introduce` was called. A machine that is there already is ended first. After a
    /// failure nothing is left, and it can be repeated with the same files, unless `introduce` was called and the first
    /// process has changed what others have open.
    async fn restore(&self, id: &SandboxId, options: RestoreOptions) -> Result<Machine, RuntimeError>;

    /// Why processes that were written down elsewhere cannot be brought back here, judged by what their dump says about
    /// itself; `None`: nothing is known to be in the way. Stricter than [`Self::restore`], which tries what may work: what
    /// was made under a newer kernel may need what this one lacks.
    async fn misfit(&self, about: &str) -> Option<String>;

    /// Puts a machine right whose dump was cut short by the death of the daemon, and leaves it paused or running as
    /// `paused` says. Harmless to one whose dump was not.
    async fn mend(&self, id: &SandboxId, machine: &Machine, paused: bool) -> Result<(), RuntimeError>;

    /// CPU time used by its processes since it was booted or restored, in microseconds; for telling work from idleness.
    async fn cpu_us(&self, id: &SandboxId) -> Result<u64, RuntimeError>;

    /// Changes RAM, CPU and process limits of a running machine (disk belongs to the volume).
    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError>;

    /// Bounds what the machine reads from its disk and writes to it, together; `None`: not at all. Holds while the machine
    /// does, beyond this process too; one that is booted or restored has none. Of a paused machine it counts from when it
    /// goes on. What the host itself waits for, such as a machine's writing out what it has to before it is paused, is
    /// not held back.
    ///
    /// [`RuntimeError::NoDiskRate`] where [`Capabilities::disk_rate`] says no.
    async fn set_disk_rate(&self, id: &SandboxId, bytes_per_second: Option<u64>) -> Result<(), RuntimeError>;

    /// What the host noticed and the guest cannot know.
    async fn incidents(&self, id: &SandboxId) -> Result<Incidents, RuntimeError>;

    /// The files that its processes have open or mapped. Only for telling: what ends meanwhile is left out, and a driver
    /// that cannot know says none.
    async fn open_files(&self, id: &SandboxId) -> Result<Vec<OpenFile>, RuntimeError> {
        let _ = id;
        Ok(Vec::new())
    }

    /// Kills the machine if it runs, also when paused, and removes all that `boot` made on the host. Of an unknown
    /// sandbox: nothing to do.
    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// The sandboxes that have something here, for recovery.
    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError>;
}

#[derive(Debug)]
pub struct BootOptions {
    /// Root directory of the sandbox's files, as seen by the host; of a driver with disks, the directory that holds one.
    pub root: PathBuf,
    pub attachment: Attachment,
    pub hostname: String,
    pub limits: Limits,
    /// JSON the guest reads at boot (`burrow_guest::protocol::Boot`); opaque here, and secret.
    pub boot_document: Vec<u8>,
    /// A machine that was booted before, to go on from instead of booting: `root` holds a copy of the very disk it was
    /// booted with. [`RuntimeError::Unfit`]: it cannot be used here.
    pub template: Option<Template>,
    /// Volumes, beside its own files. Only of a driver that has the ability.
    pub mounts: Vec<Mount>,
}

/// A directory of the host's that a machine sees: a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// As the host sees it. Up to here the path is trusted; what is in it is not.
    pub source: PathBuf,
    /// Where in the machine.
    pub target: MountPath,
    pub mode: MountMode,
}

/// What a driver's machines keep their files in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A tree of the host's files.
    Tree,
    /// One file, which is a disk that the host does not look into.
    Disk,
}

#[derive(Debug)]
pub struct TemplateOptions {
    /// The directory with the disk, which the boot changes: it is the template's from then on.
    pub root: PathBuf,
    /// An empty directory for the dump.
    pub images: PathBuf,
    /// Of the machines that will be made of it.
    pub limits: Limits,
    pub attachment: Attachment,
}

/// A template, as it was made.
#[derive(Clone, Debug)]
pub struct Template {
    /// The directory of its dump.
    pub images: PathBuf,
    /// As [`Runtime::make_template`] answered.
    pub about: String,
}

/// What a machine that was begun ahead learns last.
#[derive(Debug)]
pub struct FinishOptions {
    pub hostname: String,
    /// As in [`BootOptions`].
    pub boot_document: Vec<u8>,
}

/// A machine whose agent waits for its boot document.
#[derive(Debug)]
pub struct Begun {
    machine: Machine,
    /// What it was called when it was begun.
    hostname: String,
    root: PathBuf,
    /// Where the agent waits; `None` for a simulated one. When it closes, the agent ends.
    socket: Option<UnixStream>,
}

/// A machine as the catalog remembers it. Enough to find it again, and to tell it from a stranger with its pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// What a driver can do on this host, and why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub available: Ability,
    pub pause: Ability,
    /// Process state to disk and back.
    pub hibernate: Ability,
    pub limits: Ability,
    /// Whether a machine's disk can be held to a rate.
    pub disk_rate: Ability,
    /// Directories of the host in machines.
    pub volumes: Ability,
    /// Whether the hardware keeps its machines apart: what strangers' code is best run by.
    pub isolates_by_hardware: bool,
    /// By what machines run, in words, where there is more than one way.
    pub note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Ability {
    Yes,
    No {
        reason: String,
        /// The exact command that mends it, where there is one.
        fix: Option<String>,
    },
}

/// A file that a process has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// As the host numbers it.
    pub pid: u32,
    /// What the process is called.
    pub program: String,
    /// Device and number of the file.
    pub file: (u64, u64),
}

/// Counters since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incidents {
    pub oom_kills: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("could not {step} for sandbox `{id}`")]
    Step { step: &'static str, id: SandboxId, source: io::Error },
    #[error("sandbox `{id}` did not come up: {step}: {message}")]
    Boot { id: SandboxId, step: String, message: String },
    #[error("sandbox `{id}` did not come up within {seconds} s")]
    BootTimeout { id: SandboxId, seconds: u64 },
    #[error("sandbox `{id}` has no machine")]
    NoMachine { id: SandboxId },
    #[error("the launcher process is gone")]
    Launcher { source: io::Error },
    #[error("could not {step}")]
    Host { step: &'static str, source: io::Error },
    #[error("this driver cannot begin the machine of sandbox `{id}` ahead of time")]
    NotAhead { id: SandboxId },
    #[error("the processes of sandbox `{id}` cannot be written to disk: {}", dump::list(.obstacles))]
    Obstacles { id: SandboxId, obstacles: Vec<Obstacle> },
    #[error("could not write the processes of sandbox `{id}` to disk: {reason}")]
    Dump { id: SandboxId, reason: String },
    /// Its processes cannot go on: the program that writes them down is still inside them.
    #[error("the program that writes the processes of sandbox `{id}` to disk makes no progress")]
    DumpHangs { id: SandboxId },
    #[error("could not bring back the processes of sandbox `{id}`: {reason}")]
    Restore { id: SandboxId, reason: String },
    /// CRIU was killed or hung: the dump is whole, and another try may succeed.
    #[error("could not bring back the processes of sandbox `{id}`: {reason}")]
    RestoreCut { id: SandboxId, reason: String },
    /// It was made elsewhere, or by another version.
    #[error("the kept processes of sandbox `{id}` do not fit this host: {reason}")]
    Unfit { id: SandboxId, reason: String },
    #[error("could not use the disks: {reason}")]
    Disks { reason: String },
    #[error("the disk of sandbox `{id}` cannot be held to a rate: {reason}")]
    NoDiskRate { id: SandboxId, reason: String },
    #[error("the runtime driver was told to fail")]
    Injected,
}
