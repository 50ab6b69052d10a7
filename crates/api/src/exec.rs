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
    /// A line for `/bin/sh -c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Wins over the sandbox's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Absolute; the sandbox's, the image's, else the user's home, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// `name`, `uid`, `name:group` or `uid:gid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What the process finds on its standard input.
    #[serde(default)]
    pub stdin: StdinMode,
    /// Text written to its standard input at once, which is then closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// A terminal of this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// End the whole process group after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub timeout_ms: Option<u64>,
    /// Bytes of output to keep for re-attaching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 4096, maximum = 67_108_864)]
    pub ring_bytes: Option<u32>,
    /// Answer when it has ended, with its output ([`RunResult`], status 200) instead of at once ([`Exec`], 201).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
    /// The caller is about to attach: let the process wait for it (30 s at most) rather than lose output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// Stop the sandbox when this exec has ended (an ephemeral one is then deleted).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub then_stop: bool,
    /// Take a snapshot just before it starts; the answer names it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshot: bool,
    /// Take a snapshot, and restore it in place if the exec ends with anything but exit code 0: what it did leaves no
    /// trace. Needs `wait` or `hold`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback_on_failure: bool,
}

/// The user's own shell when it has one, else bash, else sh. Runs inside, where the users are known.
const FIND_SHELL: &str = "shell=$(getent passwd \"$(id -u)\" 2>/dev/null | cut -d: -f7); \
    for each in \"$shell\" /bin/bash /bin/sh; do \
    case \"$each\" in */nologin|*/false|'') continue;; esac; \
    [ -x \"$each\" ] && exec \"$each\" -l; done; exec sh";

/// What a login runs: `argv` of a [`CreateExec`]. The same for all who open a shell, so that one that was left open is known
/// by it.
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
    /// Inside the sandbox.
    pub pid: Option<u32>,
    pub terminal: bool,
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
    pub outcome: Option<ExecOutcome>,
    /// One past the last byte of output; the first byte still held; bytes nobody read and the ring dropped.
    pub output_end: u64,
    pub output_start: u64,
    pub output_dropped: u64,
    /// What its sandbox was not let through to while it ran, at most 16, each once. By time, not by process: whatever
    /// else ran in the sandbox counts too. Not told in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress_denied: Vec<crate::EgressDenied>,
    /// The snapshot taken just before it started, as long as it is there: with `snapshot`, or until it is known that
    /// there is nothing to roll back. Not told in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What became of `rollback_on_failure`. Not told in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// What is remembered of failures like this one, where it failed and that is worth showing. Told once, to those who
    /// waited for it or were attached to its output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<crate::memory::RelatedMemory>,
}

/// How far the undoing of a failed exec is. A waited-for exec, and an attachment's `exit`, answer when it is settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rollback {
    pub state: RollbackState,
    /// What the failed exec left, as a snapshot, where that could not be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// Why it could not be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::ErrorDetail>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RollbackState {
    /// The exec runs, or is being undone.
    Pending,
    /// It succeeded: there is nothing to undo.
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
    /// Its sandbox stopped under it, so nobody saw how it ended.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecOutcome {
    pub exit_code: Option<i32>,
    /// `SIGKILL` and the like.
    pub signal: Option<String>,
    pub timed_out: bool,
    /// Most likely the kernel, for want of RAM.
    pub killed_from_outside: bool,
    pub cpu_us: u64,
    pub ram_max_bytes: u64,
    pub wall_us: u64,
}

/// Answer of a waited-for exec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunResult {
    pub exec: Exec,
    /// Bytes that are not UTF-8 are replaced; the output routes give the exact bytes.
    pub stdout: String,
    pub stderr: String,
    /// More was written than is shown here.
    pub truncated: bool,
}

/// `POST …/signal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// `TERM`, `SIGTERM` or `15`.
    pub signal: String,
    /// The whole process group, as a terminal does, or its first process only.
    #[serde(default = "yes")]
    pub group: bool,
}

fn yes() -> bool {
    true
}

/// One line of `GET …/output` as NDJSON. Exactly one of the parts is there.
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
    /// Bytes `from..to` are gone from the ring.
    Gap { from: u64, to: u64 },
    /// The last line, when the exec ended.
    Exit { exec: Box<Exec> },
    /// The last line, without `follow`.
    Drained { offset: u64 },
    /// The last line, when the stream broke.
    Error { error: crate::ErrorDetail },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
}
