//! Why a driver failed.

use std::io;

use burrow_model::SandboxId;

use crate::dump::{self, Obstacle};

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("could not {step} for sandbox `{id}`")]
    Step { step: &'static str, id: SandboxId, source: io::Error },
    #[error("sandbox `{id}` did not start: {step}: {message}")]
    Boot { id: SandboxId, step: String, message: String },
    #[error("sandbox `{id}` did not start within {seconds} s")]
    BootTimeout { id: SandboxId, seconds: u64 },
    #[error("sandbox `{id}` has no machine")]
    NoMachine { id: SandboxId },
    #[error("the launcher process has ended")]
    Launcher { source: io::Error },
    #[error("could not {step}")]
    Host { step: &'static str, source: io::Error },
    #[error("this driver cannot pre-create the machine of sandbox `{id}`")]
    NotPrecreated { id: SandboxId },
    #[error("the processes of sandbox `{id}` cannot be written to disk: {}", dump::list(.obstacles))]
    Obstacles { id: SandboxId, obstacles: Vec<Obstacle> },
    #[error("could not write the processes of sandbox `{id}` to disk: {reason}")]
    Dump { id: SandboxId, reason: String },
    /// Its processes cannot resume: the program that dumps them is still inside them.
    #[error("the program that writes the processes of sandbox `{id}` to disk makes no progress")]
    DumpHangs { id: SandboxId },
    #[error("could not restore the processes of sandbox `{id}`: {reason}")]
    Restore { id: SandboxId, reason: String },
    /// CRIU was killed or hung: the dump is complete, and another attempt may succeed.
    #[error("could not restore the processes of sandbox `{id}`: {reason}")]
    RestoreCut { id: SandboxId, reason: String },
    #[error(
        "the processes of sandbox `{id}` were not hibernated: a trial showed that they cannot be restored: {reason}"
    )]
    TrialFailed { id: SandboxId, reason: String },
    #[error(
        "a trial restore of sandbox `{id}` needs {needed_bytes} bytes of RAM, and the host has {available_bytes}"
    )]
    NoRoomForTrial { id: SandboxId, needed_bytes: u64, available_bytes: u64 },
    /// It was created on another host, or by another version.
    #[error("the saved processes of sandbox `{id}` cannot be restored on this host: {reason}")]
    Unfit { id: SandboxId, reason: String },
    #[error("could not use the disks: {reason}")]
    Disks { reason: String },
    #[error("the disk rate of sandbox `{id}` cannot be limited: {reason}")]
    NoDiskRate { id: SandboxId, reason: String },
    #[error("injected failure of the runtime driver")]
    Injected,
}
