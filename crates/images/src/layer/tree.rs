//! The directory to which a layer is applied: finds directories in it, and removes existing entries.
//!
//! A path may lead through links of the image itself (`lib` is a link to `usr/lib` in most images), as it would for
//! programs whose root this is. Directories are therefore resolved by `openat2` with this root: neither `..` nor an
//! absolute link leads out. The last component of a path is never followed.
//!
//! Invariant: nothing else changes the tree. If something did, the worst result would be a layer applied wrongly
//! within the root: every step is by descriptor.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CStr, CString};
use std::hash::BuildHasher;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::attributes::{self, Shift};
use crate::entries::Time;

/// Nested directories open at once.
const DEPTH_MAX: usize = 512;

/// Links on the way to one directory; the kernel's own limit.
const LINKS_MAX: usize = 40;

/// `openat2` must be retried if anything on the host was renamed meanwhile and `..` was on the way.
const TRIES_MAX: u32 = 128;

/// Paths remembered to restore the times of their directories. Further directories keep the current time.
const TIMES_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(super) struct Tree<'r> {
    root: BorrowedFd<'r>,
    pub(super) shift: Shift,
    /// Whether a path may lead through links, and through directories without an entry.
    pub(super) paths: Paths,
    /// Whether the tree was empty before this layer, so that no whiteout has an effect.
    was_empty: bool,
    /// The entries that this layer created, by directory and name: whiteouts hide what is below the layer, not what
    /// is in it.
    touched: HashSet<(u64, u64)>,
    /// Directories without anything left of lower layers. Otherwise each whiteout in a large directory would read the
    /// whole directory.
    cleaned: HashSet<u64>,
    hashes: RandomState,
    /// The directory that was used last: most entries follow their siblings.
    last: Option<(Vec<u8>, Rc<Directory>)>,
    /// The final times of directories, by inode: every entry created in them changes it.
    times: HashMap<u64, (Vec<u8>, Time)>,
    times_bytes: usize,
}

/// A directory of the tree.
pub(super) struct Directory {
    pub(super) fd: OwnedFd,
    pub(super) inode: u64,
    /// Whether files created in it inherit an access control list.
    pub(super) has_default_acl: bool,
}

/// What to do about missing parent directories.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingParents {
    Make,
    Leave,
}

/// How the paths of entries are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    /// As in layers: through links of the image itself, and through directories whose entry follows later or never.
    Layer,
    /// Existing directories only, and no links.
    Exact,
}

/// Which entries a removal keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptEntries {
    Nothing,
    OfThisLayer,
}

impl<'r> Tree<'r> {
    pub(super) fn open(root: BorrowedFd<'r>, shift: Shift, paths: Paths) -> Result<Self, Errno> {
        let mut tree = Self {
            root,
            shift,
            paths,
            was_empty: false,
            touched: HashSet::new(),
            cleaned: HashSet::new(),
            hashes: RandomState::new(),
            last: None,
            times: HashMap::new(),
            times_bytes: 0,
        };
        let fd = tree.resolve(b"")?;
        tree.was_empty = children(fd.as_fd())?.is_empty();
        Ok(tree)
    }

