//! Logging in over SSH and transferring a file by sftp, with OpenSSH's client, compared with OpenSSH's server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use burrow_api::AddSshKey;

use super::{Scale, create};
use crate::daemon::{BenchSetup, Daemon};
use crate::error::BenchError;
use crate::process::run;
use crate::report::{Figure, Target};
use crate::samples::Samples;
use crate::sshd::Sshd;

const MIB: usize = 1 << 20;

/// The text that follows a shell's first prompt.
const PROMPTS: [&[u8]; 2] = [b"# ", b"$ "];

/// A server to log in to.
struct Server {
    login: String,
    port: u16,
    known_hosts: PathBuf,
    /// The folder for files on it.
    folder: String,
}

pub(super) async fn measure(
    daemon: &Daemon,
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let Some(sshd) = prepared.sshd.clone() else {
        eprintln!("  no `sshd` was found: left out");
        return Ok(Vec::new());
    };
    let client = daemon.client()?;
    let sandbox = create(&client).await?;
    let folder =
        tempfile::tempdir_in(&prepared.state).map_err(BenchError::io("make a folder in", "the state"))?;
    let key = folder.path().join("id");
    run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key))?;
    let public = key.with_extension("pub");
    let public_key = fs::read_to_string(&public).map_err(BenchError::io("read", public.display()))?;
    let added = client.add_ssh_key(&AddSshKey { public_key, name: None }).await;
    added.map_err(BenchError::api("add an SSH key"))?;
    let told = client.ssh().await.map_err(BenchError::api("ask for the SSH gateway"))?;
    let (Some(address), Some(host_key)) = (told.address, told.host_key) else {
        return Err(BenchError::WrongAnswer { what: "SSH is not served".to_owned() });
    };
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    let port =
        port.ok_or_else(|| BenchError::WrongAnswer { what: format!("an SSH gateway at {address}") })?;
    let pool = daemon.place().pool.join("floor");
    fs::create_dir_all(&pool).map_err(BenchError::io("make", pool.display()))?;
    let (scale, at) = (*scale, folder.path().to_owned());
    let work = move || -> Result<Vec<Figure>, BenchError> {
        let peer = Sshd::start(&sshd, &public)?;
        let known = |name: &str, host_key: &str| -> Result<PathBuf, BenchError> {
            let path = at.join(name);
            fs::write(&path, format!("server {host_key}\n"))
                .map_err(BenchError::io("write", path.display()))?;
            Ok(path)
        };
        let ours = Server {
            login: sandbox,
            port,
            known_hosts: known("ours", &host_key)?,
            folder: "/root".to_owned(),
        };
        let theirs = Server {
            login: "root".to_owned(),
            port: peer.port,
            known_hosts: known("theirs", &peer.host_key)?,
            folder: pool.display().to_string(),
        };
        let figures = compare(&Client { key, folder: at.clone() }, &ours, &theirs, &scale);
        let _ = fs::remove_dir_all(&pool);
        figures
    };
    let figures = tokio::task::spawn_blocking(work).await.expect("a measuring task does not panic");
    drop(folder);
    figures
}

