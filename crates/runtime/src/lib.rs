//! Seam: runs sandboxes' machines on this host.
//!
//! A driver receives a disk (a directory of the sandbox's disk) and a network attachment, and returns a [`Machine`].
//! Everything inside the machine — files, execs, statistics — goes through its guest agent over the network, so a
//! microVM with its own disk image implements the same trait.
//!
//! What is absent: disks and networks (the caller passes them in), policy.

mod cgroup;
pub mod conformance;
pub mod container;
pub mod disks;
mod dump;
mod error;
pub mod faulty;
mod launcher;
mod machine;
pub mod microvm;
mod optional;
mod process;
mod report;
mod sandbox_locks;
pub mod sim;

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};
use burrow_network::Attachment;
use serde::{Deserialize, Serialize};

pub use dump::{DumpInfo, DumpOptions, IntroduceFn, Obstacle, RestoreOptions, RestoredKinds};
pub use error::RuntimeError;
pub use machine::{Machine, Mount};
pub use optional::{OwnDisks, Precreate, Trials};

/// A driver that runs machines.
///
/// Methods are idempotent, since the engine repeats a step that it cannot prove it finished. A cancelled future leaves
/// at most what `destroy` removes.
#[async_trait]
pub trait Runtime: fmt::Debug + Send + Sync {
    /// The driver's name for users: `container`, `microvm`.
    fn name(&self) -> &'static str;

    /// What this driver can do here, probed once at start-up.
    fn capabilities(&self) -> Capabilities;

    /// For machines that are started before they have an identity. `None`: not supported.
    fn precreate(&self) -> Option<&dyn Precreate> {
        None
    }

    /// For machines whose files are on disks of their own. `None`: they are a tree of the host's files.
    fn own_disks(&self) -> Option<&dyn OwnDisks> {
        None
    }

    /// For dumps of which only a trial shows whether they can be restored. `None`: machines are dumped as a whole.
    fn trials(&self) -> Option<&dyn Trials> {
        None
    }

    /// The form in which its machines store files.
    fn form(&self) -> Form {
        if self.own_disks().is_some() { Form::Disk } else { Form::Tree }
    }

    /// Adds to an image's files what would otherwise be added at the boot of every machine. Called once, while the
    /// image is still writable. A boot from files that were not prepared works too, and takes longer.
    async fn prepare_image(&self, root: &Path) -> io::Result<()> {
        let _ = root;
        Ok(())
    }

    /// Adds to imported files what an import cannot contain: devices, and files that belong to the host. With
    /// `keeps_agent` the agent's program is kept as imported, since imported processes continue to run it; use it only
    /// if the source is trusted.
    async fn prepare_moved(&self, root: &Path, keeps_agent: bool) -> io::Result<()> {
        let _ = (root, keeps_agent);
        Ok(())
    }

    /// Starts the machine and returns when its guest agent listens. The machine outlives this process.
    async fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError>;

    /// Finds a machine that was started before this daemon: by pid, start time and boot id, never by pid alone.
    /// `false`: it no longer exists.
    async fn adopt(&self, id: &SandboxId, machine: &Machine) -> Result<bool, RuntimeError>;

    /// Returns when the machine has ended, for whatever reason.
    async fn ended(&self, machine: &Machine) -> Result<(), RuntimeError>;

    /// Stops all its processors; its RAM is kept. Has no effect on a paused machine.
    async fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    async fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// The reasons why its processes cannot be dumped in their present state; empty: none are known. Changes nothing. A
    /// running machine may have others a moment later.
    async fn obstacles(&self, id: &SandboxId) -> Result<Vec<Obstacle>, RuntimeError>;

    /// The maximum size of a dump: the RAM of all its processes.
    async fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError>;

    /// Dumps the state of all its processes into the empty directory `images`, and leaves the machine *paused*,
    /// whatever its state before. After a failure it is in its earlier state. The caller is responsible for making the
    /// dump durable. The files must be copied before [`Self::resume`]: until then they contain what a restore expects.
    ///
    /// Dropping the future does not end the dump: the next operation on this sandbox waits for its end, and then finds
    /// it paused. After the death of this process, [`Self::recover`] is needed.
    async fn dump(&self, id: &SandboxId, options: DumpOptions) -> Result<DumpInfo, RuntimeError>;

    /// Creates a machine from a dump, with the files of that time, and leaves it *paused*: nothing in it has run,
    /// except its first process while `introduce` was called. An existing machine is ended first. A failure leaves
    /// nothing behind, and the restore can be repeated with the same files, unless `introduce` was called and the first
    /// process has changed files that others have open. A trial fails if the host lacks the RAM for a second copy.
    async fn restore(&self, id: &SandboxId, options: RestoreOptions) -> Result<Machine, RuntimeError>;

    /// Why processes that were dumped elsewhere cannot be restored here, according to the description of their dump;
    /// `None`: no reason is known. Stricter than [`Self::restore`], which tries everything that may work: a dump from a
    /// newer kernel may need features that this one lacks.
    async fn misfit(&self, about: &str) -> Option<String>;

    /// Recovers a machine whose dump was interrupted by the death of the daemon, and leaves it paused or running
    /// according to `paused`. Harmless if no dump was interrupted.
    async fn recover(&self, id: &SandboxId, machine: &Machine, paused: bool) -> Result<(), RuntimeError>;

