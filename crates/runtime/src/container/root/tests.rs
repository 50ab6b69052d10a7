//! Tests with root directories as a hostile machine may leave them.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};

use burrow_network::linux::UID_BASE;
use rustix::fs::{FileType, Mode, makedev, mknodat};

use super::*;

struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    /// `root/` to prepare, `outside/` that must never be changed, `agent` to install.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("root")).unwrap();
        std::os::unix::fs::chown(directory.path().join("root"), Some(UID_BASE), Some(UID_BASE)).unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        fs::write(directory.path().join("outside/canary"), "untouched").unwrap();
        fs::write(directory.path().join("agent"), vec![7; 100_000]).unwrap();
        Self { directory }
    }

    fn root(&self, path: &str) -> PathBuf {
        self.directory.path().join("root").join(path)
    }

    fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    fn prepare(&self) -> Result<(), RootError> {
        let root = Root::open(&self.root(""))?;
        root.prepare(&self.directory.path().join("agent"), 64 << 20)?;
        root.name("box")
    }

    /// Checks that everything that a boot relies on exists and has the right type, and that the host's own files are
    /// unchanged.
    #[track_caller]
    fn check(&self) {
        for directory in ["proc", "sys", "dev", "dev/pts", "dev/shm", ".burrow", ".burrow/empty"] {
            assert!(fs::symlink_metadata(self.root(directory)).unwrap().is_dir(), "{directory}");
        }
        for directory in
            [".burrow/sys/devices/system", ".burrow/sys/devices/virtual/net", ".burrow/sys/fs/cgroup"]
        {
            let metadata = fs::symlink_metadata(self.root(directory)).unwrap();
            assert_eq!(
                (metadata.is_dir(), metadata.uid(), metadata.mode() & 0o7777),
                (true, 0, 0o555),
                "{directory}"
            );
        }
        for (device, rdev) in [("dev/null", makedev(1, 3)), ("dev/tty", makedev(5, 0))] {
            let metadata = fs::symlink_metadata(self.root(device)).unwrap();
            assert!(metadata.file_type().is_char_device(), "{device}");
            assert_eq!((metadata.rdev(), metadata.uid(), metadata.mode() & 0o7777), (rdev, UID_BASE, 0o666));
        }
        let guest = fs::symlink_metadata(self.root(".burrow/guest")).unwrap();
        assert!(guest.is_file());
        assert_eq!((guest.uid(), guest.gid(), guest.mode() & 0o7777, guest.len()), (0, 0, 0o555, 100_000));
        let directory = fs::symlink_metadata(self.root(".burrow")).unwrap();
        assert_eq!((directory.uid(), directory.mode() & 0o7777), (0, 0o755));
        let meminfo = fs::symlink_metadata(self.root(".burrow/meminfo")).unwrap();
        assert!(meminfo.is_file());
        assert_eq!((meminfo.uid(), meminfo.mode() & 0o7777), (UID_BASE, 0o644));
        let boot_id = fs::symlink_metadata(self.root(".burrow/boot_id")).unwrap();
        assert_eq!((boot_id.is_file(), boot_id.uid(), boot_id.mode() & 0o7777), (true, 0, 0o444));
        let names: Vec<_> =
            fs::read_dir(self.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["canary"]);
        assert_eq!(fs::read_to_string(self.outside().join("canary")).unwrap(), "untouched");
        assert_eq!(fs::metadata(self.outside()).unwrap().uid(), 0);
        assert_eq!(fs::metadata(self.outside().join("canary")).unwrap().uid(), 0);
    }
}

#[test]
fn an_empty_root_is_completed_and_a_repeat_changes_nothing() {
    let scratch = Scratch::new();
    scratch.prepare().unwrap();
    scratch.check();
    let inodes = |scratch: &Scratch| {
        ["dev", "dev/null", ".burrow", ".burrow/guest", "etc/hosts"]
            .map(|path| fs::symlink_metadata(scratch.root(path)).unwrap().ino())
    };
    let before = inodes(&scratch);
    scratch.prepare().unwrap();
    scratch.check();
    assert_eq!(inodes(&scratch), before);
    assert_eq!(fs::read_to_string(scratch.root("etc/hostname")).unwrap(), "box\n");
    assert_eq!(fs::read_to_string(scratch.root("etc/resolv.conf")).unwrap(), "nameserver 10.88.0.1\n");
    assert_eq!(fs::metadata(scratch.root("etc/hosts")).unwrap().uid(), UID_BASE);
    assert_eq!(fs::read_link(scratch.root("dev/ptmx")).unwrap(), Path::new("pts/ptmx"));
    assert_eq!(fs::metadata(scratch.root("tmp")).unwrap().mode() & 0o7777, 0o1777);
}

