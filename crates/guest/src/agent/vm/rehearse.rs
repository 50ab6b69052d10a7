//! What a machine does once before it is anybody's: an agent as the one it will be runs a command.
//!
//! An emulator translates whatever runs for the first time, which takes many times as long as running it; and a program
//! that was never run has to be read from the disk. Done ahead, both are done when somebody waits. What counts is which
//! pages of RAM the code is in, not whose they are: so another process than this one does it, and leaves nothing behind.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;

use super::{At as _, Failure, network};
use crate::client::{Connection, GuestError};
use crate::protocol::{
    Boot, BootReport, ExecInfo, ExecStart, Frame, GENERATION, PORT, ReadMode, Request, StdinMode,
};

/// This program, where every machine has it.
const AGENT: &str = "/.burrow/guest";

/// The agent that rehearses hears this machine only, in which nobody else is, and is gone before anybody comes.
const PLACE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
const TOKEN: &str = "rehearsal";

/// The command that most others begin with. An image without a shell rehearses all but that.
const COMMAND: [&str; 3] = ["/bin/sh", "-c", "exit"];
const OUTPUT_BYTES: u32 = 64 << 10;

/// For each of its two halves, on a host where dozens of machines are made at once.
const TIME_MAX: Duration = Duration::from_secs(60);

pub(super) async fn rehearse() -> Result<(), Failure> {
    network::raise_loopback().at("raise the loopback")?;
    let (mut actor, stage) = begin().at("start a second agent")?;
    let done = async {
        let booted = tokio::task::spawn_blocking(move || boot(stage)).await;
        booted.map_err(io::Error::other).and_then(|booted| booted).at("boot a second agent")?;
        let ran = tokio::time::timeout(TIME_MAX, run()).await;
        ran.map_err(io::Error::other).and_then(|ran| ran).at("run a command by a second agent")
    };
    let done = done.await;
    // A command that has not ended by now goes on as an orphan, and harms this machine at most.
    let _ = actor.kill();
    let _ = actor.wait();
    done
}

fn begin() -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let stdin = Stdio::from(OwnedFd::from(theirs));
    let actor = Command::new(AGENT).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok((actor, ours))
}

fn boot(mut stage: UnixStream) -> io::Result<()> {
    let boot = Boot {
        generation: GENERATION,
        token: TOKEN.to_owned(),
        listen: PLACE,
        accept_from: PLACE.ip(),
        ram_bytes: 1 << 30,
        services: Vec::new(),
        renew: false,
        trust: None,
    };
    stage.set_read_timeout(Some(TIME_MAX))?;
    stage.write_all(&serde_json::to_vec(&boot)?)?;
    stage.shutdown(Shutdown::Write)?;
    let mut report = Vec::new();
    stage.read_to_end(&mut report)?;
    match serde_json::from_slice(&report)? {
        BootReport::Ready => Ok(()),
        BootReport::Failed { step, message } => Err(io::Error::other(format!("could not {step}: {message}"))),
    }
}

/// As the host does it.
async fn run() -> io::Result<()> {
    let stream = TcpStream::connect(PLACE).await?;
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
    let heard = async {
        let mut connection = Connection::open(stream, TOKEN, &request).await?;
        connection.reply::<ExecInfo>().await?;
        while let Some(Frame::Control(_) | Frame::Bytes(_)) = connection.next().await? {}
        Ok(())
    };
    match heard.await {
        Ok(()) | Err(GuestError::Refused(_)) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}
