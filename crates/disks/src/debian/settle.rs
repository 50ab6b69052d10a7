//! What every sandbox expects in its files and no package provides: a user, names, devices.
//!
//! Paths are resolved inside the image (a link in it may point anywhere), and an old file is replaced, never
//! written through.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use super::sources::{Sources, keyring_is_inside};
use crate::command::{command, run};
use crate::{DiskError, UID_SHIFT, step};

/// The name of the ordinary user, and its uid.
const USER: (&str, &str) = ("user", "1000");

/// The six devices a sandbox has, by name and number.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// Files that are the same in every image.
const FILES: [(&str, u16, &str); 8] = [
    ("etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"),
    ("etc/hostname", 0o644, "burrow\n"),
    // Each sandbox has its own: an empty file means that it is still to be created.
    ("etc/machine-id", 0o444, ""),
    // The host's resolver must not be visible in the sandbox.
    ("etc/resolv.conf", 0o644, ""),
    ("etc/default/locale", 0o644, "LANG=C.UTF-8\n"),
    ("etc/sudoers.d/user", 0o440, "user ALL=(ALL:ALL) NOPASSWD:ALL\n"),
    // A sandbox is one agent's machine: `pip install` may change it.
    ("etc/pip.conf", 0o644, "[global]\nbreak-system-packages = true\nroot-user-action = ignore\n"),
    ("etc/profile.d/burrow.sh", 0o644, "export LANG=\"${LANG:-C.UTF-8}\"\n"),
];

/// Finishes a bootstrapped tree, whose owners are still the host's.
pub(super) fn settle(rootfs: &Path, sources: &Sources) -> Result<(), DiskError> {
    let (name, uid) = USER;
    let mut useradd = command("chroot");
    useradd.arg(rootfs).args(["useradd", "--create-home", "--uid", uid, "--shell", "/bin/bash"]);
    // `*` matches no password; unlike a missing one, it does not lock the account for other ways to log in.
    run(useradd.args(["--groups", "sudo", "--password", "*", name]))?;
    let root = Root::open(rootfs)?;
    for (path, mode, content) in FILES {
        root.put(path, mode, content)?;
    }
    // These settings are for the bootstrap only and not for `apt` in the sandbox.
    for path in ["etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/sources.list.d/0000sources.list"] {
        root.remove(path)?;
    }
    root.put("etc/apt/sources.list", 0o644, &inside(rootfs, sources).list())?;
    let validity = sources.settings.iter().find(|line| line.starts_with("Acquire::Check-Valid-Until "));
    if let Some(line) = validity {
        // A mirror that serves old lists here serves them to the sandbox too.
        root.put("etc/apt/apt.conf.d/50mirror", 0o644, &format!("{line}\n"))?;
    }
    for folder in ["var/cache/apt/archives", "var/log", "tmp", "run"] {
        root.empty(folder)?;
    }
    // Packages expect directories that the boot of a machine would create here.
    root.make_directory("run", "lock", 0o1777)
}

/// The same sources, as far as their keys are in the image.
fn inside(rootfs: &Path, sources: &Sources) -> Sources {
    let mut sources = sources.clone();
    for entry in &mut sources.entries {
        entry.keyring = entry.keyring.take().filter(|keyring| keyring_is_inside(rootfs, keyring));
    }
    sources
}

/// Fills `dev/` with the devices of a sandbox and nothing else. Real nodes, because they work in a user namespace and
/// need no mounts; they belong to root inside.
pub fn make_devices(rootfs: &Path) -> Result<(), DiskError> {
    let root = Root::open(rootfs)?;
    root.empty("dev")?;
    let path = rootfs.join("dev");
    let owner = (Some(Uid::from_raw(UID_SHIFT)), Some(Gid::from_raw(UID_SHIFT)));
    let make = || -> io::Result<()> {
        let dev = root.directory("dev")?;
        let own = |name: &str| rustix::fs::chownat(&dev, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW);
        for (name, major, minor) in DEVICES {
            let number = rustix::fs::makedev(major, minor);
            rustix::fs::mknodat(&dev, name, FileType::CharacterDevice, Mode::from_raw_mode(0o666), number)?;
            own(name)?;
            // The process's umask has removed bits of the mode.
            rustix::fs::chmodat(&dev, name, Mode::from_raw_mode(0o666), AtFlags::empty())?;
        }
        for (name, target) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            rustix::fs::symlinkat(target, &dev, name)?;
            own(name)?;
        }
        for (name, mode) in [("pts", 0o755), ("shm", 0o1777)] {
            rustix::fs::mkdirat(&dev, name, Mode::from_raw_mode(mode))?;
            own(name)?;
            rustix::fs::chmodat(&dev, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        Ok(())
    };
    make().map_err(step("make the devices in", &path))
}

/// A tree whose paths are resolved inside it.
struct Root<'a> {
    path: &'a Path,
    directory: OwnedFd,
}

