//! Seam: runs sandboxes' machines on this host.
//!
//! A driver is handed a disk (a directory of the sandbox's volume) and a network attachment, and answers with a
//! [`Machine`]. Everything inside the machine — files, execs, statistics — goes through its guest agent over the
//! network, so a microVM with a disk image of its own fits behind the same trait.
//!
//! What is absent: volumes, network (they are handed in), policy.

pub mod conformance;
pub mod container;
pub mod faulty;
pub mod sim;

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};
use burrow_network::Attachment;
use serde::{Deserialize, Serialize};

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

    /// Puts into an image's files what every machine from it would else be given at its boot. Called once, while the
    /// image can still be written; a boot from files that were never prepared works too, and takes longer.
    async fn prepare_image(&self, root: &Path) -> io::Result<()> {
        let _ = root;
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

    /// Changes RAM, CPU and process limits of a running machine (disk belongs to the volume).
    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError>;

    /// What the host noticed and the guest cannot know.
    async fn incidents(&self, id: &SandboxId) -> Result<Incidents, RuntimeError>;

    /// Kills the machine if it runs, also when paused, and removes all that `boot` made on the host. Of an unknown
    /// sandbox: nothing to do.
    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// The sandboxes that have something here, for recovery.
    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError>;
}

#[derive(Debug)]
pub struct BootOptions {
    /// Root directory of the sandbox's files, as seen by the host.
    pub root: PathBuf,
    pub attachment: Attachment,
    pub hostname: String,
    pub limits: Limits,
    /// JSON the guest reads at boot (`burrow_guest::protocol::Boot`); opaque here, and secret.
    pub boot_document: Vec<u8>,
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
    #[error("the runtime driver was told to fail")]
    Injected,
}
