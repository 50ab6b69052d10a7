//! Packs a file or a directory.
//!
//! The entries of a directory are named relative to it, with `./` first for the directory itself; a single file is
//! one entry with its own name. The format is GNU's: names and links of any length and any bytes. Mounts below the
//! directory, sockets, FIFOs and devices are left out.

use std::collections::HashMap;
use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tar::{EntryType, Header};

use super::PIECE_BYTES;

const BLOCK_BYTES: usize = 512;

/// Directories open at once. A deeper tree cannot be packed, and no path could name the files in it anyway.
const DEPTH_MAX: usize = 1024;

/// Files with several links that are remembered; further ones are packed once for each name.
const HARD_LINKS_MAX: usize = 65_536;

pub(super) struct Packer {
    root: OwnedFd,
    stat: Stat,
    name: Vec<u8>,
    hard_links: HashMap<(u64, u64), Vec<u8>>,
    buffer: Vec<u8>,
}

struct Level {
    fd: OwnedFd,
    entries: Dir,
    /// The length of this directory's name within the archive, including the slash.
    name_length: usize,
}

impl Packer {
    /// Follows a link at the end of the path.
    pub(super) fn open(path: &str) -> Result<Self, Errno> {
        let root = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        let name = Path::new(path).file_name().map_or(Vec::new(), |name| name.as_encoded_bytes().to_vec());
        let kind = FileType::from_raw_mode(stat.st_mode);
        let (root, name) = if kind.is_dir() {
            (open_directory(CWD, path, OFlags::empty())?, Vec::new())
        } else if kind.is_file() {
            (super::super::open::reopen(&root, OFlags::RDONLY)?, name)
        } else {
            return Err(Errno::NODEV);
        };
        Ok(Self { root, stat, name, hard_links: HashMap::new(), buffer: Vec::new() })
    }

    pub(super) fn pack(mut self, out: &mut impl Write) -> io::Result<()> {
        self.buffer = vec![0; PIECE_BYTES];
        if FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory {
            self.tree(out)?;
        } else {
            let (name, stat) = (self.name.clone(), self.stat);
            let file = self.root.try_clone()?;
            self.file(&file, &name, &stat, out)?;
        }
        out.write_all(&[0; 2 * BLOCK_BYTES])?;
        out.flush()
    }

    fn tree(&mut self, out: &mut impl Write) -> io::Result<()> {
        put_header(out, b"./", EntryType::Directory, &self.stat, 0, None)?;
        let mut name = Vec::new();
        let mut levels = vec![Level::open(self.root.try_clone()?, 0)?];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.read() else {
                levels.pop();
                continue;
            };
            let entry = entry?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            name.truncate(level.name_length);
            name.extend_from_slice(entry.file_name().to_bytes());
            // It was removed meanwhile.
            let Ok(stat) = rustix::fs::statat(&level.fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let file_name = entry.file_name().to_owned();
            let next = self.entry(&level.fd, &file_name, &mut name, &stat, out)?;
            if let Some(fd) = next {
                if levels.len() == DEPTH_MAX {
                    return Err(Errno::NAMETOOLONG.into());
                }
                levels.push(Level::open(fd, name.len())?);
            }
        }
        Ok(())
    }

    /// Packs one entry. Returns the directory to descend into, if it is one.
    fn entry(
        &mut self,
        parent: &OwnedFd,
        file_name: &CString,
        name: &mut Vec<u8>,
        stat: &Stat,
        out: &mut impl Write,
    ) -> io::Result<Option<OwnedFd>> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                name.push(b'/');
                put_header(out, name, EntryType::Directory, stat, 0, None)?;
                if stat.st_dev != self.stat.st_dev {
                    return Ok(None);
                }
                Ok(open_directory(parent, file_name, OFlags::NOFOLLOW).ok())
            }
            FileType::Symlink => {
                let Ok(target) = rustix::fs::readlinkat(parent, file_name, Vec::new()) else {
                    return Ok(None);
                };
                put_header(out, name, EntryType::Symlink, stat, 0, Some(target.as_bytes()))?;
                Ok(None)
            }
            FileType::RegularFile => {
                let flags =
                    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
                let Ok(file) = rustix::fs::openat(parent, file_name, flags, Mode::empty()) else {
                    return Ok(None);
                };
                // Read again, of the file that was opened.
                let stat = rustix::fs::fstat(&file)?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                    self.file(&file, name, &stat, out)?;
                }
                Ok(None)
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(None),
        }
    }

    fn file(&mut self, file: &OwnedFd, name: &[u8], stat: &Stat, out: &mut impl Write) -> io::Result<()> {
        if stat.st_nlink > 1 {
            let key = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.hard_links.get(&key) {
                return put_header(out, name, EntryType::Link, stat, 0, Some(first));
            }
            if self.hard_links.len() < HARD_LINKS_MAX {
                self.hard_links.insert(key, name.to_vec());
            }
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        put_header(out, name, EntryType::Regular, stat, size, None)?;
        let mut rest = size;
        while rest > 0 {
            let wanted = self.buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            let count = match rustix::io::read(file, &mut self.buffer[..wanted]) {
                // The file shrank: the rest of the announced size is filled with zeros, as GNU tar does.
                Ok(0) => {
                    self.buffer[..wanted].fill(0);
                    wanted
                }
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            out.write_all(&self.buffer[..count])?;
            rest -= count as u64;
        }
        pad(out, size)
    }
}

impl Level {
    fn open(fd: OwnedFd, name_length: usize) -> io::Result<Self> {
        let entries = Dir::read_from(&fd)?;
        Ok(Self { fd, entries, name_length })
    }
}

fn open_directory<P: rustix::path::Arg>(
    parent: impl std::os::fd::AsFd,
    name: P,
    extra: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | extra;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn put_header(
    out: &mut impl Write,
    name: &[u8],
    kind: EntryType,
    stat: &Stat,
    size: u64,
    link: Option<&[u8]>,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    if !fits(name, &mut header.as_gnu_mut().expect("made as GNU").name) {
        put_long(out, EntryType::GNULongName, name)?;
    }
    if let Some(link) = link
        && !fits(link, &mut header.as_gnu_mut().expect("made as GNU").linkname)
    {
        put_long(out, EntryType::GNULongLink, link)?;
    }
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(u64::from(stat.st_uid));
    header.set_gid(u64::from(stat.st_gid));
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(size);
    header.set_cksum();
    out.write_all(header.as_bytes())
}

/// Copies as much as fits. A field that is full needs no NUL.
fn fits(bytes: &[u8], field: &mut [u8]) -> bool {
    let count = bytes.len().min(field.len());
    field[..count].copy_from_slice(&bytes[..count]);
    bytes.len() <= field.len()
}

/// GNU's form for long names: an extra entry in front.
fn put_long(out: &mut impl Write, kind: EntryType, name: &[u8]) -> io::Result<()> {
    let size = name.len() as u64 + 1;
    let mut header = Header::new_gnu();
    fits(b"././@LongLink", &mut header.as_gnu_mut().expect("made as GNU").name);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    out.write_all(name)?;
    out.write_all(&[0])?;
    pad(out, size)
}

fn pad(out: &mut impl Write, size: u64) -> io::Result<()> {
    let over = usize::try_from(size % BLOCK_BYTES as u64).expect("less than a block");
    if over == 0 {
        return Ok(());
    }
    out.write_all(&[0; BLOCK_BYTES][over..])
}
