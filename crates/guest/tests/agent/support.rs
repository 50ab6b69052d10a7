//! Starts the real agent as an ordinary process and communicates with it as the host does.
//!
//! Every agent listens on its own loopback address, so that tests run concurrently without choosing ports.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use burrow_guest::client::{Connection, GuestError, parse};
use burrow_guest::protocol::{
    Attach, AttachNotice, Boot, BootReport, ErrorCode, ExecInfo, ExecOutcome, ExecStart, ExecState,
    FileEntry, Frame, GENERATION, PORT, ReadFile, ReadMode, Request, Service, StdinMode, WriteFile,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

pub(crate) const TOKEN: &str = "a-token-for-tests";

/// Far longer than any test waits; it only turns a hang into a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

static NEXT: AtomicU8 = AtomicU8::new(1);

/// A running agent; ended and reaped when dropped.
pub(crate) struct Guest {
    pub(crate) address: SocketAddr,
    pub(crate) child: Child,
    pub(crate) directory: tempfile::TempDir,
}

impl Drop for Guest {
    fn drop(&mut self) {
        // As a subreaper it has adopted processes that its execs left behind, which are ended first.
        for pid in descendants(self.child.id()) {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn descendants(of: u32) -> Vec<u32> {
    let children = |pid: u32| -> Vec<u32> {
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    let mut found = children(of);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

impl Guest {
    pub(crate) fn start() -> Self {
        Self::start_with(Vec::new(), Command::new(env!("CARGO_BIN_EXE_burrow-guest")))
    }

    pub(crate) fn start_with_services(services: Vec<Service>) -> Self {
        Self::start_with(services, Command::new(env!("CARGO_BIN_EXE_burrow-guest")))
    }

    /// As PID 1 of its own pid namespace, with a `/proc` that shows that namespace.
    pub(crate) fn start_as_pid_1() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", env!("CARGO_BIN_EXE_burrow-guest")]);
        Self::start_with(Vec::new(), command)
    }

    /// With its own `/etc`, a copy of the necessary parts of the real one; changes in it are not visible outside.
    pub(crate) fn start_with_etc(etc: &Path, services: Vec<Service>, renew: bool) -> Self {
        for name in ["passwd", "group"] {
            std::fs::copy(Path::new("/etc").join(name), etc.join(name)).unwrap();
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", "mount --bind \"$0\" /etc; exec \"$1\""]);
        command.arg(etc).arg(env!("CARGO_BIN_EXE_burrow-guest"));
        Self::boot(services, renew, command)
    }

    pub(crate) fn start_with(services: Vec<Service>, command: Command) -> Self {
        Self::boot(services, false, command)
    }

    fn boot(services: Vec<Service>, renew: bool, mut command: Command) -> Self {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, high | 0x40, low, NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::new(IpAddr::V4(address), PORT);
        let boot = Boot {
            generation: GENERATION,
            token: TOKEN.to_owned(),
            listen: address,
            accept_from: IpAddr::V4(Ipv4Addr::LOCALHOST),
            ram_bytes: 512 << 20,
            services,
            renew,
            trust: None,
        };
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let child = command.stdin(OwnedFd::from(theirs)).spawn().unwrap();
        // The command's copy of the socket must be closed, or end-of-file would never arrive.
        drop(command);
        ours.write_all(&serde_json::to_vec(&boot).unwrap()).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        // Up to the end of the message, not of the stream: `unshare` keeps the socket open, too.
        let mut reports = serde_json::Deserializer::from_reader(ours).into_iter::<BootReport>();
        assert_eq!(reports.next().unwrap().unwrap(), BootReport::Ready);
        Self { address, child, directory: tempfile::tempdir().unwrap() }
    }

    /// A path in the directory of this test.
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) async fn open(&self, request: &Request) -> Connection<TcpStream> {
        self.open_as(TOKEN, request).await
    }

    pub(crate) async fn open_as(&self, token: &str, request: &Request) -> Connection<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        Connection::open(stream, token, request).await.unwrap()
    }

    pub(crate) async fn ask_as<T: DeserializeOwned>(
        &self,
        token: &str,
        request: Request,
    ) -> Result<T, GuestError> {
        let mut connection = self.open_as(token, &request).await;
        patient(connection.reply()).await
    }

    pub(crate) async fn ask<T: DeserializeOwned>(&self, request: Request) -> T {
        self.try_ask(request).await.unwrap()
    }

    pub(crate) async fn try_ask<T: DeserializeOwned>(&self, request: Request) -> Result<T, GuestError> {
        let mut connection = self.open(&request).await;
        patient(connection.reply()).await
    }

    /// The error code of a refused request.
    pub(crate) async fn refusal(&self, request: Request) -> ErrorCode {
        match self.try_ask::<serde_json::Value>(request).await {
            Err(GuestError::Refused(error)) => {
                assert!(!error.message.chars().any(char::is_control), "{:?}", error.message);
                error.code
            }
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, start: ExecStart) -> CommandResult {
        let mut connection = self.open(&Request::ExecStart(start)).await;
        let _: ExecInfo = patient(connection.reply()).await.unwrap();
        collect(&mut connection).await
    }

    pub(crate) async fn sh(&self, script: &str) -> CommandResult {
        self.run(shell(script)).await
    }

    pub(crate) async fn attach(
        &self,
        exec: &str,
        offset: u64,
        mode: ReadMode,
        follow: bool,
    ) -> Connection<TcpStream> {
        let mut connection =
            self.open(&Request::Attach(Attach { exec: exec.to_owned(), offset, mode, follow })).await;
        let _: ExecInfo = patient(connection.reply()).await.unwrap();
        connection
    }

    pub(crate) async fn write(&self, request: WriteFile, content: &[u8]) -> Result<FileEntry, GuestError> {
        let mut connection = self.open(&Request::Write(request)).await;
        send_upload(&mut connection, content).await;
        patient(connection.reply()).await
    }

    pub(crate) async fn read(&self, path: &str) -> Result<Vec<u8>, GuestError> {
        self.read_range(path, 0, None).await
    }

    pub(crate) async fn read_range(
        &self,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Vec<u8>, GuestError> {
        let request = Request::Read(ReadFile { path: path.to_owned(), offset, length });
        let mut connection = self.open(&request).await;
        let _: FileEntry = patient(connection.reply()).await?;
        download(&mut connection).await
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) info: ExecInfo,
}

impl CommandResult {
    #[track_caller]
    pub(crate) fn outcome(&self) -> &ExecOutcome {
        match &self.info.state {
            ExecState::Ended(outcome) => outcome,
            ExecState::Running => panic!("still running"),
        }
    }

    #[track_caller]
    pub(crate) fn code(&self) -> Option<i32> {
        self.outcome().exit_code
    }
}

pub(crate) async fn patient<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the test's time limit was exceeded")
}

/// Repeats the check until it succeeds.
pub(crate) async fn until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    patient(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Reads an attached connection up to its Exit.
pub(crate) async fn collect(connection: &mut Connection<TcpStream>) -> CommandResult {
    let (mut stdout, mut stderr, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        match patient(connection.next()).await.unwrap().expect("the guest hung up before Exit") {
            Frame::Stdout { bytes, .. } => stdout.extend_from_slice(&bytes),
            Frame::Stderr { bytes, .. } => stderr.extend_from_slice(&bytes),
            Frame::Control(json) => match parse(&json).unwrap() {
                AttachNotice::Gap { from, to } => gaps.push((from, to)),
                AttachNotice::Exit(info) => {
                    return CommandResult {
                        stdout: String::from_utf8_lossy(&stdout).into_owned(),
                        stderr: String::from_utf8_lossy(&stderr).into_owned(),
                        gaps,
                        info,
                    };
                }
                AttachNotice::Drained { .. } => panic!("drained before the end"),
            },
            other @ (Frame::Bytes(_) | Frame::End) => panic!("unexpected frame: {other:?}"),
        }
    }
}

/// Reads until `wanted` appears in the output.
pub(crate) async fn expect(connection: &mut Connection<TcpStream>, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        match patient(connection.next()).await.unwrap().expect("the guest hung up") {
            Frame::Stdout { bytes, .. } | Frame::Stderr { bytes, .. } => {
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
            other @ (Frame::Control(_) | Frame::Bytes(_) | Frame::End) => {
                panic!("waiting for {wanted:?} after {text:?}, got {other:?}")
            }
        }
    }
    text
}

pub(crate) async fn send_upload(connection: &mut Connection<TcpStream>, content: &[u8]) {
    for chunk in content.chunks(256 * 1024) {
        // An error may arrive before the end; it is read as the answer.
        if connection.send(&Frame::Bytes(Bytes::copy_from_slice(chunk))).await.is_err() {
            return;
        }
    }
    let _ = connection.send(&Frame::End).await;
}

pub(crate) async fn download(connection: &mut Connection<TcpStream>) -> Result<Vec<u8>, GuestError> {
    let mut content = Vec::new();
    loop {
        match patient(connection.next()).await? {
            Some(Frame::Bytes(bytes)) => content.extend_from_slice(&bytes),
            Some(Frame::End) => return Ok(content),
            Some(_) => return Err(GuestError::OutOfTurn),
            None => return Err(GuestError::HungUp),
        }
    }
}

pub(crate) fn new_exec_id() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    format!("exetest{:0>8}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A command that is attached losslessly, without input.
pub(crate) fn command(argv: &[&str]) -> ExecStart {
    ExecStart {
        exec: new_exec_id(),
        argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: None,
        user: None,
        stdin: StdinMode::Null,
        terminal: None,
        timeout_ms: None,
        ring_bytes: 1 << 20,
        attach: Some(ReadMode::Lossless),
        hold: false,
        then_stop: false,
    }
}

pub(crate) fn shell(script: &str) -> ExecStart {
    command(&["/bin/sh", "-c", script])
}

pub(crate) fn new_file(path: String) -> WriteFile {
    WriteFile {
        path,
        mode: None,
        user: None,
        parents: false,
        offset: None,
        sync: false,
        in_place: false,
        metadata: None,
    }
}