    /// CPU time used by its processes since it was booted or restored, in microseconds. Used to detect idle machines.
    async fn cpu_us(&self, id: &SandboxId) -> Result<u64, RuntimeError>;

    /// Changes the RAM, CPU and process limits of a running machine (the size of the disk is set by the crate of
    /// disks).
    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError>;

    /// Limits the sum of what the machine reads from its disk and writes to it; `None`: no limit. It applies for the
    /// lifetime of the machine, beyond this process too; a booted or restored machine has none. For a paused machine it
    /// takes effect when the machine resumes. Work for which the host itself waits, such as the flush before a pause,
    /// is not limited.
    ///
    /// [`RuntimeError::NoDiskRate`] if [`Capabilities::disk_rate`] says that it is not supported.
    async fn set_disk_rate(&self, id: &SandboxId, bytes_per_second: Option<u64>) -> Result<(), RuntimeError>;

    /// Events that the host noticed and the guest cannot know.
    async fn incidents(&self, id: &SandboxId) -> Result<Incidents, RuntimeError>;

    /// The files that its processes have open or mapped. Only for information: processes that end meanwhile are left
    /// out, and a driver without this ability returns none.
    async fn open_files(&self, id: &SandboxId) -> Result<Vec<OpenFile>, RuntimeError> {
        let _ = id;
        Ok(Vec::new())
    }

    /// Kills the machine if it runs, also when it is paused, and removes everything that `boot` created on the host.
    /// Succeeds for an unknown sandbox.
    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// The sandboxes that have a machine or remains of one here, for recovery.
    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError>;
}

impl dyn Runtime + '_ {
    /// [`Runtime::precreate`], or the error for a sandbox whose driver has none.
    pub fn needs_precreate(&self, id: &SandboxId) -> Result<&dyn Precreate, RuntimeError> {
        self.precreate().ok_or_else(|| RuntimeError::NotPrecreated { id: id.clone() })
    }

    /// [`Runtime::own_disks`], or the error for a driver without them.
    pub fn needs_own_disks(&self) -> Result<&dyn OwnDisks, RuntimeError> {
        let reason = || format!("machines of the driver `{}` have no disks", self.name());
        self.own_disks().ok_or_else(|| RuntimeError::Disks { reason: reason() })
    }
}

#[derive(Debug)]
pub struct BootOptions {
    /// Root directory of the sandbox's files, as seen by the host; for a driver with disks, the directory that contains
    /// the disk.
    pub root: PathBuf,
    pub attachment: Attachment,
    pub hostname: String,
    pub limits: Limits,
    /// JSON document that the guest reads at boot (`burrow_guest::protocol::Boot`); opaque here, and secret.
    pub boot_document: Vec<u8>,
    /// A machine that was booted before, from which this one starts instead of booting: `root` contains a copy of
    /// exactly the disk with which it was booted. [`RuntimeError::Unfit`]: it cannot be used here.
    pub template: Option<Template>,
    /// Volumes, in addition to its own files. Only for a driver that supports them.
    pub mounts: Vec<Mount>,
}

/// The form in which a driver's machines store files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A tree of the host's files.
    Tree,
    /// One file, which is a disk that the host does not parse.
    Disk,
}

#[derive(Debug)]
pub struct TemplateOptions {
    /// The directory with the disk, which the boot changes: from then on it belongs to the template.
    pub root: PathBuf,
    /// An empty directory for the dump.
    pub images: PathBuf,
    /// The limits of the machines that will be created from it.
    pub limits: Limits,
    pub attachment: Attachment,
}

/// A template and its description.
#[derive(Clone, Debug)]
pub struct Template {
    /// The directory of its dump.
    pub images: PathBuf,
    /// As returned by [`OwnDisks::make_template`].
    pub about: String,
}

/// The values that a pre-created machine receives at last.
#[derive(Debug)]
pub struct FinishOptions {
    pub hostname: String,
    /// As in [`BootOptions`].
    pub boot_document: Vec<u8>,
}

/// A pre-created machine, whose agent waits for its boot document.
#[derive(Debug)]
pub struct PrecreatedMachine {
    machine: Machine,
    /// Its host name at its start.
    hostname: String,
    root: PathBuf,
    /// The socket on which the agent waits; `None` for a simulated machine. When it closes, the agent ends.
    socket: Option<UnixStream>,
}

/// The features that a driver supports on this host, or the reasons why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub available: Ability,
    pub pause: Ability,
    /// Dumping process state to disk and restoring it.
    pub hibernate: Ability,
    pub limits: Ability,
    /// Whether the rate of a machine's disk can be limited.
    pub disk_rate: Ability,
    /// Whether host directories can be mounted in machines.
    pub volumes: Ability,
    /// Whether the hardware isolates its machines, as recommended for untrusted code.
    pub isolates_by_hardware: bool,
    /// How machines are executed, in words, if there are several ways; and limits that this host cannot enforce.
    pub note: Option<String>,
}

impl Capabilities {
    /// Appends to the note.
    pub(crate) fn add_note(&mut self, note: &str) {
        self.note = Some(match self.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note.to_owned(),
        });
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Ability {
    Yes,
    No {
        reason: String,
        /// The exact command that fixes it, if there is one.
        fix: Option<String>,
    },
}

/// A file that a process has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// The pid on the host.
    pub pid: u32,
    /// The name of the process.
    pub program: String,
    /// Device and number of the file.
    pub file: (u64, u64),
}

/// Counters since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incidents {
    pub oom_kills: u64,
}
