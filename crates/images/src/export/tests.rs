//! Exports are read back unchanged, by this crate and by other tools.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use ::tar::EntryType;

use super::*;
use crate::archive::{self, OpenOptions};
use crate::layer::{self, ApplyLimits, ApplyOptions};
use crate::testing::{Raw, Tar, apply_with, describe, run};

const LIMITS: ApplyLimits = ApplyLimits { entries: 100_000, bytes: 1 << 30 };
const SHIFT: u32 = 100_000;

/// A tree with every kind of file.
fn tree(root: &Path, shift: u32) {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let capability = words(&[0x0200_0001, 1 << 13, 0, 0, 0]);
    let list = words(&[
        2,
        0x7_0001,
        u32::MAX,
        0x6_0002,
        33,
        0x4_0004,
        u32::MAX,
        0x6_0010,
        u32::MAX,
        0x4_0020,
        u32::MAX,
    ]);
    let long = format!("usr/{}/{}", "l".repeat(150), "n".repeat(200));
    let target = "t".repeat(300);
    let tar = Tar::default()
        .raw(&Raw { mode: 0o750, uid: 9, ..Raw::new(EntryType::Directory, "./") })
        .directory("usr/")
        .file("usr/a", "x")
        .hard_link("usr/b", "usr/a")
        .raw(&Raw { mode: 0o4755, uid: 1000, gid: 50, content: b"su", ..Raw::new(EntryType::Regular, "su") })
        .raw(&Raw {
            content: b"ping",
            pax: &[
                ("SCHILY.xattr.security.capability", &capability),
                ("SCHILY.xattr.user.a", b"b\0c"),
                ("mtime", b"1500000000.987654321"),
            ],
            ..Raw::new(EntryType::Regular, "ping")
        })
        .raw(&Raw {
            pax: &[("SCHILY.xattr.system.posix_acl_access", &list)],
            ..Raw::new(EntryType::Regular, "acl")
        })
        .raw(&Raw {
            pax: &[("path", long.as_bytes()), ("mtime", b"-1.5")],
            ..Raw::new(EntryType::Regular, "short")
        })
        .raw(&Raw {
            pax: &[("linkpath", target.as_bytes())],
            link: "s",
            ..Raw::new(EntryType::Symlink, "link")
        })
        .hard_link("link2", "link")
        .raw(&Raw { mode: 0o640, ..Raw::new(EntryType::Fifo, "fifo") })
        .raw(&Raw { mode: 0o1777, ..Raw::new(EntryType::Directory, "tmp/") })
        .end();
    apply_with(root, &tar, shift, LIMITS).unwrap();
}

fn config() -> RunConfig {
    let text = |text: &str| text.to_owned();
    RunConfig {
        env: vec![(text("PATH"), text("/bin:/usr/bin")), (text("A"), text("b=c"))],
        user: Some(text("1000:50")),
        workdir: Some(text("/srv")),
        entrypoint: vec![text("/init")],
        cmd: vec![text("serve"), text("--port=80")],
        labels: [(text("team"), text("agents"))].into(),
        exposed_ports: [text("80/tcp")].into(),
        stop_signal: Some(text("SIGINT")),
    }
}

fn export(
    root: &Path,
    shift: u32,
    compression: Compression,
    names: &[Reference],
) -> (Vec<u8>, ExportedImage) {
    let scratch = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let options = ExportOptions {
        config: &config(),
        platform: &Platform::host(),
        created: Some("2024-01-02T03:04:05Z"),
        names,
        compression,
        uid_shift: shift,
        uid_count: 65_536,
        scratch: scratch.path(),
        cancelled: &AtomicBool::new(false),
    };
    let folder = fs::File::open(root).unwrap();
    let exported = write(&mut out, folder.as_fd(), &options).unwrap();
    assert_eq!(exported.bytes, out.len() as u64);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    (out, exported)
}

