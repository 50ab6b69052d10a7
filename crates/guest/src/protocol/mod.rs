//! What host and guest say to each other.
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
pub use vm::{
    ReaderRequest, STREAM_BROKEN, STREAM_END, STREAM_PIECE_BYTES_MAX, VM_LINE_BYTES_MAX, VM_PORT,
    VM_READER_ROLE, VM_ROLE, VM_TRIAL_ROLE, VmAnswer, VmBoot, VmMessage, VmNetwork, VmRequest, VmSettle,
};

/// Raised when a message changes its meaning; adding messages or optional fields does not raise it.
pub const GENERATION: u32 = 1;

/// Where the agent listens, on the sandbox's own address.
pub const PORT: u16 = 7711;

/// Where [`Boot::trust`] and [`Request::SetTrust`] put all that is trusted, in PEM.
pub const TRUST_BUNDLE: &str = "/usr/local/share/burrow/ca-bundle.crt";

/// The same as a Java keystore.
pub const TRUST_STORE: &str = "/usr/local/share/burrow/truststore.jks";

/// First frame of every connection, from the host.
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    pub generation: u32,
    /// The per-sandbox token, as given in [`Boot`].
    pub token: String,
}

/// Second frame of every connection, from the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Answers [`Identity`].
    Ping,
    /// Starts a process. Answers [`ExecInfo`]; with `attach`, the connection goes on as after [`Request::Attach`].
    ExecStart(ExecStart),
    /// Streams an exec's output from an offset; answers [`ExecInfo`] first. See [`Attach`].
    Attach(Attach),
    /// Answers [`ExecInfo`].
    ExecGet { exec: String },
    /// Answers `Vec<ExecInfo>`: all the agent still remembers.
    ExecList,
    /// Waits for the end, at most `timeout_ms`. Answers [`ExecInfo`], whose state tells whether it ended.
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
    /// The same for lists that may not fit one frame: answers `()`, then Control(`Vec<FileEntry>`)… End.
    ListStream(ListFiles),
    /// Answers [`FileEntry`], then Bytes… End.
    Read(ReadFile),
    /// Bytes… End follow the request. Answers [`FileEntry`] of the file as it is now.
    Write(WriteFile),
    /// Answers [`FileEntry`]. With `parents`, missing parents are made and an existing directory is fine.
    MakeDir { path: String, parents: bool, mode: Option<u32>, user: Option<String> },
    /// Renames, replacing a file at `to`. Answers [`FileEntry`].
    Move { from: String, to: String },
    /// Answers `()`. Without `recursive`, a directory that is not empty is refused.
    Remove { path: String, recursive: bool },
    /// Answers [`FileEntry`].
    ChangeMode { path: String, mode: u32 },
    /// Answers `()`, then the tar as Bytes… End.
    TarOut(TarOut),
    /// A tar as Bytes… End follows the request. Answers [`TarSummary`]; a hostile archive is refused whole.
    TarIn(TarIn),
    /// Answers `()`, then a Control([`WatchEvent`]) for each change until either side hangs up.
    Watch(WatchFiles),
    /// Answers [`MachineStats`].
    Stats,
    /// Answers [`Activity`]. Cheap: looks at nothing but what the agent has in RAM.
    Activity,
    /// Replaces the set of supervised services: new ones start, missing ones stop, changed ones restart. Answers `()`.
    SetServices { services: Vec<Service> },
    /// Answers `Vec<RunningService>`.
    ListServices,
    /// Answers `()`.
    RestartService { name: String },
    /// Answers `Vec<ListeningPort>`, by port.
    ListPorts,
    /// Answers `()` once something inside took the connection; from then on the connection is a byte pipe to that port,
    /// each direction with an end of its own. Nothing there: [`ErrorCode::NotFound`].
    Connect { port: u16 },
    /// What `/proc/meminfo` shall show. Answers `()`.
    SetRam { ram_bytes: u64 },
    /// What programs inside shall trust besides what they do: one certificate in PEM; `None` takes it back. Answers `()`.
    SetTrust { certificate: Option<String> },
    /// This machine is a copy, and becomes somebody else: a new machine id, new SSH host keys (where there were any), the
    /// new name in `/etc` (where the host had put the old one). From the answer on only the new token counts; every
    /// other connection is closed, as if the host had hung up. Execs and services go on. Answers `()`; after a refusal
    /// the old token still counts.
    ///
    /// Works while every other process of the machine stands still.
    Renew { token: String, hostname: String },
    /// Ends everything: SIGTERM to all, SIGKILL after `grace_ms`, sync. Answers `()` just before PID 1 exits.
    Shutdown { grace_ms: u64 },
}

/// First frame of every answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply<T> {
    Ok(T),
    Err(RequestError),
}

/// A request the guest could not carry out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    pub code: ErrorCode,
    /// What was tried, on what, and what the kernel said. No secrets, no control characters.
    pub message: String,
}

/// Stable; an unknown code of a newer guest reads as [`ErrorCode::Internal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// Wrong token, or not from the gateway.
    Unauthorized,
    Unsupported,
    /// The request makes no sense: an empty argv, a relative path, a NUL byte.
    Invalid,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    NotADirectory,
    IsADirectory,
    DirectoryNotEmpty,
    /// Not a regular file where one is needed: a FIFO, a device, a socket.
    NotAFile,
    /// No such user inside.
    UnknownUser,
    /// The program cannot be executed.
    CannotExecute,
    /// There is no such program.
    NoProgram,
    /// A bound of the agent: execs, connections, PTYs, watches, entries.
    TooMany,
    TooLarge,
    /// Disk or quota full.
    NoSpace,
    /// The exec is not running any more.
    Ended,
    #[serde(other)]
    Internal,
}

/// What [`Request::TarIn`] unpacked.
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
