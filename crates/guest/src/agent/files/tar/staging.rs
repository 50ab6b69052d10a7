//! The directory to which an archive is unpacked before it is moved into place.
//!
//! Only root can access it, and it is on the target's own file system. Entries are created below its descriptor, with
//! `openat2` refusing links on the way, so that nothing in an archive can lead out of it. If everything is accepted
//! it is moved into the target; if anything is refused it is removed, and the target is unchanged.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;

use super::super::remove::remove_tree;
use super::header::{Entry, refused as archive_refused};
use super::merge;
use crate::agent::failure::{fail, refused};
use crate::agent::random::new_id;
use crate::agent::users::{self, User};
use crate::protocol::{ErrorCode, RequestError};

/// Directories whose time is set at the end, since every file created in them changes it. Further ones keep the
/// current time.
const DIRECTORY_TIMES_MAX: usize = 65_536;

/// The mode bits that an uploaded archive may set: no setuid, no setgid.
const MODE_MASK: u32 = 0o1777;

pub(super) struct Staging {
    target: PathBuf,
    target_exists: bool,
    path: PathBuf,
    root: OwnedFd,
    /// The owner of all entries; the archive's own ids if absent.
    owner: Option<User>,
    /// The directory in which the last file was created: most entries follow their siblings.
    last_parent: Option<(Vec<Vec<u8>>, OwnedFd)>,
    directory_times: Vec<(Vec<Vec<u8>>, i64)>,
    /// The mode of the root directory, if it is new.
    root_mode: u32,
    in_place: bool,
}

/// A file being unpacked.
pub(super) struct StagedFile {
    fd: OwnedFd,
    name: String,
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.in_place {
            let _ = remove_tree(&self.path);
        }
    }
}

