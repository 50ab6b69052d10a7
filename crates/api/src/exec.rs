//! Execs on the wire: one run of one process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/sandboxes/{sandbox}/execs`. Give either `argv` or `command`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateExec {
    /// Program and arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// A command line for `/bin/sh -c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Added to the sandbox's environment; these values take precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Absolute. When absent, the working directory of the sandbox, else of the image, else the user's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// `name`, `uid`, `name:group` or `uid:gid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What the standard input of the process is connected to.
    #[serde(default)]
    pub stdin: StdinMode,
    /// Text written to its standard input, which is then closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Run it in a terminal of this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// Kill the whole process group after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_ms: Option<u64>,
    /// Bytes of output to keep for re-attaching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 4096, maximum = 67_108_864)]
    pub ring_bytes: Option<u32>,
    /// Respond when it has ended, with its output ([`RunResult`], status 200), instead of at once ([`Exec`], 201).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
    /// The client is about to attach: the process waits for it (30 s at most), so that no output is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// Stop the sandbox when this exec has ended (an ephemeral sandbox is then deleted).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub then_stop: bool,
    /// Take a snapshot just before it starts; the response contains its id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshot: bool,
    /// Take a snapshot first, and restore it in place unless the exec ends with exit code 0, which undoes everything
    /// that it did. Requires `wait` or `hold`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback_on_failure: bool,
}

/// The user's own shell if it has one, else bash, else sh. It runs inside the sandbox, where the users are known.
const FIND_SHELL: &str = "shell=$(getent passwd \"$(id -u)\" 2>/dev/null | cut -d: -f7); \
    for each in \"$shell\" /bin/bash /bin/sh; do \
    case \"$each\" in */nologin|*/false|'') continue;; esac; \
    [ -x \"$each\" ] && exec \"$each\" -l; done; exec sh";

/// The `argv` of a [`CreateExec`] for a login shell. It is the same for all clients that open a shell, so that a shell
/// that was left open can be recognised by it.
pub fn login_shell() -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned(), FIND_SHELL.to_owned()]
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StdinMode {
    #[default]
    Null,
    Pipe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exec {
    pub id: String,
    pub sandbox_id: String,
    pub argv: Vec<String>,
    pub state: ExecState,
    /// The process id inside the sandbox.
    pub pid: Option<u32>,
    pub terminal: bool,
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
    pub outcome: Option<ExecOutcome>,
    /// Offset after the last byte of output; offset of the first byte still held; bytes that were dropped before they
    /// were read.
    pub output_end: u64,
    pub output_start: u64,
    pub output_dropped: u64,
    /// What was denied to its sandbox while it ran, at most 16 entries, each once. The entries are found by time, not
    /// by process, so they include other processes of the sandbox. Absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress_denied: Vec<crate::EgressDenied>,
    /// The snapshot taken just before it started, as long as that exists: with `snapshot`, or until it is known that
    /// nothing needs to be rolled back. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The progress of `rollback_on_failure`. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// Memories of similar failures, if it failed and there are relevant ones. Reported once, to the clients that
    /// waited for it or were attached to its output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<crate::memory::RelatedMemory>,
}

/// The progress of rolling back a failed exec. A response to `wait` and the `exit` message are sent when it is
/// complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rollback {
    pub state: RollbackState,
    /// A snapshot of the state that the failed exec left, if that snapshot could not be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// Why it could not be rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::ErrorDetail>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RollbackState {
    /// The exec is running, or is being rolled back.
    Pending,
    /// It succeeded: there is nothing to roll back.
    Unneeded,
    /// The sandbox is as it was before the exec.
    Done,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecState {
    Running,
    Ended,
    /// Its sandbox stopped while it ran, so its outcome is unknown.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecOutcome {
    pub exit_code: Option<i32>,
    /// `SIGKILL` and the like.
    pub signal: Option<String>,
    pub timed_out: bool,
    /// Most likely by the kernel, out of memory (OOM).
    pub killed_from_outside: bool,
    pub cpu_us: u64,
    pub ram_max_bytes: u64,
    pub wall_us: u64,
}

/// Response for an exec that the client waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunResult {
    pub exec: Exec,
    /// Bytes that are not UTF-8 are replaced; the output routes give the exact bytes.
    pub stdout: String,
    pub stderr: String,
    /// The exec wrote more than is included here.
    pub truncated: bool,
}

/// `POST …/signal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// `TERM`, `SIGTERM` or `15`.
    pub signal: String,
    /// Signal the whole process group, as a terminal does, instead of its first process only.
    #[serde(default = "yes")]
    pub group: bool,
}

fn yes() -> bool {
    true
}

/// One line of `GET …/output` as NDJSON. Exactly one of its fields is present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OutputChunk {
    Output {
        stream: OutputStream,
        offset: u64,
        /// The bytes, when they are UTF-8.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The bytes in base64, when they are not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
    },
    /// Bytes `from..to` have been dropped from the ring.
    Gap { from: u64, to: u64 },
    /// The last line, when the exec has ended.
    Exit { exec: Box<Exec> },
    /// The last line, without `follow`.
    Drained { offset: u64 },
    /// The last line, when the stream was interrupted.
    Error { error: crate::ErrorDetail },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
}
