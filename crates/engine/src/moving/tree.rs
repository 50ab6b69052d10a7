//! A snapshot's files: from the pool into a file, and from a file into a staged tree.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use burrow_disks::ChangedPath;
use burrow_images::ImageError;
use burrow_images::layer::unpack::{FileFiller, Inode, NewNode, Unpacker};
use burrow_images::layer::walk::{WalkedEntry, Walker};
use burrow_model::ChangeKind;
use burrow_portable::{Entry, Extent, Kind, Meta, PortableError, Reader, Sink, Time, TreePath, Writer};

use super::IDS;
use crate::EngineError;

/// Chunks whose position is remembered, in case they occur again.
const PLACES_MAX: usize = 1 << 20;

/// Writes all files of a tree; with `changed`, only the present files at these paths, and which of the paths were removed.
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
        // An added or removed entry changed the modification time of its directory.
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
    // Paths below a removed one are implied.
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

fn put<W: Write>(writer: &mut Writer<W>, path: &[u8], found: WalkedEntry<'_>) -> Result<(), EngineError> {
    let path = TreePath::new(path).map_err(|_| PortableError::Unexportable {
        path: String::from_utf8_lossy(path).chars().take(120).flat_map(char::escape_debug).collect(),
        reason: "its path is too long or too deep",
    })?;
    let (kind, file) = match found {
        WalkedEntry::NewNode(NewNode::Directory(inode)) => (Kind::Directory(meta(inode)), None),
        WalkedEntry::NewNode(NewNode::Symlink { inode, target }) => {
            (Kind::Symlink { meta: meta(inode), target }, None)
        }
        WalkedEntry::NewNode(NewNode::HardLink { target }) => {
            (Kind::HardLink { target: TreePath::new(&target)? }, None)
        }
        WalkedEntry::NewNode(NewNode::Fifo(inode)) => (Kind::Fifo(meta(inode)), None),
        WalkedEntry::NewNode(NewNode::Socket(inode)) => (Kind::Socket(meta(inode)), None),
        WalkedEntry::File { inode, size, extents, file } => {
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

/// Creates entries in the order in which they arrive.
pub(super) struct TreeWriter<'r> {
    unpacker: Unpacker<'r>,
    /// The position of chunks that may occur again: the file, and the offset in it.
    places: HashMap<[u8; 32], (TreePath, u64)>,
}

impl<'r> TreeWriter<'r> {
    pub(super) fn in_root(root: &'r File) -> Result<Self, EngineError> {
        Ok(Self { unpacker: Unpacker::open(root.as_fd(), IDS)?, places: HashMap::new() })
    }

    /// `room` receives the number of bytes that are about to be written.
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
            Kind::Directory(meta) => NewNode::Directory(inode(meta)),
            Kind::Symlink { meta, target } => NewNode::Symlink { inode: inode(meta), target },
            Kind::HardLink { target } => NewNode::HardLink { target: target.as_bytes().to_vec() },
            Kind::Fifo(meta) => NewNode::Fifo(inode(meta)),
            Kind::Socket(meta) => NewNode::Socket(inode(meta)),
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
            let mut sink = FileSink { filling, root, places, path };
            reader.content(&mut sink).map_err(EngineError::from)
        })
    }

    pub(super) fn finish(self) -> Result<(), EngineError> {
        Ok(self.unpacker.finish()?)
    }
}

/// A file that is being filled.
struct FileSink<'f, 'c, 'r> {
    filling: &'f mut FileFiller<'c>,
    root: std::os::fd::BorrowedFd<'r>,
    places: &'f mut HashMap<[u8; 32], (TreePath, u64)>,
    path: &'f TreePath,
}

impl Sink for FileSink<'_, '_, '_> {
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
