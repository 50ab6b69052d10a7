//! Tar streams in both directions, and archives that must be refused as a whole.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::{Guest, download, patient, send_upload};
use burrow_guest::client::GuestError;
use burrow_guest::protocol::{ErrorCode, Frame, MachineStats, Request, TarIn, TarOut, TarSummary};
use bytes::Bytes;
use tar::{EntryType, Header};

async fn tar_out(guest: &Guest, path: &str) -> Vec<u8> {
    let mut connection = guest.open(&Request::TarOut(TarOut { path: path.to_owned() })).await;
    let () = patient(connection.reply()).await.unwrap();
    download(&mut connection).await.unwrap()
}

async fn tar_in(
    guest: &Guest,
    path: &str,
    user: Option<&str>,
    archive: &[u8],
) -> Result<TarSummary, GuestError> {
    let request = TarIn { path: path.to_owned(), user: user.map(str::to_owned) };
    let mut connection = guest.open(&Request::TarIn(request)).await;
    send_upload(&mut connection, archive).await;
    patient(connection.reply()).await
}

/// The output of `find` with all attributes that a tar contains.
fn inventory(path: &str) -> String {
    let script = "find . -printf '%P %y %m %U:%G %n %l %T@ ' -exec sh -c 'test -f \"$1\" && md5sum < \"$1\"; echo' _ {} \\; | sed 's/\\.[0-9]* / /' | sort";
    let found = Command::new("sh").args(["-c", script]).current_dir(path).output().unwrap();
    String::from_utf8_lossy(&found.stdout).into_owned()
}