    pub(super) fn root(&self) -> BorrowedFd<'r> {
        self.root
    }

    /// The directory of this path. `None` if it does not exist and must not be created.
    pub(super) fn directory(
        &mut self,
        path: &[u8],
        missing: MissingParents,
    ) -> Result<Option<Rc<Directory>>, Errno> {
        if let Some((known, directory)) = &self.last
            && known == path
        {
            return Ok(Some(Rc::clone(directory)));
        }
        let fd = match (self.resolve(path), missing) {
            (Ok(fd), _) => fd,
            (Err(Errno::NOENT), MissingParents::Make) if self.paths == Paths::Layer => self.make(path)?,
            (Err(Errno::NOENT), MissingParents::Make) => return Ok(None),
            (Err(Errno::NOENT), MissingParents::Leave) => return Ok(None),
            (Err(error), _) => return Err(error),
        };
        let found = rustix::fs::fstat(&fd)?;
        self.remember_time(found.st_ino, path, modified(&found), KnownTime::Keep);
        let has_default_acl = attributes::has_default_acl(fd.as_fd())?;
        let directory = Rc::new(Directory { fd, inode: found.st_ino, has_default_acl });
        self.last = Some((path.to_vec(), Rc::clone(&directory)));
        Ok(Some(directory))
    }

    fn resolve(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { &b"."[..] } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let beneath = ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let beneath = match self.paths {
            Paths::Layer => beneath | ResolveFlags::IN_ROOT,
            Paths::Exact => beneath | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        };
        for _ in 1..TRIES_MAX {
            match rustix::fs::openat2(self.root, path, flags, Mode::empty(), beneath) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
        rustix::fs::openat2(self.root, path, flags, Mode::empty(), beneath)
    }

    /// Walks like [`Self::resolve`], component by component, and creates missing directories, also at the target of a
    /// link.
    fn make(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        // The directories from the root down; `..` removes the last, but not the first.
        let mut above: Vec<OwnedFd> = vec![self.resolve(b"")?];
        let mut rest: VecDeque<Vec<u8>> = parts(path).collect();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if part == b".." {
                above.truncate(above.len().saturating_sub(1).max(1));
                continue;
            }
            let here = above.last().expect("the root is never removed").as_fd();
            let name = CString::new(part).map_err(|_| Errno::INVAL)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(here, &name, flags, Mode::empty()) {
                Ok(_) if above.len() == DEPTH_MAX => return Err(Errno::NAMETOOLONG),
                Ok(next) => above.push(next),
                Err(Errno::NOENT) => {
                    let next = self.make_one(here, &name)?;
                    above.push(next);
                }
                // With these flags a link is not a directory; if it is not a link either, it is in the way.
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let target = match rustix::fs::readlinkat(here, &name, Vec::new()) {
                        Ok(target) => target.into_bytes(),
                        Err(Errno::INVAL) => return Err(Errno::NOTDIR),
                        Err(error) => return Err(error),
                    };
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP);
                    }
                    if target.starts_with(b"/") {
                        above.truncate(1);
                    }
                    for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                        rest.push_front(part);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(above.pop().expect("the root is never removed"))
    }

    /// Creates a directory without an entry: owned by root, with the time of the epoch. The time of its parent is
    /// kept.
    fn make_one(&self, here: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        let before = modified(&rustix::fs::fstat(here)?);
        rustix::fs::mkdirat(here, name, Mode::from_raw_mode(0o755))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = rustix::fs::openat(here, name, flags, Mode::empty())?;
        attributes::clear(next.as_fd())?;
        let root = self.shift.id(0).ok_or(Errno::OVERFLOW)?;
        rustix::fs::fchown(&next, Some(Uid::from_raw(root)), Some(Gid::from_raw(root)))?;
        rustix::fs::fchmod(&next, Mode::from_raw_mode(0o755))?;
        rustix::fs::futimens(&next, &timestamps(Time::default()))?;
        rustix::fs::futimens(here, &timestamps(before))?;
        Ok(next)
    }

    /// The next directory is resolved again.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }

    /// Records that this layer created `name`.
    pub(super) fn touch(&mut self, directory: &Directory, name: &CStr) {
        if !self.was_empty {
            let key = self.key(directory.inode, name);
            self.touched.insert(key);
        }
    }

    fn key(&self, directory: u64, name: &CStr) -> (u64, u64) {
        (directory, self.hashes.hash_one(name.to_bytes()))
    }

    /// Removes `name` and its content. It is not an error if it does not exist.
    pub(super) fn remove(&mut self, directory: &Directory, name: &CStr) -> Result<(), Errno> {
        self.remove_name(directory.fd.as_fd(), directory.inode, name, KeptEntries::Nothing, 0)
    }

    /// Removes what lower layers have under this name.
    pub(super) fn hide(&mut self, directory: &Directory, name: &CStr) -> Result<(), Errno> {
        if self.was_empty {
            return Ok(());
        }
        self.remove_name(directory.fd.as_fd(), directory.inode, name, KeptEntries::OfThisLayer, 0)
    }

    /// Removes what lower layers have in this directory.
    pub(super) fn hide_all(&mut self, directory: &Directory) -> Result<(), Errno> {
        if self.was_empty {
            return Ok(());
        }
        self.remove_children(directory.fd.as_fd(), directory.inode, KeptEntries::OfThisLayer, 0)
    }

    fn remove_name(
        &mut self,
        directory: BorrowedFd<'_>,
        inode: u64,
        name: &CStr,
        spare: KeptEntries,
        depth: usize,
    ) -> Result<(), Errno> {
        let touched = spare == KeptEntries::OfThisLayer && self.touched.contains(&self.key(inode, name));
        let found = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind != FileType::Directory {
            if touched {
                return Ok(());
            }
            if kind == FileType::Symlink {
                self.last = None;
            }
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.last = None;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        self.remove_children(inside.as_fd(), found.st_ino, spare, depth + 1)?;
        if touched {
            return Ok(());
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
            // It contains something of this layer.
            Err(Errno::NOTEMPTY | Errno::EXIST) if spare == KeptEntries::OfThisLayer => Ok(()),
            result => result,
        }
    }

    fn remove_children(
        &mut self,
        directory: BorrowedFd<'_>,
        inode: u64,
        spare: KeptEntries,
        depth: usize,
    ) -> Result<(), Errno> {
        if spare == KeptEntries::OfThisLayer && self.cleaned.contains(&inode) {
            return Ok(());
        }
        for name in children(directory)? {
            self.remove_name(directory, inode, &name, spare, depth)?;
        }
        if spare == KeptEntries::OfThisLayer {
            self.cleaned.insert(inode);
        }
        Ok(())
    }

    /// Records the final time of a directory.
    pub(super) fn set_time(&mut self, inode: u64, path: &[u8], time: Time) {
        self.remember_time(inode, path, time, KnownTime::Replace);
    }

    fn remember_time(&mut self, inode: u64, path: &[u8], time: Time, known: KnownTime) {
        if known == KnownTime::Keep && self.times.contains_key(&inode) {
            return;
        }
        if self.times_bytes + path.len() > TIMES_BYTES_MAX {
            return;
        }
        self.times_bytes += path.len();
        if let Some((path, _)) = self.times.insert(inode, (path.to_vec(), time)) {
            self.times_bytes -= path.len();
        }
    }

    /// Restores the times of directories. Must be the last step.
    pub(super) fn restore_times(&mut self) -> Result<(), Errno> {
        for (inode, (path, time)) in std::mem::take(&mut self.times) {
            // It was removed or replaced meanwhile, so its time is not set.
            let Ok(fd) = self.resolve(&path) else { continue };
            if rustix::fs::fstat(&fd)?.st_ino == inode {
                rustix::fs::futimens(&fd, &timestamps(time))?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownTime {
    Keep,
    Replace,
}

fn parts(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let named = |part: &&[u8]| !part.is_empty() && *part != b".";
    path.split(|&byte| byte == b'/').filter(named).map(<[u8]>::to_vec)
}

/// The names in a directory, read completely first, so that removing them does not affect the reading.
fn children(directory: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

fn modified(found: &Stat) -> Time {
    Time { seconds: found.st_mtime, nanoseconds: u32::try_from(found.st_mtime_nsec).unwrap_or(0) }
}

/// The same value for access and change; the time of reading a layer is irrelevant.
pub(super) fn timestamps(time: Time) -> Timestamps {
    let time = Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) };
    Timestamps { last_access: time, last_modification: time }
}
