//! Reads a tree entry by entry, as seen inside the sandbox: the counterpart of [`super::unpack`].
//!
//! Works by descriptor and follows no link, in the order of names, component by component. Files with several links
//! are returned completely under the first name and as hard links under the others. Device nodes are left out;
//! directories of other file systems are empty. Nothing may change the tree meanwhile, so it must be read-only.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::create::shown;
use super::unpack::{Ids, Inode, NewNode};
use crate::ImageError;

/// Directories open at once.
const DEPTH_MAX: usize = 256;

/// Files with several links that are remembered; further ones are returned once for each name.
const HARD_LINKS_MAX: usize = 1_000_000;

/// Smaller holes are read as zeros, because describing them would cost more.
const HOLE_BYTES_MIN: u64 = 64 << 10;

/// The kind of a path.
#[derive(Debug)]
pub enum WalkedEntry<'f> {
    NewNode(NewNode),
    /// `extents` are offsets and lengths of the parts that are not holes.
    File {
        inode: Inode,
        size: u64,
        extents: Vec<(u64, u64)>,
        file: &'f File,
    },
}

/// Reads one tree.
#[derive(Debug)]
pub struct Walker<'a> {
    root: OwnedFd,
    ids: Ids,
    cancelled: &'a AtomicBool,
    device: u64,
    /// The first names of files with several links, by inode.
    hard_links: HashMap<u64, Vec<u8>>,
    name: Vec<u8>,
    dropped: u64,
}

type Visit<'v, E> = dyn FnMut(&[u8], WalkedEntry<'_>) -> Result<(), E> + 'v;

