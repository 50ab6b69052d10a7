//! The files of an archive, by name: members of a tar, or files of a directory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::entries::{Entries, Kind, Refusal, Source};
use crate::{ImageError, LAYERS_MAX};

/// Headers of one archive, whether it contains layers or a whole root file system.
const ENTRIES_MAX: u64 = 4_000_000;

/// Relevant members. Each image has its layers and documents; `docker save` writes several images.
const MEMBERS_MAX: usize = 64 * LAYERS_MAX;

/// Links from member to member; `docker save` creates one.
const LINKS_MAX: usize = 4;

const BUFFER_BYTES: usize = 64 * 1024;

/// The files, by name.
#[derive(Debug)]
pub(super) enum Members {
    Tar(TarIndex),
    Directory { fd: OwnedFd, path: PathBuf },
}

/// The positions of the files in a tar.
#[derive(Debug)]
pub(super) struct TarIndex {
    file: Arc<File>,
    path: PathBuf,
    members: HashMap<String, Member>,
    /// The number of all entries, also of irrelevant ones.
    pub(super) entries: u64,
}

#[derive(Clone, Debug)]
enum Member {
    Data { offset: u64, size: u64 },
    Link { target: String },
}

/// A part of a file, read without moving the file's position.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    file: Arc<File>,
    offset: u64,
    rest: u64,
}

impl Members {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.open(name).is_ok_and(|found| found.is_some())
    }

    /// A file that may not exist.
    pub(super) fn open(&self, name: &str) -> Result<Option<Slice>, ImageError> {
        match self {
            Self::Tar(index) => Ok(index.find(name)),
            Self::Directory { fd, path } => {
                open_beneath(fd, name).map_err(ImageError::io("open", path.join(name).display()))
            }
        }
    }

    /// A file that must exist.
    pub(super) fn required(&self, name: &str) -> Result<Slice, ImageError> {
        self.open(name)?.ok_or_else(|| ImageError::NotAnImage {
            path: self.path().join(crate::error::shortened(name)),
            reason: "a required file is missing",
        })
    }

    /// A small file.
    pub(super) fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, ImageError> {
        let mut slice = self.required(name)?;
        if slice.rest > limit {
            let what = crate::error::shortened(name);
            return Err(ImageError::TooLarge { what, limit, unit: "bytes" });
        }
        let mut bytes = Vec::new();
        slice.read_to_end(&mut bytes).map_err(ImageError::io("read", crate::error::shortened(name)))?;
        Ok(bytes)
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Tar(index) => &index.path,
            Self::Directory { path, .. } => path,
        }
    }
}

impl TarIndex {
    /// Reads all headers of a tar, but no content.
    pub(super) fn read(file: File, path: &Path) -> Result<Self, ImageError> {
        let length = file.metadata().map_err(ImageError::io("get the size of", path.display()))?.len();
        let file = Arc::new(file);
        let mut seekable = &*file;
        seekable.rewind().map_err(ImageError::io("read", path.display()))?;
        let buffered = BufReader::with_capacity(BUFFER_BYTES, seekable);
        let mut entries = Entries::new(Seekable { inner: buffered });
        let not_a_tar = |reason| ImageError::NotAnImage { path: path.to_owned(), reason };
        let mut members = HashMap::new();
        let mut count = 0;
        loop {
            let entry = entries.next().map_err(|refusal| match refusal {
                // If the first header is invalid, the file is not a tar at all.
                Refusal::Because(_) | Refusal::At(..) if count == 0 => not_a_tar("it is not a tar"),
                Refusal::Because(reason) | Refusal::At(_, reason) => not_a_tar(reason),
                Refusal::Read(source) => ImageError::io("read", path.display())(source),
            })?;
            let Some(entry) = entry else { break };
            count += 1;
            if count > ENTRIES_MAX {
                let what = path.display().to_string();
                return Err(ImageError::TooLarge { what, limit: ENTRIES_MAX, unit: "entries" });
            }
            let offset = entries.position();
            if offset.checked_add(entry.size).is_none_or(|end| end > length) {
                return Err(not_a_tar("it is truncated"));
            }
            if let Some((name, member)) = member(&entry.name, &entry.kind, offset, entry.size) {
                members.insert(name, member);
            }
            if members.len() > MEMBERS_MAX {
                let what = path.display().to_string();
                return Err(ImageError::TooLarge { what, limit: MEMBERS_MAX as u64, unit: "image files" });
            }
            entries.skip(entry.size).map_err(|_| not_a_tar("it is truncated"))?;
        }
        Ok(Self { file, path: path.to_owned(), members, entries: count })
    }

