//! Files: reading, writing, listing, and hostile paths and files.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::support::{Guest, download, new_file, patient};
use burrow_guest::client::GuestError;
use burrow_guest::protocol::{
    ErrorCode, FileEntry, FileKind, Frame, ListFiles, MachineStats, ReadFile, Request, WriteFile,
};
use bytes::Bytes;

#[track_caller]
fn code<T: std::fmt::Debug>(result: Result<T, GuestError>) -> ErrorCode {
    match result {
        Err(GuestError::Refused(error)) => error.code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn stat(path: &str) -> Request {
    Request::Stat { path: path.to_owned(), follow: false }
}

fn list(path: String, depth: u32, entries_max: u32) -> Request {
    Request::List(ListFiles { path, depth, entries_max })
}

#[tokio::test]
async fn files_are_read_back_whole_and_in_ranges() {
    let guest = Guest::start();
    for size in [0usize, 1, 65_536, 65_537, 3_000_000] {
        let path = guest.path(&format!("file-{size}"));
        let content: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        let entry = guest.write(new_file(path.clone()), &content).await.unwrap();
        assert_eq!((entry.kind, entry.size, entry.mode), (FileKind::File, size as u64, 0o644));
        assert_eq!(guest.read(&path).await.unwrap(), content);
        let middle = guest.read_range(&path, 1, Some(70_000)).await.unwrap();
        assert_eq!(middle, content.iter().skip(1).take(70_000).copied().collect::<Vec<_>>());
        assert_eq!(guest.read_range(&path, size as u64 + 5, None).await.unwrap(), b"");
    }
}

#[tokio::test]
async fn replacing_keeps_mode_and_owner_and_is_atomic() {
    let guest = Guest::start();
    let path = guest.path("file");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::chown(&path, Some(1), Some(3)).unwrap();
    let open_before = std::fs::File::open(&path).unwrap();
    let entry = guest.write(new_file(path.clone()), b"new").await.unwrap();
    assert_eq!((entry.mode, entry.uid, entry.gid), (0o750, 1, 3));
    assert_eq!(entry.user.as_deref(), Some("daemon"));
    assert_eq!(std::io::read_to_string(open_before).unwrap(), "old", "an open descriptor keeps the old file");
    let explicit =
        WriteFile { mode: Some(0o600), user: Some("0:0".to_owned()), sync: true, ..new_file(path) };
    let entry = guest.write(explicit, b"newer").await.unwrap();
    assert_eq!((entry.mode, entry.uid, entry.gid), (0o600, 0, 0));
    assert_eq!(std::fs::read_dir(guest.directory.path()).unwrap().count(), 1, "no temporary file is left");
}

#[tokio::test]
async fn writing_through_a_link_replaces_its_target() {
    let guest = Guest::start();
    std::fs::create_dir(guest.path("real")).unwrap();
    symlink("real/file", guest.path("link")).unwrap();
    guest.write(new_file(guest.path("link")), b"first").await.unwrap();
    guest.write(new_file(guest.path("link")), b"second").await.unwrap();
    assert!(std::fs::symlink_metadata(guest.path("link")).unwrap().is_symlink());
    assert_eq!(std::fs::read(guest.path("real/file")).unwrap(), b"second");
    symlink("loop", guest.path("loop")).unwrap();
    assert_eq!(code(guest.write(new_file(guest.path("loop")), b"").await), ErrorCode::Invalid);
}

#[tokio::test]
async fn an_interrupted_upload_leaves_only_the_old_file() {
    let guest = Guest::start();
    let path = guest.path("file");
    std::fs::write(&path, "old").unwrap();
    let mut connection = guest.open(&Request::Write(new_file(path.clone()))).await;
    for _ in 0..4 {
        connection.send(&Frame::Bytes(Bytes::from(vec![0; 1 << 20]))).await.unwrap();
    }
    drop(connection);
    let _: MachineStats = guest.ask(Request::Stats).await;
    crate::support::until(|| async { std::fs::read_dir(guest.directory.path()).unwrap().count() == 1 }).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
}

#[tokio::test]
async fn parents_are_created_only_on_request() {
    let guest = Guest::start();
    let path = guest.path("a/b/c/file");
    assert_eq!(code(guest.write(new_file(path.clone()), b"x").await), ErrorCode::NotFound);
    let request = WriteFile { parents: true, user: Some("daemon".to_owned()), ..new_file(path.clone()) };
    guest.write(request, b"x").await.unwrap();
    for made in ["a", "a/b", "a/b/c", "a/b/c/file"] {
        assert_eq!(std::fs::metadata(guest.path(made)).unwrap().uid(), 1, "{made}");
    }
}

#[tokio::test]
async fn a_part_of_an_existing_file_can_be_written_in_place() {
    let guest = Guest::start();
    let path = guest.path("file");
    std::fs::write(&path, "0123456789").unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino();
    guest.write(WriteFile { offset: Some(3), ..new_file(path.clone()) }, b"xyz").await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "012xyz6789");
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
    let missing = WriteFile { offset: Some(0), ..new_file(guest.path("missing")) };
    assert_eq!(code(guest.write(missing, b"x").await), ErrorCode::NotFound);
}

#[tokio::test]
async fn invalid_paths_are_refused() {
    let guest = Guest::start();
    let long = format!("/{}", "x".repeat(64 * 1024));
    let nested = "/x".repeat(3000);
    for path in ["", "relative", "../../etc/passwd", "/tmp/nul\0byte", &long, &nested] {
        assert_eq!(guest.refusal(stat(path)).await, ErrorCode::Invalid, "{path:?}");
        assert_eq!(code(guest.read(path).await), ErrorCode::Invalid);
        assert_eq!(code(guest.write(new_file(path.to_owned()), b"x").await), ErrorCode::Invalid);
        assert_eq!(guest.refusal(list(path.to_owned(), 1, 10)).await, ErrorCode::Invalid);
        let remove = Request::Remove { path: path.to_owned(), recursive: true };
        assert_eq!(guest.refusal(remove).await, ErrorCode::Invalid);
    }
    assert_eq!(guest.refusal(stat(&format!("/{}", "x".repeat(300)))).await, ErrorCode::Invalid);
    // Dots and percent signs are ordinary names, resolved inside.
    let entry: FileEntry = guest.ask(stat("/../../../etc/passwd")).await;
    assert_eq!(entry.kind, FileKind::File);
    assert_eq!(guest.refusal(stat("/%2e%2e/etc/passwd")).await, ErrorCode::NotFound);
}

#[tokio::test]
async fn irregular_files_are_neither_read_nor_written() {
    let guest = Guest::start();
    let fifo = guest.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let socket = guest.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [fifo.as_str(), "/dev/zero", "/dev/null", &socket] {
        assert_eq!(code(guest.read(path).await), ErrorCode::NotAFile, "{path}");
        assert_eq!(code(guest.write(new_file(path.to_owned()), b"x").await), ErrorCode::NotAFile, "{path}");
    }
    assert_eq!(code(guest.read("/etc").await), ErrorCode::IsADirectory);
    assert_eq!(code(guest.write(new_file("/etc".to_owned()), b"x").await), ErrorCode::IsADirectory);
    assert_eq!(code(guest.write(new_file("/".to_owned()), b"x").await), ErrorCode::IsADirectory);
    assert_eq!(code(guest.read("/etc/passwd/x").await), ErrorCode::NotADirectory);
}

#[tokio::test]
async fn the_memory_of_the_agent_cannot_be_read_through_procfs() {
    let guest = Guest::start();
    let pid = guest.child.id().to_string();
    for process in ["self", "thread-self", &pid] {
        for file in ["mem", "maps", "environ"] {
            let refusal = code(guest.read(&format!("/proc/{process}/{file}")).await);
            assert_eq!(refusal, ErrorCode::PermissionDenied, "{process}/{file}");
        }
        let write = WriteFile { offset: Some(0), ..new_file(format!("/proc/{process}/mem")) };
        assert_eq!(code(guest.write(write, b"x").await), ErrorCode::PermissionDenied);
    }
    assert!(!guest.read("/proc/uptime").await.unwrap().is_empty(), "files of unknown size are still read");
}

#[tokio::test]
async fn reading_a_sparse_petabyte_starts_at_once() {
    let guest = Guest::start();
    let path = guest.path("sparse");
    std::fs::File::create(&path).unwrap().set_len(1 << 43).unwrap();
    let mut connection =
        guest.open(&Request::Read(ReadFile { path: path.clone(), offset: 0, length: None })).await;
    let entry: FileEntry = patient(connection.reply()).await.unwrap();
    assert_eq!(entry.size, 1 << 43);
    for _ in 0..8 {
        assert!(matches!(patient(connection.next()).await.unwrap(), Some(Frame::Bytes(_))));
    }
    // Stops reading and closes the connection.
    drop(connection);
    assert_eq!(guest.read_range(&path, (1 << 43) - 10, None).await.unwrap(), [0; 10]);
    let stats: MachineStats = guest.ask(Request::Stats).await;
    assert!(stats.agent_ram_bytes < 16 << 20, "{}", stats.agent_ram_bytes);
}

#[tokio::test]
async fn readers_that_never_read_do_not_block_others() {
    let guest = Guest::start();
    let path = guest.path("large");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let mut stuck = Vec::new();
    for _ in 0..12 {
        stuck
            .push(guest.open(&Request::Read(ReadFile { path: path.clone(), offset: 0, length: None })).await);
    }
    for _ in 0..20 {
        assert_eq!(guest.read_range(&path, 0, Some(10)).await.unwrap(), [0; 10]);
    }
}

#[tokio::test]
async fn a_constantly_changing_link_only_yields_its_targets() {
    let guest = Guest::start();
    std::fs::create_dir(guest.path("one")).unwrap();
    std::fs::create_dir(guest.path("two")).unwrap();
    std::fs::write(guest.path("one/file"), "one").unwrap();
    let script =
        format!("cd {}; while :; do ln -sfn one l; ln -sfn two l; done", guest.directory.path().display());
    let start = burrow_guest::protocol::ExecStart { attach: None, ..crate::support::shell(&script) };
    let exec = start.exec.clone();
    let _: burrow_guest::protocol::ExecInfo = guest.ask(Request::ExecStart(start)).await;
    for _ in 0..500 {
        match guest.read(&guest.path("l/file")).await {
            Ok(content) => assert_eq!(content, b"one"),
            Err(error) => assert_eq!(code::<()>(Err(error)), ErrorCode::NotFound),
        }
    }
    let _: () = guest.ask(Request::ExecSignal { exec, signal: libc::SIGKILL, group: true }).await;
}

#[tokio::test]
async fn lists_are_limited_in_depth_and_entries() {
    let guest = Guest::start();
    for directory in ["top/a/b", "top/c"] {
        std::fs::create_dir_all(guest.path(directory)).unwrap();
    }
    std::fs::write(guest.path("top/a/b/deep"), "x").unwrap();
    symlink("a", guest.path("top/link")).unwrap();
    let names = |entries: Vec<FileEntry>| -> Vec<String> {
        entries.into_iter().map(|entry| entry.path[guest.path("top/").len()..].to_owned()).collect()
    };
    let ask = async |depth| names(guest.ask(list(guest.path("top"), depth, 100)).await);
    assert_eq!(ask(0).await, ["a", "c", "link"]);
    assert_eq!(ask(1).await, ["a", "c", "link"]);
    assert_eq!(ask(2).await, ["a", "a/b", "c", "link"]);
    assert_eq!(ask(u32::MAX).await, ["a", "a/b", "a/b/deep", "c", "link"]);
    assert_eq!(guest.refusal(list(guest.path("top"), 9, 4)).await, ErrorCode::TooMany);
    assert_eq!(guest.refusal(list(guest.path("top/a/b/deep"), 1, 9)).await, ErrorCode::NotADirectory);
    let link: FileEntry = guest.ask(stat(&guest.path("top/link"))).await;
    assert_eq!((link.kind, link.target.as_deref()), (FileKind::Symlink, Some("a")));
    let followed: FileEntry = guest.ask(Request::Stat { path: guest.path("top/link"), follow: true }).await;
    assert_eq!(followed.kind, FileKind::Directory);
}

#[tokio::test]
async fn a_directory_too_large_for_one_frame_is_streamed() {
    let guest = Guest::start();
    std::fs::create_dir(guest.path("many")).unwrap();
    for number in 0..8000 {
        std::fs::write(guest.path(&format!("many/{number}")), "").unwrap();
    }
    assert_eq!(guest.refusal(list(guest.path("many"), 1, 100_000)).await, ErrorCode::TooLarge);
    assert_eq!(guest.refusal(list(guest.path("many"), 1, 100)).await, ErrorCode::TooMany);
    let request = ListFiles { path: guest.path("many"), depth: 1, entries_max: 100_000 };
    let mut connection = guest.open(&Request::ListStream(request)).await;
    let () = patient(connection.reply()).await.unwrap();
    let mut count = 0;
    loop {
        match patient(connection.next()).await.unwrap().unwrap() {
            Frame::Control(json) => {
                count += burrow_guest::client::parse::<Vec<FileEntry>>(&json).unwrap().len();
            }
            Frame::End => break,
            other @ (Frame::Bytes(_) | Frame::Stdout { .. } | Frame::Stderr { .. }) => panic!("{other:?}"),
        }
    }
    assert_eq!(count, 8000);
}

/// Control characters take six bytes each in JSON, so a few names that any program can create do not fit into a frame
/// together.
#[tokio::test]
async fn entries_that_do_not_fit_into_one_frame_are_listed_in_several() {
    let guest = Guest::start();
    let directory = (0..14).fold(guest.path("deep"), |path, _| format!("{path}/{}", "\u{1}".repeat(250)));
    std::fs::create_dir_all(&directory).unwrap();
    for number in 0..64 {
        std::fs::write(format!("{directory}/{number}"), "").unwrap();
    }
    let request = ListFiles { path: directory, depth: 1, entries_max: 100 };
    let mut connection = guest.open(&Request::ListStream(request)).await;
    let () = patient(connection.reply()).await.unwrap();
    let (mut frames, mut count) = (0, 0);
    while let Frame::Control(json) = patient(connection.next()).await.unwrap().unwrap() {
        frames += 1;
        count += burrow_guest::client::parse::<Vec<FileEntry>>(&json).unwrap().len();
    }
    assert_eq!(count, 64);
    assert!(frames > 1, "all entries fit into one frame");
}

#[tokio::test]
async fn names_that_are_not_utf8_are_listed_readably() {
    use std::os::unix::ffi::OsStrExt;
    let guest = Guest::start();
    std::fs::create_dir(guest.path("odd")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"bad\xff\x1b[2Jname");
    std::fs::write(guest.directory.path().join("odd").join(odd), "").unwrap();
    let entries: Vec<FileEntry> = guest.ask(list(guest.path("odd"), 1, 10)).await;
    assert_eq!(entries[0].name, "bad\u{fffd}\u{1b}[2Jname");
}

#[tokio::test]
async fn directories_are_created_moved_and_removed() {
    let guest = Guest::start();
    let make =
        |path: &str, parents| Request::MakeDir { path: guest.path(path), parents, mode: None, user: None };
    assert_eq!(guest.refusal(make("a/b", false)).await, ErrorCode::NotFound);
    let entry: FileEntry = guest.ask(make("a/b", true)).await;
    assert_eq!((entry.kind, entry.mode), (FileKind::Directory, 0o755));
    let _: FileEntry = guest.ask(make("a/b", true)).await;
    assert_eq!(guest.refusal(make("a/b", false)).await, ErrorCode::AlreadyExists);
    let exact = Request::MakeDir {
        path: guest.path("exact"),
        parents: false,
        mode: Some(0o1777),
        user: Some("daemon".to_owned()),
    };
    let entry: FileEntry = guest.ask(exact).await;
    assert_eq!((entry.mode, entry.uid), (0o1777, 1));

    let rename = |from: &str, to: &str| Request::Move { from: guest.path(from), to: guest.path(to) };
    let moved: FileEntry = guest.ask(rename("a/b", "moved")).await;
    assert_eq!(moved.path, guest.path("moved"));
    assert_eq!(guest.refusal(rename("nowhere", "x")).await, ErrorCode::NotFound);
    std::fs::write(guest.path("file"), "x").unwrap();
    assert_eq!(guest.refusal(rename("file", "moved")).await, ErrorCode::IsADirectory);
    std::fs::write(guest.path("moved/inside"), "x").unwrap();
    assert_eq!(guest.refusal(rename("a", "moved")).await, ErrorCode::DirectoryNotEmpty);

    let remove = |path: &str, recursive| Request::Remove { path: guest.path(path), recursive };
    assert_eq!(guest.refusal(remove("moved", false)).await, ErrorCode::DirectoryNotEmpty);
    symlink("moved", guest.path("link")).unwrap();
    let () = guest.ask(remove("link", true)).await;
    assert!(std::fs::exists(guest.path("moved/inside")).unwrap(), "the link was removed, not its target");
    let () = guest.ask(remove("moved", true)).await;
    assert!(!std::fs::exists(guest.path("moved")).unwrap());
    assert_eq!(guest.refusal(remove("moved", true)).await, ErrorCode::NotFound);
    let root = Request::Remove { path: "/".to_owned(), recursive: true };
    assert_eq!(guest.refusal(root).await, ErrorCode::Invalid);
}

#[tokio::test]
async fn modes_are_changed() {
    let guest = Guest::start();
    std::fs::write(guest.path("file"), "x").unwrap();
    let change = Request::ChangeMode { path: guest.path("file"), mode: 0o4711 };
    let entry: FileEntry = guest.ask(change).await;
    assert_eq!(entry.mode, 0o4711);
    let missing = Request::ChangeMode { path: guest.path("none"), mode: 0o600 };
    assert_eq!(guest.refusal(missing).await, ErrorCode::NotFound);
}

#[tokio::test]
async fn a_full_disk_is_reported_and_leaves_nothing() {
    let guest = Guest::start();
    let full = guest.path("full");
    std::fs::create_dir(&full).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs", &full])
        .status()
        .unwrap();
    assert!(mounted.success());
    let result = guest.write(new_file(format!("{full}/file")), &vec![0; 4 << 20]).await;
    let left = std::fs::read_dir(&full).unwrap().count();
    assert!(std::process::Command::new("umount").arg(&full).status().unwrap().success());
    assert_eq!(code(result), ErrorCode::NoSpace);
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_is_not_padded() {
    let guest = Guest::start();
    let path = guest.path("shrinking");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let mut connection =
        guest.open(&Request::Read(ReadFile { path: path.clone(), offset: 0, length: None })).await;
    let _: FileEntry = patient(connection.reply()).await.unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    assert!(matches!(download(&mut connection).await, Err(GuestError::HungUp | GuestError::Io(_))));
}
