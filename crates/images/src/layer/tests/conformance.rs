//! Complex layers, unpacked by this crate and by umoci, compared entry by entry.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::testing::{FileDescription, write_layout};

/// Unpacks the same layers in both ways and compares everything.
#[track_caller]
fn check(layers: &[Vec<u8>], compression: Compression) {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("layout");
    write_layout(&layout, layers, compression);
    let bundle = folder.path().join("bundle");
    run(Command::new("umoci")
        .arg("unpack")
        .arg("--image")
        .arg(format!("{}:test", layout.display()))
        .arg(&bundle));
    let ours = folder.path().join("ours");
    fs::create_dir(&ours).unwrap();
    for layer in layers {
        apply(&ours, layer).unwrap();
    }
    let theirs = tree(&bundle.join("rootfs"));
    let ours = tree(&ours);
    let paths = |tree: &BTreeMap<PathBuf, FileDescription>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(&ours), paths(&theirs), "ours, theirs");
    for (path, described) in &theirs {
        assert_eq!(&ours[path], described, "{} (ours, theirs)", path.display());
    }
}

/// The tree without its root, which no entry describes here.
fn tree(root: &Path) -> BTreeMap<PathBuf, FileDescription> {
    let mut tree = describe(root);
    tree.remove(Path::new(""));
    tree
}

fn base() -> Tar {
    Tar::default()
        .directory("bin/")
        .file("bin/sh", "#!")
        .directory("usr/")
        .directory("usr/lib/")
        .file("usr/lib/libc.so", "elf")
        .symlink("lib", "usr/lib")
        .symlink("lib64", "/usr/lib")
        .directory("etc/")
        .file("etc/passwd", "root")
        .directory("var/")
        .directory("var/a/")
        .file("var/a/b", "c")
        .directory("var/empty/")
}

#[test]
fn whiteouts_and_opaque_directories_match_umoci() {
    let layers = [
        base().end(),
        Tar::default()
            .file("etc/.wh.passwd", "")
            .file("etc/group", "new")
            .directory("var/")
            .file("var/.wh..wh..opq", "")
            .directory("var/new/")
            .file("var/new/x", "y")
            .file("usr/.wh.lib", "")
            .end(),
        Tar::default().directory("usr/lib/").file("usr/lib/again", "z").file("var/new/.wh.x", "").end(),
    ];
    check(&layers, Compression::None);
    check(&layers, Compression::Gzip);
}

#[test]
fn an_opaque_whiteout_may_precede_or_follow_entries_of_its_layer() {
    let layers = [
        base().end(),
        Tar::default()
            .directory("var/")
            .directory("var/a/")
            .file("var/a/before", "1")
            .file("var/a/.wh..wh..opq", "")
            .file("var/a/after", "2")
            .end(),
    ];
    check(&layers, Compression::Gzip);
}

#[test]
fn paths_through_links_of_lower_layers_match_umoci() {
    let layers = [
        base().end(),
        Tar::default()
            .file("lib/new.so", "1")
            .file("lib64/other.so", "2")
            .file("lib/.wh.libc.so", "")
            .directory("lib/sub/")
            .file("lib/sub/deep", "3")
            .hard_link("lib/second", "lib64/new.so")
            .end(),
    ];
    check(&layers, Compression::Gzip);
}

#[test]
fn files_and_directories_replace_each_other_as_in_umoci() {
    let layers = [
        base().file("swap", "file").directory("paws/").file("paws/x", "y").symlink("link", "paws").end(),
        Tar::default()
            .directory("swap/")
            .file("swap/in", "1")
            .file("paws", "file")
            .file("link", "file")
            .end(),
        Tar::default()
            .symlink("swap", "usr")
            .directory("paws/")
            .directory("link/")
            .file("link/in", "2")
            .end(),
    ];
    check(&layers, Compression::None);
}

#[test]
fn hard_links_across_layers_match_umoci() {
    let layers = [
        base().file("first", "shared").hard_link("second", "first").end(),
        Tar::default().hard_link("third", "first").hard_link("usr/fourth", "second").end(),
        Tar::default().file("first", "replaced").file(".wh.second", "").hard_link("fifth", "third").end(),
    ];
    check(&layers, Compression::Gzip);
}

#[test]
fn modes_owners_times_attributes_and_long_names_match_umoci() {
    let capability = words(&[0x0200_0001, 1 << 13, 0, 0, 0]);
    let long = format!("usr/{}/{}", "l".repeat(120), "n".repeat(200));
    let long_parent = format!("usr/{}/", "l".repeat(120));
    let target = "t".repeat(300);
    let layers = [
        base().end(),
        Tar::default()
            .raw(&Raw {
                mode: 0o6755,
                uid: 12,
                gid: 34,
                content: b"su",
                ..Raw::new(EntryType::Regular, "bin/su")
            })
            .raw(&Raw { mode: 0o1777, uid: 1, ..Raw::new(EntryType::Directory, "tmp/") })
            .raw(&Raw { mode: 0o2750, gid: 65_535, ..Raw::new(EntryType::Directory, "srv/") })
            .raw(&Raw {
                content: b"ping",
                pax: &[
                    ("SCHILY.xattr.security.capability", &capability),
                    ("SCHILY.xattr.user.a", b"b"),
                    ("mtime", b"1500000000.987654321"),
                ],
                ..Raw::new(EntryType::Regular, "bin/ping")
            })
            .raw(&Raw { pax: &[("SCHILY.xattr.user.dir", b"x")], ..Raw::new(EntryType::Directory, "etc/") })
            .raw(&Raw { pax: &[("path", long_parent.as_bytes())], ..Raw::new(EntryType::Directory, "short") })
            .raw(&Raw {
                pax: &[("path", long.as_bytes())],
                content: b"long",
                ..Raw::new(EntryType::Regular, "short")
            })
            .raw(&Raw {
                pax: &[("linkpath", target.as_bytes()), ("mtime", b"3.5")],
                link: "short",
                ..Raw::new(EntryType::Symlink, "long-link")
            })
            .raw(&Raw { mode: 0o640, ..Raw::new(EntryType::Fifo, "fifo") })
            .end(),
        Tar::default().raw(&Raw { mode: 0o700, mtime: 5, ..Raw::new(EntryType::Directory, "etc/") }).end(),
    ];
    check(&layers, Compression::Gzip);
}

#[test]
fn a_tree_packed_by_gnu_tar_matches_umoci() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::write(source.join("deep/er/file"), "x").unwrap();
    fs::write(source.join("n".repeat(150)), "long").unwrap();
    fs::hard_link(source.join("deep/er/file"), source.join("again")).unwrap();
    std::os::unix::fs::symlink("t".repeat(200), source.join("link")).unwrap();
    xattr::set(source.join("again"), "user.note", b"n").unwrap();
    for format in ["gnu", "posix"] {
        let tar = folder.path().join("tar");
        let mut command = Command::new("tar");
        command.arg("-cf").arg(&tar).arg(format!("--format={format}")).arg("-C").arg(&source);
        if format == "posix" {
            command.arg("--xattrs");
        }
        run(command.arg("."));
        check(&[fs::read(&tar).unwrap()], Compression::None);
    }
}