impl<'a> Walker<'a> {
    /// `cancelled` is checked between entries; once true, the operation ends with [`ImageError::Cancelled`].
    pub fn open(root: BorrowedFd<'_>, ids: Ids, cancelled: &'a AtomicBool) -> Result<Self, ImageError> {
        let open = || -> io::Result<(OwnedFd, u64)> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::openat(root, ".", flags, Mode::empty())?;
            let device = rustix::fs::fstat(&root)?.st_dev;
            Ok((root, device))
        };
        let (root, device) = open().map_err(ImageError::io("open", "the root of the snapshot"))?;
        Ok(Self { root, ids, cancelled, device, hard_links: HashMap::new(), name: Vec::new(), dropped: 0 })
    }

    /// Device nodes that were left out.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The whole tree. The root comes first, with an empty path.
    pub fn all<E: From<ImageError>>(&mut self, visit: &mut Visit<'_, E>) -> Result<(), E> {
        self.name.clear();
        let root =
            rustix::fs::openat(&self.root, ".", DIRECTORY, Mode::empty()).map_err(|e| self.failed(e))?;
        let found = rustix::fs::fstat(&root).map_err(|error| self.failed(error))?;
        let inode = self.inode(root.as_fd(), &found)?;
        visit(&self.name, WalkedEntry::NewNode(NewNode::Directory(inode)))?;
        self.directory(&root, 0, visit)
    }

    /// Only these paths, in order; directories without their content. Missing paths are skipped.
    pub fn some<E: From<ImageError>>(
        &mut self,
        paths: &BTreeSet<Vec<Vec<u8>>>,
        visit: &mut Visit<'_, E>,
    ) -> Result<(), E> {
        for parts in paths {
            self.check()?;
            self.name = parts.join(&b'/');
            let Some((name, parents)) = parts.split_last() else {
                let root = self.root.try_clone().map_err(|error| self.failed(error))?;
                let found = rustix::fs::fstat(&root).map_err(|error| self.failed(error))?;
                let inode = self.inode(root.as_fd(), &found)?;
                visit(&self.name, WalkedEntry::NewNode(NewNode::Directory(inode)))?;
                continue;
            };
            let parent = match self.beneath(&parents.join(&b'/')) {
                Ok(parent) => parent,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(self.failed(error).into()),
            };
            let name =
                CString::new(name.as_slice()).map_err(|_| self.refused("its name contains a NUL byte"))?;
            match rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => self.entry(&parent, &name, &found, None, visit)?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(self.failed(error).into()),
            }
        }
        Ok(())
    }

    /// For files among `paths` that have further names elsewhere: all names of those. Reads the whole tree if there
    /// are any, which is rare.
    pub fn other_names(&mut self, paths: &BTreeSet<Vec<Vec<u8>>>) -> Result<Vec<Vec<u8>>, ImageError> {
        let mut known: HashMap<u64, (u64, u64)> = HashMap::new();
        for parts in paths {
            self.check()?;
            let Some((name, parents)) = parts.split_last() else { continue };
            let Ok(parent) = self.beneath(&parents.join(&b'/')) else { continue };
            let Ok(name) = CString::new(name.as_slice()) else { continue };
            if let Ok(found) = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)
                && FileType::from_raw_mode(found.st_mode) != FileType::Directory
                && found.st_nlink > 1
            {
                known.entry(found.st_ino).or_insert((found.st_nlink, 0)).1 += 1;
            }
        }
        let wanted: HashSet<u64> =
            known.into_iter().filter(|(_, (links, seen))| links > seen).map(|(inode, _)| inode).collect();
        let mut names = Vec::new();
        if !wanted.is_empty() {
            self.name.clear();
            let root = self.root.try_clone().map_err(|error| self.failed(error))?;
            self.names_of(&root, &wanted, &mut names, 0)?;
        }
        Ok(names)
    }

    fn names_of(
        &mut self,
        directory: &OwnedFd,
        wanted: &HashSet<u64>,
        names: &mut Vec<Vec<u8>>,
        depth: usize,
    ) -> Result<(), ImageError> {
        let length = self.name.len();
        for name in self.children(directory)? {
            self.check()?;
            self.enter(length, &name);
            let found = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| self.failed(error))?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                if depth < DEPTH_MAX && found.st_dev == self.device {
                    let inside = rustix::fs::openat(directory, &name, DIRECTORY, Mode::empty())
                        .map_err(|error| self.failed(error))?;
                    self.names_of(&inside, wanted, names, depth + 1)?;
                }
            } else if wanted.contains(&found.st_ino) {
                names.push(self.name.clone());
            }
        }
        self.name.truncate(length);
        Ok(())
    }

    fn beneath(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { &b"."[..] } else { path };
        let exact = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, path, DIRECTORY, Mode::empty(), exact)
    }

    fn directory<E: From<ImageError>>(
        &mut self,
        directory: &OwnedFd,
        depth: usize,
        visit: &mut Visit<'_, E>,
    ) -> Result<(), E> {
        let length = self.name.len();
        for name in self.children(directory)? {
            self.check()?;
            self.enter(length, &name);
            let found = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| self.failed(error))?;
            self.entry(directory, &name, &found, Some(depth), visit)?;
        }
        self.name.truncate(length);
        Ok(())
    }

    /// `depth`: the depth of a directory whose content is visited too.
    fn entry<E: From<ImageError>>(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        found: &Stat,
        depth: Option<usize>,
        visit: &mut Visit<'_, E>,
    ) -> Result<(), E> {
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind != FileType::Directory && self.try_hard_link(found, visit)? {
            return Ok(());
        }
        match kind {
            FileType::Directory => {
                let inside = rustix::fs::openat(directory, name, DIRECTORY, Mode::empty())
                    .map_err(|error| self.failed(error))?;
                let found = rustix::fs::fstat(&inside).map_err(|error| self.failed(error))?;
                let inode = self.inode(inside.as_fd(), &found)?;
                visit(&self.name, WalkedEntry::NewNode(NewNode::Directory(inode)))?;
                match depth {
                    Some(DEPTH_MAX) => Err(self.refused("it is nested too deeply").into()),
                    Some(depth) if found.st_dev == self.device => self.directory(&inside, depth + 1, visit),
                    Some(_) | None => Ok(()),
                }
            }
            FileType::RegularFile => self.file(directory, name, visit),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new())
                    .map_err(|error| self.failed(error))?
                    .into_bytes();
                let inode = self.without_attributes(found);
                visit(&self.name, WalkedEntry::NewNode(NewNode::Symlink { inode, target }))
            }
            FileType::Fifo => {
                visit(&self.name, WalkedEntry::NewNode(NewNode::Fifo(self.without_attributes(found))))
            }
            FileType::Socket => {
                visit(&self.name, WalkedEntry::NewNode(NewNode::Socket(self.without_attributes(found))))
            }
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                self.dropped += 1;
                Ok(())
            }
        }
    }

    fn file<E: From<ImageError>>(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        visit: &mut Visit<'_, E>,
    ) -> Result<(), E> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(|e| self.failed(e))?;
        let found = rustix::fs::fstat(&file).map_err(|error| self.failed(error))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(self.refused("it changed while it was read").into());
        }
        let inode = self.inode(file.as_fd(), &found)?;
        let size = u64::try_from(found.st_size).unwrap_or(0);
        let file = File::from(file);
        let extents = extents(&file, &found, size).map_err(|error| self.failed(error))?;
        visit(&self.name, WalkedEntry::File { inode, size, extents, file: &file })
    }

    /// Whether this is another name of a file that was visited before; if so, visits it as a hard link.
    fn try_hard_link<E: From<ImageError>>(
        &mut self,
        found: &Stat,
        visit: &mut Visit<'_, E>,
    ) -> Result<bool, E> {
        if found.st_nlink < 2 {
            return Ok(false);
        }
        if let Some(first) = self.hard_links.get(&found.st_ino) {
            visit(&self.name, WalkedEntry::NewNode(NewNode::HardLink { target: first.clone() }))?;
            return Ok(true);
        }
        if self.hard_links.len() < HARD_LINKS_MAX {
            self.hard_links.insert(found.st_ino, self.name.clone());
        }
        Ok(false)
    }

    fn inode(&self, file: BorrowedFd<'_>, found: &Stat) -> Result<Inode, ImageError> {
        let attributes = self.ids.attributes(file).map_err(|error| self.failed(error))?;
        Ok(Inode { attributes, ..self.without_attributes(found) })
    }

    fn without_attributes(&self, found: &Stat) -> Inode {
        Inode {
            mode: found.st_mode & 0o7777,
            uid: self.ids.inside(found.st_uid),
            gid: self.ids.inside(found.st_gid),
            mtime: (found.st_mtime, u32::try_from(found.st_mtime_nsec).unwrap_or(0)),
            attributes: Vec::new(),
        }
    }

    fn children(&self, directory: &OwnedFd) -> Result<Vec<CString>, ImageError> {
        let read = || -> Result<Vec<CString>, Errno> {
            let mut names = Vec::new();
            for entry in Dir::read_from(directory)? {
                let name = entry?.file_name().to_owned();
                if !matches!(name.to_bytes(), b"." | b"..") {
                    names.push(name);
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        read().map_err(|error| self.failed(error))
    }

    fn enter(&mut self, length: usize, name: &CStr) {
        self.name.truncate(length);
        if length > 0 {
            self.name.push(b'/');
        }
        self.name.extend_from_slice(name.to_bytes());
    }

    fn check(&self) -> Result<(), ImageError> {
        if self.cancelled.load(Ordering::Relaxed) { Err(ImageError::Cancelled) } else { Ok(()) }
    }

    fn failed(&self, error: impl Into<io::Error>) -> ImageError {
        ImageError::Pack { path: shown(&self.name), source: error.into() }
    }

    fn refused(&self, reason: &'static str) -> ImageError {
        ImageError::Unpackable { path: shown(&self.name), reason }
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The parts of a file that have content. A file with as many blocks as its size has no holes to search for.
fn extents(file: &File, found: &Stat, size: u64) -> io::Result<Vec<(u64, u64)>> {
    if size == 0 {
        return Ok(Vec::new());
    }
    let blocks = u64::try_from(found.st_blocks).unwrap_or(0);
    if size < HOLE_BYTES_MIN || blocks.saturating_mul(512) >= size {
        return Ok(vec![(0, size)]);
    }
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // The file system does not support holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![(0, size)]),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
        match extents.last_mut() {
            Some((last, length)) if start - (*last + *length) < HOLE_BYTES_MIN => *length = end - *last,
            _ => extents.push((start, end - start)),
        }
        at = end;
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;
    use crate::layer::unpack::Unpacker;

    const IDS: Ids = Ids { shift: 100_000, count: 65_536 };

    fn parts(path: &str) -> Vec<Vec<u8>> {
        path.split('/').filter(|part| !part.is_empty()).map(|part| part.as_bytes().to_vec()).collect()
    }

    /// The paths, each with a short description.
    fn described(
        walk: impl FnOnce(&mut Visit<'_, ImageError>) -> Result<(), ImageError>,
    ) -> Vec<(String, String)> {
        let mut found = Vec::new();
        walk(&mut |path, what| {
            let what = match what {
                WalkedEntry::NewNode(NewNode::Directory(inode)) => format!("directory {:o}", inode.mode),
                WalkedEntry::NewNode(NewNode::HardLink { target }) => {
                    format!("link to {}", String::from_utf8(target).unwrap())
                }
                WalkedEntry::NewNode(NewNode::Symlink { target, .. }) => {
                    format!("symlink {}", String::from_utf8(target).unwrap())
                }
                WalkedEntry::NewNode(NewNode::Fifo(_)) => "fifo".to_owned(),
                WalkedEntry::NewNode(NewNode::Socket(_)) => "socket".to_owned(),
                WalkedEntry::File { size, extents, .. } => format!("file {size} {extents:?}"),
            };
            found.push((String::from_utf8(path.to_vec()).unwrap(), what));
            Ok(())
        })
        .unwrap();
        found
    }

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "content").unwrap();
        fs::write(at("a-b"), "").unwrap();
        fs::hard_link(at("a/b/file"), at("z")).unwrap();
        symlink("/etc/passwd", at("a/link")).unwrap();
        std::os::unix::net::UnixListener::bind(at("a/socket")).unwrap();
        root
    }

    #[test]
    fn a_tree_is_visited_in_path_order() {
        let (root, cancelled) = (tree(), AtomicBool::new(false));
        let fd = File::open(root.path()).unwrap();
        let mut walker = Walker::open(fd.as_fd(), IDS, &cancelled).unwrap();
        let found = described(|visit| walker.all(visit));
        let names: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, ["", "a", "a/b", "a/b/file", "a/link", "a/socket", "a-b", "z"]);
        let found: BTreeMap<_, _> = found.into_iter().collect();
        assert_eq!(found["z"], "link to a/b/file");
        assert_eq!(found["a/b/file"], "file 7 [(0, 7)]");
        assert_eq!((found["a/link"].as_str(), found["a/socket"].as_str()), ("symlink /etc/passwd", "socket"));
        cancelled.store(true, Ordering::Relaxed);
        let mut walker = Walker::open(fd.as_fd(), IDS, &cancelled).unwrap();
        assert!(matches!(walker.all(&mut |_, _| Ok(())), Err(ImageError::Cancelled)));
    }

    #[test]
    fn missing_paths_and_paths_behind_links_are_skipped() {
        let (root, cancelled) = (tree(), AtomicBool::new(false));
        symlink("a", root.path().join("inside")).unwrap();
        let fd = File::open(root.path()).unwrap();
        let mut walker = Walker::open(fd.as_fd(), IDS, &cancelled).unwrap();
        let paths: BTreeSet<_> = ["", "a", "a/missing", "inside/b", "missing/x", "z"].map(parts).into();
        let found = described(|visit| walker.some(&paths, visit));
        let names: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, ["", "a", "z"]);
        assert_eq!(found[2].1, "file 7 [(0, 7)]", "its other name is not in the list");
        let mut names = walker.other_names(&paths).unwrap();
        names.sort();
        assert_eq!(names, [b"a/b/file".to_vec(), b"z".to_vec()]);
        let both: BTreeSet<_> = ["a/b/file", "z"].map(parts).into();
        assert!(walker.other_names(&both).unwrap().is_empty(), "all names are known");
    }

    #[test]
    fn a_walked_and_unpacked_tree_is_identical() {
        let (root, copy, cancelled) = (tree(), tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let sparse = File::create(root.path().join("sparse")).unwrap();
        sparse.set_len(10 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (10 << 20) - 3).unwrap();
        let (from, to) = (File::open(root.path()).unwrap(), File::open(copy.path()).unwrap());
        // The files of this test are not shifted: with a shift, their owner would be read as nobody.
        let none = Ids { shift: 0, count: 65_536 };
        let mut walker = Walker::open(from.as_fd(), none, &cancelled).unwrap();
        let mut unpacker = Unpacker::open(to.as_fd(), none).unwrap();
        walker
            .all(&mut |path, found| match found {
                WalkedEntry::NewNode(made) => unpacker.make(path, made),
                WalkedEntry::File { inode, size, extents, file } => {
                    unpacker.file(path, inode, size, |filling| {
                        for (offset, length) in extents {
                            let mut piece = vec![0; usize::try_from(length).unwrap()];
                            std::os::unix::fs::FileExt::read_exact_at(file, &mut piece, offset).unwrap();
                            filling.write_at(offset, &piece).unwrap();
                        }
                        Ok(())
                    })
                }
            })
            .unwrap();
        unpacker.finish().unwrap();
        let mut again = Walker::open(to.as_fd(), none, &cancelled).unwrap();
        let mut walker = Walker::open(from.as_fd(), none, &cancelled).unwrap();
        assert_eq!(described(|visit| again.all(visit)), described(|visit| walker.all(visit)));
        let time = |root: &std::path::Path| fs::metadata(root.join("a")).unwrap().mtime_nsec();
        assert_eq!(time(copy.path()), time(root.path()));
    }
}