fn make_tree(top: &str) {
    let top = Path::new(top);
    fs::create_dir_all(top.join("sub/empty")).unwrap();
    fs::write(top.join("file"), "content").unwrap();
    fs::write(top.join("sub/script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(top.join("sub/script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(top.join("blocks"), vec![7u8; 512 * 3]).unwrap();
    fs::write(top.join("large"), vec![9u8; 1_000_001]).unwrap();
    fs::write(top.join("none"), "").unwrap();
    std::os::unix::fs::chown(top.join("file"), Some(1), Some(3)).unwrap();
    symlink("../elsewhere/that/is/not", top.join("dangling")).unwrap();
    symlink("/absolute", top.join("sub/absolute")).unwrap();
    symlink("y".repeat(150), top.join("long-target")).unwrap();
    fs::hard_link(top.join("large"), top.join("sub/second-name")).unwrap();
    let deep = top.join("x".repeat(120)).join("y".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("z".repeat(255)), "deep").unwrap();
    fs::write(top.join("x".repeat(100)), "a name that fills its field").unwrap();
    fs::write(top.join(std::ffi::OsStr::from_bytes(b"not\xfftext")), "odd").unwrap();
    assert!(Command::new("mkfifo").arg(top.join("fifo")).status().unwrap().success());
    let date = ["-h", "-d", "2001-02-03 04:05:06 UTC"];
    let script = "find . -depth -exec touch -h -d '2001-02-03 04:05:06 UTC' {} +";
    assert!(Command::new("sh").args(["-c", script]).current_dir(top).status().unwrap().success(), "{date:?}");
}

#[tokio::test]
async fn a_tree_survives_packing_and_unpacking() {
    let guest = Guest::start();
    let tree = guest.path("tree");
    make_tree(&tree);
    let archive = tar_out(&guest, &tree).await;
    fs::remove_file(guest.path("tree/fifo")).unwrap();
    let touched = ["-d", "2001-02-03 04:05:06 UTC", &tree];
    assert!(Command::new("touch").args(touched).status().unwrap().success());

    let copy = guest.path("copy");
    let summary = tar_in(&guest, &copy, None, &archive).await.unwrap();
    assert!(summary.entries >= 15 && summary.bytes > 1_000_000, "{summary:?}");
    assert_eq!(inventory(&copy), inventory(&tree));

    // The system's own tar reads it in the same way.
    let system = guest.path("system");
    fs::create_dir(&system).unwrap();
    fs::write(guest.path("archive.tar"), &archive).unwrap();
    let unpacked =
        Command::new("tar").args(["-xpf", &guest.path("archive.tar"), "-C", &system]).output().unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    assert_eq!(inventory(&system), inventory(&tree));
}

#[tokio::test]
async fn archives_of_every_common_format_are_accepted() {
    let guest = Guest::start();
    let tree = guest.path("tree");
    make_tree(&tree);
    fs::remove_file(guest.path("tree/fifo")).unwrap();
    let before = inventory(&tree);
    for format in ["gnu", "pax", "oldgnu"] {
        let made =
            Command::new("tar").args(["--format", format, "-C", &tree, "-cf", "-", "."]).output().unwrap();
        assert!(made.status.success(), "{format}: {made:?}");
        let copy = guest.path(&format!("copy-{format}"));
        tar_in(&guest, &copy, None, &made.stdout).await.unwrap();
        assert_eq!(inventory(&copy), before, "{format}");
    }
}

#[tokio::test]
async fn a_single_file_is_packed_as_one_entry() {
    let guest = Guest::start();
    fs::write(guest.path("file"), "content").unwrap();
    let archive = tar_out(&guest, &guest.path("file")).await;
    let mut archive = tar::Archive::new(archive.as_slice());
    let names: Vec<_> =
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
    assert_eq!(names, [Path::new("file")]);
    let missing = Request::TarOut(TarOut { path: guest.path("missing") });
    assert_eq!(guest.refusal(missing).await, ErrorCode::NotFound);
    let device = Request::TarOut(TarOut { path: "/dev/zero".to_owned() });
    assert_eq!(guest.refusal(device).await, ErrorCode::NotAFile);
}

#[tokio::test]
async fn unpacked_files_belong_to_the_requested_user() {
    let guest = Guest::start();
    let tree = guest.path("tree");
    make_tree(&tree);
    let archive = tar_out(&guest, &tree).await;
    let copy = guest.path("copy");
    tar_in(&guest, &copy, Some("daemon"), &archive).await.unwrap();
    let foreign = Command::new("find").args([&copy, "-not", "-user", "daemon"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&foreign.stdout), "");
}

#[tokio::test]
async fn unpacking_merges_with_an_existing_directory() {
    let guest = Guest::start();
    let target = guest.path("target");
    fs::create_dir_all(guest.path("target/sub")).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(guest.path("target/kept"), "kept").unwrap();
    fs::write(guest.path("target/sub/kept"), "kept").unwrap();
    fs::write(guest.path("target/file"), "old").unwrap();
    let archive = build(&[
        directory("./"),
        file("file", b"new"),
        directory("sub/"),
        file("sub/added", b"added"),
        file("fresh/made/on/the/way", b"x"),
    ]);
    tar_in(&guest, &target, None, &archive).await.unwrap();
    assert_eq!(fs::read_to_string(guest.path("target/file")).unwrap(), "new");
    for path in ["target/kept", "target/sub/kept", "target/sub/added", "target/fresh/made/on/the/way"] {
        assert!(fs::exists(guest.path(path)).unwrap(), "{path}");
    }
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o7777, 0o1777, "the target keeps its mode");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 4, "no staging directory is left");

    for (archive, code) in [
        (build(&[file("before", b"x"), file("sub", b"x")]), ErrorCode::IsADirectory),
        (build(&[file("before", b"x"), directory("file/")]), ErrorCode::NotADirectory),
    ] {
        assert_eq!(refusal(tar_in(&guest, &target, None, &archive).await), code);
        assert!(!fs::exists(guest.path("target/before")).unwrap(), "refused as a whole");
    }
    // A link in the target is not followed.
    fs::create_dir(guest.path("outside")).unwrap();
    symlink(guest.path("outside"), guest.path("target/trap")).unwrap();
    let archive = build(&[directory("trap/"), file("trap/x", b"x")]);
    assert_eq!(refusal(tar_in(&guest, &target, None, &archive).await), ErrorCode::NotADirectory);
    assert_eq!(fs::read_dir(guest.path("outside")).unwrap().count(), 0);
    // Nor is it followed if a file replaces it.
    tar_in(&guest, &target, None, &build(&[file("trap", b"x")])).await.unwrap();
    assert!(fs::symlink_metadata(guest.path("target/trap")).unwrap().is_file());
}

