//! Large uploads: those of more than one piece, in frames of any size.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{Guest, new_file, patient};
use burrow_guest::client::GuestError;
use burrow_guest::protocol::{ErrorCode, FileEntry, Frame, MachineStats, Request, WriteFile};
use bytes::Bytes;

/// A size at which files are exchanged, not renamed; see `replace.rs`.
const LARGE: usize = 9 << 20;

/// No two parts of it are equal for a reader that is off by a few bytes, a page or a frame.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8 ^ (index >> 12) as u8).collect()
}

async fn send_in_frames(
    guest: &Guest,
    request: WriteFile,
    frames: &[&[u8]],
) -> Result<FileEntry, GuestError> {
    let mut connection = guest.open(&Request::Write(request)).await;
    for frame in frames {
        connection.send(&Frame::Bytes(Bytes::copy_from_slice(frame))).await?;
    }
    connection.send(&Frame::End).await?;
    patient(connection.reply()).await
}

#[tokio::test]
async fn uploads_in_frames_of_any_size_give_the_same_file() {
    let guest = Guest::start();
    let path = guest.path("file");
    let whole = content(3_000_000);
    for size in [1_000, 4_096, 65_535, 262_144, 700_001, 1 << 20] {
        let frames: Vec<&[u8]> = whole.chunks(size).flat_map(|frame| [frame, &[]]).collect();
        let entry = send_in_frames(&guest, new_file(path.clone()), &frames).await.unwrap();
        assert_eq!(entry.size, whole.len() as u64);
        assert!(std::fs::read(&path).unwrap() == whole, "in frames of {size}");
    }
}

#[tokio::test]
async fn a_host_may_pause_within_a_header_or_a_frame() {
    let guest = Guest::start();
    let path = guest.path("file");
    let whole = content(2_000_000);
    let mut connection = guest.open(&Request::Write(new_file(path.clone()))).await;
    connection.send(&Frame::Bytes(Bytes::copy_from_slice(&whole[..1_000_000]))).await.unwrap();
    let (mut stream, read) = connection.into_raw();
    let mut rest = bytes::BytesMut::new();
    Frame::Bytes(Bytes::copy_from_slice(&whole[1_000_000..])).encode(&mut rest);
    Frame::End.encode(&mut rest);
    let mut from = 0;
    for to in [1, 4, 5, 6, 300_000, 999_999, rest.len() - 1, rest.len()] {
        tokio::io::AsyncWriteExt::write_all(&mut stream, &rest[from..to]).await.unwrap();
        from = to;
        // The agent answers another request meanwhile, so it has handled the bytes sent so far.
        let _: MachineStats = guest.ask(Request::Stats).await;
    }
    assert!(read.is_empty());
    let mut reader = burrow_guest::client::FrameReader::new(stream);
    let entry: FileEntry = patient(reader.reply()).await.unwrap();
    assert_eq!(entry.size, whole.len() as u64);
    assert!(std::fs::read(&path).unwrap() == whole);
}

