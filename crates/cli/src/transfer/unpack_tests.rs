//! Hostile archives, each of which must be rejected without writing outside of the directory.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::*;

fn header(kind: EntryType, path: &str, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size as u64);
    // Bypasses the checks of the library, as a hostile archiver would.
    let name = &mut header.as_old_mut().name;
    name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_cksum();
    header
}

fn file(path: &str, content: &str) -> (Header, Vec<u8>) {
    (header(EntryType::Regular, path, content.len()), content.as_bytes().to_vec())
}

fn link(kind: EntryType, path: &str, target: &str) -> (Header, Vec<u8>) {
    let mut header = header(kind, path, 0);
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    (header, Vec::new())
}

fn archive_of(entries: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (header, content) in entries {
        builder.append(header, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn unpack_in(place: &Path, bytes: &[u8]) -> Result<UnpackReport, ArchiveError> {
    let root = place.join("root");
    fs::create_dir(&root).unwrap();
    let handle = fs::File::open(&root).unwrap();
    unpack(bytes, handle.as_fd())
}

/// Checks that the archive is rejected, and that nothing was written outside of the root directory.
#[track_caller]
fn check_refused(entries: &[(Header, Vec<u8>)], reason: &str) {
    let place = tempfile::tempdir().unwrap();
    match unpack_in(place.path(), &archive_of(entries)) {
        Err(ArchiveError::Refused { why, .. }) => assert_eq!(why, reason),
        other => panic!("expected a refusal ({reason}), got {other:?}"),
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "something was written outside");
}

#[test]
fn paths_outside_of_the_directory_are_rejected() {
    check_refused(&[file("../evil", "x")], "its path is outside of the directory");
    check_refused(&[file("a/../../evil", "x")], "its path is outside of the directory");
    check_refused(&[file("a/../b", "x")], "its path is outside of the directory");
    check_refused(&[file("/etc/evil", "x")], "its path is absolute");
    check_refused(&[file("//evil", "x")], "its path is absolute");
}

#[test]
fn a_file_below_a_link_is_refused() {
    check_refused(
        &[link(EntryType::Symlink, "link", ".."), file("link/evil", "x")],
        "its parent is not a directory",
    );
    check_refused(
        &[link(EntryType::Symlink, "link", "/tmp"), file("link/evil", "x")],
        "its parent is not a directory",
    );
    check_refused(&[file("plain", ""), file("plain/evil", "x")], "its parent is not a directory");
}

#[test]
fn a_file_that_would_be_written_through_a_link_is_refused() {
    check_refused(&[link(EntryType::Symlink, "a", "../evil"), file("a", "x")], "it occurs twice");
    check_refused(
        &[link(EntryType::Symlink, "a", ".."), (header(EntryType::Directory, "a", 0), Vec::new())],
        "its parent is not a directory",
    );
}

#[test]
fn hard_links_out_of_the_archive_are_refused() {
    check_refused(&[link(EntryType::Link, "a", "/etc/passwd")], "its path is absolute");
    check_refused(&[link(EntryType::Link, "a", "../x")], "its path is outside of the directory");
    check_refused(&[link(EntryType::Link, "a", "missing")], "a link to a missing entry");
    // A hard link to a symbolic link, written through afterwards.
    check_refused(
        &[link(EntryType::Symlink, "link", "../evil"), link(EntryType::Link, "a", "link")],
        "a link to an entry that is not a file",
    );
}

#[test]
fn devices_and_pipes_are_refused() {
    check_refused(&[(header(EntryType::Char, "null", 0), Vec::new())], "a device");
    check_refused(&[(header(EntryType::Block, "sda", 0), Vec::new())], "a device");
    check_refused(&[(header(EntryType::Fifo, "pipe", 0), Vec::new())], "a named pipe");
    check_refused(&[(header(EntryType::GNUSparse, "holes", 0), Vec::new())], "an entry of an unknown kind");
}

#[test]
fn a_long_name_is_bounded_and_checked_like_any_other() {
    let long =
        |path: &str| (header(EntryType::GNULongName, "././@LongLink", path.len()), path.as_bytes().to_vec());
    check_refused(&[long("../evil"), file("harmless", "x")], "its path is outside of the directory");
    let huge = "a/".repeat(1 << 20);
    check_refused(&[long(&huge), file("harmless", "x")], "its extended header is too long");
    check_refused(&[long(&"a".repeat(5000)), file("harmless", "x")], "its path is too long");
    check_refused(&[long(&"a/".repeat(300)), file("harmless", "x")], "its path is too deep");
}

#[test]
fn an_extended_header_cannot_smuggle_a_path_or_a_size() {
    let pax = |record: &str| {
        let body = format!("{} {record}\n", record.len() + 4);
        assert_eq!(body.len().to_string().len(), 2, "the length counts itself");
        (header(EntryType::XHeader, "pax", body.len()), body.into_bytes())
    };
    check_refused(&[pax("path=../evil"), file("harmless", "x")], "its path is outside of the directory");
    check_refused(&[pax("size=1000000"), file("harmless", "x")], "it has two different sizes");
}

#[test]
fn a_regular_archive_is_unpacked_without_set_user_id_bits() {
    let place = tempfile::tempdir().unwrap();
    let mut setuid = file("sub/run", "#!/bin/sh\n");
    setuid.0.set_mode(0o6755);
    setuid.0.set_mtime(1_000_000);
    setuid.0.set_cksum();
    let entries = [
        (header(EntryType::Directory, "sub/", 0), Vec::new()),
        setuid,
        link(EntryType::Link, "same", "sub/run"),
        link(EntryType::Symlink, "away", "/etc/alternatives/x"),
        file("deep/er/file", "text"),
    ];
    let done = unpack_in(place.path(), &archive_of(&entries)).unwrap();
    let root = place.path().join("root");
    assert_eq!(done.entries, 5);
    let run = fs::metadata(root.join("sub/run")).unwrap();
    assert_eq!(run.permissions().mode() & 0o7777, 0o755, "set-user-id bits are not kept");
    assert_eq!((run.mtime(), run.nlink()), (1_000_000, 2));
    assert_eq!(fs::read_link(root.join("away")).unwrap(), Path::new("/etc/alternatives/x"));
    assert_eq!(fs::read_to_string(root.join("deep/er/file")).unwrap(), "text");
}

#[test]
fn a_truncated_archive_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let bytes = archive_of(&[file("a", &"x".repeat(5000))]);
    assert!(unpack_in(place.path(), &bytes[..2000]).is_err());
}
