//! A simulated guest with a few files in RAM, which speaks the protocol on a loopback port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use burrow_guest::client::{FrameReader, FrameWriter, parse};
use burrow_guest::protocol::{
    Activity, Attach, AttachNotice, ErrorCode, ExecInfo, ExecOutcome, ExecStart, ExecState, FileEntry,
    FileKind, Frame, Hello, Identity, ListeningPort, PortProcess, ReadFile, Reply, Request, RequestError,
    StdinMode, WatchEvent, WatchEventKind,
};
use bytes::{Bytes, BytesMut};
use serde::Serialize;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

type Files = Arc<Mutex<BTreeMap<String, Bytes>>>;
type Execs = Arc<Mutex<BTreeMap<String, (ExecInfo, Bytes)>>>;

#[derive(Clone, Default)]
struct Guest {
    files: Files,
    execs: Execs,
}

/// Programs that it can run: `echo` (prints its arguments), `cat` (copies its input), `sleep` (runs until the caller gives
/// up), `false` and `fail` (fail), `late` (fails once its output is read), `stay` (sends output and never ends), `python3`
/// (the same, if that file was written), and `/bin/sh` with the command of a template (succeeds).
pub(super) async fn spawn() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let guest = Guest::default();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(guest.clone().answer(stream));
        }
    });
    address
}

type Reader = FrameReader<OwnedReadHalf>;
type Writer = FrameWriter<OwnedWriteHalf>;

impl Guest {
    async fn answer(self, stream: TcpStream) -> Option<()> {
        let (read, write) = stream.into_split();
        let (mut reader, mut writer) = (FrameReader::new(read), FrameWriter::new(write));
        let Some(Frame::Control(hello)) = reader.next().await.ok()? else { return None };
        parse::<Hello>(&hello).ok()?;
        let Some(Frame::Control(request)) = reader.next().await.ok()? else { return None };
        match parse::<Request>(&request).ok()? {
            Request::Ping => {
                ok(&mut writer, Identity { generation: 1, version: "sim".into(), uptime_ms: 1 }).await
            }
            Request::ExecStart(start) => self.start(start, &mut reader, &mut writer).await,
            Request::Attach(attach) => self.attach(&attach, &mut reader, &mut writer).await,
            Request::ExecWait { exec, timeout_ms } => self.wait(&exec, timeout_ms, &mut writer).await,
            Request::ExecGet { exec } => match self.exec(&exec) {
                Some((info, _)) => ok(&mut writer, info).await,
                None => refuse(&mut writer, ErrorCode::NotFound).await,
            },
            Request::ExecList => {
                let infos: Vec<ExecInfo> =
                    self.execs.lock().unwrap().values().map(|(info, _)| info.clone()).collect();
                ok(&mut writer, infos).await
            }
            Request::ExecSignal { exec, .. } | Request::ExecResize { exec, .. } => match self.exec(&exec) {
                Some(_) => refuse(&mut writer, ErrorCode::Ended).await,
                None => refuse(&mut writer, ErrorCode::NotFound).await,
            },
            Request::Read(read) => self.read(&read, &mut writer).await,
            Request::Write(write) if write.path == "/full" => refuse(&mut writer, ErrorCode::NoSpace).await,
            Request::Write(write) => {
                let bytes = body(&mut reader).await?;
                self.files.lock().unwrap().insert(write.path.clone(), bytes.clone());
                ok(&mut writer, entry(&write.path, &bytes)).await
            }
            Request::Stat { path, .. } => match self.file(&path) {
                Some(bytes) => ok(&mut writer, entry(&path, &bytes)).await,
                None => refuse(&mut writer, ErrorCode::NotFound).await,
            },
            Request::MakeDir { path, .. } => ok(&mut writer, entry(&path, &Bytes::new())).await,
            Request::ListStream(_) => self.list(&mut writer).await,
            Request::Watch(_) => {
                ok(&mut writer, ()).await?;
                let event = WatchEvent { kind: WatchEventKind::Created, path: "/a".into(), from: None };
                writer.send_control(&event).await.ok()
            }
            Request::Activity => ok(&mut writer, idle()).await,
            Request::ListPorts => ok(&mut writer, vec![listening(3000)]).await,
            // Only the ports that the test's network serves can be connected to.
            Request::Connect { .. } => refuse(&mut writer, ErrorCode::NotFound).await,
            Request::ListServices => ok(&mut writer, Vec::<()>::new()).await,
            Request::Remove { .. }
            | Request::SetServices { .. }
            | Request::SetRam { .. }
            | Request::SetTrust { .. }
            | Request::Renew { .. }
            | Request::Shutdown { .. } => ok(&mut writer, ()).await,
            // The error of a sandbox without that program, file or feature.
            Request::ExecStdin { .. }
            | Request::List(_)
            | Request::Move { .. }
            | Request::ChangeMode { .. }
            | Request::TarOut(_)
            | Request::TarIn(_)
            | Request::Stats
            | Request::RestartService { .. } => refuse(&mut writer, ErrorCode::Unsupported).await,
        }
    }

