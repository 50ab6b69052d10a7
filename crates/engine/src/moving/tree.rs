//! A snapshot's files: from the pool into a file, and from a file into what is staged.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use burrow_images::ImageError;
use burrow_images::layer::unpack::{Filling, Inode, Made, Unpacker};
use burrow_images::layer::walk::{Found, Walker};
use burrow_model::ChangeKind;
use burrow_portable::{Entry, Extent, Kind, Meta, PortableError, Reader, Sink, Time, TreePath, Writer};
use burrow_volumes::ChangedPath;

use super::IDS;
use crate::EngineError;

/// Chunks whose place is remembered, in case they come again.
const PLACES_MAX: usize = 1 << 20;

/// Writes all files of a tree; with `changed`, only what is under these paths now, and that what was is gone.
pub(super) fn write_out<W: Write>(
    writer: &mut Writer<W>,
    root: &Path,
    changed: Option<&[ChangedPath]>,
    cancelled: &AtomicBool,
) -> Result<(), EngineError> {
    let failed = |source| EngineError::Image(ImageError::Pack { path: String::new(), source });
    let root = File::open(root).map_err(failed)?;
    let mut walker = Walker::open(root.as_fd(), IDS, cancelled)?;
    match changed {
        None => walker.all(&mut |path, found| put(writer, path, found)),
        Some(changed) => write_changed(writer, &mut walker, changed),
    }
}

fn write_changed<W: Write>(
    writer: &mut Writer<W>,
    walker: &mut Walker<'_>,
    changed: &[ChangedPath],
) -> Result<(), EngineError> {
    let parts = |path: &[u8]| -> Vec<Vec<u8>> {
        let named = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        named.map(<[u8]>::to_vec).collect()
    };
    let mut paths = BTreeSet::new();
    let mut gone = BTreeSet::new();
    for ChangedPath { path, kind, .. } in changed {
        let path = parts(path);
        // What was added or removed changed the time of the directory it is in.
        if let Some((_, parent)) = path.split_last() {
            paths.insert(parent.to_vec());
        }
        match kind {
            ChangeKind::Added | ChangeKind::Changed => paths.insert(path),
            ChangeKind::Deleted => gone.insert(path),
        };
    }
    for name in walker.other_names(&paths)? {
        paths.insert(parts(&name));
    }
    gone.retain(|path| !paths.contains(path));
    // Beneath what is gone nothing needs to be said, and nothing can be.
    let mut last: Option<Vec<Vec<u8>>> = None;
    gone.retain(|path| {
        let covered = last.as_ref().is_some_and(|above| path.starts_with(above));
        if !covered {
            last = Some(path.clone());
        }
        !covered
    });
    let mut gone = gone.into_iter().peekable();
    walker.some(&paths, &mut |path, found| {
        let now = parts(path);
        while let Some(before) = gone.next_if(|before| *before < now) {
            put_gone(writer, &before)?;
        }
        put(writer, path, found)
    })?;
    gone.try_for_each(|before| put_gone(writer, &before))
}

fn put_gone<W: Write>(writer: &mut Writer<W>, path: &[Vec<u8>]) -> Result<(), EngineError> {
    let entry = Entry { path: TreePath::new(&path.join(&b'/'))?, kind: Kind::Gone };
    Ok(writer.entry(&entry, &mut |_, _| Err(io::ErrorKind::InvalidInput.into()))?)
}

