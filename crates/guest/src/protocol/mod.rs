//! The protocol between host and guest.
//!
//! One TCP connection per request: slow readers feel TCP's own back-pressure, and no request waits behind another.
//!
//! ```text
//!   host                                   guest
//!    │ ── Control(Hello { token, … }) ─────► │   sent together with the request,
//!    │ ── Control(Request) ────────────────► │   so that an answer costs one round trip
//!    │ ── Bytes… End ──────────────────────► │   only where the request uploads
//!    │ ◄───────────────── Control(Reply) ─── │   exactly one, first
//!    │ ◄──────── Stdout/Stderr/Bytes/… ───── │   only where the request streams
//! ```
//!
//! A frame is a 4-byte little-endian length of the payload, one kind byte, and the payload. The protocol is
//! versioned by [`GENERATION`]: messages are only ever added, and an unknown request is answered with
//! [`ErrorCode::Unsupported`]. Neither side trusts the other's lengths: see the limits below.

mod exec;
mod files;
mod frame;
mod machine;
mod ports;
mod signal;
mod vm;

use serde::{Deserialize, Serialize};

pub use exec::{
    Attach, AttachInput, AttachNotice, ExecInfo, ExecOutcome, ExecStart, ExecState, ReadMode, StdinMode,
    TerminalSize,
};
pub use files::{
    FileEntry, FileKind, ListFiles, ReadFile, TarIn, TarOut, WatchEvent, WatchEventKind, WatchFiles,
    WriteFile,
};
pub use frame::{FRAME_BYTES_MAX, Frame, FrameError, FrameKind, HEADER_BYTES};
pub use machine::{
    Activity, Boot, BootReport, Identity, MachineStats, RunningService, Service, ServiceRestart, ServiceState,
};
pub use ports::{ListeningPort, PortProcess};
pub use signal::{parse_signal, signal_name};
pub use vm::{
    ReaderRequest, STREAM_BROKEN, STREAM_END, STREAM_PIECE_BYTES_MAX, VM_LINE_BYTES_MAX, VM_PORT,
    VM_READER_ROLE, VM_ROLE, VM_TRIAL_ROLE, VmAnswer, VmBoot, VmMessage, VmNetwork, VmRequest, VmSettle,
};

/// Increased when a message changes its meaning, but not when messages or optional fields are added.
pub const GENERATION: u32 = 1;

/// The port on which the agent listens, at the sandbox's own address.
pub const PORT: u16 = 7711;

/// Where [`Boot::trust`] and [`Request::SetTrust`] write all trusted certificates, in PEM.
pub const TRUST_BUNDLE: &str = "/usr/local/share/burrow/ca-bundle.crt";

/// The same as a Java keystore.
pub const TRUST_STORE: &str = "/usr/local/share/burrow/truststore.jks";

/// The first frame of every connection, from the host.
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    pub generation: u32,
    /// The sandbox's token, as given in [`Boot`].
    pub token: String,
}