#[test]
fn every_start_has_its_own_boot_id() {
    let scratch = Scratch::new();
    let boot_id = || {
        scratch.prepare().unwrap();
        fs::read_to_string(scratch.root(".burrow/boot_id")).unwrap()
    };
    let (first, second) = (boot_id(), boot_id());
    assert_ne!(first, second);
    assert_eq!((first.len(), first.matches('-').count()), (37, 4), "{first}");
}

#[test]
fn links_in_place_of_any_entry_are_not_followed() {
    for name in ["proc", "sys", "dev", ".burrow", "etc"] {
        let scratch = Scratch::new();
        symlink(scratch.outside(), scratch.root(name)).unwrap();
        scratch.prepare().unwrap();
        scratch.check();
    }
    for name in ["null", "pts", "shm", "tty", "ptmx"] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.root("dev")).unwrap();
        symlink(scratch.outside().join("canary"), scratch.root("dev").join(name)).unwrap();
        scratch.prepare().unwrap();
        scratch.check();
    }
    for name in ["hosts", "hostname", "resolv.conf"] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.root("etc")).unwrap();
        symlink(scratch.outside().join("canary"), scratch.root("etc").join(name)).unwrap();
        scratch.prepare().unwrap();
        scratch.check();
    }
}

#[test]
fn files_directories_and_fifos_in_the_wrong_place_are_replaced() {
    let scratch = Scratch::new();
    fs::write(scratch.root("proc"), "not a directory").unwrap();
    fs::create_dir(scratch.root("dev")).unwrap();
    fs::create_dir_all(scratch.root("dev/null/full of work")).unwrap();
    fs::write(scratch.root("dev/zero"), "ones").unwrap();
    let root = fs::File::open(scratch.root("")).unwrap();
    mknodat(&root, "sys", FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::create_dir(scratch.root("etc")).unwrap();
    let etc = fs::File::open(scratch.root("etc")).unwrap();
    for name in ["hosts", "hostname"] {
        mknodat(&etc, name, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    }
    fs::create_dir_all(scratch.root("etc/resolv.conf/full")).unwrap();
    scratch.prepare().unwrap();
    scratch.check();
    assert!(scratch.root("dev/null.aside-0/full of work").is_dir());
    assert!(scratch.root("etc/hosts").is_file());
}

#[test]
fn a_forged_agent_directory_is_set_aside() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.root(".burrow")).unwrap();
    std::os::unix::fs::chown(scratch.root(".burrow"), Some(UID_BASE), Some(UID_BASE)).unwrap();
    fs::write(scratch.root(".burrow/guest"), "an agent of their own").unwrap();
    scratch.prepare().unwrap();
    scratch.check();
    assert!(scratch.root(".burrow.aside-0/guest").is_file());

    // One that only looks like the host's: any user can write to it.
    let scratch = Scratch::new();
    fs::create_dir(scratch.root(".burrow")).unwrap();
    fs::set_permissions(scratch.root(".burrow"), fs::Permissions::from_mode(0o777)).unwrap();
    scratch.prepare().unwrap();
    scratch.check();
}

#[test]
fn a_new_agent_replaces_the_old_copy() {
    let scratch = Scratch::new();
    scratch.prepare().unwrap();
    fs::write(scratch.directory.path().join("agent"), vec![8; 50_000]).unwrap();
    scratch.prepare().unwrap();
    assert_eq!(fs::read(scratch.root(".burrow/guest")).unwrap(), vec![8; 50_000]);
}

#[test]
fn device_nodes_of_other_kinds_are_replaced() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.root("dev")).unwrap();
    let dev = fs::File::open(scratch.root("dev")).unwrap();
    // The host's memory under the name of the null device.
    mknodat(&dev, "null", FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 1)).unwrap();
    mknodat(&dev, "ptmx", FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(5, 2)).unwrap();
    scratch.prepare().unwrap();
    scratch.check();
    assert!(fs::symlink_metadata(scratch.root("dev/ptmx")).unwrap().is_symlink());
}

#[test]
fn a_root_that_is_itself_a_link_is_rejected() {
    let scratch = Scratch::new();
    let link = scratch.directory.path().join("link");
    symlink(scratch.root(""), &link).unwrap();
    assert_eq!(Root::open(&link).unwrap_err().step, "open the root directory");
}
