//! The host's connections are aborted, like those of a machine that was restored from a dump: the agent and its execs
//! continue unaffected.

use std::process::Command;

use crate::support::{Guest, collect, expect, new_file, patient, send_upload, shell, until};
use burrow_guest::protocol::{
    Activity, ErrorCode, ExecInfo, FileEntry, Frame, Identity, ReadFile, ReadMode, Request, StdinMode,
    WatchFiles,
};
use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};

/// Ends every connection at the agent's end, by SOCK_DESTROY: the agent receives ECONNABORTED.
fn destroy_connections(guest: &Guest) {
    let address = guest.address.ip().to_string();
    let killed =
        Command::new("ss").args(["-K", "-t", "-n", "state", "established", "src", &address]).output();
    let killed = killed.unwrap();
    assert!(killed.status.success(), "{killed:?}");
    let left = || {
        let list =
            Command::new("ss").args(["-H", "-t", "-n", "state", "established", "src", &address]).output();
        String::from_utf8(list.unwrap().stdout).unwrap()
    };
    assert_eq!(left(), "", "{}", String::from_utf8_lossy(&killed.stderr));
}

async fn no_stream_is_left(guest: &Guest) {
    until(async || guest.ask::<Activity>(Request::Activity).await.streams == 0).await;
}

#[tokio::test]
async fn an_exec_continues_and_its_output_is_read_from_the_last_offset() {
    let guest = Guest::start();
    let mut start = shell("echo ready; while read line; do echo got $line; done; echo end");
    start.stdin = StdinMode::Pipe;
    let exec = start.exec.clone();
    let mut attached = guest.open(&Request::ExecStart(start)).await;
    let _: ExecInfo = patient(attached.reply()).await.unwrap();
    let mut offset = expect(&mut attached, "ready\n").await.len() as u64;

    for round in ["one", "two", "three"] {
        destroy_connections(&guest);
        no_stream_is_left(&guest).await;
        // Written while no reader is attached.
        let mut feed = guest.open(&Request::ExecStdin { exec: exec.clone(), close: false }).await;
        send_upload(&mut feed, format!("{round}\n").as_bytes()).await;
        let () = patient(feed.reply()).await.unwrap();
        attached = guest.attach(&exec, offset, ReadMode::Lossless, true).await;
        let text = expect(&mut attached, &format!("got {round}\n")).await;
        assert_eq!(text, format!("got {round}\n"));
        offset += text.len() as u64;
    }
    let mut feed = guest.open(&Request::ExecStdin { exec, close: true }).await;
    send_upload(&mut feed, b"").await;
    let () = patient(feed.reply()).await.unwrap();
    let ran = collect(&mut attached).await;
    assert_eq!((ran.stdout.as_str(), ran.gaps.len(), ran.code()), ("end\n", 0, Some(0)));
    assert_eq!(ran.info.output_dropped, 0);
}

#[tokio::test]
async fn a_process_that_waited_for_its_reader_continues_when_the_reader_is_gone() {
    let guest = Guest::start();
    // More than all buffers on the way can store, so that it waits.
    let mut start = shell("head -c 30000000 /dev/zero; echo done >&2");
    start.ring_bytes = 1 << 20;
    let exec = start.exec.clone();
    let mut attached = guest.open(&Request::ExecStart(start)).await;
    let _: ExecInfo = patient(attached.reply()).await.unwrap();
    destroy_connections(&guest);
    let mut attached = guest.attach(&exec, 0, ReadMode::Lossy, true).await;
    let ran = collect(&mut attached).await;
    assert_eq!((ran.stderr.as_str(), ran.code()), ("done\n", Some(0)));
    assert_eq!(ran.info.output_end, 30_000_005);
}

#[tokio::test]
async fn every_kind_of_stream_ends_and_the_agent_keeps_serving() {
    let guest = Guest::start();
    let content = vec![b'x'; 40 << 20];
    std::fs::write(guest.path("large"), &content).unwrap();

    let read = ReadFile { path: guest.path("large"), offset: 0, length: None };
    let mut download = guest.open(&Request::Read(read)).await;
    let _: FileEntry = patient(download.reply()).await.unwrap();
    let mut upload = guest.open(&Request::Write(new_file(guest.path("partial")))).await;
    upload.send(&Frame::Bytes(Bytes::from(vec![b'y'; 1 << 20]))).await.unwrap();
    let watched = WatchFiles { path: guest.directory.path().to_str().unwrap().to_owned(), recursive: false };
    let mut watch = guest.open(&Request::Watch(watched)).await;
    let () = patient(watch.reply()).await.unwrap();
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut pipe = guest.open(&Request::Connect { port: server.local_addr().unwrap().port() }).await;
    let (inside, _) = patient(server.accept()).await.unwrap();
    let () = patient(pipe.reply()).await.unwrap();
    let silent = TcpStream::connect(guest.address).await.unwrap();
    until(async || guest.ask::<Activity>(Request::Activity).await.streams == 4).await;

    destroy_connections(&guest);
    no_stream_is_left(&guest).await;
    let mut byte = [0];
    let end = patient(async {
        inside.readable().await.unwrap();
        inside.try_read(&mut byte)
    })
    .await;
    assert!(matches!(end, Ok(0) | Err(_)), "the program inside sees the end: {end:?}");
    assert_eq!(
        guest.refusal(Request::Stat { path: guest.path("partial"), follow: false }).await,
        ErrorCode::NotFound
    );
    assert_eq!(guest.read(&guest.path("large")).await.unwrap().len(), content.len());
    drop((download, upload, watch, pipe, silent));
}

#[tokio::test]
async fn connections_aborted_before_accept_are_skipped() {
    let guest = Guest::start();
    let pid = guest.child.id().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    let mut waiting = Vec::new();
    for _ in 0..8 {
        waiting.push(guest.open(&Request::Ping).await);
    }
    destroy_connections(&guest);
    waiting.push(guest.open(&Request::Ping).await);
    signal("-CONT");
    let _: Identity = patient(waiting.pop().unwrap().reply()).await.unwrap();
    for mut dead in waiting {
        assert!(patient(dead.reply::<Identity>()).await.is_err());
    }
    let _: Identity = guest.ask(Request::Ping).await;
}