/// The second frame of every connection, from the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Answers [`Identity`].
    Ping,
    /// Starts a process. Answers [`ExecInfo`]; with `attach`, the connection continues as after [`Request::Attach`].
    ExecStart(ExecStart),
    /// Streams an exec's output from an offset; answers [`ExecInfo`] first. See [`Attach`].
    Attach(Attach),
    /// Answers [`ExecInfo`].
    ExecGet { exec: String },
    /// Answers `Vec<ExecInfo>`: all execs that the agent remembers.
    ExecList,
    /// Waits for the end, at most `timeout_ms`. Answers [`ExecInfo`], whose state says whether it has ended.
    ExecWait { exec: String, timeout_ms: u64 },
    /// Signals the exec's process group (`group`) or its first process only. Answers `()`.
    ExecSignal { exec: String, signal: i32, group: bool },
    /// Answers `()`.
    ExecResize { exec: String, size: TerminalSize },
    /// Uploads bytes to the exec's standard input (Bytes… End); `close` ends it afterwards. Answers `()`.
    ExecStdin { exec: String, close: bool },
    /// Answers [`FileEntry`]; `follow` resolves a final symbolic link.
    Stat { path: String, follow: bool },
    /// Answers `Vec<FileEntry>`.
    List(ListFiles),
    /// The same for lists that may not fit into one frame: answers `()`, then Control(`Vec<FileEntry>`)… End.
    ListStream(ListFiles),
    /// Answers [`FileEntry`], then Bytes… End.
    Read(ReadFile),
    /// Bytes… End follow the request. Answers [`FileEntry`] of the file after the write.
    Write(WriteFile),
    /// Answers [`FileEntry`]. With `parents`, missing parents are created and an existing directory is not an error.
    MakeDir { path: String, parents: bool, mode: Option<u32>, user: Option<String> },
    /// Renames, replacing a file at `to`. Answers [`FileEntry`].
    Move { from: String, to: String },
    /// Answers `()`. Without `recursive`, a directory that is not empty is refused.
    Remove { path: String, recursive: bool },
    /// Answers [`FileEntry`].
    ChangeMode { path: String, mode: u32 },
    /// Answers `()`, then the tar as Bytes… End.
    TarOut(TarOut),
    /// A tar as Bytes… End follows the request. Answers [`TarSummary`]; a hostile archive is refused as a whole.
    TarIn(TarIn),
    /// Answers `()`, then a Control([`WatchEvent`]) for each change until either side hangs up.
    Watch(WatchFiles),
    /// Answers [`MachineStats`].
    Stats,
    /// Answers [`Activity`]. Cheap: reads only what the agent has in RAM.
    Activity,
    /// Replaces the set of supervised services: new ones start, missing ones stop, changed ones restart. Answers `()`.
    SetServices { services: Vec<Service> },
    /// Answers `Vec<RunningService>`.
    ListServices,
    /// Answers `()`.
    RestartService { name: String },
    /// Answers `Vec<ListeningPort>`, by port.
    ListPorts,
    /// Answers `()` once a process inside accepted the connection; from then on the connection is a byte pipe to that
    /// port, whose directions end separately. If nothing listens: [`ErrorCode::NotFound`].
    Connect { port: u16 },
    /// Sets the total that `/proc/meminfo` shows. Answers `()`.
    SetRam { ram_bytes: u64 },
    /// Sets the certificate in PEM that programs inside trust in addition to others; `None` removes it. Answers `()`.
    SetTrust { certificate: Option<String> },
    /// Gives this machine, a copy, its own identity: a new machine id, new SSH host keys (if there were any), the new
    /// name in `/etc` (if the host had written the old one). After the answer only the new token is valid; every
    /// other connection is closed, as if the host had hung up. Execs and services continue. Answers `()`; after an
    /// error the old token remains valid.
    ///
    /// Works while every other process of the machine is frozen.
    Renew { token: String, hostname: String },
    /// Ends everything: SIGTERM to all, SIGKILL after `grace_ms`, sync. Answers `()` just before PID 1 exits.
    Shutdown { grace_ms: u64 },
}

/// The first frame of every answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply<T> {
    Ok(T),
    Err(RequestError),
}

/// Why the guest could not carry out a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    pub code: ErrorCode,
    /// What failed, on what, and the kernel's reason. No secrets, no control characters.
    pub message: String,
}

/// Stable; an unknown code of a newer guest is read as [`ErrorCode::Internal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The token is wrong, or the connection is not from the gateway.
    Unauthorized,
    Unsupported,
    /// The request is invalid: an empty argv, a relative path, a NUL byte.
    Invalid,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    NotADirectory,
    IsADirectory,
    DirectoryNotEmpty,
    /// A regular file is required, but it is a FIFO, a device or a socket.
    NotAFile,
    /// The user does not exist inside.
    UnknownUser,
    /// The program cannot be executed.
    CannotExecute,
    /// The program does not exist.
    NoProgram,
    /// A limit of the agent: execs, connections, PTYs, watches, entries.
    TooMany,
    TooLarge,
    /// The disk or the quota is full.
    NoSpace,
    /// The exec is no longer running.
    Ended,
    #[serde(other)]
    Internal,
}

/// The result of [`Request::TarIn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TarSummary {
    pub entries: u64,
    pub bytes: u64,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello").field("generation", &self.generation).field("token", &"***").finish()
    }
}
