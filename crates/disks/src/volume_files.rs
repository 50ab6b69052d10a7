//! The files of a volume, read and changed by the host itself.
//!
//! A sandbox may have the same volume, change it at the same moment, and be hostile. So the kernel resolves every path
//! beneath the volume's root and follows no link, including the last component: whatever a sandbox puts in the way of a
//! request makes it fail, and never leads it elsewhere. Only regular files are opened for their content.
//!
//! Owners are shown as the sandbox sees them: on disk they are shifted by [`UID_SHIFT`]. Blocks; call it where that is allowed.

use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, fchown, fstat, linkat, mkdirat,
    openat, openat2, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::{UID_COUNT, UID_SHIFT};

/// Entries of one listing: as many as a client can still process at once.
pub const ENTRIES_MAX: usize = 10_000;

/// Levels that a listing descends at most.
pub const DEPTH_MAX: u32 = 64;

/// Levels that a removal descends at most: each keeps a descriptor open.
const REMOVAL_DEPTH_MAX: usize = 512;

const PATH_BYTES_MAX: usize = 4096;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Every user in a sandbox may write to a volume that was mounted to be written to.
const ROOT_MODE: u32 = 0o777;
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// The id that the kernel shows inside for an owner that does not exist there.
const NOBODY: u32 = 65_534;

/// An open volume.
#[derive(Debug)]
pub struct VolumeFiles {
    root: OwnedFd,
}

