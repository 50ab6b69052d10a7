//! Creates trees that are not layers, entry by entry, by the same hardened steps that apply layers.
//!
//! Stricter than a layer: every directory comes before its content, and no path leads through a link. Used for
//! imported snapshots, and for reading the content of a snapshot.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::attributes::{self, Shift, Translation};
use super::create::{ContentWriter, shown};
use super::path::EntryPath;
use super::tree::{Paths, Tree};
use crate::ImageError;
use crate::entries::{Entry, Kind, SparseMap, Time};

/// How ids outside and inside a sandbox differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Added to ids from inside.
    pub shift: u32,
    /// Ids at or above this do not exist inside.
    pub count: u32,
}

/// The attributes of every inode, as seen inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Seconds since the epoch, and nanoseconds.
    pub mtime: (i64, u32),
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What is created, except files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewNode {
    Directory(Inode),
    Symlink {
        inode: Inode,
        target: Vec<u8>,
    },
    /// Another name of an existing file.
    HardLink {
        target: Vec<u8>,
    },
    Fifo(Inode),
    Socket(Inode),
}

/// Creates a tree in a directory that nothing else changes.
pub struct Unpacker<'r> {
    tree: Tree<'r>,
}

/// Writes the content of one file.
pub struct FileFiller<'c>(&'c mut ContentWriter);

impl<'r> Unpacker<'r> {
    pub fn open(root: BorrowedFd<'r>, ids: Ids) -> Result<Self, ImageError> {
        let shift = Shift::Up { by: ids.shift, count: ids.count };
        let tree = Tree::open(root, shift, Paths::Exact);
        Ok(Self { tree: tree.map_err(ImageError::io("open", "the root of the snapshot"))? })
    }

    /// Creates it, and replaces an existing entry; only a directory is kept if a directory is to be created.
    pub fn make(&mut self, path: &[u8], made: NewNode) -> Result<(), ImageError> {
        let entry_path = parsed(path)?;
        match made {
            NewNode::Directory(inode) => {
                self.tree.create(&entry_path, &entry(path, Kind::Directory, inode)).map(drop)
            }
            NewNode::Symlink { inode, target } => {
                self.tree.create(&entry_path, &entry(path, Kind::Symlink { target }, inode)).map(drop)
            }
            NewNode::HardLink { target } => self
                .tree
                .create(&entry_path, &entry(path, Kind::HardLink { target }, Inode::default_inode()))
                .map(drop),
            NewNode::Fifo(inode) => self.tree.create(&entry_path, &entry(path, Kind::Fifo, inode)).map(drop),
            NewNode::Socket(inode) => self.tree.socket(&entry_path, &entry(path, Kind::Fifo, inode)),
        }
    }

    /// Creates a file of this size and calls `fill` to write the parts that are not holes.
    pub fn file<E: From<ImageError>>(
        &mut self,
        path: &[u8],
        inode: Inode,
        size: u64,
        fill: impl FnOnce(&mut FileFiller<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let entry_path = parsed(path)?;
        let mut entry = entry(path, Kind::File, inode);
        entry.sparse = Some(SparseMap { size, pieces: Vec::new() });
        let mut failed = None;
        let made = self.tree.file(&entry_path, &mut entry, |content| {
            fill(&mut FileFiller(content)).map_err(|error| {
                failed = Some(error);
                ImageError::Cancelled
            })
        });
        match (failed, made) {
            (Some(error), _) => Err(error),
            (None, made) => Ok(made.map(drop)?),
        }
    }

    /// Removes an entry with its content. It is not an error if it does not exist.
    pub fn remove(&mut self, path: &[u8]) -> Result<(), ImageError> {
        self.tree.remove_path(&parsed(path)?)
    }

    /// The root of the tree.
    pub fn root(&self) -> BorrowedFd<'r> {
        self.tree.root()
    }

    /// Reads a part of a file that was created beneath a root before. No link is followed.
    pub fn read_beneath(root: BorrowedFd<'_>, path: &[u8], offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let exact = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat2(root, path, flags, Mode::empty(), exact)?);
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        file.read_exact_at(buffer, offset)
    }

    /// Sets the times of directories. Must be the last step.
    pub fn finish(mut self) -> Result<(), ImageError> {
        let times = self.tree.restore_times();
        times.map_err(ImageError::io("set the times of", "the directories of the snapshot"))
    }
}

impl FileFiller<'_> {
    /// Writes bytes at an offset of the file.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    /// Reads bytes that were written at an offset before.
    pub fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
}

impl Ids {
    /// The id inside for an id of the host.
    pub fn inside(self, id: u32) -> u32 {
        self.down().id(u64::from(id)).expect("every host id maps to an id inside")
    }

    /// The extended attributes of a file, translated for the inside, by name.
    pub fn attributes(self, file: BorrowedFd<'_>) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut kept = Vec::new();
        for name in attributes::names(file)? {
            match attributes::translate(name.as_bytes(), &attributes::value(file, &name)?, self.down()) {
                Translation::Keep(value) => kept.push((name.into_bytes(), value)),
                Translation::Drop | Translation::Refuse(_) => {}
            }
        }
        kept.sort();
        Ok(kept)
    }

