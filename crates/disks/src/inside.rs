//! Small changes to an untrusted tree: paths are resolved inside it, and nothing is written through a link.
//!
//! For images while they are staged; no other process may change the tree at the same time.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::{DiskError, UID_SHIFT, step};

/// Deeper than any working directory; also limits a chain of links.
const DEPTH_MAX: usize = 64;

/// Makes the root directory belong to root inside.
pub fn own_root(rootfs: &Path) -> Result<(), DiskError> {
    std::os::unix::fs::chown(rootfs, Some(UID_SHIFT), Some(UID_SHIFT))
        .map_err(step("own the root of", rootfs))
}

/// Creates a directory and the missing ones above it. Existing directories are left unchanged.
pub fn make_directories(rootfs: &Path, path: &str) -> Result<(), DiskError> {
    let make = || -> io::Result<()> {
        let root = open_root(rootfs)?;
        let mut so_far = String::new();
        let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
        for (depth, part) in parts.enumerate() {
            if part == ".." || depth >= DEPTH_MAX {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let above = directory(&root, if so_far.is_empty() { "." } else { &so_far })?;
            let mode = Mode::from_raw_mode(0o755);
            match rustix::fs::mkdirat(&above, part, mode) {
                Ok(()) => {
                    let owner = (Some(Uid::from_raw(UID_SHIFT)), Some(Gid::from_raw(UID_SHIFT)));
                    rustix::fs::chownat(&above, part, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
                    rustix::fs::chmodat(&above, part, mode, AtFlags::empty())?;
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            so_far = if so_far.is_empty() { part.to_owned() } else { format!("{so_far}/{part}") };
        }
        // An existing entry must be a directory, or a link to one that stays inside.
        directory(&root, if so_far.is_empty() { "." } else { &so_far }).map(drop)
    };
    make().map_err(step("make the directory", &rootfs.join(path.trim_start_matches('/'))))
}

/// Empties `/etc/machine-id`, so that no two sandboxes share one. Does nothing if the image has none.
pub fn forget_machine_id(rootfs: &Path) -> Result<(), DiskError> {
    let forget = || -> io::Result<()> {
        let root = open_root(rootfs)?;
        let etc = match directory(&root, "etc") {
            Ok(etc) => etc,
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&etc, "machine-id", flags, Mode::empty()) {
            Ok(file) => match rustix::fs::ftruncate(&file, 0) {
                // Not a regular file: left alone.
                Ok(()) | Err(Errno::INVAL) => Ok(()),
                Err(error) => Err(error.into()),
            },
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::NODEV) => Ok(()),
            Err(error) => Err(error.into()),
        }
    };
    forget().map_err(step("forget the machine's id in", rootfs))
}

/// The beginning of a regular file, resolved inside; `None` if it does not exist.
pub fn read_file(rootfs: &Path, path: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, DiskError> {
    let read = || -> io::Result<Option<Vec<u8>>> {
        let root = open_root(rootfs)?;
        // Not blocking: opening a pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            Ok(file) => fs::File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut content = Vec::new();
        file.take(bytes_max).read_to_end(&mut content)?;
        Ok(Some(content))
    };
    read().map_err(step("read", &rootfs.join(path)))
}

/// Names in a directory, resolved inside, `names_max` at most; none if the directory does not exist.
pub fn list_files(rootfs: &Path, path: &str, names_max: usize) -> Result<Vec<String>, DiskError> {
    let list = || -> io::Result<Vec<String>> {
        let folder = match directory(&open_root(rootfs)?, path) {
            Ok(folder) => folder,
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder)? {
            let entry = entry?;
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) if names.len() < names_max => names.push(name.to_owned()),
                Ok(_) => break,
            }
        }
        names.sort_unstable();
        Ok(names)
    };
    list().map_err(step("list", &rootfs.join(path)))
}

/// Removes the files that the host added for its own use, so that the tree can be exported.
pub fn remove_agent(rootfs: &Path) -> Result<(), DiskError> {
    let path = rootfs.join(".burrow");
    // Neither call follows a link: the link itself is removed.
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            fs::remove_file(&path).map_err(step("remove", &path))
        }
        result => result.map_err(step("remove", &path)),
    }
}

fn open_root(rootfs: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, rootfs, flags, Mode::empty())?)
}

fn directory(root: &OwnedFd, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn directories_are_made_inside_whatever_links_say() {
        let (image, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(host.path(), image.path().join("out")).unwrap();
        fs::create_dir(image.path().join("real")).unwrap();
        symlink("/real", image.path().join("in")).unwrap();
        make_directories(image.path(), "/in/a/b").unwrap();
        make_directories(image.path(), "/in/a/b").unwrap();
        let made = fs::metadata(image.path().join("real/a/b")).unwrap();
        assert_eq!((made.uid(), made.mode() & 0o777), (UID_SHIFT, 0o755));
        // The link names a directory of the host, which inside does not exist.
        assert!(make_directories(image.path(), "/out/a").is_err());
        assert!(make_directories(image.path(), "/in/../../a").is_err());
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_machine_id_is_forgotten_but_nothing_behind_a_link_is() {
        let (image, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        forget_machine_id(image.path()).unwrap();
        fs::create_dir(image.path().join("etc")).unwrap();
        forget_machine_id(image.path()).unwrap();
        let (id, kept) = (image.path().join("etc/machine-id"), host.path().join("kept"));
        fs::write(&id, "abc").unwrap();
        forget_machine_id(image.path()).unwrap();
        assert_eq!(fs::read_to_string(&id).unwrap(), "");
        fs::write(&kept, "the host's").unwrap();
        fs::remove_file(&id).unwrap();
        symlink(&kept, &id).unwrap();
        forget_machine_id(image.path()).unwrap();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "the host's");
    }

    #[test]
    fn files_are_read_inside_and_only_if_they_are_files() {
        let (image, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(host.path().join("secret"), "the host's").unwrap();
        fs::create_dir_all(image.path().join("etc/d")).unwrap();
        fs::write(image.path().join("etc/list"), "12345").unwrap();
        symlink(host.path().join("secret"), image.path().join("etc/out")).unwrap();
        symlink("/etc/list", image.path().join("etc/in")).unwrap();
        let read = |path: &str| read_file(image.path(), path, 3).unwrap();
        assert_eq!(read("etc/list"), Some(b"123".to_vec()));
        assert_eq!(read("etc/in"), Some(b"123".to_vec()));
        for none in ["etc/out", "etc/d", "etc/missing", "missing/list"] {
            assert_eq!(read(none), None, "{none}");
        }
        assert_eq!(list_files(image.path(), "etc", 10).unwrap(), ["d", "in", "list", "out"]);
        assert_eq!(list_files(image.path(), "none", 10).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_agent_goes_and_a_link_in_its_place_is_not_followed() {
        let (image, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        remove_agent(image.path()).unwrap();
        fs::create_dir(image.path().join(".burrow")).unwrap();
        fs::write(image.path().join(".burrow/guest"), "").unwrap();
        remove_agent(image.path()).unwrap();
        fs::write(host.path().join("file"), "").unwrap();
        symlink(host.path(), image.path().join(".burrow")).unwrap();
        remove_agent(image.path()).unwrap();
        assert!(!image.path().join(".burrow").exists() && host.path().join("file").exists());
    }
}
