//! The digest of the files that a step copies.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::{Digest, Hasher, ImageError};

/// Files of one copy step.
const ENTRIES_MAX: u64 = 1_000_000;

/// Directories open at once.
const DEPTH_MAX: usize = 256;

const PIECE_BYTES: usize = 256 * 1024;

/// The digest of a file or tree: names, modes, links and content, but not times or owners. No link is followed.
///
/// `from` is resolved beneath `context`, as [`super::Copy::from`] says.
pub fn content_hash(context: &Path, from: &str) -> Result<Digest, ImageError> {
    let mut walk = Walk { hasher: Hasher::default(), entries: 0, piece: vec![0; PIECE_BYTES] };
    walk.start(context, from).map_err(ImageError::io("read", context.join(from).display()))?;
    Ok(walk.hasher.finish())
}

struct Walk {
    hasher: Hasher,
    entries: u64,
    piece: Vec<u8>,
}

impl Walk {
    fn start(&mut self, context: &Path, from: &str) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let context = rustix::fs::open(context, flags, Mode::empty())?;
        let trimmed = from.trim_matches('/');
        let (parent, name) = trimmed.rsplit_once('/').unwrap_or((".", trimmed));
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let parent = rustix::fs::openat2(&context, parent, flags, Mode::empty(), beneath)?;
        if matches!(name, "" | ".") {
            return self.directory(&parent, c".", 0);
        }
        self.entry(&parent, &CString::new(name)?, 0)
    }

    fn entry(&mut self, parent: &OwnedFd, name: &CString, depth: usize) -> io::Result<()> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(io::Error::other("more than a million files"));
        }
        let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = found.st_mode & 0o7777;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                self.mark(b'd', mode);
                self.directory(parent, name, depth)
            }
            FileType::Symlink => {
                self.mark(b'l', 0);
                let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
                self.field(target.as_bytes());
                Ok(())
            }
            FileType::RegularFile => {
                self.mark(b'f', mode);
                self.file(parent, name)
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(io::Error::other(format!(
                "`{}` is neither a file nor a directory nor a link",
                name.to_string_lossy()
            ))),
        }
    }

    fn directory(&mut self, parent: &OwnedFd, name: &std::ffi::CStr, depth: usize) -> io::Result<()> {
        if depth == DEPTH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        names.sort();
        self.field(&(names.len() as u64).to_le_bytes());
        for name in names {
            self.field(name.as_bytes());
            self.entry(&directory, &name, depth + 1)?;
        }
        Ok(())
    }

    fn file(&mut self, parent: &OwnedFd, name: &CString) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut file = std::fs::File::from(rustix::fs::openat(parent, name, flags, Mode::empty())?);
        let mut inner = Hasher::default();
        loop {
            match file.read(&mut self.piece) {
                Ok(0) => break,
                Ok(count) => inner.update(&self.piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.hasher.update(inner.finish().as_bytes());
        Ok(())
    }

    fn mark(&mut self, kind: u8, mode: u32) {
        self.hasher.update(&[kind]);
        self.hasher.update(&mode.to_le_bytes());
    }

    fn field(&mut self, bytes: &[u8]) {
        self.hasher.update(&(bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
    }
}
