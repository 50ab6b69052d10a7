//! Access of the host to the files of a volume, with a hostile sandbox in mind.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;

struct TestVolume {
    _directory: tempfile::TempDir,
    root: std::path::PathBuf,
    files: VolumeFiles,
}

fn volume() -> TestVolume {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("rootfs");
    make_root(&root).unwrap();
    let files = VolumeFiles::open(&root).unwrap();
    TestVolume { _directory: directory, root, files }
}

impl TestVolume {
    fn write(&self, path: &str, content: &str, parents: bool) -> Result<VolumeEntry, VolumeFileError> {
        let mut incoming = self.files.begin(path, parents)?;
        incoming.write(content.as_bytes())?;
        self.files.finish(incoming, Ownership::default())
    }

    fn read(&self, path: &str) -> Result<String, VolumeFileError> {
        let (mut file, _) = self.files.read(path)?;
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        Ok(content)
    }
}

#[test]
fn written_files_are_read_listed_and_removed() {
    let volume = volume();
    let entry = volume.write("/notes/today.txt", "first", true).unwrap();
    assert_eq!((entry.path.as_str(), entry.bytes, entry.mode), ("/notes/today.txt", 5, 0o644));
    assert_eq!((entry.uid, entry.gid, entry.kind), (0, 0, VolumeEntryKind::File));
    volume.write("notes//./today.txt", "second", false).unwrap();
    assert_eq!(volume.read("/notes/today.txt").unwrap(), "second");
    let found = fs::metadata(volume.root.join("notes/today.txt")).unwrap();
    assert_eq!(found.uid(), UID_SHIFT, "its owner is root inside");
    assert_eq!(fs::metadata(&volume.root).unwrap().mode() & 0o7777, ROOT_MODE);

    volume.files.make_directory("/notes/deep/er", Ownership::default(), true).unwrap();
    let paths = |depth| {
        let listed = volume.files.list("/", depth).unwrap();
        listed.into_iter().map(|entry| entry.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(1), ["/notes"]);
    assert_eq!(paths(2), ["/notes", "/notes/deep", "/notes/today.txt"]);
    assert_eq!(paths(9).len(), 4);
    volume.files.remove("/notes").unwrap();
    assert_eq!(paths(9), Vec::<String>::new());
    assert!(matches!(volume.files.remove("/notes"), Err(VolumeFileError::NotFound { .. })));
    assert!(volume.files.remove("/").is_err(), "the volume itself is not removed this way");
}

#[test]
fn no_link_is_followed() {
    let (volume, host) = (volume(), tempfile::tempdir().unwrap());
    fs::write(host.path().join("secret"), "the host's").unwrap();
    fs::create_dir(volume.root.join("real")).unwrap();
    fs::write(volume.root.join("real/file"), "inside").unwrap();
    symlink(host.path(), volume.root.join("out")).unwrap();
    symlink(host.path().join("secret"), volume.root.join("file")).unwrap();
    symlink("real", volume.root.join("in")).unwrap();
    for path in ["/out/secret", "/file", "/in/file", "/../secret", "/real/../../secret"] {
        assert!(volume.read(path).is_err(), "{path}");
    }
    for path in ["/out/new", "/in/new", "/out/new/deep", "/../new"] {
        assert!(volume.write(path, "x", true).is_err(), "{path}");
        assert!(volume.files.make_directory(path, Ownership::default(), true).is_err(), "{path}");
        assert!(volume.files.remove(path).is_err(), "{path}");
    }
    assert!(volume.files.list("/out", 1).is_err() && volume.files.list("/in", 1).is_err());
    let mode = Ownership { mode: Some(0o777), ..Ownership::default() };
    assert!(matches!(volume.files.own("/file", mode), Err(VolumeFileError::Link { .. })));
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 1);
    assert_eq!(fs::metadata(host.path().join("secret")).unwrap().mode() & 0o777, 0o644);

    // A link is shown as a link, replaced by a file, and removed itself.
    let link = volume.files.stat("/file").unwrap();
    assert_eq!((link.kind, link.target.is_some()), (VolumeEntryKind::Link, true));
    volume.write("/file", "own", false).unwrap();
    volume.files.remove("/out").unwrap();
    assert_eq!(fs::read_to_string(host.path().join("secret")).unwrap(), "the host's");
    assert_eq!(volume.read("/file").unwrap(), "own");
    assert_eq!(volume.files.list("/", 9).unwrap().len(), 4, "links are not gone into");
}

#[test]
fn only_regular_files_are_opened() {
    let volume = volume();
    rustix::fs::mknodat(CWD, volume.root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::create_dir(volume.root.join("folder")).unwrap();
    for path in ["/pipe", "/folder", "/"] {
        assert!(matches!(volume.read(path), Err(VolumeFileError::NotFile { .. })), "{path}");
    }
    assert!(matches!(volume.write("/folder", "x", false), Err(VolumeFileError::NotFile { .. })));
    assert!(matches!(volume.write("/none/x", "x", false), Err(VolumeFileError::NotFound { .. })));
    assert!(matches!(volume.read("/none"), Err(VolumeFileError::NotFound { .. })));
    assert!(matches!(volume.read("/pipe/x"), Err(VolumeFileError::NotDirectory { .. })));
}

#[test]
fn an_unfinished_file_is_not_visible() {
    let volume = volume();
    let mut incoming = volume.files.begin("/big", false).unwrap();
    incoming.write(b"half").unwrap();
    assert_eq!(volume.files.list("/", 1).unwrap(), []);
    drop(incoming);
    assert_eq!(fs::read_dir(&volume.root).unwrap().count(), 0);
}

#[test]
fn owners_are_shown_as_inside() {
    let volume = volume();
    volume.write("/file", "x", false).unwrap();
    let wish = Ownership { uid: Some(1000), gid: Some(100), mode: Some(0o640) };
    let entry = volume.files.own("/file", wish).unwrap();
    assert_eq!((entry.uid, entry.gid, entry.mode), (1000, 100, 0o640));
    assert_eq!(fs::metadata(volume.root.join("file")).unwrap().uid(), UID_SHIFT + 1000);
    let only_mode = Ownership { mode: Some(0o600), ..Ownership::default() };
    let entry = volume.files.own("/file", only_mode).unwrap();
    assert_eq!((entry.uid, entry.mode), (1000, 0o600));
    std::os::unix::fs::chown(volume.root.join("file"), Some(0), Some(0)).unwrap();
    assert_eq!(volume.files.stat("/file").unwrap().uid, NOBODY, "the host's root is nobody inside");
    for bad in [Ownership { uid: Some(UID_COUNT), ..wish }, Ownership { mode: Some(0o10000), ..wish }] {
        assert!(matches!(volume.files.own("/file", bad), Err(VolumeFileError::BadOwner)), "{bad:?}");
    }
}

#[test]
fn directories_nested_too_deep_are_refused() {
    let volume = volume();
    let mut folder = File::open(&volume.root).map(OwnedFd::from).unwrap();
    for _ in 0..REMOVAL_DEPTH_MAX + 2 {
        mkdirat(&folder, "d", Mode::RWXU).unwrap();
        folder = open_below(&folder, c"d").unwrap();
    }
    assert!(matches!(volume.files.remove("/d"), Err(VolumeFileError::TooMuch { .. })));
    assert!(volume.files.list("/", u32::MAX).unwrap().len() <= DEPTH_MAX as usize);
}
