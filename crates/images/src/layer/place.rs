//! Makes what entries describe: files, directories, links.
//!
//! Everything is made anew under its name, never opened and overwritten: what is there may have other names in lower
//! layers' files, or be a link to somewhere else. Only a directory upon a directory stays, with what is in it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::attributes::{self, Translated};
use super::path::EntryPath;
use super::tree::{Directory, Missing, Tree, timestamps};
use crate::ImageError;
use crate::entries::{Entry, Kind, Sparse};

/// What the kernel takes as a link's target.
const TARGET_BYTES_MAX: usize = 4095;

/// What placing one entry left out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dropped {
    pub(super) attributes: u64,
    pub(super) device: bool,
}

/// A place for one entry.
struct Place<'p> {
    path: &'p EntryPath,
    directory: Rc<Directory>,
    name: CString,
}

/// Takes the bytes of a file, in order, wherever they belong.
#[derive(Debug)]
pub(super) struct Content {
    file: File,
    shown: String,
    sparse: Option<Sparse>,
    /// Which piece of a sparse file, and how far in it.
    piece: usize,
    done: u64,
}

impl Tree<'_> {
    /// Makes everything but a file's content.
    pub(super) fn place(&mut self, path: &EntryPath, entry: &Entry) -> Result<Dropped, ImageError> {
        let Some(place) = self.find(path, Missing::Make)? else {
            return match entry.kind {
                Kind::Directory => self.root_directory(path, entry),
                Kind::File | Kind::Symlink { .. } | Kind::HardLink { .. } | Kind::Fifo | Kind::Device => {
                    Err(refused(path, "only a directory can be the root"))
                }
            };
        };
        let failed = |error| failed(path, error);
        let mut dropped = Dropped::default();
        match &entry.kind {
            Kind::Directory => dropped.attributes = self.make_directory(&place, entry)?,
            Kind::Symlink { target } => self.symlink(&place, target, entry)?,
            Kind::HardLink { target } => self.hard_link(&place, target)?,
            Kind::Fifo => {
                self.replace(&place, |directory, name| {
                    rustix::fs::mknodat(directory, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
                })
                .map_err(failed)?;
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(&place.directory.fd, &place.name, flags, Mode::empty());
                let fd = fd.map_err(failed)?;
                dropped.attributes = self.finish(&place, fd.as_fd(), entry)?;
            }
            Kind::Device => {
                // It would have hidden what is there.
                self.remove(&place.directory, &place.name).map_err(failed)?;
                dropped.device = true;
            }
            Kind::File => unreachable!("files are made by `file`"),
        }
        self.touch(&place.directory, &place.name);
        Ok(dropped)
    }

    /// Makes a file, lets `write` fill it, and gives it owner, mode, attributes and time.
    pub(super) fn file(
        &mut self,
        path: &EntryPath,
        entry: &mut Entry,
        write: impl FnOnce(&mut Content) -> Result<(), ImageError>,
    ) -> Result<Dropped, ImageError> {
        let place = self
            .find(path, Missing::Make)?
            .ok_or_else(|| refused(path, "only a directory can be the root"))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd: OwnedFd = self
            .replace(&place, |directory, name| {
                rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))
            })
            .map_err(|error| failed(path, error))?;
        let shown = shown(path.as_bytes());
        let mut content = Content { file: fd.into(), shown, sparse: entry.sparse.take(), piece: 0, done: 0 };
        write(&mut content)?;
        content.end()?;
        let attributes = self.finish(&place, content.file.as_fd(), entry)?;
        self.touch(&place.directory, &place.name);
        Ok(Dropped { attributes, device: false })
    }

    /// Makes a socket that nobody listens at.
    pub(super) fn socket(&mut self, path: &EntryPath, entry: &Entry) -> Result<(), ImageError> {
        let place = self
            .find(path, Missing::Make)?
            .ok_or_else(|| refused(path, "only a directory can be the root"))?;
        let failed = |error| failed(path, error);
        self.replace(&place, |directory, name| {
            rustix::fs::mknodat(directory, name, FileType::Socket, Mode::from_raw_mode(0o600), 0)
        })
        .map_err(failed)?;
        let (uid, gid) = self.owner(path, entry)?;
        let (fd, name) = (&place.directory.fd, &place.name);
        rustix::fs::chownat(fd, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        rustix::fs::chmodat(fd, name, Mode::from_raw_mode(entry.mode), AtFlags::empty()).map_err(failed)?;
        rustix::fs::utimensat(fd, name, &timestamps(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed)?;
        self.touch(&place.directory, &place.name);
        Ok(())
    }

    /// Removes what is there, with all in it.
    pub(super) fn remove_path(&mut self, path: &EntryPath) -> Result<(), ImageError> {
        match self.find(path, Missing::Leave)? {
            Some(place) => self.remove(&place.directory, &place.name).map_err(|error| failed(path, error)),
            None => Err(refused(path, "the root stays")),
        }
    }

    /// Applies a whiteout. Where there is nothing, it hides nothing.
    pub(super) fn whiteout(&mut self, path: &EntryPath) -> Result<(), ImageError> {
        let Some((parent, name)) = path.split() else { return Ok(()) };
        match self.directory(parent, Missing::Leave) {
            Ok(Some(directory)) => self.hide(&directory, &name).map_err(|error| failed(path, error)),
            Ok(None) | Err(Errno::NOTDIR) => Ok(()),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Applies an opaque whiteout.
    pub(super) fn opaque(&mut self, path: &EntryPath) -> Result<(), ImageError> {
        match self.directory(path.as_bytes(), Missing::Leave) {
            Ok(Some(directory)) => self.hide_all(&directory).map_err(|error| failed(path, error)),
            Ok(None) | Err(Errno::NOTDIR) => Ok(()),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// `None` for the root, which lies in nothing.
    fn find<'p>(&mut self, path: &'p EntryPath, missing: Missing) -> Result<Option<Place<'p>>, ImageError> {
        let Some((parent, name)) = path.split() else { return Ok(None) };
        match self.directory(parent, missing) {
            Ok(Some(directory)) => Ok(Some(Place { path, directory, name })),
            Ok(None) => Err(refused(path, "its directory does not exist")),
            Err(Errno::NOTDIR) => Err(refused(path, "it lies in something that is no directory")),
            Err(Errno::LOOP) => Err(refused(path, "it lies behind links that lead in circles")),
            Err(Errno::XDEV) => Err(refused(path, "it lies on another file system")),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Makes something where nothing is, or after removing what is.
    fn replace<T>(
        &mut self,
        place: &Place<'_>,
        make: impl Fn(BorrowedFd<'_>, &CStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match make(place.directory.fd.as_fd(), &place.name) {
            Err(Errno::EXIST) => {
                self.remove(&place.directory, &place.name)?;
                make(place.directory.fd.as_fd(), &place.name)
            }
            result => result,
        }
    }

    fn make_directory(&mut self, place: &Place<'_>, entry: &Entry) -> Result<u64, ImageError> {
        let failed = |error| failed(place.path, error);
        let open = |place: &Place<'_>| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&place.directory.fd, &place.name, flags, Mode::empty())
        };
        let make = |directory: BorrowedFd<'_>, name: &CStr| rustix::fs::mkdirat(directory, name, Mode::RWXU);
        let fd = match make(place.directory.fd.as_fd(), &place.name) {
            Ok(()) => open(place).map_err(failed)?,
            Err(Errno::EXIST) => match open(place) {
                Ok(existing) => {
                    attributes::clear(existing.as_fd()).map_err(failed)?;
                    // It may not bequeath any more what it did, or begin to.
                    self.forget_last();
                    existing
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    self.replace(place, make).map_err(failed)?;
                    open(place).map_err(failed)?
                }
                Err(error) => return Err(failed(error)),
            },
            Err(error) => return Err(failed(error)),
        };
        let dropped = self.finish(place, fd.as_fd(), entry)?;
        let inode = rustix::fs::fstat(&fd).map_err(failed)?.st_ino;
        self.set_time(inode, place.path.as_bytes(), entry.mtime);
        Ok(dropped)
    }

    fn root_directory(&mut self, path: &EntryPath, entry: &Entry) -> Result<Dropped, ImageError> {
        let directory = self.directory(b"", Missing::Make).map_err(|error| failed(path, error))?;
        let directory = directory.expect("the root is never missing");
        attributes::clear(directory.fd.as_fd()).map_err(|error| failed(path, error))?;
        self.forget_last();
        let place = Place { path, directory: Rc::clone(&directory), name: CString::default() };
        let attributes = self.finish(&place, directory.fd.as_fd(), entry)?;
        self.set_time(directory.inode, b"", entry.mtime);
        Ok(Dropped { attributes, device: false })
    }

    fn symlink(&mut self, place: &Place<'_>, target: &[u8], entry: &Entry) -> Result<(), ImageError> {
        let failed = |error| failed(place.path, error);
        if target.contains(&0) || target.len() > TARGET_BYTES_MAX {
            return Err(refused(place.path, "its target is too long or holds a zero byte"));
        }
        self.replace(place, |directory, name| rustix::fs::symlinkat(target, directory, name))
            .map_err(failed)?;
        let (uid, gid) = self.owner(place.path, entry)?;
        let (fd, name) = (&place.directory.fd, &place.name);
        rustix::fs::chownat(fd, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        rustix::fs::utimensat(fd, name, &timestamps(entry.mtime), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
    }

    /// Another name for what is there already, in this layer or below. A link is not followed: it gets the name itself.
    fn hard_link(&mut self, place: &Place<'_>, target: &[u8]) -> Result<(), ImageError> {
        let from = EntryPath::parse(target).map_err(|_| refused(place.path, "its target leads elsewhere"))?;
        let from = self.find(&from, Missing::Leave)?.map(|from| (from.directory, from.name));
        let (from, from_name) = from.ok_or_else(|| refused(place.path, "a directory has one name only"))?;
        if from.inode == place.directory.inode && from_name == place.name {
            return Ok(());
        }
        let linked = self.replace(place, |directory, name| {
            rustix::fs::linkat(&from.fd, &from_name, directory, name, AtFlags::empty())
        });
        linked.map_err(|error| match error {
            Errno::NOENT => refused(place.path, "it is another name for what does not exist"),
            Errno::PERM => refused(place.path, "it is another name for a directory"),
            error => failed(place.path, error),
        })
    }

    /// Owner, mode, attributes and time, in the order in which none undoes another. Answers the attributes dropped.
    fn finish(&self, place: &Place<'_>, fd: BorrowedFd<'_>, entry: &Entry) -> Result<u64, ImageError> {
        let failed = |error| failed(place.path, error);
        let (uid, gid) = self.owner(place.path, entry)?;
        rustix::fs::fchown(fd, Some(uid), Some(gid)).map_err(failed)?;
        if place.directory.bequeaths {
            attributes::clear(fd).map_err(failed)?;
        }
        rustix::fs::fchmod(fd, Mode::from_raw_mode(entry.mode)).map_err(failed)?;
        let mut dropped = entry.attributes_unread;
        for (name, value) in &entry.attributes {
            let kept = match attributes::translate(name, value, self.shift) {
                Translated::Keep(value) => attributes::set(fd, name, &value).map_err(failed)?,
                Translated::Drop => false,
                Translated::Refuse(reason) => return Err(refused(place.path, reason)),
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

impl Content {
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

    /// Bytes wherever they belong; for files whose size is set in the end.
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