impl<'a> Root<'a> {
    fn open(path: &'a Path) -> Result<Self, DiskError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|error| step("open the image", path)(error.into()))?;
        Ok(Self { path, directory })
    }

    fn directory(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
    }

    fn put(&self, path: &str, mode: u16, content: &str) -> Result<(), DiskError> {
        let put = || -> io::Result<()> {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            let folder = self.directory(folder)?;
            unlink(&folder, name)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(mode.into());
            let mut file = File::from(rustix::fs::openat(&folder, name, flags, mode)?);
            file.write_all(content.as_bytes())?;
            rustix::fs::fchmod(&file, mode)?;
            Ok(())
        };
        put().map_err(step("write", &self.path.join(path)))
    }

    fn make_directory(&self, folder: &str, name: &str, mode: u32) -> Result<(), DiskError> {
        let make = || -> io::Result<()> {
            let folder = self.directory(folder)?;
            rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(mode))?;
            Ok(rustix::fs::chmodat(&folder, name, Mode::from_raw_mode(mode), AtFlags::empty())?)
        };
        make().map_err(step("make the directory", &self.path.join(folder).join(name)))
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let removed = self.directory(folder).and_then(|folder| unlink(&folder, name));
        removed.map_err(step("remove", &self.path.join(path)))
    }

    /// Removes the files in a directory, but not the directories that packages expect below it.
    fn empty(&self, path: &str) -> Result<(), DiskError> {
        let whole = path == "dev" || path == "tmp" || path == "run";
        let emptied = self.directory(path).and_then(|folder| empty(&folder, whole, 0));
        emptied.map_err(step("empty", &self.path.join(path)))
    }
}

fn unlink(folder: &OwnedFd, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn empty(folder: &OwnedFd, folders_too: bool, depth: usize) -> io::Result<()> {
    /// Deeper than any of these directories in a tree of packages.
    const DEPTH_MAX: usize = 32;
    if depth > DEPTH_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let names: Result<Vec<_>, Errno> = rustix::fs::Dir::read_from(folder)?
        .map(|entry| entry.map(|entry| entry.file_name().to_owned()))
        .collect();
    for name in names?.into_iter().filter(|name| name.as_c_str() != c"." && name.as_c_str() != c"..") {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(folder, &name, flags, Mode::empty()) {
            Ok(inside) => {
                empty(&inside, folders_too, depth + 1)?;
                if folders_too {
                    rustix::fs::unlinkat(folder, &name, AtFlags::REMOVEDIR)?;
                }
            }
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => {
                rustix::fs::unlinkat(folder, &name, AtFlags::empty())?
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

    use super::*;

    #[test]
    fn a_link_in_the_image_cannot_make_us_write_to_the_host() {
        let (image, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(host.path().join("hosts"), "the host's own").unwrap();
        fs::create_dir_all(image.path().join("real")).unwrap();
        // `etc` resolves to a directory inside the image; `etc/hosts` is a link to the host.
        symlink("/real", image.path().join("etc")).unwrap();
        symlink(host.path().join("hosts"), image.path().join("real/hosts")).unwrap();
        Root::open(image.path()).unwrap().put("etc/hosts", 0o644, "new").unwrap();
        assert_eq!(fs::read_to_string(host.path().join("hosts")).unwrap(), "the host's own");
        assert_eq!(fs::read_to_string(image.path().join("real/hosts")).unwrap(), "new");
    }

    #[test]
    fn an_image_has_exactly_six_devices_and_they_belong_to_root_inside() {
        let image = tempfile::tempdir().unwrap();
        fs::create_dir_all(image.path().join("dev/disk/by-id")).unwrap();
        fs::write(image.path().join("dev/disk/by-id/left over"), "").unwrap();
        make_devices(image.path()).unwrap();
        make_devices(image.path()).unwrap();
        let mut devices = 0;
        for entry in fs::read_dir(image.path().join("dev")).unwrap() {
            let found = fs::symlink_metadata(entry.unwrap().path()).unwrap();
            assert_eq!((found.uid(), found.gid()), (UID_SHIFT, UID_SHIFT));
            if found.file_type().is_char_device() {
                assert_eq!(found.mode() & 0o777, 0o666);
                devices += 1;
            }
        }
        assert_eq!(devices, DEVICES.len());
        assert!(!image.path().join("dev/disk").exists());
    }

    #[test]
    fn emptying_keeps_the_directories_that_packages_made() {
        let image = tempfile::tempdir().unwrap();
        fs::create_dir_all(image.path().join("var/log/apt")).unwrap();
        fs::write(image.path().join("var/log/apt/history.log"), "old").unwrap();
        Root::open(image.path()).unwrap().empty("var/log").unwrap();
        assert_eq!(fs::read_dir(image.path().join("var/log/apt")).unwrap().count(), 0);
    }
}
