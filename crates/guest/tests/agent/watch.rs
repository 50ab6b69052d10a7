//! Watching files.

use std::fs;

use crate::support::{Guest, new_file, patient};
use burrow_guest::client::{Connection, parse};
use burrow_guest::protocol::{ErrorCode, Frame, Request, WatchEvent, WatchEventKind, WatchFiles, WriteFile};
use tokio::net::TcpStream;

async fn watch(guest: &Guest, path: &str, recursive: bool) -> Connection<TcpStream> {
    let mut connection = guest.open(&Request::Watch(WatchFiles { path: path.to_owned(), recursive })).await;
    let () = patient(connection.reply()).await.unwrap();
    connection
}

async fn next(connection: &mut Connection<TcpStream>) -> WatchEvent {
    match patient(connection.next()).await.unwrap().unwrap() {
        Frame::Control(json) => parse(&json).unwrap(),
        other @ (Frame::Bytes(_) | Frame::End | Frame::Stdout { .. } | Frame::Stderr { .. }) => {
            panic!("{other:?}")
        }
    }
}

/// Reads events up to the wanted one.
async fn until(connection: &mut Connection<TcpStream>, kind: WatchEventKind, path: &str) -> Vec<WatchEvent> {
    let mut seen = Vec::new();
    loop {
        let event = next(connection).await;
        let found = event.kind == kind && event.path == path;
        seen.push(event);
        if found {
            return seen;
        }
    }
}

#[tokio::test]
async fn changes_of_a_file_are_reported_in_order() {
    let guest = Guest::start();
    let mut connection = watch(&guest, guest.directory.path().to_str().unwrap(), false).await;
    let (file, moved) = (guest.path("file"), guest.path("moved"));
    fs::write(&file, "x").unwrap();
    assert_eq!(next(&mut connection).await.kind, WatchEventKind::Created);
    until(&mut connection, WatchEventKind::Written, &file).await;
    assert!(std::process::Command::new("chmod").args(["600", &file]).status().unwrap().success());
    until(&mut connection, WatchEventKind::Attributes, &file).await;
    fs::rename(&file, &moved).unwrap();
    let event = until(&mut connection, WatchEventKind::Renamed, &moved).await.pop().unwrap();
    assert_eq!(event.from, Some(file));
    fs::remove_file(&moved).unwrap();
    until(&mut connection, WatchEventKind::Removed, &moved).await;
}

/// The events until the file `end` is created, as kinds and names.
async fn events(guest: &Guest, connection: &mut Connection<TcpStream>) -> Vec<(WatchEventKind, String)> {
    fs::create_dir(guest.path("end")).unwrap();
    let mut events = until(connection, WatchEventKind::Created, &guest.path("end")).await;
    events.pop();
    fs::remove_dir(guest.path("end")).unwrap();
    until(connection, WatchEventKind::Removed, &guest.path("end")).await;
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    events.iter().map(|event| (event.kind, name(&event.path))).collect()
}

#[tokio::test]
async fn an_upload_is_reported_once_by_its_final_name() {
    use WatchEventKind::{Attributes, Created, Written};
    let guest = Guest::start();
    let mut connection = watch(&guest, guest.directory.path().to_str().unwrap(), false).await;
    let file = || "file".to_owned();
    let in_place = |path: &str| WriteFile { in_place: true, ..new_file(guest.path(path)) };
    guest.write(in_place("file"), b"first").await.unwrap();
    // In the order that E2B's clients expect, with the file's owner and mode before its content.
    let new = [(Created, file()), (Attributes, file()), (Written, file())];
    assert_eq!(events(&guest, &mut connection).await, new);
    guest.write(in_place("file"), b"1").await.unwrap();
    assert_eq!(events(&guest, &mut connection).await, [(Written, file())]);
    // Replaced as a whole, a small file and a large one.
    for content in [vec![b'x'; 10], vec![b'x'; 9 << 20]] {
        guest.write(new_file(guest.path("file")), &content).await.unwrap();
        assert_eq!(events(&guest, &mut connection).await, [(Written, file())]);
    }
    guest.write(new_file(guest.path("other")), b"x").await.unwrap();
    assert_eq!(events(&guest, &mut connection).await, [(Created, "other".to_owned())]);
    // A file that really has such a name is reported.
    fs::write(guest.path("#123"), "x").unwrap();
    let odd = || "#123".to_owned();
    assert_eq!(events(&guest, &mut connection).await, [(Created, odd()), (Written, odd())]);
}

