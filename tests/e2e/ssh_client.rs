//! OpenSSH's own client against a daemon's gateway, with a key of the test, the daemon's host key, and none of the user's
//! configuration.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::harness::{Daemon, run};

/// The configuration of a daemon for these tests.
pub(crate) const CONFIG: &str = "[ssh]\nlisten = \"127.0.0.1:0\"";

/// A client with a key.
#[derive(Debug)]
pub(crate) struct SshClient {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) port: u16,
}

impl SshClient {
    /// With a key that was added.
    pub(crate) fn known(daemon: &Daemon) -> Self {
        let client = Self::stranger(daemon);
        daemon.ok(&["ssh-key", "add", client.public_key().to_str().unwrap(), "--name", "tester"]);
        client
    }

    /// With a key that was not added.
    pub(crate) fn stranger(daemon: &Daemon) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let told = runtime.block_on(daemon.client().ssh()).unwrap();
        let (address, host_key) = (told.address.unwrap(), told.host_key.unwrap());
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("id");
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key));
        fs::write(folder.path().join("known_hosts"), format!("gateway {host_key}\n")).unwrap();
        Self { folder, port }
    }

    pub(crate) fn public_key(&self) -> PathBuf {
        self.folder.path().join("id.pub")
    }

    /// Options that all OpenSSH programs accept.
    pub(crate) fn options(&self) -> Vec<String> {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let mut options = vec!["-F".to_owned(), "none".to_owned()];
        for (name, value) in [
            ("Port", self.port.to_string()),
            ("IdentityFile", at("id")),
            ("IdentitiesOnly", "yes".to_owned()),
            ("IdentityAgent", "none".to_owned()),
            ("UserKnownHostsFile", at("known_hosts")),
            ("GlobalKnownHostsFile", "none".to_owned()),
            ("HostKeyAlias", "gateway".to_owned()),
            ("StrictHostKeyChecking", "yes".to_owned()),
            ("BatchMode", "yes".to_owned()),
            ("LogLevel", "ERROR".to_owned()),
        ] {
            options.extend(["-o".to_owned(), format!("{name}={value}")]);
        }
        options
    }

    pub(crate) fn ssh(&self, arguments: &[&str]) -> Command {
        self.program("ssh", arguments)
    }

    pub(crate) fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(self.options()).args(arguments).stdin(Stdio::null()).env("LANG", "C.UTF-8");
        command
    }

    /// Runs a command in a sandbox.
    pub(crate) fn exec(&self, sandbox: &str, line: &str) -> Output {
        self.ssh(&[&format!("{sandbox}@127.0.0.1"), line]).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, sandbox: &str, line: &str) -> String {
        text(&succeeded(self.exec(sandbox, line)).stdout)
    }

    /// With input.
    #[track_caller]
    pub(crate) fn fed(&self, sandbox: &str, line: &str, input: &[u8]) -> Output {
        let mut command = self.ssh(&[&format!("{sandbox}@127.0.0.1"), line]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeding = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        // A command may end without reading all input.
        let _ = feeding.join().unwrap();
        output
    }

    /// The command for `GIT_SSH_COMMAND` and rsync's `-e`.
    pub(crate) fn as_line(&self) -> String {
        format!("ssh {}", self.options().join(" "))
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn succeeded(output: Output) -> Output {
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    output
}

/// A file of this many bytes that cannot be compressed or cached.
pub(crate) fn noise(path: &Path, mib: usize) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(mib << 20);
    while bytes.len() < mib << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}