/// A file, directory, link or other entry of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEntry {
    pub name: String,
    /// Relative to the volume's root, with a leading slash.
    pub path: String,
    pub kind: VolumeEntryKind,
    pub bytes: u64,
    /// Permissions, and the three bits above them.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Milliseconds since the epoch.
    pub accessed_ms: u64,
    pub modified_ms: u64,
    pub changed_ms: u64,
    /// Of a link.
    pub target: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeEntryKind {
    File,
    Directory,
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// The new owner and mode of an entry; `None` keeps the present value, or uses the default for a new entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mode: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeFileError {
    #[error("a path has at most {PATH_BYTES_MAX} bytes and no `..`")]
    BadPath,
    #[error("an owner is a number below {UID_COUNT}, and a mode one below 0o10000")]
    BadOwner,
    #[error("there is nothing at `{path}`")]
    NotFound { path: String },
    #[error("`{path}` is or leads through a link, which is not followed")]
    Link { path: String },
    #[error("`{path}` is not a directory")]
    NotDirectory { path: String },
    #[error("`{path}` is not a regular file")]
    NotFile { path: String },
    #[error("there is something at `{path}` already")]
    Exists { path: String },
    #[error("`{path}` contains more than {ENTRIES_MAX} entries, or is nested too deep")]
    TooMuch { path: String },
    #[error("the volume is full")]
    Full,
    #[error("could not {step} `{path}`")]
    Step { step: &'static str, path: String, source: io::Error },
}

/// A new file whose content is being received. It has no name yet: if it is dropped, or after a crash, nothing is left.
#[derive(Debug)]
pub struct IncomingFile {
    file: File,
    folder: OwnedFd,
    path: Parts,
}

/// The top directory of a new volume.
pub(crate) fn make_root(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    std::os::unix::fs::chown(path, Some(UID_SHIFT), Some(UID_SHIFT))?;
    fs::set_permissions(path, fs::Permissions::from_mode(ROOT_MODE))
}

impl VolumeFiles {
    /// The path up to the root is the daemon's own and is trusted; from the root on, nothing is.
    pub fn open(root: &Path) -> Result<Self, VolumeFileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(CWD, root, flags, Mode::empty());
        Ok(Self { root: opened.map_err(|error| failed("open the volume", "/")(error.into()))? })
    }

    pub fn stat(&self, path: &str) -> Result<VolumeEntry, VolumeFileError> {
        let path = Parts::of(path)?;
        self.entry(&path)
    }

    /// The entries of a directory, `depth` levels down, sorted by path.
    pub fn list(&self, path: &str, depth: u32) -> Result<Vec<VolumeEntry>, VolumeFileError> {
        let top = Parts::of(path)?;
        let (mut found, mut left) = (Vec::new(), vec![(top.clone(), depth.clamp(1, DEPTH_MAX))]);
        while let Some((folder, depth)) = left.pop() {
            let opened = match self.directory(&folder) {
                Ok(opened) => opened,
                // It was removed or replaced while the others were read, or it is deeper than can be requested.
                Err(
                    VolumeFileError::NotFound { .. }
                    | VolumeFileError::NotDirectory { .. }
                    | VolumeFileError::Link { .. }
                    | VolumeFileError::BadPath,
                ) if folder != top => continue,
                Err(error) => return Err(error),
            };
            for name in names(&opened).map_err(failed("list", &folder.shown()))? {
                let Some(entry) =
                    entry_at(&opened, &name, &folder).map_err(failed("inspect", &folder.shown()))?
                else {
                    continue;
                };
                if entry.kind == VolumeEntryKind::Directory && depth > 1 {
                    // Names that are not text cannot be requested either.
                    left.extend(name.to_str().ok().map(|name| (folder.join(name), depth - 1)));
                }
                found.push(entry);
                if found.len() > ENTRIES_MAX {
                    return Err(VolumeFileError::TooMuch { path: top.shown() });
                }
            }
        }
        found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Creates a directory; with `parents`, also those above it, and an existing directory is not an error.
    pub fn make_directory(
        &self,
        path: &str,
        owner: Ownership,
        parents: bool,
    ) -> Result<VolumeEntry, VolumeFileError> {
        let (path, owner) = (Parts::of(path)?, owner.checked()?);
        let (Some(above), Some(name)) = (path.above(), path.name()) else {
            return if parents {
                self.entry(&path)
            } else {
                Err(VolumeFileError::Exists { path: path.shown() })
            };
        };
        if parents {
            self.make_above(&above)?;
        }
        let folder = self.directory(&above)?;
        match mkdirat(&folder, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = openat2(&folder, name, flags, Mode::empty(), BENEATH);
                let made = made.map_err(|error| wrong(&path)(error))?;
                own(&made, owner, DIRECTORY_MODE).map_err(failed("make the directory", &path.shown()))?;
                sync(&folder).map_err(failed("make the directory", &path.shown()))?;
            }
            Err(Errno::EXIST) if parents => drop(self.directory(&path)?),
            Err(Errno::EXIST) => return Err(VolumeFileError::Exists { path: path.shown() }),
            Err(error) => return Err(failed("make the directory", &path.shown())(error.into())),
        }
        self.entry(&path)
    }

    /// Opens a regular file for reading.
    pub fn read(&self, path: &str) -> Result<(File, VolumeEntry), VolumeFileError> {
        let path = Parts::of(path)?;
        // Inspected before it is opened: opening a pipe waits for its other end, and opening a device has side effects.
        let looked = self.open_path(&path)?;
        let stat = fstat(&looked).map_err(|error| failed("inspect", &path.shown())(error.into()))?;
        let kind = kind(&stat);
        if kind == FileType::Symlink {
            return Err(VolumeFileError::Link { path: path.shown() });
        }
        if kind != FileType::RegularFile {
            return Err(VolumeFileError::NotFile { path: path.shown() });
        }
        let entry = described(&stat, path.name().unwrap_or("/").to_owned(), path.shown(), None);
        // By the descriptor, so that exactly the inspected file is opened.
        let place = format!("/proc/self/fd/{}", looked.as_raw_fd());
        let file = File::open(place).map_err(failed("open", &path.shown()))?;
        Ok((file, entry))
    }

    /// Starts a file that will be at `path`, replacing an existing file; with `parents`, missing directories above it are
    /// created.
    pub fn begin(&self, path: &str, parents: bool) -> Result<IncomingFile, VolumeFileError> {
        let path = Parts::of(path)?;
        let above = path.above().ok_or_else(|| VolumeFileError::NotFile { path: path.shown() })?;
        if parents {
            self.make_above(&above)?;
        }
        let folder = self.directory(&above)?;
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = openat(&folder, ".", flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(|error| failed("make", &path.shown())(error.into()))?.into();
        Ok(IncomingFile { file, folder, path })
    }

    /// Puts a file whose content is complete at its path, durably.
    pub fn finish(&self, incoming: IncomingFile, owner: Ownership) -> Result<VolumeEntry, VolumeFileError> {
        let owner = owner.checked()?;
        let IncomingFile { file, folder, path } = incoming;
        let Some(name) = path.name() else { return Err(VolumeFileError::NotFile { path: path.shown() }) };
        if let Some(there) = look(&folder, &text(name)?).map_err(failed("inspect", &path.shown()))?
            && kind(&there) == FileType::Directory
        {
            return Err(VolumeFileError::NotFile { path: path.shown() });
        }
        let put = || -> io::Result<()> {
            own(&file, owner, FILE_MODE)?;
            file.sync_all()?;
            // A name can be linked to it only if it is free; an existing name is replaced by a rename.
            let passing = format!(".burrow-{}", burrow_model::OperationId::generate());
            let place = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, place, &folder, &passing, AtFlags::SYMLINK_FOLLOW)?;
            if let Err(error) = renameat(&folder, &passing, &folder, name) {
                let _ = unlinkat(&folder, &passing, AtFlags::empty());
                return Err(error.into());
            }
            sync(&folder)
        };
        put().map_err(failed("write", &path.shown()))?;
        self.entry(&path)
    }

    /// Removes a file, or a directory with its content.
    pub fn remove(&self, path: &str) -> Result<(), VolumeFileError> {
        let path = Parts::of(path)?;
        let (Some(above), Some(name)) = (path.above(), path.name()) else {
            return Err(VolumeFileError::BadPath);
        };
        let folder = self.directory(&above)?;
        remove_all(&folder, &text(name)?, &path)?;
        sync(&folder).map_err(failed("remove", &path.shown()))
    }

    /// Changes the owner and the permissions of an entry.
    pub fn own(&self, path: &str, owner: Ownership) -> Result<VolumeEntry, VolumeFileError> {
        let (path, owner) = (Parts::of(path)?, owner.checked()?);
        let opened = self.open_path(&path)?;
        let looked = fstat(&opened).map_err(|error| failed("inspect", &path.shown())(error.into()))?;
        if kind(&looked) == FileType::Symlink {
            return Err(VolumeFileError::Link { path: path.shown() });
        }
        own_by_path(&opened, owner, &looked).map_err(failed("change", &path.shown()))?;
        self.entry(&path)
    }

    // === Parts ===

    fn entry(&self, path: &Parts) -> Result<VolumeEntry, VolumeFileError> {
        let opened = self.open_path(path)?;
        let looked = fstat(&opened).map_err(|error| failed("inspect", &path.shown())(error.into()))?;
        let target = if kind(&looked) == FileType::Symlink {
            let target = readlinkat(&opened, "", Vec::new());
            Some(shown(&target.map_err(|error| failed("inspect", &path.shown())(error.into()))?))
        } else {
            None
        };
        Ok(described(&looked, path.name().unwrap_or("/").to_owned(), path.shown(), target))
    }

    /// Opens a path, a link itself included, neither for reading nor for writing.
    fn open_path(&self, path: &Parts) -> Result<OwnedFd, VolumeFileError> {
        let Some((above, name)) = path.above().zip(path.name()) else { return self.directory(path) };
        let folder = self.directory(&above)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&folder, name, flags, Mode::empty()).map_err(wrong(path))
    }

    fn directory(&self, path: &Parts) -> Result<OwnedFd, VolumeFileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(&self.root, path.relative(), flags, Mode::empty(), BENEATH).map_err(wrong(path))
    }

    fn make_above(&self, path: &Parts) -> Result<(), VolumeFileError> {
        let mut so_far = Parts(Vec::new());
        for part in &path.0 {
            let folder = self.directory(&so_far)?;
            let below = so_far.join(part);
            match mkdirat(&folder, part.as_str(), Mode::from_raw_mode(0o700)) {
                Ok(()) => {
                    let made = self.directory(&below)?;
                    let usual = Ownership::default();
                    own(&made, usual, DIRECTORY_MODE)
                        .map_err(failed("make the directory", &below.shown()))?;
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed("make the directory", &below.shown())(error.into())),
            }
            so_far = below;
        }
        self.directory(&so_far).map(drop)
    }
}

