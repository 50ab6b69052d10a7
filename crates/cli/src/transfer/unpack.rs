//! Unpacks an archive from a sandbox, which may be hostile.
//!
//! Everything is written below one new directory, through directory handles, without following symbolic links. An
//! archive with absolute paths, `..`, entries below a link, devices, or duplicate names is rejected as a whole; the
//! parts that were unpacked are in a temporary directory and are deleted with it. Links themselves are kept: they are
//! only text until they are followed. Set-user-id bits and owners are not kept.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawMode, Timespec, Timestamps, UTIME_OMIT, fchmod, futimens, linkat,
    mkdirat, openat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::archive_reader::{self, ArchiveError, Head, Kind};

/// Maximum depth of directories. The deepest common trees (node_modules) reach a tenth of it.
const DEPTH_MAX: usize = 256;

/// A directory whose permission bits are set last, since a read-only directory could not be filled.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: Vec<u8>,
    mode: u32,
    modified: Option<u64>,
}

impl Directory {
    /// The destination directory itself.
    pub(crate) fn root(mode: u32) -> Self {
        Self { path: Vec::new(), mode, modified: None }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.path.is_empty()
    }
}

/// What was unpacked.
#[derive(Debug, Default)]
pub(crate) struct UnpackReport {
    pub(crate) entries: u64,
    pub(crate) directories: Vec<Directory>,
}

/// Unpacks below `root`, an empty directory.
pub(crate) fn unpack(archive: impl Read, root: BorrowedFd<'_>) -> Result<UnpackReport, ArchiveError> {
    let mut unpacker = Unpacker { root, done: UnpackReport::default() };
    archive_reader::read(archive, |head, content| unpacker.entry(&head, content))?;
    Ok(unpacker.done)
}

struct Unpacker<'a> {
    root: BorrowedFd<'a>,
    done: UnpackReport,
}

impl Unpacker<'_> {
    fn entry(&mut self, head: &Head, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let parts = Self::parts(head, &head.path)?;
        self.done.entries += 1;
        let Some((name, parents)) = parts.split_last() else {
            // The destination directory itself.
            return self.root_entry(head);
        };
        let parent = self.walk(head, parents)?;
        match &head.kind {
            Kind::File => file(head, &parent, name, content),
            Kind::Directory => {
                directory(&parent, name).map_err(|error| failed(head, error))?;
                self.done.directories.push(Directory {
                    path: parts.join(&b'/'),
                    mode: head.mode,
                    modified: Some(head.modified),
                });
                Ok(())
            }
            Kind::Symlink { target } => {
                symlinkat(os(target), &parent, os(name)).map_err(|error| failed(head, error))?;
                let _ = utimensat(&parent, os(name), &times(head.modified), AtFlags::SYMLINK_NOFOLLOW);
                Ok(())
            }
            Kind::Hardlink { target } => self.hardlink(head, target, &parent, name),
        }
    }

    fn root_entry(&mut self, head: &Head) -> Result<(), ArchiveError> {
        if head.kind != Kind::Directory {
            return Err(refused(head, "it would replace the destination directory"));
        }
        self.done.directories.push(Directory {
            path: Vec::new(),
            mode: head.mode,
            modified: Some(head.modified),
        });
        Ok(())
    }

    /// The parts of a path, which must stay below the root.
    fn parts<'p>(head: &Head, path: &'p [u8]) -> Result<Vec<&'p [u8]>, ArchiveError> {
        if path.first() == Some(&b'/') {
            return Err(refused(head, "its path is absolute"));
        }
        if path.contains(&0) {
            return Err(refused(head, "its path contains a NUL byte"));
        }
        let parts: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        if parts.contains(&b"..".as_slice()) {
            return Err(refused(head, "its path is outside of the directory"));
        }
        if parts.len() > DEPTH_MAX {
            return Err(refused(head, "its path is too deep"));
        }
        Ok(parts)
    }

    /// Opens a directory below the root, creating missing ones. A link in the path is an attack.
    fn walk(&self, head: &Head, parts: &[&[u8]]) -> Result<OwnedFd, ArchiveError> {
        let mut at = open_directory(self.root, b".").map_err(|error| failed(head, error))?;
        for part in parts {
            at = match open_directory(at.as_fd(), part) {
                Ok(next) => next,
                Err(Errno::NOENT) => {
                    mkdirat(&at, os(part), Mode::RWXU).map_err(|error| failed(head, error))?;
                    open_directory(at.as_fd(), part).map_err(|error| failed(head, error))?
                }
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    return Err(refused(head, "its parent is not a directory"));
                }
                Err(error) => return Err(failed(head, error)),
            };
        }
        Ok(at)
    }

    fn hardlink(
        &self,
        head: &Head,
        target: &[u8],
        parent: &OwnedFd,
        name: &[u8],
    ) -> Result<(), ArchiveError> {
        let parts = Self::parts(head, target)?;
        let Some((target_name, target_parents)) = parts.split_last() else {
            return Err(refused(head, "a link to a directory"));
        };
        let target_parent = self.walk(head, target_parents)?;
        let found = statat(&target_parent, os(target_name), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|_| refused(head, "a link to a missing entry"))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(refused(head, "a link to an entry that is not a file"));
        }
        linkat(&target_parent, os(target_name), parent, os(name), AtFlags::empty())
            .map_err(|error| failed(head, error))
    }
}

