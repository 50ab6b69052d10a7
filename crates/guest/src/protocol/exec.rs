//! Messages about processes.
//!
//! Output is one log per exec, kept in a ring: every byte of standard output and error has an offset in the order in
//! which the agent read it. A reader that attaches states the offset at which it continues, and misses nothing that
//! the ring holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecStart {
    /// Chosen by the host. Starting the same id twice returns the [`ExecInfo`] of the first start.
    pub exec: String,
    /// The program is searched for in the exec's own PATH.
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Absolute; the user's home when absent.
    pub cwd: Option<String>,
    /// `name`, `uid`, `name:group` or `uid:gid`; root when absent.
    pub user: Option<String>,
    pub stdin: StdinMode,
    /// A controlling terminal of this size; standard error then goes to it too.
    pub terminal: Option<TerminalSize>,
    /// The whole process group is ended (SIGTERM, SIGKILL 2 s later) after this time. Only time awake counts: time in
    /// which the sandbox is paused or hibernated does not.
    pub timeout_ms: Option<u64>,
    /// How many bytes of output to keep.
    pub ring_bytes: u32,
    /// Continue with the output stream on this connection, from offset 0.
    pub attach: Option<ReadMode>,
    /// Count as read losslessly from offset 0 until the first attach, for at most 30 s.
    pub hold: bool,
    /// When this exec has ended and its readers have received everything, shut the sandbox down.
    pub then_stop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StdinMode {
    /// `/dev/null`.
    Null,
    /// Written by [`super::Request::ExecStdin`] and by attached hosts.
    Pipe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attach {
    pub exec: String,
    /// First byte wanted. If the ring no longer holds it, an [`AttachNotice::Gap`] comes first.
    pub offset: u64,
    pub mode: ReadMode,
    /// False: end the stream when all output so far has been sent.
    pub follow: bool,
}

/// What happens to a process whose output is read too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadMode {
    /// It waits, as on a full pipe.
    Lossless,
    /// It continues; the reader receives a gap notice.
    Lossy,
}

/// From the host, on an attached connection, as Control. Standard input itself is sent as Bytes, its end as End.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum AttachInput {
    Resize(TerminalSize),
    Signal { signal: i32 },
}

/// From the guest, on an attached connection, as Control, between Stdout and Stderr frames.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum AttachNotice {
    /// Bytes from `from` up to, not including, `to` are no longer in the ring.
    Gap { from: u64, to: u64 },
    /// The exec ended and all its output has been sent. Last frame.
    Exit(ExecInfo),
    /// `follow` was false and all existing output has been sent. Last frame.
    Drained { offset: u64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecInfo {
    pub exec: String,
    /// The pid inside the sandbox.
    pub pid: u32,
    pub argv: Vec<String>,
    pub terminal: bool,
    /// Milliseconds since the Unix epoch, by the sandbox's clock.
    pub started_ms: u64,
    pub state: ExecState,
    /// One past the last byte of output so far, and the first byte that the ring still holds.
    pub output_end: u64,
    pub output_start: u64,
    /// Bytes that left the ring before any reader received them.
    pub output_dropped: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ExecState {
    Running,
    Ended(ExecOutcome),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecOutcome {
    /// None if a signal ended it.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    /// Killed by a SIGKILL that the agent did not send: most likely out of memory.
    pub killed_from_outside: bool,
    pub cpu_us: u64,
    pub ram_max_bytes: u64,
    /// By the sandbox's CLOCK_BOOTTIME: without the time in which it was hibernated.
    pub wall_us: u64,
    pub ended_ms: u64,
}