    fn find(&self, name: &str) -> Option<Slice> {
        let mut member = self.members.get(&normalised(name)?)?;
        for _ in 0..LINKS_MAX {
            match member {
                Member::Data { offset, size } => {
                    return Some(Slice { file: Arc::clone(&self.file), offset: *offset, rest: *size });
                }
                Member::Link { target } => member = self.members.get(target)?,
            }
        }
        None
    }

    /// The whole tar.
    pub(super) fn whole(&self) -> Result<Slice, ImageError> {
        let length =
            self.file.metadata().map_err(ImageError::io("get the size of", self.path.display()))?.len();
        Ok(Slice { file: Arc::clone(&self.file), offset: 0, rest: length })
    }

    /// Whether it has the format that `docker save` wrote before `manifest.json` existed.
    pub(super) fn is_early_docker_format(&self) -> bool {
        self.members.contains_key("repositories")
            && self.members.keys().any(|name| name.ends_with("/layer.tar"))
    }
}

impl Slice {
    pub(super) fn size(&self) -> u64 {
        self.rest
    }

    /// The first four bytes, or fewer in a smaller file.
    pub(super) fn start(&self) -> io::Result<Vec<u8>> {
        let mut start = Vec::new();
        self.clone().take(4).read_to_end(&mut start)?;
        Ok(start)
    }
}

impl Read for Slice {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.rest).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        self.offset += count as u64;
        self.rest -= count as u64;
        Ok(count)
    }
}

/// Skips by seeking.
struct Seekable<'a> {
    inner: BufReader<&'a File>,
}

impl Read for Seekable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}

impl BufRead for Seekable<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
    }
}

impl Source for Seekable<'_> {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        let count = i64::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.inner.seek_relative(count)
    }
}

/// The names that files of an image can have: everything in the root directory, `<id>/layer.tar`, and blobs. A root
/// file system, which may have millions of files, has hardly any of these.
fn member(name: &[u8], kind: &Kind, offset: u64, size: u64) -> Option<(String, Member)> {
    let name = normalised(std::str::from_utf8(name).ok()?)?;
    let parts: Vec<&str> = name.split('/').collect();
    if !matches!(parts[..], [_] | [_, "layer.tar"] | ["blobs", _, _]) {
        return None;
    }
    let text = |target: &[u8]| std::str::from_utf8(target).ok().map(str::to_owned);
    let member = match kind {
        Kind::File => Member::Data { offset, size },
        Kind::HardLink { target } => Member::Link { target: normalised(&text(target)?)? },
        Kind::Symlink { target } => {
            let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
            Member::Link { target: normalised(&format!("{parent}/{}", text(target)?))? }
        }
        Kind::Directory | Kind::Fifo | Kind::Device => return None,
    };
    Some((name, member))
}

/// A name without `.` and `..`, which can be removed textually within an archive. `None` if it leads out.
fn normalised(name: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

fn open_beneath(directory: &OwnedFd, name: &str) -> io::Result<Option<Slice>> {
    // Opening must not wait for a writer of a FIFO.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file: File = match rustix::fs::openat2(directory, name, flags, Mode::empty(), beneath) {
        Ok(file) => file.into(),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    Ok(Some(Slice { file: Arc::new(file), offset: 0, rest: found.len() }))
}