fn file(head: &Head, parent: &OwnedFd, name: &[u8], content: &mut dyn Read) -> Result<(), ArchiveError> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let created =
        openat(parent, os(name), flags, Mode::RUSR | Mode::WUSR).map_err(|error| failed(head, error))?;
    let mut file = File::from(created);
    io::copy(content, &mut file).map_err(|error| ArchiveError::Write { path: head.shown(), error })?;
    fchmod(&file, permissions(head.mode)).map_err(|error| failed(head, error))?;
    let _ = futimens(&file, &times(head.modified));
    Ok(())
}

fn directory(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match mkdirat(parent, os(name), Mode::RWXU) {
        // It was created for an entry in it, or is listed twice.
        Err(Errno::EXIST) => open_directory(parent.as_fd(), name).map(drop),
        result => result,
    }
}

pub(crate) fn open_directory(at: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, os(name), flags, Mode::empty())
}

/// Sets the bits and times of directories, the inner ones first.
pub(crate) fn finish_directories(
    root: BorrowedFd<'_>,
    directories: &[Directory],
) -> Result<(), ArchiveError> {
    for directory in directories.iter().rev() {
        let shown = || String::from_utf8_lossy(&directory.path).into_owned();
        let wrap = |error: Errno| ArchiveError::Write { path: shown(), error: error.into() };
        let mut at = open_directory(root, b".").map_err(wrap)?;
        for part in directory.path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            at = open_directory(at.as_fd(), part).map_err(wrap)?;
        }
        fchmod(&at, permissions(directory.mode)).map_err(wrap)?;
        if let Some(modified) = directory.modified {
            let _ = futimens(&at, &times(modified));
        }
    }
    Ok(())
}

/// Without set-user-id, set-group-id and sticky bits: a sandbox must not grant privileges on this host.
fn permissions(mode: u32) -> Mode {
    // A number of another size on other systems.
    Mode::from_raw_mode((mode & 0o777) as RawMode)
}

fn times(modified: u64) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: i64::try_from(modified).unwrap_or_default(), tv_nsec: 0 },
    }
}

fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

fn refused(head: &Head, why: &'static str) -> ArchiveError {
    ArchiveError::Refused { path: head.shown(), why }
}

fn failed(head: &Head, error: Errno) -> ArchiveError {
    match error {
        Errno::EXIST => refused(head, "it occurs twice"),
        Errno::LOOP | Errno::NOTDIR => refused(head, "its parent is not a directory"),
        _ => ArchiveError::Write { path: head.shown(), error: error.into() },
    }
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