#[tokio::test]
async fn a_large_file_replaces_a_large_one_atomically() {
    let guest = Guest::start();
    let path = guest.path("file");
    let (old, new) = (content(LARGE), vec![7; LARGE + 1]);
    guest.write(WriteFile { mode: Some(0o640), ..new_file(path.clone()) }, &old).await.unwrap();
    let mut open_before = std::fs::File::open(&path).unwrap();
    for sync in [false, true] {
        let entry = guest.write(WriteFile { sync, ..new_file(path.clone()) }, &new).await.unwrap();
        assert_eq!((entry.size, entry.mode), (new.len() as u64, 0o640));
        assert!(std::fs::read(&path).unwrap() == new);
        assert_eq!(std::fs::metadata(&path).unwrap().nlink(), 1);
        assert_eq!(
            std::fs::read_dir(guest.directory.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }
    let mut kept = Vec::new();
    std::io::Read::read_to_end(&mut open_before, &mut kept).unwrap();
    assert!(kept == old, "an open descriptor keeps the old file");
    // The other way round: the old file is the large one.
    guest.write(new_file(path.clone()), b"small").await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"small");
    assert_eq!(std::fs::read_dir(guest.directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_replaced_large_file_frees_its_space() {
    let guest = Guest::start();
    let path = guest.path("file");
    guest.write(new_file(path.clone()), &content(LARGE)).await.unwrap();
    let agent = guest.child.id();
    for _ in 0..3 {
        guest.write(new_file(path.clone()), &content(LARGE)).await.unwrap();
    }
    // A deleted file is freed once it is no longer open; the agent has it open a moment longer than the answer takes.
    crate::support::until(|| async move {
        let held = std::fs::read_dir(format!("/proc/{agent}/fd")).unwrap().flatten();
        let deleted = held.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        deleted.filter(|target| target.to_string_lossy().contains("/.burrow-")).count() == 0
    })
    .await;
}

#[tokio::test]
async fn a_large_part_of_an_existing_file_is_written_in_place() {
    let guest = Guest::start();
    let path = guest.path("file");
    let (old, new) = (content(3_000_000), vec![9; 1_500_000]);
    std::fs::write(&path, &old).unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino();
    guest.write(WriteFile { offset: Some(1_000_001), ..new_file(path.clone()) }, &new).await.unwrap();
    let mut expected = old;
    expected[1_000_001..2_500_001].copy_from_slice(&new);
    assert!(std::fs::read(&path).unwrap() == expected);
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
}

#[tokio::test]
async fn an_unexpected_frame_aborts_a_large_upload_without_traces() {
    let guest = Guest::start();
    let path = guest.path("file");
    std::fs::write(&path, "old").unwrap();
    let mut connection = guest.open(&Request::Write(new_file(path.clone()))).await;
    connection.send(&Frame::Bytes(Bytes::from(vec![0; 1 << 20]))).await.unwrap();
    connection.send(&Frame::Stdout { offset: 0, bytes: Bytes::from_static(b"x") }).await.unwrap();
    let reply = patient(connection.reply::<FileEntry>()).await;
    assert!(matches!(reply, Err(GuestError::HungUp | GuestError::Io(_))), "{reply:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    crate::support::until(|| async { std::fs::read_dir(guest.directory.path()).unwrap().count() == 1 }).await;
}

#[tokio::test]
async fn stalled_uploads_do_not_block_others() {
    let guest = Guest::start();
    let mut still = Vec::new();
    // All but one of the transfers that the agent allows at once, and more than it has threads.
    for index in 0..15 {
        let mut connection =
            guest.open(&Request::Write(new_file(guest.path(&format!("still-{index}"))))).await;
        connection.send(&Frame::Bytes(Bytes::from(vec![0; 1 << 20]))).await.unwrap();
        still.push(connection);
    }
    let whole = content(LARGE);
    let entry = guest.write(new_file(guest.path("file")), &whole).await.unwrap();
    assert_eq!(entry.size, whole.len() as u64);
    for mut connection in still {
        connection.send(&Frame::End).await.unwrap();
        let entry: FileEntry = patient(connection.reply()).await.unwrap();
        assert_eq!(entry.size, 1 << 20);
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_within_a_frame() {
    let guest = Guest::start();
    let full = guest.path("full");
    std::fs::create_dir(&full).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=4m", "tmpfs", &full];
    assert!(std::process::Command::new("mount").args(mount).status().unwrap().success());
    let whole = content(16 << 20);
    let result = guest.write(new_file(format!("{full}/file")), &whole).await;
    let left = std::fs::read_dir(&full).unwrap().count();
    assert!(std::process::Command::new("umount").arg(&full).status().unwrap().success());
    match result {
        Err(GuestError::Refused(error)) => assert_eq!(error.code, ErrorCode::NoSpace),
        other => panic!("expected a refusal, got {other:?}"),
    }
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_file_written_in_place_keeps_its_links_and_its_metadata_is_replaced() {
    let guest = Guest::start();
    let (path, link) = (guest.path("file"), guest.path("link"));
    let metadata = |pairs: &[(&str, &str)]| {
        Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    };
    let write = |metadata| WriteFile { in_place: true, metadata, ..new_file(path.clone()) };
    let entry =
        guest.write(write(metadata(&[("a", "1"), ("b", "2")])), b"longer than the next").await.unwrap();
    let kept = !entry.metadata.is_empty();
    assert!(!kept || Some(entry.metadata) == metadata(&[("a", "1"), ("b", "2")]));
    fs::hard_link(&path, &link).unwrap();
    let entry = guest.write(write(metadata(&[("b", "3")])), b"short").await.unwrap();
    assert!(!kept || Some(entry.metadata) == metadata(&[("b", "3")]));
    assert_eq!(fs::read(&link).unwrap(), b"short");
    let entry = guest.write(write(metadata(&[])), &vec![7; 3 << 20]).await.unwrap();
    assert_eq!((entry.size, entry.metadata.len()), (3 << 20, 0));
    assert_eq!(fs::metadata(&link).unwrap().len(), 3 << 20);
}
