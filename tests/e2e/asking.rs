//! Short helpers that call a daemon under test and read what it uses.

use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::harness::Daemon;

impl Daemon {
    /// Standard output of a command that must succeed, as JSON.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("burrow {arguments:?}: {error}: {text}"))
    }

    /// Runs a shell line in a sandbox and returns its standard output.
    #[track_caller]
    pub(crate) fn sh(&self, sandbox: &str, line: &str) -> String {
        self.ok(&["exec", sandbox, "--", "sh", "-c", line])
    }

    /// Whether a shell line in a sandbox succeeds.
    pub(crate) fn holds(&self, sandbox: &str, line: &str) -> bool {
        self.cli(&["exec", sandbox, "--", "sh", "-c", line]).status.success()
    }

    /// Standard error of a command that must fail with exit code `code`; its standard output must be empty.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str], code: i32) -> String {
        let output = self.cli(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "burrow {arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "burrow {arguments:?} failed and wrote to standard output");
        assert!(said.starts_with("error: "), "burrow {arguments:?} said {said:?}");
        said
    }

    /// Runs a command with the given standard input.
    pub(crate) fn fed(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // Written on another thread: a program that answers while it reads would otherwise wait for us
            // while we wait for it.
            scope.spawn(move || {
                let _ = stdin.write_all(input);
            });
            child.wait_with_output().unwrap()
        })
    }

    /// Creates a sandbox of this name and returns its id.
    #[track_caller]
    pub(crate) fn create(&self, name: &str) -> String {
        self.ok(&["create", "--name", name])
    }

    pub(crate) fn inspect(&self, sandbox: &str) -> Value {
        self.json(&["inspect", sandbox])
    }

    /// Current and peak RAM of the daemon's own process, in KiB.
    pub(crate) fn ram_kib(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let value = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (value("VmRSS:"), value("VmHWM:"))
    }

    /// Lines of the log at these levels, which an operator would have to read.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let bad = |line: &&str| line.contains(" ERROR ") || line.contains(" WARN ");
        self.log().lines().filter(bad).map(str::to_owned).collect()
    }
}
