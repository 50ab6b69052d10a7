//! Removes files and whole trees, by descriptor, and never follows a link.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{check_path, on_disk};
use crate::agent::failure::{invalid, refused};
use crate::agent::random::new_id;
use crate::protocol::RequestError;

/// Directories open at once. Deeper ones are first moved up to the top of the tree.
const DEPTH_MAX: usize = 128;

/// How often a directory is emptied again if other processes keep adding to it.
const ATTEMPTS_MAX: usize = 64;

/// Each round removes [`DEPTH_MAX`] levels, so only a malicious tree needs this many.
const ROUNDS_MAX: usize = 10_000;

/// Carries out [`crate::protocol::Request::Remove`].
pub(in crate::agent) async fn remove(path: String, recursive: bool) -> Result<(), RequestError> {
    on_disk(move || {
        check_path(&path)?;
        let file = Path::new(&path);
        if file.file_name().is_none() {
            return Err(invalid(format_args!("`{path}` cannot be removed")));
        }
        let failed = |errno| refused("remove", &path, errno);
        match rustix::fs::unlinkat(CWD, &path, AtFlags::empty()) {
            Ok(()) => return Ok(()),
            // POSIX specifies EPERM for directories; Linux returns EISDIR.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(failed(errno)),
        }
        if recursive {
            return remove_tree(file).map_err(failed);
        }
        rustix::fs::unlinkat(CWD, &path, AtFlags::REMOVEDIR).map_err(|errno| match errno {
            Errno::EXIST => failed(Errno::NOTEMPTY),
            _ => failed(errno),
        })
    })
    .await
}

/// Removes a directory with its content.
pub(super) fn remove_tree(path: &Path) -> Result<(), Errno> {
    let root = open_directory(CWD, path)?;
    let mut attempts = 0;
    for _ in 0..ROUNDS_MAX {
        let moved_up = remove_content(&root)?;
        match rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if moved_up => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if attempts < ATTEMPTS_MAX => attempts += 1,
            other => return other,
        }
    }
    Err(Errno::NOTEMPTY)
}

struct Level {
    fd: OwnedFd,
    entries: Dir,
    name: CString,
}

/// Removes the content of `root`. Returns whether subtrees were moved up into it, for another round.
fn remove_content(root: &OwnedFd) -> Result<bool, Errno> {
    let mut moved_up = false;
    let mut levels = vec![Level::open(root.try_clone().map_err(|_| Errno::MFILE)?, CString::default())?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.entries.read() else {
            let done = levels.pop().expect("the loop's condition");
            if let Some(parent) = levels.last() {
                match rustix::fs::unlinkat(&parent.fd, &done.name, AtFlags::REMOVEDIR) {
                    // Another process added an entry meanwhile: the next attempt removes it.
                    Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
            }
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entry.file_type() != FileType::Directory {
            match rustix::fs::unlinkat(&level.fd, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(errno) => return Err(errno),
            }
        }
        let name = name.to_owned();
        if levels.len() == DEPTH_MAX {
            let deep = levels.last().expect("not empty");
            rustix::fs::renameat(&deep.fd, &name, root, format!(".burrow-{}", new_id()))?;
            moved_up = true;
            continue;
        }
        let parent = levels.last().expect("not empty");
        match open_directory(&parent.fd, &name) {
            Ok(fd) => levels.push(Level::open(fd, name)?),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(moved_up)
}

impl Level {
    fn open(fd: OwnedFd, name: CString) -> Result<Self, Errno> {
        let entries = Dir::read_from(&fd)?;
        Ok(Self { fd, entries, name })
    }
}

fn open_directory<P: rustix::path::Arg>(parent: impl std::os::fd::AsFd, name: P) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_is_removed_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let outside = directory.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "kept").unwrap();
        let tree = directory.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("link")).unwrap();
        let mut level = open_directory(CWD, &tree).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&level, "d", Mode::RWXU).unwrap();
            rustix::fs::symlinkat(&outside, &level, "l").unwrap();
            level = open_directory(&level, "d").unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(std::fs::read_to_string(outside.join("kept")).unwrap(), "kept");
    }
}