fn put<W: Write>(writer: &mut Writer<W>, path: &[u8], found: Found<'_>) -> Result<(), EngineError> {
    let path = TreePath::new(path).map_err(|_| PortableError::Unexportable {
        path: String::from_utf8_lossy(path).chars().take(120).flat_map(char::escape_debug).collect(),
        reason: "its path is too long or too deep",
    })?;
    let (kind, file) = match found {
        Found::Made(Made::Directory(inode)) => (Kind::Directory(meta(inode)), None),
        Found::Made(Made::Symlink { inode, target }) => (Kind::Symlink { meta: meta(inode), target }, None),
        Found::Made(Made::HardLink { target }) => (Kind::HardLink { target: TreePath::new(&target)? }, None),
        Found::Made(Made::Fifo(inode)) => (Kind::Fifo(meta(inode)), None),
        Found::Made(Made::Socket(inode)) => (Kind::Socket(meta(inode)), None),
        Found::File { inode, size, extents, file } => {
            let extents = extents.into_iter().map(|(offset, bytes)| Extent { offset, bytes }).collect();
            (Kind::file(meta(inode), size, extents), Some(file))
        }
    };
    let entry = Entry { path, kind };
    let mut read = |buffer: &mut [u8], offset: u64| match file {
        Some(file) => file.read_exact_at(buffer, offset),
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    Ok(writer.entry(&entry, &mut read)?)
}

fn meta(inode: Inode) -> Meta {
    let Inode { mode, uid, gid, mtime: (seconds, nanoseconds), attributes } = inode;
    Meta { mode, uid, gid, mtime: Time { seconds, nanoseconds }, attributes }
}

fn inode(meta: Meta) -> Inode {
    let Meta { mode, uid, gid, mtime, attributes } = meta;
    Inode { mode, uid, gid, mtime: (mtime.seconds, mtime.nanoseconds), attributes }
}

/// Puts entries in place as they come.
pub(super) struct Placing<'r> {
    unpacker: Unpacker<'r>,
    /// Where chunks are that may come again: the file, and how far in it.
    places: HashMap<[u8; 32], (TreePath, u64)>,
}

impl<'r> Placing<'r> {
    pub(super) fn in_root(root: &'r File) -> Result<Self, EngineError> {
        Ok(Self { unpacker: Unpacker::open(root.as_fd(), IDS)?, places: HashMap::new() })
    }

    /// `room` is told how much is about to be written.
    pub(super) fn place<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        entry: Entry,
        room: &mut dyn FnMut(u64) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let bytes = entry.content_bytes();
        let Entry { path, kind } = entry;
        let at = path.as_bytes();
        let made = match kind {
            Kind::Directory(meta) => Made::Directory(inode(meta)),
            Kind::Symlink { meta, target } => Made::Symlink { inode: inode(meta), target },
            Kind::HardLink { target } => Made::HardLink { target: target.as_bytes().to_vec() },
            Kind::Fifo(meta) => Made::Fifo(inode(meta)),
            Kind::Socket(meta) => Made::Socket(inode(meta)),
            Kind::Gone => return Ok(self.unpacker.remove(at)?),
            Kind::File { meta, size, .. } => {
                room(bytes)?;
                return self.file(reader, &path, inode(meta), size);
            }
        };
        Ok(self.unpacker.make(at, made)?)
    }

    fn file<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        path: &TreePath,
        inode: Inode,
        size: u64,
    ) -> Result<(), EngineError> {
        let (places, root) = (&mut self.places, self.unpacker.root());
        self.unpacker.file(path.as_bytes(), inode, size, |filling| {
            let mut sink = Filled { filling, root, places, path };
            reader.content(&mut sink).map_err(EngineError::from)
        })
    }

    pub(super) fn finish(self) -> Result<(), EngineError> {
        Ok(self.unpacker.finish()?)
    }
}

/// A file that is being filled.
struct Filled<'f, 'c, 'r> {
    filling: &'f mut Filling<'c>,
    root: std::os::fd::BorrowedFd<'r>,
    places: &'f mut HashMap<[u8; 32], (TreePath, u64)>,
    path: &'f TreePath,
}

impl Sink for Filled<'_, '_, '_> {
    fn piece(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.filling.write_at(offset, bytes)
    }

    fn chunk(&mut self, hash: &[u8; 32], offset: u64, _: u64) {
        if self.places.len() < PLACES_MAX {
            self.places.insert(*hash, (self.path.clone(), offset));
        }
    }

    fn again(&mut self, hash: &[u8; 32], bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let Some((path, offset)) = self.places.get(hash) else { return Ok(None) };
        let mut chunk = vec![0; usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?];
        // The file that is being written is read by its descriptor; others by their names.
        if path == self.path {
            self.filling.read_at(*offset, &mut chunk)?;
        } else {
            Unpacker::read_beneath(self.root, path.as_bytes(), *offset, &mut chunk)?;
        }
        Ok(Some(chunk))
    }
}
