//! The peer: OpenSSH's server on loopback, for root with a key of the measurement.
//!
//! It requires a user of its own in `/etc/passwd`, which a machine without the package does not have. It therefore runs
//! in a mount namespace where that file has one more line; the machine is not changed.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::process::run;

const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Sshd {
    child: Child,
    pub(crate) port: u16,
    /// `ssh-ed25519 AAAA…`.
    pub(crate) host_key: String,
    _folder: tempfile::TempDir,
}

impl Sshd {
    /// Accepts the private key that belongs to the public key in `authorized`.
    pub(crate) fn start(program: &Path, authorized: &Path) -> Result<Self, BenchError> {
        let folder = tempfile::tempdir().map_err(BenchError::io("make a folder for", "sshd"))?;
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: String| {
            fs::write(at(name), text).map_err(BenchError::io("write", at(name).display()))
        };
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at("host")))?;
        let read = |path: &Path| fs::read_to_string(path).map_err(BenchError::io("read", path.display()));
        let mut users = read(Path::new("/etc/passwd"))?;
        if !users.lines().any(|line| line.starts_with("sshd:")) {
            users.push_str("sshd:x:99079:65534::/nonexistent:/usr/sbin/nologin\n");
        }
        write("passwd", users)?;
        let port = free_port()?;
        write(
            "config",
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
                 PermitRootLogin prohibit-password\nPasswordAuthentication no\nStrictModes no\nPrintMotd no\n\
                 PrintLastLog no\nMaxStartups 100\nSubsystem sftp internal-sftp\n",
                at("host").display(),
                authorized.display(),
            ),
        )?;
        let script = "mount --bind \"$1\" /etc/passwd && mkdir -p /run/sshd && exec \"$2\" -D -e -f \"$3\"";
        let child = Command::new("unshare")
            .args(["--mount", "--", "sh", "-c", script, "sh"])
            .arg(at("passwd"))
            .arg(program)
            .arg(at("config"))
            // An unpacked package has its library beside it.
            .env("LD_LIBRARY_PATH", program.parent().unwrap_or(Path::new("/")))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(BenchError::io("start", program.display()))?;
        let host_key = read(&at("host.pub"))?.trim().to_owned();
        let mut sshd = Self { child, port, host_key, _folder: folder };
        sshd.wait_until_listening()?;
        Ok(sshd)
    }

    fn wait_until_listening(&mut self) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.child.try_wait().map_err(BenchError::io("wait for", "sshd"))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(BenchError::WrongAnswer { what: "sshd does not come up".to_owned() });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(BenchError::io("listen on", "loopback"))?;
    Ok(listener.local_addr().map_err(BenchError::io("listen on", "loopback"))?.port())
}
