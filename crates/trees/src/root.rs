//! One tree, read by file descriptor, and the nodes in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use crate::{TreeError, step};

/// The kernel's limits for a list of attribute names, and for one value.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// Bytes compared at once; fewer at first, since most files are small or differ early.
const BLOCK_BYTES: usize = 128 << 10;
const FIRST_BLOCK_BYTES: usize = 8 << 10;

/// The directory that a sandbox sees as `/`.
#[derive(Debug)]
pub struct Root {
    pub(crate) fd: OwnedFd,
}

/// The metadata of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    /// Permissions, set-uid, set-gid and sticky.
    pub mode: u32,
    /// As on the host.
    pub uid: u32,
    pub gid: u32,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Seconds and nanoseconds; copied, never compared.
    pub modified: (i64, u32),
    /// `None` if its identity is unknown.
    pub identity: Option<Identity>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    File { bytes: u64 },
    Directory,
    Link { target: Vec<u8> },
    Pipe,
    Socket,
    Block { device: (u32, u32) },
    Character { device: (u32, u32) },
}

/// Identifies a file, also in other trees with the same history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    pub inode: u64,
    pub born: (i64, u32),
    /// The number of its names.
    pub links: u32,
}

impl Identity {
    /// Whether it is the same file, under any names.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.inode, self.born) == (other.inode, other.born)
    }
}

impl Node {
    /// Whether everything except times and, of files, content is equal.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.kind == other.kind && self.has_same_attributes(other)
    }

    pub(crate) fn has_same_attributes(&self, other: &Self) -> bool {
        (self.mode, self.uid, self.gid, &self.attributes)
            == (other.mode, other.uid, other.gid, &other.attributes)
    }

    pub fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }

    /// Whether the file has no other name.
    pub(crate) fn is_the_only_name(&self) -> bool {
        self.is_file() && self.identity.is_some_and(|identity| identity.links == 1)
    }

    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Bytes of a file's content; of a link, of its target.
    pub fn bytes(&self) -> u64 {
        match &self.kind {
            Kind::File { bytes } => *bytes,
            Kind::Link { target } => target.len() as u64,
            Kind::Directory | Kind::Pipe | Kind::Socket | Kind::Block { .. } | Kind::Character { .. } => 0,
        }
    }
}

impl Root {
    pub fn open(path: &Path) -> Result<Self, TreeError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty());
        Ok(Self { fd: fd.map_err(step("open the tree", path.as_os_str().as_encoded_bytes()))? })
    }

    /// Opens a path without following any link; `None` if it does not exist.
    pub(crate) fn open_at(&self, path: &[u8], flags: OFlags) -> io::Result<Option<OwnedFd>> {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let relative: &[u8] = if relative.is_empty() { b"." } else { relative };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.fd, relative, flags, Mode::empty(), resolve) {
            Ok(opened) => Ok(Some(opened)),
            // Missing, or its parent is not a directory, or the path is too long for the kernel.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The node at a path; `None` if there is none.
    pub fn node(&self, path: &[u8]) -> Result<Option<Node>, TreeError> {
        let looked = || -> io::Result<Option<Node>> {
            let Some(opened) = self.open_at(path, OFlags::PATH)? else { return Ok(None) };
            node_of(&opened).map(Some)
        };
        looked().map_err(step("read the metadata of", path))
    }

    /// Opens a regular file for reading; `None` for other kinds.
    pub fn file(&self, path: &[u8]) -> Result<Option<File>, TreeError> {
        let opened = || -> io::Result<Option<File>> {
            // Checked first: opening a pipe waits for its other end, and opening a device has side effects.
            let Some(found) = self.open_at(path, OFlags::PATH)? else { return Ok(None) };
            if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::RegularFile {
                return Ok(None);
            }
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            Ok(self.open_at(path, flags)?.map(File::from))
        };
        opened().map_err(step("open", path))
    }

    /// Device and inode number of a path; `None` if it does not exist.
    pub fn identity(&self, path: &[u8]) -> Result<Option<(u64, u64)>, TreeError> {
        let looked = || -> io::Result<Option<(u64, u64)>> {
            let Some(opened) = self.open_at(path, OFlags::PATH)? else { return Ok(None) };
            let found = rustix::fs::fstat(&opened)?;
            Ok(Some((found.st_dev, found.st_ino)))
        };
        looked().map_err(step("read the metadata of", path))
    }

    /// The content of a regular file of at most this many bytes; `None` for other kinds and larger files.
    pub fn read(&self, path: &[u8], bytes_max: usize) -> Result<Option<Vec<u8>>, TreeError> {
        let Some(file) = self.file(path)? else { return Ok(None) };
        let mut content = Vec::new();
        file.take(bytes_max as u64 + 1).read_to_end(&mut content).map_err(step("read", path))?;
        Ok((content.len() <= bytes_max).then_some(content))
    }

    /// Every path of the tree except the root, unsorted.
    pub fn walk(&self, paths_max: usize) -> Result<Vec<Vec<u8>>, TreeError> {
        let (mut found, mut left) = (Vec::new(), vec![b"/".to_vec()]);
        while let Some(folder) = left.pop() {
            let opened =
                self.open_at(&folder, OFlags::RDONLY | OFlags::DIRECTORY).map_err(step("list", &folder))?;
            let Some(opened) = opened else { continue };
            for entry in rustix::fs::Dir::new(opened).map_err(step("list", &folder))? {
                let entry = entry.map_err(step("list", &folder))?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                let path = join(&folder, name);
                if entry.file_type() == FileType::Directory {
                    left.push(path.clone());
                }
                found.push(path);
                if found.len() > paths_max {
                    return Err(TreeError::TooMany { max: paths_max });
                }
            }
        }
        Ok(found)
    }
}

pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder == b"/" { [b"/", name].concat() } else { [folder, b"/", name].concat() }
}

fn node_of(opened: &OwnedFd) -> io::Result<Node> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(opened, "", AtFlags::EMPTY_PATH, wanted)?;
    let device = (found.stx_rdev_major, found.stx_rdev_minor);
    let kind = match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::RegularFile => Kind::File { bytes: found.stx_size },
        FileType::Directory => Kind::Directory,
        FileType::Symlink => {
            Kind::Link { target: rustix::fs::readlinkat(opened, "", Vec::new())?.into_bytes() }
        }
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => Kind::Socket,
        FileType::BlockDevice => Kind::Block { device },
        FileType::CharacterDevice | FileType::Unknown => Kind::Character { device },
    };
    Ok(Node {
        kind,
        mode: u32::from(found.stx_mode) & 0o7777,
        uid: found.stx_uid,
        gid: found.stx_gid,
        attributes: attributes_of(opened)?,
        modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        identity: Some(Identity {
            inode: found.stx_ino,
            born: (found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
            links: found.stx_nlink,
        }),
    })
}

/// Whether an attribute is copied. Those of the file system and of Burrow are not.
pub(crate) fn is_carried(name: &[u8]) -> bool {
    !name.starts_with(b"btrfs.")
        && !name.starts_with(b"trusted.burrow.")
        && !name.starts_with(b"security.selinux")
}

fn attributes_of(opened: &OwnedFd) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // The attributes of a file that was opened with `O_PATH` are only accessible by this name, which leads to nothing else.
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let mut found = BTreeMap::new();
    // Most files have no attributes, or few.
    let mut names = vec![0; 1024];
    let mut listed = rustix::fs::listxattr(&*path, &mut *names);
    if listed == Err(Errno::RANGE) {
        names = vec![0; ATTRIBUTE_BYTES_MAX];
        listed = rustix::fs::listxattr(&*path, &mut *names);
    }
    let length = match listed {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(found),
        Ok(length) => length,
        Err(error) => return Err(error.into()),
    };
    let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty() && is_carried(name)) {
        match rustix::fs::getxattr(&*path, name, &mut *value) {
            Ok(length) => drop(found.insert(name.to_vec(), value[..length].to_vec())),
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Whether two files have the same content.
pub(crate) fn same_content(left: &mut File, right: &mut File) -> io::Result<bool> {
    let (mut one, mut other) = (vec![0; FIRST_BLOCK_BYTES], vec![0; FIRST_BLOCK_BYTES]);
    loop {
        let read = fill(left, &mut one)?;
        if read != fill(right, &mut other)? || one[..read] != other[..read] {
            return Ok(false);
        }
        if read < one.len() {
            return Ok(true);
        }
        one.resize(BLOCK_BYTES, 0);
        other.resize(BLOCK_BYTES, 0);
    }
}

fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_reported_and_never_followed() {
        let (tree, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(host.path().join("secret"), "the host's").unwrap();
        symlink(host.path(), tree.path().join("out")).unwrap();
        symlink("..", tree.path().join("up")).unwrap();
        let root = Root::open(tree.path()).unwrap();
        assert!(matches!(root.node(b"/out").unwrap().unwrap().kind, Kind::Link { .. }));
        for path in [&b"/out/secret"[..], b"/../secret", b"/up/x", b"/missing"] {
            assert_eq!(root.node(path).unwrap(), None);
            assert!(root.file(path).unwrap().is_none());
        }
        assert!(root.file(b"/out").unwrap().is_none());
        let mut walked = root.walk(10).unwrap();
        walked.sort();
        assert_eq!(walked, [b"/out".to_vec(), b"/up".to_vec()]);
    }

    #[test]
    fn a_node_has_kind_mode_size_and_attributes() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("file"), "12345").unwrap();
        xattr::set(tree.path().join("file"), "user.note", b"x").unwrap();
        rustix::fs::mknodat(CWD, tree.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let root = Root::open(tree.path()).unwrap();
        let file = root.node(b"/file").unwrap().unwrap();
        assert_eq!((file.kind.clone(), file.bytes()), (Kind::File { bytes: 5 }, 5));
        assert_eq!(file.attributes.get(&b"user.note"[..]), Some(&b"x".to_vec()));
        let pipe = root.node(b"/pipe").unwrap().unwrap();
        assert_eq!((pipe.kind, pipe.mode), (Kind::Pipe, 0o400));
        assert!(root.node(b"/").unwrap().unwrap().is_directory());
        assert_eq!(root.read(b"/file", 5).unwrap().as_deref(), Some(&b"12345"[..]));
        assert_eq!(root.read(b"/file", 4).unwrap(), None);
        // Opening a pipe would block.
        assert!(root.file(b"/pipe").unwrap().is_none());
    }
}
