//! Warms up a machine before it belongs to a sandbox: a second agent, like the later one, runs a command.
//!
//! An emulator translates code when it first runs, which takes many times as long as running it, and a program that
//! never ran must be read from the disk. The warm-up does both in advance. Which pages of RAM hold the code matters,
//! not which process runs it: so another process than this one runs it, and leaves nothing behind.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;

use super::failure::{AtStep as _, Failure};
use super::network;
use crate::client::{Connection, GuestError};
use crate::protocol::{
    Boot, BootReport, ExecInfo, ExecStart, Frame, GENERATION, PORT, ReadMode, Request, StdinMode,
};

/// This program, at its path in every machine.
const AGENT: &str = "/.burrow/guest";

/// The second agent listens on loopback only, in a machine without other processes, and ends before the machine is
/// used.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
const TOKEN: &str = "warmup";

/// The command with which most others begin. In an image without a shell, this step is skipped.
const COMMAND: [&str; 3] = ["/bin/sh", "-c", "exit"];
const OUTPUT_BYTES: u32 = 64 << 10;

/// For each of the two steps, on a host that creates dozens of machines at once.
const TIME_MAX: Duration = Duration::from_secs(60);

pub(super) async fn warm_up() -> Result<(), Failure> {
    network::raise_loopback().at("bring up the loopback interface")?;
    let (mut agent, socket) = begin().at("start a second agent")?;
    let done = async {
        let booted = tokio::task::spawn_blocking(move || boot(socket)).await;
        booted.map_err(io::Error::other).and_then(|booted| booted).at("boot a second agent")?;
        let ran = tokio::time::timeout(TIME_MAX, run()).await;
        ran.map_err(io::Error::other).and_then(|ran| ran).at("run a command through a second agent")
    };
    let done = done.await;
    // A command that has not ended by now continues as an orphan, which affects at most this machine.
    let _ = agent.kill();
    let _ = agent.wait();
    done
}

fn begin() -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let stdin = Stdio::from(OwnedFd::from(theirs));
    let agent = Command::new(AGENT).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok((agent, ours))
}

fn boot(mut socket: UnixStream) -> io::Result<()> {
    let boot = Boot {
        generation: GENERATION,
        token: TOKEN.to_owned(),
        listen: ADDRESS,
        accept_from: ADDRESS.ip(),
        ram_bytes: 1 << 30,
        services: Vec::new(),
        renew: false,
        trust: None,
    };
    socket.set_read_timeout(Some(TIME_MAX))?;
    socket.write_all(&serde_json::to_vec(&boot)?)?;
    socket.shutdown(Shutdown::Write)?;
    let mut report = Vec::new();
    socket.read_to_end(&mut report)?;
    match serde_json::from_slice(&report)? {
        BootReport::Ready => Ok(()),
        BootReport::Failed { step, message } => Err(io::Error::other(format!("could not {step}: {message}"))),
    }
}

/// Runs the command in the same way as the host.
async fn run() -> io::Result<()> {
    let stream = TcpStream::connect(ADDRESS).await?;
    let start = ExecStart {
        exec: TOKEN.to_owned(),
        argv: COMMAND.map(str::to_owned).to_vec(),
        env: BTreeMap::new(),
        cwd: None,
        user: None,
        stdin: StdinMode::Null,
        terminal: None,
        timeout_ms: None,
        ring_bytes: OUTPUT_BYTES,
        attach: Some(ReadMode::Lossless),
        hold: false,
        then_stop: false,
    };
    let request = Request::ExecStart(start);
    let ran = async {
        let mut connection = Connection::open(stream, TOKEN, &request).await?;
        connection.reply::<ExecInfo>().await?;
        while let Some(Frame::Control(_) | Frame::Bytes(_)) = connection.next().await? {}
        Ok(())
    };
    match ran.await {
        Ok(()) | Err(GuestError::Refused(_)) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}