#[tokio::test]
async fn new_directories_are_watched_and_their_content_is_reported() {
    let guest = Guest::start();
    fs::create_dir_all(guest.path("old/deep")).unwrap();
    let mut connection = watch(&guest, guest.directory.path().to_str().unwrap(), true).await;
    fs::write(guest.path("old/deep/file"), "x").unwrap();
    until(&mut connection, WatchEventKind::Written, &guest.path("old/deep/file")).await;
    // Faster than any watch could be added.
    assert!(
        std::process::Command::new("mkdir")
            .args(["-p", &guest.path("new/a/b/c")])
            .status()
            .unwrap()
            .success()
    );
    until(&mut connection, WatchEventKind::Created, &guest.path("new/a/b/c")).await;
    crate::support::until(|| async {
        fs::write(guest.path("new/a/b/c/file"), "x").unwrap();
        true
    })
    .await;
    until(&mut connection, WatchEventKind::Created, &guest.path("new/a/b/c/file")).await;
    // A directory that is moved is still watched, under its new name.
    fs::rename(guest.path("new/a"), guest.path("moved")).unwrap();
    until(&mut connection, WatchEventKind::Renamed, &guest.path("moved")).await;
    fs::write(guest.path("moved/b/c/other"), "x").unwrap();
    until(&mut connection, WatchEventKind::Created, &guest.path("moved/b/c/other")).await;
}

#[tokio::test]
async fn moves_out_and_in_are_reported_as_removals_and_creations() {
    let guest = Guest::start();
    for directory in ["inside", "outside/tree/sub"] {
        fs::create_dir_all(guest.path(directory)).unwrap();
    }
    let mut connection = watch(&guest, &guest.path("inside"), true).await;
    fs::rename(guest.path("outside/tree"), guest.path("inside/tree")).unwrap();
    until(&mut connection, WatchEventKind::Created, &guest.path("inside/tree/sub")).await;
    fs::write(guest.path("inside/tree/sub/file"), "x").unwrap();
    until(&mut connection, WatchEventKind::Written, &guest.path("inside/tree/sub/file")).await;
    fs::rename(guest.path("inside/tree"), guest.path("outside/tree")).unwrap();
    until(&mut connection, WatchEventKind::Removed, &guest.path("inside/tree")).await;
    fs::write(guest.path("outside/tree/sub/unseen"), "x").unwrap();
    fs::write(guest.path("inside/seen"), "x").unwrap();
    let seen = until(&mut connection, WatchEventKind::Created, &guest.path("inside/seen")).await;
    assert!(seen.iter().all(|event| !event.path.contains("unseen")), "{seen:?}");
}

#[tokio::test]
async fn a_single_file_can_be_watched() {
    let guest = Guest::start();
    let file = guest.path("file");
    fs::write(&file, "x").unwrap();
    let mut connection = watch(&guest, &file, false).await;
    fs::write(&file, "y").unwrap();
    until(&mut connection, WatchEventKind::Written, &file).await;
    fs::remove_file(&file).unwrap();
    until(&mut connection, WatchEventKind::Removed, &file).await;
}

#[tokio::test]
async fn an_overflow_is_reported_to_a_host_that_does_not_read() {
    let guest = Guest::start();
    // In RAM: a hundred thousand changes take minutes on a disk.
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let top = directory.path().to_str().unwrap().to_owned();
    let mut connection = watch(&guest, &top, true).await;
    let names: Vec<String> = (0..2000).map(|number| format!("{top}/{number:0>150}")).collect();
    for _ in 0..25 {
        for name in &names {
            fs::File::create(name).unwrap();
        }
        for name in &names {
            fs::remove_file(name).unwrap();
        }
    }
    until(&mut connection, WatchEventKind::Overflow, &top).await;
    let stats: burrow_guest::protocol::MachineStats = guest.ask(Request::Stats).await;
    assert!(stats.agent_ram_bytes < 32 << 20, "{}", stats.agent_ram_bytes);
}

#[tokio::test]
async fn missing_and_too_large_trees_cannot_be_watched() {
    let guest = Guest::start();
    let refusal = |path: String| guest.refusal(Request::Watch(WatchFiles { path, recursive: true }));
    assert_eq!(refusal(guest.path("missing")).await, ErrorCode::NotFound);
    assert_eq!(refusal("relative".to_owned()).await, ErrorCode::Invalid);
    let many = tempfile::tempdir_in("/dev/shm").unwrap();
    for outer in 0..90 {
        for inner in 0..100 {
            fs::create_dir_all(many.path().join(format!("{outer}/{inner}"))).unwrap();
        }
    }
    assert_eq!(refusal(many.path().to_str().unwrap().to_owned()).await, ErrorCode::TooMany);
}
