//! Packs a directory as one layer, in sorted order, so that the same tree always gives the same bytes.
//!
//! Works by descriptor and follows no link. Directories of other file systems are packed empty; device nodes and
//! sockets are left out; files with several links are packed once, and as hard links for the other names.

use std::collections::HashMap;
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use ::tar::EntryType;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::header::{self, Entry};
use crate::ImageError;
use crate::entries::{NAME_BYTES_MAX, Time};
use crate::layer::attributes::{self, Shift, Translation};

/// Directories open at once. Layers of this crate cannot contain deeper ones either.
const DEPTH_MAX: usize = 256;

/// Files with several links that are remembered; further ones are packed once for each name.
const HARD_LINKS_MAX: usize = 1_000_000;

const PIECE_BYTES: usize = 256 * 1024;

/// A name with this prefix would be read as a whiteout.
const WHITEOUT: &[u8] = b".wh.";

pub(super) struct Packer<'a> {
    pub(super) shift: Shift,
    pub(super) cancelled: &'a AtomicBool,
    out: &'a mut dyn Write,
    device: u64,
    /// The first names of files with several links, by inode.
    hard_links: HashMap<u64, Vec<u8>>,
    piece: Vec<u8>,
    /// The current directory, with a slash at the end.
    name: Vec<u8>,
    pub(super) entries: u64,
    pub(super) dropped: u64,
}

impl<'a> Packer<'a> {
    pub(super) fn new(out: &'a mut dyn Write, shift: Shift, cancelled: &'a AtomicBool) -> Self {
        Self {
            shift,
            cancelled,
            out,
            device: 0,
            hard_links: HashMap::new(),
            piece: vec![0; PIECE_BYTES],
            name: Vec::new(),
            entries: 0,
            dropped: 0,
        }
    }

