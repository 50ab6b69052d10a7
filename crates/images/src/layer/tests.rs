//! Applying valid layers, comparison with umoci, and hostile layers.

mod conformance;
mod hostile;
mod sequences;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use ::tar::EntryType;

use super::*;
use crate::Digest;
use crate::testing::{Raw, Tar, apply, apply_with, describe, run};

const LIMITS: ApplyLimits = ApplyLimits { entries: 100_000, bytes: 1 << 30 };

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn owners_modes_times_and_attributes_are_applied_with_the_shift() {
    let root = tempfile::tempdir().unwrap();
    let capability = words(&[0x0200_0001, 1 << 13, 0, 0, 0]);
    let list = words(&[
        2,
        0x7_0001,
        u32::MAX,
        0x6_0002,
        1000,
        0x4_0004,
        u32::MAX,
        0x6_0010,
        u32::MAX,
        0x4_0020,
        u32::MAX,
    ]);
    let tar = Tar::default()
        .raw(&Raw { mode: 0o1777, uid: 3, gid: 4, ..Raw::new(EntryType::Directory, "tmp/") })
        .raw(&Raw { mode: 0o4755, uid: 0, gid: 5, content: b"x", ..Raw::new(EntryType::Regular, "su") })
        .raw(&Raw {
            content: b"y",
            pax: &[
                ("SCHILY.xattr.security.capability", &capability),
                ("SCHILY.xattr.user.note", b"kept\0raw"),
                ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
                ("SCHILY.xattr.system.posix_acl_access", &list),
                ("mtime", b"1234567890.123456789"),
                ("uid", b"65535"),
            ],
            ..Raw::new(EntryType::Regular, "capable")
        })
        .raw(&Raw { link: "su", uid: 7, ..Raw::new(EntryType::Symlink, "link") })
        .raw(&Raw { mode: 0o622, ..Raw::new(EntryType::Fifo, "fifo") })
        .raw(&Raw::new(EntryType::Char, "null"))
        .end();
    let applied = apply_with(root.path(), &tar, 100_000, LIMITS).unwrap();
    assert_eq!(
        applied,
        AppliedLayer {
            entries: 6,
            bytes: tar.len() as u64,
            whiteouts: 0,
            devices_dropped: 1,
            attributes_dropped: 1
        }
    );
    let check = |name: &str, mode: u32, uid: u32, gid: u32, mtime: (i64, i64)| {
        let found = fs::symlink_metadata(root.path().join(name)).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (mode, uid, gid), "{name}");
        assert_eq!((found.mtime(), found.mtime_nsec()), mtime, "{name}");
    };
    let usual = (1_600_000_000, 0);
    check("tmp", 0o1777, 100_003, 100_004, usual);
    check("su", 0o4755, 100_000, 100_005, usual);
    check("capable", 0o764, 165_535, 100_000, (1_234_567_890, 123_456_789));
    check("link", 0o777, 100_007, 100_000, usual);
    check("fifo", 0o622, 100_000, 100_000, usual);
    assert!(!root.path().join("null").exists());
    let get = |name: &str| xattr::get(root.path().join("capable"), name).unwrap().unwrap();
    assert_eq!(get("security.capability"), words(&[0x0300_0001, 1 << 13, 0, 0, 0, 100_000]));
    assert_eq!(get("user.note"), b"kept\0raw");
    assert_eq!(get("system.posix_acl_access")[16..20], 101_000u32.to_le_bytes());
}

#[test]
fn a_layer_with_a_wrong_digest_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let tar = Tar::default().file("a", "x").end();
    let folder = fs::File::open(root.path()).unwrap();
    let options = ApplyOptions {
        compression: Compression::None,
        expected: DiffId(Digest::of(b"something else")),
        uid_shift: 0,
        uid_count: 65_536,
        limits: LIMITS,
        cancelled: &AtomicBool::new(false),
        progress: &|_| {},
    };
    use std::os::fd::AsFd;
    let error = apply_to(&tar, folder.as_fd(), &options).unwrap_err();
    assert!(matches!(error, ImageError::DiffId { .. }), "{error}");
    // Padding after the end of the archive belongs to the digest.
    let padded = [tar.clone(), vec![0; 8192]].concat();
    let options = ApplyOptions { expected: DiffId(Digest::of(&padded)), ..options };
    assert!(apply_to(&padded, folder.as_fd(), &options).is_ok());
    assert!(matches!(apply_to(&tar, folder.as_fd(), &options), Err(ImageError::DiffId { .. })));
}

fn apply_to(
    tar: &[u8],
    root: BorrowedFd<'_>,
    options: &ApplyOptions<'_>,
) -> Result<AppliedLayer, ImageError> {
    super::apply(tar, root, options)
}

#[test]
fn whiteouts_hide_lower_layers_but_not_their_own_layer() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let lower = Tar::default()
        .directory("d/")
        .file("d/old", "1")
        .directory("d/sub/")
        .file("d/sub/old", "2")
        .directory("o/")
        .file("o/old", "3")
        .directory("o/sub/")
        .file("o/sub/old", "4")
        .file("gone", "5")
        .file("kept", "6")
        .end();
    apply(root.path(), &lower).unwrap();
    let upper = Tar::default()
        .file("d/new", "7")
        .file("d/sub/new", "8")
        .file(".wh.d", "")
        .file("o/sub/new", "9")
        .file("o/.wh..wh..opq", "")
        .file("o/late", "10")
        .file(".wh.gone", "content is ignored")
        .file(".wh.never-was", "")
        .file("no/such/.wh.place", "")
        .end();
    let applied = apply(root.path(), &upper).unwrap();
    assert_eq!(applied.whiteouts, 5);
    let exists: Vec<bool> =
        ["d/new", "d/sub/new", "o/sub/new", "o/late", "kept"].map(|name| at(name).exists()).into();
    assert_eq!(exists, [true; 5]);
    let gone: Vec<bool> =
        ["d/old", "d/sub/old", "o/old", "o/sub/old", "gone", "no"].map(|name| at(name).exists()).into();
    assert_eq!(gone, [false; 6]);
}