    fn down(self) -> Shift {
        Shift::Down { by: self.shift, count: self.count }
    }
}

impl Inode {
    /// For entries without attributes of their own.
    fn default_inode() -> Self {
        Self { mode: 0, uid: 0, gid: 0, mtime: (0, 0), attributes: Vec::new() }
    }
}

fn parsed(path: &[u8]) -> Result<EntryPath, ImageError> {
    EntryPath::parse(path).map_err(|reason| ImageError::Entry { path: shown(path), reason })
}

fn entry(path: &[u8], kind: Kind, inode: Inode) -> Entry {
    let Inode { mode, uid, gid, mtime: (seconds, nanoseconds), attributes } = inode;
    Entry {
        kind,
        name: path.to_vec(),
        mode,
        uid: uid.into(),
        gid: gid.into(),
        mtime: Time { seconds, nanoseconds },
        size: 0,
        sparse: None,
        attributes,
        attributes_unread: 0,
    }
}

impl std::fmt::Debug for Unpacker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for FileFiller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileFiller").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};

    use super::*;

    const IDS: Ids = Ids { shift: 100_000, count: 65_536 };

    fn inode(mode: u32) -> Inode {
        Inode { mode, uid: 7, gid: 8, mtime: (1_700_000_000, 5), attributes: Vec::new() }
    }

    fn filled(unpacker: &mut Unpacker<'_>, path: &str, text: &str) -> Result<(), ImageError> {
        let size = text.len() as u64;
        unpacker.file(path.as_bytes(), inode(0o640), size, |filling| {
            filling.write_at(0, text.as_bytes()).map_err(ImageError::io("write", path))
        })
    }

    #[test]
    fn a_tree_is_created_as_described() {
        let root = tempfile::tempdir().unwrap();
        let fd = fs::File::open(root.path()).unwrap();
        let mut unpacker = Unpacker::open(fd.as_fd(), IDS).unwrap();
        unpacker.make(b"", NewNode::Directory(inode(0o755))).unwrap();
        unpacker.make(b"a", NewNode::Directory(inode(0o2775))).unwrap();
        filled(&mut unpacker, "a/file", "content").unwrap();
        unpacker.make(b"a/again", NewNode::HardLink { target: b"a/file".to_vec() }).unwrap();
        unpacker
            .make(b"a/link", NewNode::Symlink { inode: inode(0o777), target: b"/etc/passwd".to_vec() })
            .unwrap();
        unpacker.make(b"a/socket", NewNode::Socket(inode(0o600))).unwrap();
        unpacker.make(b"a/pipe", NewNode::Fifo(inode(0o600))).unwrap();
        unpacker.file(b"sparse", inode(0o600), 1 << 30, |_| Ok::<_, ImageError>(())).unwrap();
        let mut back = [0; 3];
        Unpacker::read_beneath(fd.as_fd(), b"a/file", 2, &mut back).unwrap();
        assert_eq!(&back, b"nte");
        unpacker.finish().unwrap();
        let at = |name: &str| fs::symlink_metadata(root.path().join(name)).unwrap();
        assert_eq!(
            (at("a").mode() & 0o7777, at("a").uid(), at("a").mtime()),
            (0o2775, 100_007, 1_700_000_000)
        );
        assert_eq!(at("a/file").ino(), at("a/again").ino());
        assert!(at("a/socket").file_type().is_socket() && at("a/pipe").file_type().is_fifo());
        assert_eq!((at("sparse").len(), at("sparse").blocks()), (1 << 30, 0));
        assert_eq!(fs::read_link(root.path().join("a/link")).unwrap().to_str(), Some("/etc/passwd"));
    }

    #[test]
    fn entries_are_not_created_through_links_or_without_a_parent() {
        let (root, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(root.path().join("real")).unwrap();
        symlink("real", root.path().join("inside")).unwrap();
        symlink(host.path(), root.path().join("outside")).unwrap();
        let fd = fs::File::open(root.path()).unwrap();
        let mut unpacker = Unpacker::open(fd.as_fd(), IDS).unwrap();
        for path in ["inside/x", "outside/x", "missing/x", "../x", "/x"] {
            assert!(filled(&mut unpacker, path, "x").is_err(), "{path}");
        }
        assert!(unpacker.make(b"y", NewNode::HardLink { target: b"outside/x".to_vec() }).is_err());
        assert!(Unpacker::read_beneath(fd.as_fd(), b"outside", 0, &mut [0; 1]).is_err());
        // The link itself may be replaced; its target is unchanged.
        filled(&mut unpacker, "outside", "mine").unwrap();
        unpacker.remove(b"inside").unwrap();
        assert!(root.path().join("real").exists() && !root.path().join("inside").exists());
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
    }
}