    pub(super) fn pack(&mut self, root: BorrowedFd<'_>) -> Result<(), ImageError> {
        let open = || -> io::Result<(OwnedFd, Stat)> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::openat(root, ".", flags, Mode::empty())?;
            let found = rustix::fs::fstat(&root)?;
            Ok((root, found))
        };
        let (root, found) = open().map_err(|error| self.failed(error))?;
        self.device = found.st_dev;
        self.name = b"./".to_vec();
        let attributes = self.attributes(root.as_fd()).map_err(|error| self.failed(error))?;
        self.put(EntryType::Directory, None, &found, 0, &attributes)?;
        self.name.clear();
        self.directory(&root, 0)?;
        header::end(self.out).map_err(|error| self.failed(error))
    }

    fn directory(&mut self, directory: &OwnedFd, depth: usize) -> Result<(), ImageError> {
        let mut names = children(directory).map_err(|error| self.failed(error))?;
        names.sort();
        let length = self.name.len();
        for name in names {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(ImageError::Cancelled);
            }
            self.name.truncate(length);
            self.name.extend_from_slice(name.as_bytes());
            if name.as_bytes().starts_with(WHITEOUT) {
                return Err(self.refused("its name would be read as a whiteout"));
            }
            if self.name.len() > NAME_BYTES_MAX {
                return Err(self.refused("its path is too long"));
            }
            self.entry(directory, &name, depth)?;
        }
        self.name.truncate(length);
        Ok(())
    }

    fn entry(&mut self, directory: &OwnedFd, name: &CString, depth: usize) -> Result<(), ImageError> {
        let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.failed(error))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => self.subdirectory(directory, name, depth),
            FileType::RegularFile => {
                if self.try_hard_link(&found)? {
                    return Ok(());
                }
                self.file(directory, name)
            }
            FileType::Symlink => {
                if self.try_hard_link(&found)? {
                    return Ok(());
                }
                let target = rustix::fs::readlinkat(directory, name, Vec::new())
                    .map_err(|error| self.failed(error))?;
                self.put(EntryType::Symlink, Some(target.as_bytes()), &found, 0, &[])
            }
            FileType::Fifo => {
                if self.try_hard_link(&found)? {
                    return Ok(());
                }
                self.put(EntryType::Fifo, None, &found, 0, &[])
            }
            FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                self.dropped += 1;
                Ok(())
            }
        }
    }

    fn subdirectory(&mut self, directory: &OwnedFd, name: &CString, depth: usize) -> Result<(), ImageError> {
        if depth == DEPTH_MAX {
            return Err(self.refused("it is nested too deeply"));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside =
            rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(|error| self.failed(error))?;
        let found = rustix::fs::fstat(&inside).map_err(|error| self.failed(error))?;
        self.name.push(b'/');
        let attributes = self.attributes(inside.as_fd()).map_err(|error| self.failed(error))?;
        self.put(EntryType::Directory, None, &found, 0, &attributes)?;
        if found.st_dev != self.device {
            return Ok(());
        }
        self.directory(&inside, depth + 1)
    }

    fn file(&mut self, directory: &OwnedFd, name: &CString) -> Result<(), ImageError> {
        let open = || -> io::Result<(std::fs::File, Stat)> {
            let flags =
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            // Read again, of the file that was opened.
            let found = rustix::fs::fstat(&file)?;
            Ok((file.into(), found))
        };
        let (mut file, found) = open().map_err(|error| self.failed(error))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(self.refused("it changed while it was packed"));
        }
        let attributes = self.attributes(file.as_fd()).map_err(|error| self.failed(error))?;
        let size = u64::try_from(found.st_size).unwrap_or(0);
        self.put(EntryType::Regular, None, &found, size, &attributes)?;
        let mut rest = size;
        while rest > 0 {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(ImageError::Cancelled);
            }
            let wanted = self.piece.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            let count = match file.read(&mut self.piece[..wanted]) {
                Ok(0) => return Err(self.refused("it changed while it was packed")),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(error)),
            };
            self.out.write_all(&self.piece[..count]).map_err(|error| self.failed(error))?;
            rest -= count as u64;
        }
        header::pad(self.out, size).map_err(|error| self.failed(error))
    }

    /// Whether this is another name of a file that was packed before; if so, packs a hard link.
    fn try_hard_link(&mut self, found: &Stat) -> Result<bool, ImageError> {
        if found.st_nlink < 2 {
            return Ok(false);
        }
        if let Some(first) = self.hard_links.get(&found.st_ino).cloned() {
            self.put(EntryType::Link, Some(&first), found, 0, &[])?;
            return Ok(true);
        }
        if self.hard_links.len() < HARD_LINKS_MAX {
            self.hard_links.insert(found.st_ino, self.name.clone());
        }
        Ok(false)
    }

    fn put(
        &mut self,
        kind: EntryType,
        link: Option<&[u8]>,
        found: &Stat,
        size: u64,
        attributes: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), ImageError> {
        self.entries += 1;
        let id = |id: u32| self.shift.id(u64::from(id)).expect("every host id maps to an id inside");
        let nanoseconds = u32::try_from(found.st_mtime_nsec).unwrap_or(0);
        let entry = Entry {
            kind,
            name: &self.name,
            link,
            mode: found.st_mode & 0o7777,
            uid: id(found.st_uid),
            gid: id(found.st_gid),
            size,
            mtime: Time { seconds: found.st_mtime, nanoseconds },
            attributes,
        };
        entry.write(self.out).map_err(|error| self.failed(error))
    }

    /// Sorted, and translated to their form outside of a sandbox.
    fn attributes(&self, file: BorrowedFd<'_>) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut kept = Vec::new();
        for name in attributes::names(file)? {
            match attributes::translate(name.as_bytes(), &attributes::value(file, &name)?, self.shift) {
                Translation::Keep(value) => kept.push((name.into_bytes(), value)),
                Translation::Drop | Translation::Refuse(_) => {}
            }
        }
        kept.sort();
        Ok(kept)
    }

    fn shown(&self) -> String {
        crate::error::shortened(&String::from_utf8_lossy(&self.name))
    }

    fn failed(&self, error: impl Into<io::Error>) -> ImageError {
        ImageError::Pack { path: self.shown(), source: error.into() }
    }

    fn refused(&self, reason: &'static str) -> ImageError {
        ImageError::Unpackable { path: self.shown(), reason }
    }
}

fn children(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}