#[test]
fn exported_images_are_imported_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let names =
        [Reference::parse("registry.example.com/org/app:v1").unwrap(), Reference::parse("app").unwrap()];
    for (number, compression) in
        [Compression::None, Compression::Gzip, Compression::Zstd].into_iter().enumerate()
    {
        let [first, second] = ["first", "second"].map(|name| folder.path().join(format!("{name}{number}")));
        fs::create_dir_all(&first).unwrap();
        fs::create_dir_all(&second).unwrap();
        tree(&first, SHIFT);
        let (bytes, exported) = export(&first, SHIFT, compression, &names);
        assert_eq!(exported.dropped, 0);
        // A second export gives the same bytes.
        assert!(export(&first, SHIFT, compression, &names) == (bytes.clone(), exported));
        let options = OpenOptions {
            scratch: folder.path(),
            bytes_max: 1 << 30,
            platform: &Platform::host(),
            space: &crate::Unlimited,
        };
        let archive = archive::spool(&bytes[..], &options).unwrap();
        let [image] = archive.images() else { panic!("one image was written") };
        assert_eq!(image.names, names);
        assert_eq!((image.spec.digest, &image.spec.diff_ids[..]), (exported.digest, &[exported.diff_id][..]));
        assert_eq!(image.spec.config, config());
        assert_eq!(image.spec.created.as_deref(), Some("2024-01-02T03:04:05Z"));
        assert_eq!(image.spec.layers[0].compression, compression);
        let root = fs::File::open(&second).unwrap();
        let options = ApplyOptions {
            compression,
            expected: image.spec.diff_ids[0],
            uid_shift: SHIFT,
            uid_count: 65_536,
            limits: LIMITS,
            cancelled: &AtomicBool::new(false),
            progress: &|_| {},
        };
        layer::apply(archive.layer(0, 0), root.as_fd(), &options).unwrap();
        assert_eq!(describe(&first), describe(&second));
    }
}

#[test]
fn other_programs_read_exported_images() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["shifted", "unshifted", "layout"] {
        fs::create_dir(at(name)).unwrap();
    }
    tree(&at("shifted"), SHIFT);
    tree(&at("unshifted"), 0);
    let names = [Reference::parse("example.org/app:v1").unwrap()];
    let (bytes, exported) = export(&at("shifted"), SHIFT, Compression::Gzip, &names);
    fs::write(at("archive.tar"), bytes).unwrap();
    // umoci unpacks it to the original, with the uids of the outside.
    run(Command::new("tar").arg("-xf").arg(at("archive.tar")).arg("-C").arg(at("layout")));
    let image = format!("{}:v1", at("layout").display());
    run(Command::new("umoci").args(["unpack", "--image", &image]).arg(at("bundle")));
    assert_eq!(describe(&at("bundle/rootfs")), describe(&at("unshifted")));
    // skopeo accepts it both as an OCI archive and as the output of `docker save`.
    let shown = at("archive.tar").display().to_string();
    let inspected = run(Command::new("skopeo").args(["inspect", &format!("oci-archive:{shown}")]));
    assert!(inspected.contains(&exported.digest.to_string()) && inspected.contains("A=b=c"), "{inspected}");
    let docker =
        run(Command::new("skopeo").args(["inspect", &format!("docker-archive:{shown}:example.org/app:v1")]));
    assert!(docker.contains("\"team\": \"agents\""), "{docker}");
    let copied = format!("oci:{}:copied", at("copied").display());
    run(Command::new("skopeo").args([
        "copy",
        "--quiet",
        "--insecure-policy",
        &format!("docker-archive:{shown}"),
        &copied,
    ]));
}

#[test]
fn unsupported_files_are_left_out_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _socket = UnixListener::bind(folder.path().join("socket")).unwrap();
    fs::write(folder.path().join("of-the-host"), "").unwrap();
    let (bytes, exported) = export(folder.path(), SHIFT, Compression::None, &[]);
    assert_eq!((exported.dropped, exported.entries), (1, 2));
    let scratch = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        scratch: scratch.path(),
        bytes_max: 1 << 30,
        platform: &Platform::host(),
        space: &crate::Unlimited,
    };
    let archive = archive::spool(&bytes[..], &options).unwrap();
    assert_eq!(archive.images()[0].names, []);
    // A file of the host's root belongs to nobody inside, also after import.
    let mut tar = Vec::new();
    io::Read::read_to_end(&mut archive.layer(0, 0), &mut tar).unwrap();
    let root = tempfile::tempdir().unwrap();
    apply_with(root.path(), &tar, 0, LIMITS).unwrap();
    assert_eq!(describe(root.path())[Path::new("of-the-host")].owner, (65_534, 65_534));

    fs::write(folder.path().join(".wh.file"), "").unwrap();
    let options = ExportOptions {
        config: &RunConfig::default(),
        platform: &Platform::host(),
        created: None,
        names: &[],
        compression: Compression::None,
        uid_shift: 0,
        uid_count: 65_536,
        scratch: scratch.path(),
        cancelled: &AtomicBool::new(false),
    };
    let root = fs::File::open(folder.path()).unwrap();
    let error = write(&mut Vec::new(), root.as_fd(), &options).unwrap_err();
    assert!(matches!(error, ImageError::Unpackable { .. }) && error.hint().is_some(), "{error}");
    fs::remove_file(folder.path().join(".wh.file")).unwrap();
    let cancelled = AtomicBool::new(true);
    let options = ExportOptions { cancelled: &cancelled, ..options };
    assert!(matches!(write(&mut Vec::new(), root.as_fd(), &options), Err(ImageError::Cancelled)));
}
