//! The host's own way into a volume, with a hostile sandbox in mind.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;

struct Place {
    _directory: tempfile::TempDir,
    root: std::path::PathBuf,
    files: ShelfFiles,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("rootfs");
    make_root(&root).unwrap();
    let files = ShelfFiles::open(&root).unwrap();
    Place { _directory: directory, root, files }
}

impl Place {
    fn write(&self, path: &str, content: &str, parents: bool) -> Result<ShelfEntry, ShelfFileError> {
        let mut incoming = self.files.begin(path, parents)?;
        incoming.write(content.as_bytes())?;
        self.files.finish(incoming, Ownership::default())
    }

    fn read(&self, path: &str) -> Result<String, ShelfFileError> {
        let (mut file, _) = self.files.read(path)?;
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        Ok(content)
    }
}

#[test]
fn what_is_written_is_read_listed_and_removed() {
    let place = place();
    let entry = place.write("/notes/today.txt", "first", true).unwrap();
    assert_eq!((entry.path.as_str(), entry.bytes, entry.mode), ("/notes/today.txt", 5, 0o644));
    assert_eq!((entry.uid, entry.gid, entry.kind), (0, 0, ShelfEntryKind::File));
    place.write("notes//./today.txt", "second", false).unwrap();
    assert_eq!(place.read("/notes/today.txt").unwrap(), "second");
    let found = fs::metadata(place.root.join("notes/today.txt")).unwrap();
    assert_eq!(found.uid(), UID_SHIFT, "its owner is root inside");
    assert_eq!(fs::metadata(&place.root).unwrap().mode() & 0o7777, ROOT_MODE);

    place.files.make_directory("/notes/deep/er", Ownership::default(), true).unwrap();
    let paths = |depth| {
        let listed = place.files.list("/", depth).unwrap();
        listed.into_iter().map(|entry| entry.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(1), ["/notes"]);
    assert_eq!(paths(2), ["/notes", "/notes/deep", "/notes/today.txt"]);
    assert_eq!(paths(9).len(), 4);
    place.files.remove("/notes").unwrap();
    assert_eq!(paths(9), Vec::<String>::new());
    assert!(matches!(place.files.remove("/notes"), Err(ShelfFileError::NotFound { .. })));
    assert!(place.files.remove("/").is_err(), "the volume itself is not removed this way");
}

#[test]
fn no_link_leads_out_or_anywhere() {
    let (place, host) = (place(), tempfile::tempdir().unwrap());
    fs::write(host.path().join("secret"), "the host's").unwrap();
    fs::create_dir(place.root.join("real")).unwrap();
    fs::write(place.root.join("real/file"), "inside").unwrap();
    symlink(host.path(), place.root.join("out")).unwrap();
    symlink(host.path().join("secret"), place.root.join("file")).unwrap();
    symlink("real", place.root.join("in")).unwrap();
    for path in ["/out/secret", "/file", "/in/file", "/../secret", "/real/../../secret"] {
        assert!(place.read(path).is_err(), "{path}");
    }
    for path in ["/out/new", "/in/new", "/out/new/deep", "/../new"] {
        assert!(place.write(path, "x", true).is_err(), "{path}");
        assert!(place.files.make_directory(path, Ownership::default(), true).is_err(), "{path}");
        assert!(place.files.remove(path).is_err(), "{path}");
    }
    assert!(place.files.list("/out", 1).is_err() && place.files.list("/in", 1).is_err());
    let mode = Ownership { mode: Some(0o777), ..Ownership::default() };
    assert!(matches!(place.files.own("/file", mode), Err(ShelfFileError::Link { .. })));
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 1);
    assert_eq!(fs::metadata(host.path().join("secret")).unwrap().mode() & 0o777, 0o644);

    // A link is seen as what it is, replaced by a file, and removed itself.
    let link = place.files.stat("/file").unwrap();
    assert_eq!((link.kind, link.target.is_some()), (ShelfEntryKind::Link, true));
    place.write("/file", "own", false).unwrap();
    place.files.remove("/out").unwrap();
    assert_eq!(fs::read_to_string(host.path().join("secret")).unwrap(), "the host's");
    assert_eq!(place.read("/file").unwrap(), "own");
    assert_eq!(place.files.list("/", 9).unwrap().len(), 4, "links are not gone into");
}

#[test]
fn only_regular_files_are_opened() {
    let place = place();
    rustix::fs::mknodat(CWD, place.root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::create_dir(place.root.join("folder")).unwrap();
    for path in ["/pipe", "/folder", "/"] {
        assert!(matches!(place.read(path), Err(ShelfFileError::NotFile { .. })), "{path}");
    }
    assert!(matches!(place.write("/folder", "x", false), Err(ShelfFileError::NotFile { .. })));
    assert!(matches!(place.write("/none/x", "x", false), Err(ShelfFileError::NotFound { .. })));
    assert!(matches!(place.read("/none"), Err(ShelfFileError::NotFound { .. })));
    assert!(matches!(place.read("/pipe/x"), Err(ShelfFileError::NotDirectory { .. })));
}

#[test]
fn a_file_that_is_not_finished_is_not_there() {
    let place = place();
    let mut incoming = place.files.begin("/big", false).unwrap();
    incoming.write(b"half").unwrap();
    assert_eq!(place.files.list("/", 1).unwrap(), []);
    drop(incoming);
    assert_eq!(fs::read_dir(&place.root).unwrap().count(), 0);
}

#[test]
fn owners_are_those_inside() {
    let place = place();
    place.write("/file", "x", false).unwrap();
    let wish = Ownership { uid: Some(1000), gid: Some(100), mode: Some(0o640) };
    let entry = place.files.own("/file", wish).unwrap();
    assert_eq!((entry.uid, entry.gid, entry.mode), (1000, 100, 0o640));
    assert_eq!(fs::metadata(place.root.join("file")).unwrap().uid(), UID_SHIFT + 1000);
    let only_mode = Ownership { mode: Some(0o600), ..Ownership::default() };
    let entry = place.files.own("/file", only_mode).unwrap();
    assert_eq!((entry.uid, entry.mode), (1000, 0o600));
    std::os::unix::fs::chown(place.root.join("file"), Some(0), Some(0)).unwrap();
    assert_eq!(place.files.stat("/file").unwrap().uid, NOBODY, "the host's root is nobody inside");
    for bad in [Ownership { uid: Some(UID_COUNT), ..wish }, Ownership { mode: Some(0o10000), ..wish }] {
        assert!(matches!(place.files.own("/file", bad), Err(ShelfFileError::BadOwner)), "{bad:?}");
    }
}

#[test]
fn what_is_nested_too_deep_is_refused_and_not_followed_forever() {
    let place = place();
    let mut folder = File::open(&place.root).map(OwnedFd::from).unwrap();
    for _ in 0..REMOVAL_DEPTH_MAX + 2 {
        mkdirat(&folder, "d", Mode::RWXU).unwrap();
        folder = open_below(&folder, c"d").unwrap();
    }
    assert!(matches!(place.files.remove("/d"), Err(ShelfFileError::TooMuch { .. })));
    assert!(place.files.list("/", u32::MAX).unwrap().len() <= DEPTH_MAX as usize);
}