fn compare(
    client: &Client,
    ours: &Server,
    theirs: &Server,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let [mut login, mut login_theirs] = [Samples::default(), Samples::default()];
    for round in 0..=scale.creates {
        let (one, other) = (client.prompt(ours)?, client.prompt(theirs)?);
        // The first of each has cold caches.
        if round > 0 {
            login.push_ms(one);
            login_theirs.push_ms(other);
        }
    }
    let file = client.folder.join("file");
    fill(&file, scale.file_mib)?;
    let mut rates: [Samples; 4] = Default::default();
    for _ in 0..scale.file_rounds {
        for (index, server) in [ours, theirs].into_iter().enumerate() {
            let there = format!("{}/file", server.folder);
            let put = client.sftp(server, &format!("put {} {there}\n", file.display()))?;
            let get = client.sftp(server, &format!("get {there} /dev/null\n"))?;
            client.sftp(server, &format!("rm {there}\n"))?;
            rates[index].push(rate(scale.file_mib, put));
            rates[2 + index].push(rate(scale.file_mib, get));
        }
    }
    let [put, put_theirs, get, get_theirs] = &rates;
    let half = Target::RatioAtLeast { limit: 0.5 };
    Ok(vec![
        Figure::median("ssh.prompt", &login, "ms", "p50 from `ssh` to the shell's first prompt")
            .against("OpenSSH's sshd", &login_theirs)
            .target(Target::RatioAtMost { limit: 2.0, wish: 1.0 }),
        Figure::median("ssh.sftp.put", put, "MiB/s", "p50 of `sftp put` of 1 GiB")
            .against("OpenSSH's sshd, same btrfs", put_theirs)
            .target(half),
        Figure::median("ssh.sftp.get", get, "MiB/s", "p50 of `sftp get` of 1 GiB")
            .against("OpenSSH's sshd, same btrfs", get_theirs)
            .target(half),
    ])
}

struct Client {
    key: PathBuf,
    folder: PathBuf,
}

impl Client {
    fn command(&self, program: &str, server: &Server) -> Command {
        let mut command = Command::new(program);
        command.args(["-F", "none", "-o", &format!("Port={}", server.port)]);
        for (name, value) in [
            ("IdentityFile", self.key.display().to_string()),
            ("UserKnownHostsFile", server.known_hosts.display().to_string()),
            ("GlobalKnownHostsFile", "none".to_owned()),
            ("HostKeyAlias", "server".to_owned()),
            ("IdentitiesOnly", "yes".to_owned()),
            ("IdentityAgent", "none".to_owned()),
            ("BatchMode", "yes".to_owned()),
            ("LogLevel", "ERROR".to_owned()),
        ] {
            command.arg("-o").arg(format!("{name}={value}"));
        }
        command
    }

    /// Time from the start of the client to the first prompt. The shell is ended before the next one.
    fn prompt(&self, server: &Server) -> Result<Duration, BenchError> {
        let failed = || BenchError::io("talk to", "ssh");
        let mut command = self.command("ssh", server);
        command.args(["-tt", &format!("{}@127.0.0.1", server.login)]).env("TERM", "dumb");
        let begin = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed())?;
        let mut stdout = child.stdout.take().expect("it is piped");
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        while !PROMPTS.iter().any(|prompt| seen.ends_with(prompt)) {
            let count = stdout.read(&mut buffer).map_err(failed())?;
            if count == 0 {
                let what = format!("no prompt, but {:?}", String::from_utf8_lossy(&seen));
                return Err(BenchError::WrongAnswer { what });
            }
            seen.extend_from_slice(&buffer[..count]);
        }
        let elapsed = begin.elapsed();
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(b"exit\n").map_err(failed())?;
        let _ = stdout.read_to_end(&mut seen);
        child.wait().map_err(failed())?;
        Ok(elapsed)
    }

    fn sftp(&self, server: &Server, script: &str) -> Result<Duration, BenchError> {
        let path = self.folder.join("batch");
        fs::write(&path, script).map_err(BenchError::io("write", path.display()))?;
        let mut command = self.command("sftp", server);
        command.arg("-q").arg("-b").arg(&path).arg(format!("{}@127.0.0.1", server.login));
        let begin = Instant::now();
        run(command.stdin(Stdio::null()))?;
        Ok(begin.elapsed())
    }
}

fn rate(mib: usize, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a file has few MiB")]
    let mib = mib as f64;
    mib / elapsed.as_secs_f64()
}

fn fill(path: &Path, mib: usize) -> Result<(), BenchError> {
    let failed = || BenchError::io("write", path.display());
    let piece: Vec<u8> = (0..MIB).map(|index| (index * 31 % 251) as u8).collect();
    let mut file = fs::File::create(path).map_err(failed())?;
    for _ in 0..mib {
        file.write_all(&piece).map_err(failed())?;
    }
    file.sync_all().map_err(failed())
}