impl IncomingFile {
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), VolumeFileError> {
        self.file.write_all(bytes).map_err(failed("write", &self.path.shown()))
    }
}

impl Ownership {
    fn checked(self) -> Result<Self, VolumeFileError> {
        let owner = |id: Option<u32>| id.is_none_or(|id| id < UID_COUNT);
        let good = owner(self.uid) && owner(self.gid) && self.mode.is_none_or(|mode| mode <= 0o7777);
        if good { Ok(self) } else { Err(VolumeFileError::BadOwner) }
    }
}

/// A path, split into its components.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts(Vec<String>);

impl Parts {
    fn of(path: &str) -> Result<Self, VolumeFileError> {
        let parts: Vec<String> =
            path.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect();
        let bad = |part: &String| part == ".." || part.contains('\0') || part.len() > 255;
        if path.len() > PATH_BYTES_MAX || parts.iter().any(bad) {
            return Err(VolumeFileError::BadPath);
        }
        Ok(Self(parts))
    }

    /// `None` for the root.
    fn above(&self) -> Option<Self> {
        self.0.split_last().map(|(_, above)| Self(above.to_vec()))
    }

    fn name(&self) -> Option<&str> {
        self.0.last().map(String::as_str)
    }

    fn join(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }

    fn relative(&self) -> String {
        if self.0.is_empty() { ".".to_owned() } else { self.0.join("/") }
    }