#[track_caller]
fn refusal(result: Result<TarSummary, GuestError>) -> ErrorCode {
    match result {
        Err(GuestError::Refused(error)) => error.code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

type Part = (Header, Vec<u8>);

/// A header with the name written verbatim: the library would refuse to write such names.
fn entry(name: &[u8], kind: EntryType, link: &[u8], content: &[u8]) -> Part {
    let mut header = Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    header.set_cksum();
    (header, content.to_vec())
}

fn file(name: &str, content: &[u8]) -> Part {
    entry(name.as_bytes(), EntryType::Regular, b"", content)
}

fn directory(name: &str) -> Part {
    let (mut header, content) = entry(name.as_bytes(), EntryType::Directory, b"", b"");
    header.set_mode(0o755);
    header.set_cksum();
    (header, content)
}

fn link(name: &str, kind: EntryType, target: &str) -> Part {
    entry(name.as_bytes(), kind, target.as_bytes(), b"")
}

fn pax(records: &[(&str, &str)]) -> Part {
    let mut content = Vec::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let mut length = rest.len();
        while length != rest.len() + length.to_string().len() {
            length = rest.len() + length.to_string().len();
        }
        content.extend_from_slice(format!("{length}{rest}").as_bytes());
    }
    entry(b"pax", EntryType::XHeader, b"", &content)
}

fn build(parts: &[Part]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (header, content) in parts {
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// Archives that try to write outside, or contain forbidden entries.
fn reaching_out() -> Vec<(&'static str, Vec<u8>)> {
    use EntryType as E;
    let good = || file("good", b"good");
    vec![
        ("a name that climbs", build(&[good(), file("../evil", b"x")])),
        ("a name that climbs later", build(&[good(), file("a/../../evil", b"x")])),
        ("an absolute name", build(&[good(), file("/tmp/evil", b"x")])),
        (
            "a long name that climbs",
            build(&[good(), entry(b"long", E::GNULongName, b"", b"../evil\0"), file("x", b"x")]),
        ),
        ("a PAX name that climbs", build(&[good(), pax(&[("path", "../evil")]), file("x", b"x")])),
        ("a file behind a link", build(&[good(), link("l", E::Symlink, "/tmp"), file("l/evil", b"x")])),
        ("a directory behind a link", build(&[good(), link("l", E::Symlink, ".."), directory("l/evil/")])),
        (
            "a file behind a link to a link",
            build(&[good(), link("a", E::Symlink, "."), link("b", E::Symlink, "a/.."), file("b/evil", b"x")]),
        ),
        ("a hard link outwards", build(&[good(), link("l", E::Link, "/etc/passwd")])),
        ("a hard link that climbs", build(&[good(), link("l", E::Link, "../outside/secret")])),
        (
            "a hard link through a link",
            build(&[good(), link("s", E::Symlink, ".."), link("l", E::Link, "s/outside/secret")]),
        ),
        (
            "a hard link to a link",
            build(&[good(), link("s", E::Symlink, "../outside/secret"), link("l", E::Link, "s")]),
        ),
        ("a hard link to nothing", build(&[good(), link("l", E::Link, "nothing")])),
        ("a device", build(&[good(), entry(b"null", E::Char, b"", b"")])),
        ("a block device", build(&[good(), entry(b"disk", E::Block, b"", b"")])),
        ("a FIFO", build(&[good(), entry(b"fifo", E::Fifo, b"", b"")])),
    ]
}

/// Archives that programs would read differently, and data that is not an archive.
fn contradictory() -> Vec<(&'static str, Vec<u8>)> {
    use EntryType as E;
    let good = || file("good", b"good");
    let mut bad_sum = file("x", b"");
    bad_sum.0.as_mut_bytes()[0] ^= 1;
    let mut linked = link("l", E::Symlink, "/etc");
    linked.0.set_size(512);
    linked.0.set_cksum();
    vec![
        ("two sizes", build(&[good(), pax(&[("size", "0")]), file("x", &[1; 512])])),
        ("two larger sizes", build(&[good(), pax(&[("size", "1024")]), file("x", &[1; 512])])),
        (
            "two names",
            build(&[
                good(),
                entry(b"n", E::GNULongName, b"", b"a\0"),
                pax(&[("path", "b")]),
                file("x", b"x"),
            ]),
        ),
        (
            "an extension twice",
            build(&[good(), pax(&[("path", "a")]), pax(&[("path", "b")]), file("x", b"x")]),
        ),
        ("an extension for nothing", build(&[good(), pax(&[("path", "a")])])),
        (
            "a global name",
            build(&[good(), {
                let (mut header, content) = pax(&[("path", "a")]);
                header.set_entry_type(E::XGlobalHeader);
                header.set_cksum();
                (header, content)
            }]),
        ),
        ("a sparse file", build(&[good(), pax(&[("GNU.sparse.major", "1")]), file("x", b"x")])),
        ("an old sparse file", build(&[good(), entry(b"x", E::GNUSparse, b"", b"")])),
        ("a link with content", build(&[good(), linked])),
        (
            "a broken PAX record",
            build(&[good(), entry(b"pax", E::XHeader, b"", b"99 path=x\n"), file("x", b"x")]),
        ),
        (
            "a name of a megabyte",
            build(&[good(), entry(b"n", E::GNULongName, b"", &vec![b'x'; 1 << 20]), file("x", b"x")]),
        ),
        ("a wrong checksum", build(&[good(), bad_sum])),
        ("a file where a directory is", build(&[good(), directory("d/"), file("d", b"x")])),
        ("a file below a file", build(&[good(), file("good/below", b"x")])),
        ("a top that is a file", build(&[good(), file("./", b"x")])),
        ("an entry of an unknown kind", build(&[good(), entry(b"x", E::new(b'Z'), b"", b"")])),
        ("no tar at all", b"PK\x03\x04 this is a zip file, or says so".repeat(100)),
        ("the beginning of an archive", build(&[good(), file("x", &[1; 5000])])[..2048].to_vec()),
    ]
}

#[tokio::test]
async fn a_hostile_archive_is_refused_completely_and_leaves_nothing() {
    let guest = Guest::start();
    fs::create_dir(guest.path("outside")).unwrap();
    fs::write(guest.path("outside/secret"), "secret").unwrap();
    fs::create_dir(guest.path("existing")).unwrap();
    fs::write(guest.path("existing/kept"), "kept").unwrap();
    let before = inventory(guest.directory.path().to_str().unwrap());
    for (what, archive) in reaching_out().into_iter().chain(contradictory()) {
        for target in ["existing", "fresh"] {
            let refused = tar_in(&guest, &guest.path(target), None, &archive).await;
            let Err(GuestError::Refused(error)) = refused else { panic!("{what} was taken: {refused:?}") };
            let expected = [ErrorCode::Invalid, ErrorCode::TooLarge, ErrorCode::IsADirectory];
            assert!(expected.contains(&error.code), "{what}: {error:?}");
            let after = inventory(guest.directory.path().to_str().unwrap());
            // The directories' own times change when the staging directory is created and removed.
            let names = |text: &str| -> Vec<String> {
                text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
            };
            assert_eq!(names(&after), names(&before), "{what}");
        }
    }
    assert!(!fs::exists("/tmp/evil").unwrap());
    assert_eq!(fs::read_to_string(guest.path("existing/kept")).unwrap(), "kept");
}

#[tokio::test]
async fn setuid_bits_of_an_archive_are_dropped() {
    let guest = Guest::start();
    let (mut header, content) = file("program", b"x");
    header.set_mode(0o6755);
    header.set_cksum();
    tar_in(&guest, &guest.path("copy"), None, &build(&[(header, content)])).await.unwrap();
    assert_eq!(fs::metadata(guest.path("copy/program")).unwrap().mode() & 0o7777, 0o755);
}

#[tokio::test]
async fn the_last_of_several_entries_with_one_name_is_kept() {
    let guest = Guest::start();
    let archive = build(&[file("x", b"first"), link("x", EntryType::Symlink, "/etc"), file("x", b"last")]);
    tar_in(&guest, &guest.path("copy"), None, &archive).await.unwrap();
    assert_eq!(fs::read_to_string(guest.path("copy/x")).unwrap(), "last");
}

#[tokio::test]
async fn an_archive_without_its_final_blocks_is_accepted() {
    let guest = Guest::start();
    let mut archive = build(&[file("x", b"content")]);
    archive.truncate(1024);
    tar_in(&guest, &guest.path("copy"), None, &archive).await.unwrap();
    assert_eq!(fs::read_to_string(guest.path("copy/x")).unwrap(), "content");
}

#[tokio::test]
async fn an_interrupted_archive_upload_leaves_nothing() {
    let guest = Guest::start();
    fs::create_dir(guest.path("target")).unwrap();
    let request = TarIn { path: guest.path("target"), user: None };
    let mut connection = guest.open(&Request::TarIn(request)).await;
    // At the end of an entry, where the archive itself looks complete.
    let archive = build(&[file("x", b"content")]);
    connection.send(&Frame::Bytes(Bytes::copy_from_slice(&archive[..1024]))).await.unwrap();
    crate::support::until(|| async { fs::read_dir(guest.path("target")).unwrap().count() == 1 }).await;
    drop(connection);
    crate::support::until(|| async { fs::read_dir(guest.path("target")).unwrap().count() == 0 }).await;
}

#[tokio::test]
async fn a_gigabyte_in_and_out_uses_constant_ram() {
    let guest = Guest::start();
    fs::create_dir(guest.path("tree")).unwrap();
    fs::File::create(guest.path("tree/sparse")).unwrap().set_len(300 << 20).unwrap();
    let archive = tar_out(&guest, &guest.path("tree")).await;
    assert!(archive.len() > 300 << 20);
    tar_in(&guest, &guest.path("copy"), None, &archive).await.unwrap();
    assert_eq!(fs::metadata(guest.path("copy/sparse")).unwrap().len(), 300 << 20);
    let stats: MachineStats = guest.ask(Request::Stats).await;
    assert!(stats.agent_ram_bytes < 16 << 20, "{}", stats.agent_ram_bytes);
}

#[tokio::test]
async fn a_full_disk_refuses_the_archive_and_leaves_nothing() {
    let guest = Guest::start();
    let full = guest.path("full");
    fs::create_dir(&full).unwrap();
    assert!(
        Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs", &full])
            .status()
            .unwrap()
            .success()
    );
    let result = tar_in(&guest, &full, None, &build(&[file("x", &vec![1; 4 << 20])])).await;
    let left = fs::read_dir(&full).unwrap().count();
    assert!(Command::new("umount").arg(&full).status().unwrap().success());
    assert_eq!(refusal(result), ErrorCode::NoSpace);
    assert_eq!(left, 0);
}
