//! Creates the files, directories and links that entries describe.
//!
//! Everything is created new under its name, never opened and overwritten: an existing file may have other names in
//! lower layers, or be a link to another place. Only a directory on top of a directory is kept, with its content.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::attributes::{self, Translation};
use super::path::EntryPath;
use super::tree::{Directory, MissingParents, Tree, timestamps};
use crate::ImageError;
use crate::entries::{Entry, Kind, SparseMap};

/// The kernel's limit for the target of a link.
const TARGET_BYTES_MAX: usize = 4095;

/// What was left out of an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DroppedParts {
    pub(super) attributes: u64,
    pub(super) device: bool,
}

/// The parent directory and the name of an entry.
struct EntryLocation<'p> {
    path: &'p EntryPath,
    directory: Rc<Directory>,
    name: CString,
}

/// Writes the bytes of a file in order, to the positions where they belong.
#[derive(Debug)]
pub(super) struct ContentWriter {
    file: File,
    shown: String,
    sparse: Option<SparseMap>,
    /// The current piece of a sparse file, and the position in it.
    piece: usize,
    done: u64,
}

impl Tree<'_> {
    /// Creates everything except the content of a file.
    pub(super) fn create(&mut self, path: &EntryPath, entry: &Entry) -> Result<DroppedParts, ImageError> {
        let Some(location) = self.find(path, MissingParents::Make)? else {
            return match entry.kind {
                Kind::Directory => self.root_directory(path, entry),
                Kind::File | Kind::Symlink { .. } | Kind::HardLink { .. } | Kind::Fifo | Kind::Device => {
                    Err(refused(path, "only a directory can be the root"))
                }
            };
        };
        let failed = |error| failed(path, error);
        let mut dropped = DroppedParts::default();
        match &entry.kind {
            Kind::Directory => dropped.attributes = self.make_directory(&location, entry)?,
            Kind::Symlink { target } => self.symlink(&location, target, entry)?,
            Kind::HardLink { target } => self.hard_link(&location, target)?,
            Kind::Fifo => {
                self.replace(&location, |directory, name| {
                    rustix::fs::mknodat(directory, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
                })
                .map_err(failed)?;
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(&location.directory.fd, &location.name, flags, Mode::empty());
                let fd = fd.map_err(failed)?;
                dropped.attributes = self.finish(&location, fd.as_fd(), entry)?;
            }
            Kind::Device => {
                // The entry would have hidden the existing file.
                self.remove(&location.directory, &location.name).map_err(failed)?;
                dropped.device = true;
            }
            Kind::File => unreachable!("files are made by `file`"),
        }
        self.touch(&location.directory, &location.name);
        Ok(dropped)
    }

    /// Creates a file, calls `write` to fill it, and sets owner, mode, attributes and time.
    pub(super) fn file(
        &mut self,
        path: &EntryPath,
        entry: &mut Entry,
        write: impl FnOnce(&mut ContentWriter) -> Result<(), ImageError>,
    ) -> Result<DroppedParts, ImageError> {
        let location = self
            .find(path, MissingParents::Make)?
            .ok_or_else(|| refused(path, "only a directory can be the root"))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd: OwnedFd = self
            .replace(&location, |directory, name| {
                rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))
            })
            .map_err(|error| failed(path, error))?;
        let shown = shown(path.as_bytes());
        let mut content =
            ContentWriter { file: fd.into(), shown, sparse: entry.sparse.take(), piece: 0, done: 0 };
        write(&mut content)?;
        content.end()?;
        let attributes = self.finish(&location, content.file.as_fd(), entry)?;
        self.touch(&location.directory, &location.name);
        Ok(DroppedParts { attributes, device: false })
    }

    /// Creates a socket without a listener.
    pub(super) fn socket(&mut self, path: &EntryPath, entry: &Entry) -> Result<(), ImageError> {
        let location = self
            .find(path, MissingParents::Make)?
            .ok_or_else(|| refused(path, "only a directory can be the root"))?;
        let failed = |error| failed(path, error);
        self.replace(&location, |directory, name| {
            rustix::fs::mknodat(directory, name, FileType::Socket, Mode::from_raw_mode(0o600), 0)
        })
        .map_err(failed)?;
        let (uid, gid) = self.owner(path, entry)?;
        let (fd, name) = (&location.directory.fd, &location.name);
        rustix::fs::chownat(fd, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        rustix::fs::chmodat(fd, name, Mode::from_raw_mode(entry.mode), AtFlags::empty()).map_err(failed)?;
        rustix::fs::utimensat(fd, name, &timestamps(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed)?;
        self.touch(&location.directory, &location.name);
        Ok(())
    }

    /// Removes an existing path with its content.
    pub(super) fn remove_path(&mut self, path: &EntryPath) -> Result<(), ImageError> {
        match self.find(path, MissingParents::Leave)? {
            Some(location) => {
                self.remove(&location.directory, &location.name).map_err(|error| failed(path, error))
            }
            None => Err(refused(path, "the root cannot be removed")),
        }
    }

    /// Applies a whiteout. It has no effect if nothing exists there.
    pub(super) fn whiteout(&mut self, path: &EntryPath) -> Result<(), ImageError> {
        let Some((parent, name)) = path.split() else { return Ok(()) };
        match self.directory(parent, MissingParents::Leave) {
            Ok(Some(directory)) => self.hide(&directory, &name).map_err(|error| failed(path, error)),
            Ok(None) | Err(Errno::NOTDIR) => Ok(()),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Applies an opaque whiteout.
    pub(super) fn opaque(&mut self, path: &EntryPath) -> Result<(), ImageError> {
        match self.directory(path.as_bytes(), MissingParents::Leave) {
            Ok(Some(directory)) => self.hide_all(&directory).map_err(|error| failed(path, error)),
            Ok(None) | Err(Errno::NOTDIR) => Ok(()),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Returns `None` for the root, which has no parent.
    fn find<'p>(
        &mut self,
        path: &'p EntryPath,
        missing: MissingParents,
    ) -> Result<Option<EntryLocation<'p>>, ImageError> {
        let Some((parent, name)) = path.split() else { return Ok(None) };
        match self.directory(parent, missing) {
            Ok(Some(directory)) => Ok(Some(EntryLocation { path, directory, name })),
            Ok(None) => Err(refused(path, "its directory does not exist")),
            Err(Errno::NOTDIR) => Err(refused(path, "its parent is not a directory")),
            Err(Errno::LOOP) => Err(refused(path, "its path has too many levels of symbolic links")),
            Err(Errno::XDEV) => Err(refused(path, "its path crosses to another file system")),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Creates an entry, after removing an existing one if necessary.
    fn replace<T>(
        &mut self,
        location: &EntryLocation<'_>,
        make: impl Fn(BorrowedFd<'_>, &CStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match make(location.directory.fd.as_fd(), &location.name) {
            Err(Errno::EXIST) => {
                self.remove(&location.directory, &location.name)?;
                make(location.directory.fd.as_fd(), &location.name)
            }
            result => result,
        }
    }

    fn make_directory(&mut self, location: &EntryLocation<'_>, entry: &Entry) -> Result<u64, ImageError> {
        let failed = |error| failed(location.path, error);
        let open = |location: &EntryLocation<'_>| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&location.directory.fd, &location.name, flags, Mode::empty())
        };
        let make = |directory: BorrowedFd<'_>, name: &CStr| rustix::fs::mkdirat(directory, name, Mode::RWXU);
        let fd = match make(location.directory.fd.as_fd(), &location.name) {
            Ok(()) => open(location).map_err(failed)?,
            Err(Errno::EXIST) => match open(location) {
                Ok(existing) => {
                    attributes::clear(existing.as_fd()).map_err(failed)?;
                    // Whether entries inherit an access control list from it may have changed.
                    self.forget_last();
                    existing
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    self.replace(location, make).map_err(failed)?;
                    open(location).map_err(failed)?
                }
                Err(error) => return Err(failed(error)),
            },
            Err(error) => return Err(failed(error)),
        };
        let dropped = self.finish(location, fd.as_fd(), entry)?;
        let inode = rustix::fs::fstat(&fd).map_err(failed)?.st_ino;
        self.set_time(inode, location.path.as_bytes(), entry.mtime);
        Ok(dropped)
    }

    fn root_directory(&mut self, path: &EntryPath, entry: &Entry) -> Result<DroppedParts, ImageError> {
        let directory = self.directory(b"", MissingParents::Make).map_err(|error| failed(path, error))?;
        let directory = directory.expect("the root is never missing");
        attributes::clear(directory.fd.as_fd()).map_err(|error| failed(path, error))?;
        self.forget_last();
        let location = EntryLocation { path, directory: Rc::clone(&directory), name: CString::default() };
        let attributes = self.finish(&location, directory.fd.as_fd(), entry)?;
        self.set_time(directory.inode, b"", entry.mtime);
        Ok(DroppedParts { attributes, device: false })
    }

    fn symlink(
        &mut self,
        location: &EntryLocation<'_>,
        target: &[u8],
        entry: &Entry,
    ) -> Result<(), ImageError> {
        let failed = |error| failed(location.path, error);
        if target.contains(&0) || target.len() > TARGET_BYTES_MAX {
            return Err(refused(location.path, "its target is too long or contains a NUL byte"));
        }
        self.replace(location, |directory, name| rustix::fs::symlinkat(target, directory, name))
            .map_err(failed)?;
        let (uid, gid) = self.owner(location.path, entry)?;
        let (fd, name) = (&location.directory.fd, &location.name);
        rustix::fs::chownat(fd, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        rustix::fs::utimensat(fd, name, &timestamps(entry.mtime), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
    }

    /// Another name for an existing file, of this layer or below. A link is not followed: it gets the name itself.
    fn hard_link(&mut self, location: &EntryLocation<'_>, target: &[u8]) -> Result<(), ImageError> {
        let from = EntryPath::parse(target)
            .map_err(|_| refused(location.path, "its target is outside of the image"))?;
        let from = self.find(&from, MissingParents::Leave)?.map(|from| (from.directory, from.name));
        let (from, from_name) =
            from.ok_or_else(|| refused(location.path, "hard links to directories are not supported"))?;
        if from.inode == location.directory.inode && from_name == location.name {
            return Ok(());
        }
        let linked = self.replace(location, |directory, name| {
            rustix::fs::linkat(&from.fd, &from_name, directory, name, AtFlags::empty())
        });
        linked.map_err(|error| match error {
            Errno::NOENT => refused(location.path, "the target of the hard link does not exist"),
            Errno::PERM => refused(location.path, "the target of the hard link is a directory"),
            error => failed(location.path, error),
        })
    }

    /// Sets owner, mode, attributes and time, in an order in which none resets another. Returns the number of dropped
    /// attributes.
    fn finish(
        &self,
        location: &EntryLocation<'_>,
        fd: BorrowedFd<'_>,
        entry: &Entry,
    ) -> Result<u64, ImageError> {
        let failed = |error| failed(location.path, error);
        let (uid, gid) = self.owner(location.path, entry)?;
        rustix::fs::fchown(fd, Some(uid), Some(gid)).map_err(failed)?;
        if location.directory.has_default_acl {
            attributes::clear(fd).map_err(failed)?;
        }
        rustix::fs::fchmod(fd, Mode::from_raw_mode(entry.mode)).map_err(failed)?;
        let mut dropped = entry.attributes_unread;
        for (name, value) in &entry.attributes {
            let kept = match attributes::translate(name, value, self.shift) {
                Translation::Keep(value) => attributes::set(fd, name, &value).map_err(failed)?,
                Translation::Drop => false,
                Translation::Refuse(reason) => return Err(refused(location.path, reason)),
            };
            dropped += u64::from(!kept);
        }
        rustix::fs::futimens(fd, &timestamps(entry.mtime)).map_err(failed)?;
        Ok(dropped)
    }

    fn owner(&self, path: &EntryPath, entry: &Entry) -> Result<(Uid, Gid), ImageError> {
        let shifted = |id: u64| {
            self.shift.id(id).ok_or_else(|| ImageError::Owner {
                path: shown(path.as_bytes()),
                id,
                limit: self.shift.count(),
            })
        };
        Ok((Uid::from_raw(shifted(entry.uid)?), Gid::from_raw(shifted(entry.gid)?)))
    }
}

impl ContentWriter {
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), ImageError> {
        let failed = |shown: &str, source| ImageError::Place { path: shown.to_owned(), source };
        let Some(sparse) = &self.sparse else {
            return std::io::Write::write_all(&mut self.file, bytes).map_err(|e| failed(&self.shown, e));
        };
        while !bytes.is_empty() {
            let (offset, length) = *sparse.pieces.get(self.piece).expect("the map covers the content");
            let room = usize::try_from(length - self.done).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.file.write_all_at(now, offset + self.done).map_err(|e| failed(&self.shown, e))?;
            self.done += now.len() as u64;
            if self.done == length {
                self.piece += 1;
                self.done = 0;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Writes bytes at an offset; for files whose size is set at the end.
    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    pub(super) fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn end(&mut self) -> Result<(), ImageError> {
        let Some(sparse) = &self.sparse else { return Ok(()) };
        let path = self.shown.clone();
        self.file.set_len(sparse.size).map_err(|source| ImageError::Place { path, source })
    }
}

pub(super) fn shown(name: &[u8]) -> String {
    crate::error::shortened(&String::from_utf8_lossy(name))
}

fn refused(path: &EntryPath, reason: &'static str) -> ImageError {
    ImageError::Entry { path: shown(path.as_bytes()), reason }
}

fn failed(path: &EntryPath, error: Errno) -> ImageError {
    ImageError::Place { path: shown(path.as_bytes()), source: error.into() }
}