    fn shown(&self) -> String {
        format!("/{}", self.0.join("/"))
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn described(stat: &Stat, name: String, path: String, target: Option<String>) -> VolumeEntry {
    let inside = |id: u32| match id.checked_sub(UID_SHIFT) {
        Some(id) if id < UID_COUNT => id,
        Some(_) | None => NOBODY,
    };
    let ms = |seconds: i64, nanoseconds: u64| {
        u64::try_from(seconds).unwrap_or(0).saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
    };
    let kind = match kind(stat) {
        FileType::RegularFile => VolumeEntryKind::File,
        FileType::Directory => VolumeEntryKind::Directory,
        FileType::Symlink => VolumeEntryKind::Link,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => VolumeEntryKind::Other,
    };
    VolumeEntry {
        name,
        path,
        kind,
        bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: inside(stat.st_uid),
        gid: inside(stat.st_gid),
        accessed_ms: ms(stat.st_atime, stat.st_atime_nsec),
        modified_ms: ms(stat.st_mtime, stat.st_mtime_nsec),
        changed_ms: ms(stat.st_ctime, stat.st_ctime_nsec),
        target,
    }
}

/// The entry under a name in a directory; `None` if it was removed in the meantime.
fn entry_at(folder: &OwnedFd, name: &CStr, path: &Parts) -> io::Result<Option<VolumeEntry>> {
    let Some(looked) = look(folder, name)? else { return Ok(None) };
    let target = if kind(&looked) == FileType::Symlink {
        match readlinkat(folder, name, Vec::new()) {
            Ok(target) => Some(shown(&target)),
            Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    } else {
        None
    };
    let name = shown(name);
    let path = path.join(&name).shown();
    Ok(Some(described(&looked, name, path, target)))
}

fn look(folder: &OwnedFd, name: &CStr) -> io::Result<Option<Stat>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
        // One more than is shown, so that the caller can refuse.
        if names.len() > ENTRIES_MAX {
            break;
        }
    }
    Ok(names)
}

/// Removes by descriptors, one for each level, down and up again: nothing that a sandbox puts in the way is followed.
fn remove_all(folder: &OwnedFd, name: &CStr, path: &Parts) -> Result<(), VolumeFileError> {
    let at = |error: Errno| failed("remove", &path.shown())(error.into());
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(wrong(path)(error)),
    }
    let mut open = vec![(open_below(folder, name).map_err(wrong(path))?, name.to_owned())];
    while let Some((current, own_name)) = open.last() {
        let mut below = None;
        for name in names(current).map_err(failed("remove", &path.shown()))? {
            match unlinkat(current, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => match unlinkat(current, &name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::NOTEMPTY | Errno::EXIST) => {
                        below = Some((open_below(current, &name).map_err(at)?, name));
                        break;
                    }
                    Err(error) => return Err(at(error)),
                },
                Err(error) => return Err(at(error)),
            }
        }
        if let Some(below) = below {
            if open.len() >= REMOVAL_DEPTH_MAX {
                return Err(VolumeFileError::TooMuch { path: path.shown() });
            }
            open.push(below);
            continue;
        }
        let own_name = own_name.clone();
        open.pop();
        let above = open.last().map_or(folder, |(above, _)| above);
        match unlinkat(above, &own_name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            // The directory is filled while it is emptied. The next round empties it again, but not forever.
            Err(error) => return Err(at(error)),
        }
    }
    Ok(())
}