#[test]
fn repeated_whiteouts_of_a_directory_are_cheap() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let lower = Tar::default().directory("d/").directory("d/e/").file("d/e/old", "").directory("d/f/").end();
    apply(root.path(), &lower).unwrap();
    let mut upper = Tar::default().directory("d/f/");
    for number in 0..500 {
        upper = upper.file(&format!("d/e/{number}"), "").file("d/e/.wh..wh..opq", "").file("d/.wh.e", "");
    }
    let upper = upper.file("d/.wh.f", "").file("d/.wh..wh..opq", "").file(".wh.d", "").end();
    apply(root.path(), &upper).unwrap();
    assert_eq!(fs::read_dir(at("d/e")).unwrap().count(), 500);
    // The layer's own directory stays, although it is empty.
    assert!(at("d/f").is_dir());
}

#[test]
fn a_hard_link_survives_a_whiteout_of_another_name() {
    let root = tempfile::tempdir().unwrap();
    apply(root.path(), &Tar::default().file("a", "x").end()).unwrap();
    apply(root.path(), &Tar::default().hard_link("b", "a").file(".wh.a", "").end()).unwrap();
    assert!(!root.path().join("a").exists());
    assert_eq!(fs::read(root.path().join("b")).unwrap(), b"x");
}

#[test]
fn a_file_of_a_lower_layer_is_replaced_and_not_overwritten() {
    let root = tempfile::tempdir().unwrap();
    apply(root.path(), &Tar::default().file("a", "old").hard_link("b", "a").end()).unwrap();
    apply(root.path(), &Tar::default().file("a", "new").end()).unwrap();
    assert_eq!(fs::read(root.path().join("a")).unwrap(), b"new");
    assert_eq!(fs::read(root.path().join("b")).unwrap(), b"old");
}

#[test]
fn directories_keep_their_times_when_entries_are_added() {
    let root = tempfile::tempdir().unwrap();
    apply(root.path(), &Tar::default().directory("./").directory("usr/").directory("usr/lib/").end())
        .unwrap();
    let before = describe(root.path());
    let upper =
        Tar::default().file("usr/lib/a/b/c", "x").file("usr/x", "y").file("usr/.wh.nothing", "").end();
    apply(root.path(), &upper).unwrap();
    let after = describe(root.path());
    for name in ["", "usr", "usr/lib"] {
        assert_eq!(before[Path::new(name)].mtime, after[Path::new(name)].mtime, "{name}");
    }
}

#[test]
fn inherited_access_control_lists_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let list = words(&[
        2,
        0x7_0001,
        u32::MAX,
        0x7_0002,
        33,
        0x7_0004,
        u32::MAX,
        0x7_0010,
        u32::MAX,
        0x7_0020,
        u32::MAX,
    ]);
    let tar = Tar::default()
        .raw(&Raw {
            pax: &[("SCHILY.xattr.system.posix_acl_default", &list)],
            ..Raw::new(EntryType::Directory, "d/")
        })
        .raw(&Raw { mode: 0o600, ..Raw::new(EntryType::Regular, "d/secret") })
        .directory("d/sub/")
        .directory("d/sub/sub/")
        .end();
    apply(root.path(), &tar).unwrap();
    let found = describe(root.path());
    assert_eq!(found[Path::new("d")].attributes.len(), 1);
    for name in ["d/secret", "d/sub", "d/sub/sub"] {
        assert_eq!(found[Path::new(name)].attributes.len(), 0, "{name}");
    }
    assert_eq!(found[Path::new("d/secret")].mode & 0o777, 0o600);
}

#[test]
fn every_sparse_format_of_tar_is_supported() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    {
        use std::os::unix::fs::FileExt;
        let file = fs::File::create(source.join("holes")).unwrap();
        for piece in 0..40u64 {
            file.write_all_at(format!("piece {piece}").as_bytes(), piece * 1_000_000 + 17).unwrap();
        }
        file.set_len(50_000_000).unwrap();
        fs::File::create(source.join("all-hole")).unwrap().set_len(5_000_000).unwrap();
        fs::write(source.join("dense"), vec![7; 10_000]).unwrap();
    }
    let expected = describe(&source);
    for format in [
        &["--format=gnu"][..],
        &["--format=posix", "--sparse-version=0.0"],
        &["--format=posix", "--sparse-version=0.1"],
        &["--format=posix", "--sparse-version=1.0"],
    ] {
        let tar = folder.path().join("tar");
        run(Command::new("tar").arg("-cf").arg(&tar).arg("-S").args(format).arg("-C").arg(&source).arg("."));
        let bytes = fs::read(&tar).unwrap();
        assert!(bytes.len() < 1_000_000, "{format:?} was not written sparse");
        let root = tempfile::tempdir().unwrap();
        apply(root.path(), &bytes).unwrap_or_else(|error| panic!("{format:?}: {error}"));
        let found = describe(root.path());
        for name in ["holes", "all-hole", "dense"] {
            let [expected, found] = [&expected, &found].map(|tree| &tree[Path::new(name)]);
            assert!(expected.content == found.content, "{format:?}: {name}");
        }
        assert!(fs::metadata(root.path().join("holes")).unwrap().blocks() * 512 < 1_000_000);
    }
}