    async fn wait(&self, exec: &str, timeout_ms: u64, writer: &mut Writer) -> Option<()> {
        for _ in 0..timeout_ms {
            if self.exec(exec).is_none_or(|(info, _)| info.state != ExecState::Running) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        match self.exec(exec) {
            Some((info, _)) => ok(writer, info).await,
            None => refuse(writer, ErrorCode::NotFound).await,
        }
    }

    async fn attach(&self, attach: &Attach, reader: &mut Reader, writer: &mut Writer) -> Option<()> {
        let Some((mut info, output)) = self.exec(&attach.exec) else {
            return refuse(writer, ErrorCode::NotFound).await;
        };
        ok(writer, &info).await?;
        let offset = usize::try_from(attach.offset).unwrap().min(output.len());
        let bytes = output.slice(offset..);
        if info.argv[0] == "late" {
            info.state = ended(1);
            self.execs.lock().unwrap().insert(info.exec.clone(), (info.clone(), output.clone()));
            // Its end is known before its output is read.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        writer.send(&Frame::Stdout { offset: attach.offset, bytes }).await.ok()?;
        if info.state == ExecState::Running {
            return reader.next().await.ok().map(drop);
        }
        writer.send_control(&AttachNotice::Exit(info)).await.ok()
    }

    async fn read(&self, read: &ReadFile, writer: &mut Writer) -> Option<()> {
        let Some(bytes) = self.file(&read.path) else { return refuse(writer, ErrorCode::NotFound).await };
        ok(writer, entry(&read.path, &bytes)).await?;
        let from = usize::try_from(read.offset).unwrap().min(bytes.len());
        let length = read.length.map_or(usize::MAX, |length| usize::try_from(length).unwrap());
        let part = bytes.slice(from..from.saturating_add(length).min(bytes.len()));
        for piece in part.chunks(100_000) {
            writer.send(&Frame::Bytes(part.slice_ref(piece))).await.ok()?;
        }
        writer.send(&Frame::End).await.ok()
    }

    async fn list(&self, writer: &mut Writer) -> Option<()> {
        ok(writer, ()).await?;
        let files = self.files.lock().unwrap().clone();
        let entries: Vec<FileEntry> = files.iter().map(|(path, bytes)| entry(path, bytes)).collect();
        for part in entries.chunks(2) {
            writer.send_control(&part).await.ok()?;
        }
        writer.send(&Frame::End).await.ok()
    }

    fn file(&self, path: &str) -> Option<Bytes> {
        self.files.lock().unwrap().get(path).cloned()
    }

    fn exec(&self, id: &str) -> Option<(ExecInfo, Bytes)> {
        self.execs.lock().unwrap().get(id).cloned()
    }

    async fn start(&self, start: ExecStart, reader: &mut Reader, writer: &mut Writer) -> Option<()> {
        let mut info = ExecInfo {
            exec: start.exec.clone(),
            pid: 7,
            argv: start.argv.clone(),
            terminal: start.terminal.is_some(),
            started_ms: 1,
            state: ExecState::Running,
            output_end: 0,
            output_start: 0,
            output_dropped: 0,
        };
        let program = start.argv[0].as_str();
        let exists = match program {
            "python3" => self.file("/usr/bin/python3").is_some(),
            // A command of a template.
            "/bin/sh" => start.argv.len() == 4,
            program => ["echo", "cat", "sleep", "false", "fail", "late", "stay"].contains(&program),
        };
        if !exists {
            return refuse(writer, ErrorCode::CannotExecute).await;
        }
        ok(writer, &info).await?;
        let output = match (program, start.stdin, start.attach) {
            ("echo", _, _) => Bytes::from(start.argv[1..].join(" ") + "\n"),
            ("false", _, _) => Bytes::from_static(b"no\n"),
            ("fail", _, _) => Bytes::from_static(b"error: no such table: users\n"),
            ("late" | "stay" | "python3", _, _) => {
                let output = (info, Bytes::from_static(b"so far\n"));
                self.execs.lock().unwrap().insert(start.exec, output);
                return Some(());
            }
            ("cat", StdinMode::Pipe, Some(_)) => body(reader).await?,
            ("sleep", _, Some(_)) => return reader.next().await.ok().map(drop),
            (_, _, _) => Bytes::new(),
        };
        info.output_end = output.len() as u64;
        info.state = ended(i32::from(matches!(program, "false" | "fail")));
        self.execs.lock().unwrap().insert(start.exec, (info.clone(), output.clone()));
        if start.attach.is_some() {
            let mut offset = 0;
            for piece in output.chunks(1 << 19) {
                writer.send(&Frame::Stdout { offset, bytes: output.slice_ref(piece) }).await.ok()?;
                offset += piece.len() as u64;
            }
            writer.send_control(&AttachNotice::Exit(info)).await.ok()?;
        }
        Some(())
    }
}

fn idle() -> Activity {
    Activity { execs_running: 0, execs_attached: 0, services_running: 0, streams: 0, last_io_ms: 1_000_000 }
}

fn ended(exit_code: i32) -> ExecState {
    ExecState::Ended(ExecOutcome {
        exit_code: Some(exit_code),
        signal: None,
        timed_out: false,
        killed_from_outside: false,
        cpu_us: 1,
        ram_max_bytes: 1,
        wall_us: 1,
        ended_ms: 2,
    })
}

async fn body(reader: &mut Reader) -> Option<Bytes> {
    let mut whole = BytesMut::new();
    loop {
        match reader.next().await.ok()?? {
            Frame::Bytes(bytes) => whole.extend_from_slice(&bytes),
            Frame::End => return Some(whole.freeze()),
            Frame::Control(_) | Frame::Stdout { .. } | Frame::Stderr { .. } => return None,
        }
    }
}

async fn ok<T: Serialize>(writer: &mut Writer, value: T) -> Option<()> {
    writer.send_control(&Reply::Ok(value)).await.ok()
}

async fn refuse(writer: &mut Writer, code: ErrorCode) -> Option<()> {
    let error = RequestError { code, message: "could not do that here".to_owned() };
    writer.send_control(&Reply::<()>::Err(error)).await.ok()
}

fn listening(port: u16) -> ListeningPort {
    ListeningPort {
        port,
        addresses: vec!["127.0.0.1".into()],
        user: "root".into(),
        process: Some(PortProcess { pid: 7, name: "node".into(), command: "node server.js".into() }),
    }
}

fn entry(path: &str, bytes: &Bytes) -> FileEntry {
    FileEntry {
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        path: path.to_owned(),
        kind: FileKind::File,
        size: bytes.len() as u64,
        mode: 0o644,
        uid: 0,
        gid: 0,
        user: Some("root".into()),
        group: Some("root".into()),
        modified_ms: 1,
        target: None,
        resolved: None,
        metadata: Default::default(),
    }
}