fn open_below(folder: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(folder, name, flags, Mode::empty(), BENEATH)
}

/// Sets the owner first, because changing it clears set-id bits.
fn own(entry: impl AsFd, owner: Ownership, usual_mode: u32) -> io::Result<()> {
    let (uid, gid) = (owner.uid.unwrap_or(0) + UID_SHIFT, owner.gid.unwrap_or(0) + UID_SHIFT);
    fchown(&entry, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    Ok(rustix::fs::fchmod(entry, Mode::from_raw_mode(owner.mode.unwrap_or(usual_mode)))?)
}

/// The same for an entry that is open neither for reading nor for writing; values that are not given are kept.
fn own_by_path(entry: &OwnedFd, owner: Ownership, was: &Stat) -> io::Result<()> {
    let id = |id: Option<u32>| id.map(|id| id + UID_SHIFT);
    let (uid, gid) = (id(owner.uid).map(Uid::from_raw), id(owner.gid).map(Gid::from_raw));
    if uid.is_some() || gid.is_some() {
        rustix::fs::chownat(entry, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    let mode = owner.mode.unwrap_or(was.st_mode & 0o7777);
    let place = format!("/proc/self/fd/{}", entry.as_raw_fd());
    Ok(rustix::fs::chmod(place, Mode::from_raw_mode(mode))?)
}

fn sync(folder: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::fsync(folder)?)
}

fn text(name: &str) -> Result<CString, VolumeFileError> {
    CString::new(name).map_err(|_| VolumeFileError::BadPath)
}

fn shown(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

/// The error for a path that does not lead to the expected kind of entry.
fn wrong(path: &Parts) -> impl FnOnce(Errno) -> VolumeFileError {
    let path = path.shown();
    move |error| match error {
        Errno::NOENT => VolumeFileError::NotFound { path },
        Errno::LOOP => VolumeFileError::Link { path },
        Errno::NOTDIR => VolumeFileError::NotDirectory { path },
        Errno::XDEV | Errno::NAMETOOLONG => VolumeFileError::BadPath,
        error => failed("open", &path)(error.into()),
    }
}

fn failed(step: &'static str, path: &str) -> impl FnOnce(io::Error) -> VolumeFileError {
    let path = path.to_owned();
    move |source| {
        let full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if full { VolumeFileError::Full } else { VolumeFileError::Step { step, path, source } }
    }
}

#[cfg(test)]
mod tests;