impl Staging {
    pub(super) fn open(target: &str, user: Option<&str>) -> Result<Self, RequestError> {
        let owner = user.map(|user| users::resolve(Some(user))).transpose()?;
        let failed = |errno| refused("unpack into", target, errno);
        let hidden = format!(".burrow-{}", new_id());
        let target_path = Path::new(target);
        let target_exists = match rustix::fs::statat(CWD, target_path, AtFlags::empty()) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => true,
            Ok(_) => {
                return Err(fail(ErrorCode::NotADirectory, format_args!("`{target}` is not a directory")));
            }
            Err(Errno::NOENT) => false,
            Err(errno) => return Err(failed(errno)),
        };
        // Inside an existing target, which may be a mount point; next to a target that does not exist yet.
        let path = match target_exists {
            true => target_path.join(hidden),
            false => target_path.parent().unwrap_or(Path::new("/")).join(hidden),
        };
        rustix::fs::mkdir(&path, Mode::RWXU).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty()).map_err(failed)?;
        Ok(Self {
            target: target_path.to_owned(),
            target_exists,
            path,
            root,
            owner,
            last_parent: None,
            directory_times: Vec::new(),
            root_mode: 0o755,
            in_place: false,
        })
    }

    pub(super) fn directory(&mut self, path: &[Vec<u8>], entry: &Entry) -> Result<(), RequestError> {
        self.last_parent = None;
        let fd = self.open_directory(path)?;
        let failed = |errno| refused("unpack", shown(path), errno);
        // Other users cannot enter the root until it is in place; see `put_in_place`.
        if !path.is_empty() {
            self.set_owner(&fd, entry).map_err(failed)?;
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(entry.mode & MODE_MASK)).map_err(failed)?;
        } else if !self.target_exists {
            self.set_owner(&fd, entry).map_err(failed)?;
            self.root_mode = entry.mode & MODE_MASK;
        }
        if self.directory_times.len() < DIRECTORY_TIMES_MAX {
            self.directory_times.push((path.to_vec(), entry.mtime));
        }
        Ok(())
    }

    pub(super) fn file(&mut self, path: &[Vec<u8>]) -> Result<StagedFile, RequestError> {
        let name = shown(path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            self.make(path, |parent, name| rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR))?;
        Ok(StagedFile { fd, name })
    }

    pub(super) fn symlink(
        &mut self,
        path: &[Vec<u8>],
        target: &[u8],
        entry: &Entry,
    ) -> Result<(), RequestError> {
        let (uid, gid) = self.owner_of(entry);
        let target = OsStr::from_bytes(target).to_owned();
        self.make(path, |parent, name| {
            rustix::fs::symlinkat(&*target, parent, name)?;
            rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            rustix::fs::utimensat(parent, name, &times(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)
        })
    }

    /// Only to a file of the same archive, which is found without following links.
    pub(super) fn hard_link(&mut self, path: &[Vec<u8>], target: &[Vec<u8>]) -> Result<(), RequestError> {
        let joined = join(target);
        let outside = || archive_refused("the target of a hard link is not in it");
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat2(&self.root, &*joined, flags, Mode::empty(), how).map_err(|_| outside())?;
        let stat = rustix::fs::fstat(&file).map_err(|_| outside())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(outside());
        }
        if path == target {
            return Ok(());
        }
        use std::os::fd::AsRawFd;
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        self.make(path, |parent, name| {
            rustix::fs::linkat(CWD, &source, parent, name, AtFlags::SYMLINK_FOLLOW)
        })
    }

    /// Moves everything to its target.
    pub(super) fn put_in_place(mut self) -> Result<(), RequestError> {
        let failed = |errno| refused("unpack into", self.target.display(), errno);
        self.last_parent = None;
        for (path, mtime) in std::mem::take(&mut self.directory_times) {
            let fd = self.open_directory(&path)?;
            rustix::fs::futimens(&fd, &times(mtime)).map_err(failed)?;
        }
        if self.target_exists {
            return merge::merge(&self.root, &self.target, self.path.file_name());
        }
        if let Some(owner) = &self.owner {
            rustix::fs::fchown(&self.root, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))
                .map_err(failed)?;
        }
        rustix::fs::fchmod(&self.root, Mode::from_raw_mode(self.root_mode)).map_err(failed)?;
        rustix::fs::renameat_with(CWD, &self.path, CWD, &self.target, RenameFlags::NOREPLACE)
            .map_err(failed)?;
        self.in_place = true;
        Ok(())
    }

    /// Creates an entry at `path`, and replaces an earlier entry of that name unless that is a directory.
    fn make<T>(
        &mut self,
        path: &[Vec<u8>],
        make: impl Fn(&OwnedFd, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, RequestError> {
        let Some((name, parent)) = path.split_last() else {
            return Err(archive_refused("its root is not a directory"));
        };
        let name = OsStr::from_bytes(name);
        if self.last_parent.as_ref().is_none_or(|(last, _)| last != parent) {
            self.last_parent = Some((parent.to_vec(), self.open_directory(parent)?));
        }
        let (_, fd) = self.last_parent.as_ref().expect("set above");
        let failed = |errno| refused("unpack", shown(path), errno);
        match make(fd, name) {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(fd, name, AtFlags::empty()).map_err(failed)?;
                make(fd, name).map_err(failed)
            }
            other => other.map_err(failed),
        }
    }

    /// Opens a directory of the staging tree, and creates missing ones. A link on the way refuses the archive.
    fn open_directory(&self, path: &[Vec<u8>]) -> Result<OwnedFd, RequestError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let open = |path: &OsStr| rustix::fs::openat2(&self.root, path, flags, Mode::empty(), how);
        let refuse = |errno| match errno {
            Errno::LOOP | Errno::NOTDIR => archive_refused("it has an entry below a symbolic link or a file"),
            _ => refused("unpack", shown(path), errno),
        };
        match open(&join(path)) {
            Ok(fd) => return Ok(fd),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(refuse(errno)),
        }
        let mut fd = open(OsStr::new(".")).map_err(refuse)?;
        for depth in 0..path.len() {
            let name = OsStr::from_bytes(&path[depth]);
            match rustix::fs::mkdirat(&fd, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    fd = open(&join(&path[..=depth])).map_err(refuse)?;
                    if let Some(owner) = &self.owner {
                        rustix::fs::fchown(
                            &fd,
                            Some(Uid::from_raw(owner.uid)),
                            Some(Gid::from_raw(owner.gid)),
                        )
                        .map_err(refuse)?;
                    }
                }
                Err(Errno::EXIST) => fd = open(&join(&path[..=depth])).map_err(refuse)?,
                Err(errno) => return Err(refuse(errno)),
            }
        }
        Ok(fd)
    }

    fn owner_of(&self, entry: &Entry) -> (Uid, Gid) {
        match &self.owner {
            Some(owner) => (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid)),
            None => (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid)),
        }
    }

    fn set_owner(&self, fd: &OwnedFd, entry: &Entry) -> Result<(), Errno> {
        let (uid, gid) = self.owner_of(entry);
        rustix::fs::fchown(fd, Some(uid), Some(gid))
    }
}

impl StagedFile {
    pub(super) fn write(&self, mut bytes: &[u8]) -> Result<(), RequestError> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.fd, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(refused("unpack", &self.name, errno)),
            }
        }
        Ok(())
    }

    pub(super) fn finish(self, staging: &Staging, entry: &Entry) -> Result<(), RequestError> {
        let failed = |errno| refused("unpack", &self.name, errno);
        staging.set_owner(&self.fd, entry).map_err(failed)?;
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(entry.mode & MODE_MASK)).map_err(failed)?;
        rustix::fs::futimens(&self.fd, &times(entry.mtime)).map_err(failed)
    }
}

fn times(mtime: i64) -> Timestamps {
    let time = Timespec { tv_sec: mtime, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

fn join(path: &[Vec<u8>]) -> std::ffi::OsString {
    if path.is_empty() {
        return ".".into();
    }
    OsStr::from_bytes(&path.join(&b'/')).to_owned()
}

fn shown(path: &[Vec<u8>]) -> String {
    join(path).to_string_lossy().into_owned()
}
