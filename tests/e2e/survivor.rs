//! A program in a sandbox that detects the loss of any of its resources.

use serde_json::Value;

use crate::harness::{Daemon, eventually};

const PROGRAM: &str = include_str!("survivor.py");

/// The port it listens on, inside.
pub(crate) const PORT: u16 = 8000;

/// Tries, from another process, to take the lock that the program has on a file it has mapped.
const TRY_LOCK: &str =
    "import fcntl; f = open('/root/locked', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 16, 128)";

/// The state it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SurvivorState {
    /// Chosen once, when it started.
    pub(crate) nonce: String,
    pub(crate) beats: u64,
    pub(crate) rows: u64,
}

/// Starts it in the background of a sandbox, and waits until it answers.
pub(crate) fn start(daemon: &Daemon, sandbox: &str) -> SurvivorState {
    let written = daemon.fed(&["files", "write", sandbox, "/root/survivor.py"], PROGRAM.as_bytes());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let port = PORT.to_string();
    let exec = daemon.ok(&["exec", "-d", sandbox, "--", "python3", "/root/survivor.py", &port]);
    eventually("the program to answer", || {
        let told = try_ask(daemon, sandbox);
        if told.is_none() {
            // It must run forever: if it exits, report its error instead of waiting.
            let execs = daemon.json(&["ps", sandbox, "--json"]);
            let mut execs = execs.as_array().unwrap().iter();
            let runs = execs.any(|one| one["id"] == exec.trim() && one["state"] == "running");
            assert!(runs, "{}", daemon.ok(&["logs", sandbox, exec.trim()]));
        }
        told
    })
}

/// Through an exec, which wakes the sandbox.
pub(crate) fn try_ask(daemon: &Daemon, sandbox: &str) -> Option<SurvivorState> {
    let url = format!("http://127.0.0.1:{PORT}/");
    let output = daemon.cli(&["exec", sandbox, "--", "curl", "-fsS", "--max-time", "30", &url]);
    output.status.success().then(|| judge(&serde_json::from_slice(&output.stdout).unwrap()))
}

#[track_caller]
pub(crate) fn ask(daemon: &Daemon, sandbox: &str) -> SurvivorState {
    ask_at(daemon, sandbox, "")
}

/// The same, with a second connection to its database, opened by the same process. Not after a fork or a restore: the
/// files are then on a volume with another device number, by which SQLite tells databases apart.
#[track_caller]
pub(crate) fn ask_within(daemon: &Daemon, sandbox: &str) -> SurvivorState {
    ask_at(daemon, sandbox, "within")
}

#[track_caller]
fn ask_at(daemon: &Daemon, sandbox: &str, path: &str) -> SurvivorState {
    let url = format!("http://127.0.0.1:{PORT}/{path}");
    let said = daemon.ok(&["exec", sandbox, "--", "curl", "-fsS", "--max-time", "30", &url]);
    judge(&serde_json::from_str(&said).unwrap())
}

/// Checks everything that must be true at any time.
#[track_caller]
fn judge(state: &Value) -> SurvivorState {
    let number = |field: &str| state[field].as_u64().unwrap_or_else(|| panic!("{field} in {state}"));
    assert_eq!(state["whole"], "ok", "the database, {state}");
    assert_eq!(state["shell"], true, "the shell on its terminal, {state}");
    assert_eq!(state["inside"], true, "the connection within, {state}");
    assert_eq!(number("held"), 4, "the file that is open and deleted, {state}");
    assert_eq!(number("rows"), number("stored"), "what was written is what is there, {state}");
    SurvivorState {
        nonce: state["nonce"].as_str().unwrap().to_owned(),
        beats: number("beats"),
        rows: number("rows"),
    }
}

/// The same process, with more progress.
#[track_caller]
pub(crate) fn goes_on(before: &SurvivorState, after: &SurvivorState, context: &str) {
    assert_eq!(after.nonce, before.nonce, "another process answers, {context}");
    assert!(after.beats >= before.beats, "its timer went back, {context}: {before:?} {after:?}");
    assert!(after.rows >= before.rows, "rows are missing, {context}: {before:?} {after:?}");
}

/// The lock on the mapped file excludes other processes.
#[track_caller]
pub(crate) fn still_locked(daemon: &Daemon, sandbox: &str, context: &str) {
    let output = daemon.cli(&["exec", sandbox, "--", "python3", "-c", TRY_LOCK]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("BlockingIOError"),
        "the lock is gone, {context}: {said}"
    );
    // Control: bytes outside the locked range can be locked.
    let beside = TRY_LOCK.replace("16, 128", "16, 512");
    daemon.ok(&["exec", sandbox, "--", "python3", "-c", &beside]);
}
