//! Receives a file's bytes into an unnamed file next to the target, which replaces the target when it is complete.
//!
//! If the host hangs up, the disk is full or the agent dies, the target is unchanged and nothing is left next to it.
//! If the host requests it (`in_place`), the bytes are written to the target itself, as a program inside would: its
//! hard links remain, watchers see it being written, and an interrupted upload leaves a part.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use tokio::net::TcpStream;

use super::entry::look_up;
use super::metadata;
use super::open::open_regular;
use super::replace::{FinishedFile, PendingDiskWork};
use super::splice::{Intake, IntakeError, Stop};
use super::{check_path, on_disk, transfer_permit};
use crate::agent::failure::{fail, invalid, refused};
use crate::agent::random::new_id;
use crate::agent::users::{self, User};
use crate::agent::wire::{Inbox, Outbox, Piece, Readiness, WireError, until_ready};
use crate::protocol::{ErrorCode, FileEntry, RequestError, WriteFile};

/// The prefix of temporary names.
const HIDDEN: &str = ".burrow-";

/// The length of the ids in them.
const ID_BYTES: usize = 23;

/// The kernel's limit.
const LINKS_MAX: usize = 40;

/// Carries out [`crate::protocol::Request::Write`].
pub(in crate::agent) async fn write(
    request: WriteFile,
    stream: &TcpStream,
    inbox: &mut Inbox<'_>,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let permit = transfer_permit().await;
    let (written, pending) = match receive(request, stream, inbox).await? {
        Ok((entry, pending)) => (Ok(entry), pending),
        Err(error) => (Err(error), PendingDiskWork::default()),
    };
    if pending.is_none() {
        drop(permit);
        return outbox.reply(written).await;
    }
    let sent = outbox.reply(written).await;
    // Still holding the permit, so that a host that uploads faster than the disk writes is slowed down.
    let _ = tokio::task::spawn_blocking(move || pending.settle()).await;
    drop(permit);
    sent
}

async fn receive(
    request: WriteFile,
    stream: &TcpStream,
    inbox: &mut Inbox<'_>,
) -> Result<Result<(FileEntry, PendingDiskWork), RequestError>, WireError> {
    let mut piece = Piece::new();
    inbox.fill(&mut piece).await?;
    // A piece that is not full is the last one. Most files fit in the first: they need one task on the pool.
    if !piece.is_full() {
        return Ok(on_disk(move || {
            let mut target = Target::open(&request)?;
            target.write(piece.filled())?;
            target.finish(&request)
        })
        .await);
    }
    let opened = on_disk(move || {
        let mut target = Target::open(&request)?;
        target.write(piece.filled())?;
        Ok((target, request, piece))
    });
    let (mut target, request, mut piece) = match opened.await {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    // More than a piece was read together with the request only if the host sends requests of that size.
    let rest = loop {
        if let Some(rest) = inbox.hand_over() {
            break rest;
        }
        inbox.fill(&mut piece).await?;
        let written = on_disk(move || target.write(piece.filled()).map(|()| (target, piece))).await;
        (target, piece) = match written {
            Ok(written) => written,
            Err(error) => return Ok(Err(error)),
        };
    };
    drop(piece);
    match receive_rest(stream, rest, target).await? {
        Ok(target) => Ok(on_disk(move || target.finish(&request)).await),
        Err(error) => Ok(Err(error)),
    }
}

/// Writes the rest of the upload, of which the first `rest` bytes belong to a frame that has begun.
async fn receive_rest(
    stream: &TcpStream,
    rest: usize,
    mut target: Target,
) -> Result<Result<Target, RequestError>, WireError> {
    let mut intake = Intake::new(stream, rest)?;
    loop {
        let stopped;
        (intake, target, stopped) = tokio::task::spawn_blocking(move || {
            let stopped = intake.run(&mut target);
            (intake, target, stopped)
        })
        .await
        .map_err(|_| WireError::HungUp)?;
        match stopped {
            Ok(Stop::Yield) => {}
            Ok(Stop::NoData) => until_ready(stream, Readiness::Readable).await?,
            Ok(Stop::End) => return Ok(Ok(target)),
            Err(IntakeError::Disk(error)) => return Ok(Err(error)),
            Err(IntakeError::Wire(error)) => return Err(error),
        }
    }
}

/// Where the bytes are written until they are complete.
pub(super) struct Target {
    /// As in the request.
    path: String,
    /// With symbolic links at its end resolved.
    resolved: PathBuf,
    file: Arc<OwnedFd>,
    offset: u64,
    place: Destination,
}

enum Destination {
    /// A part of the existing file.
    Existing,
    /// The target itself, from its beginning; created if it did not exist.
    Whole,
    /// A file without a name, in the same directory.
    Nameless { existing: Option<Stat> },
    /// A file with a hidden name, if the file system does not support unnamed files.
    Hidden { name: PathBuf, existing: Option<Stat> },
}

impl Drop for Target {
    fn drop(&mut self) {
        match &self.place {
            Destination::Hidden { name, .. } => {
                let _ = rustix::fs::unlink(name);
            }
            Destination::Existing | Destination::Whole | Destination::Nameless { .. } => {}
        }
    }
}

impl Target {
    fn open(request: &WriteFile) -> Result<Self, RequestError> {
        let path = check_path(&request.path)?.to_owned();
        if let Some(offset) = request.offset {
            let (file, _) = open_regular(&path, OFlags::WRONLY)?;
            let resolved = PathBuf::from(&path);
            return Ok(Self { path, resolved, file: Arc::new(file), offset, place: Destination::Existing });
        }
        let resolved = resolve_links(&path)?;
        let Some(parent) = resolved.parent() else {
            return Err(fail(ErrorCode::IsADirectory, format_args!("`{path}` is a directory")));
        };
        if request.parents {
            make_parents(parent, &owner(request.user.as_deref())?)?;
        }
        let existing = existing_file(&resolved, &path)?;
        if request.in_place {
            let user = request.user.as_deref().map(|user| users::resolve(Some(user))).transpose()?;
            let (file, new) = open_in_place(&resolved, existing.is_some())?;
            if new {
                let mode = request.mode.map_or(0o644, |mode| mode & 0o7777);
                set_owner_and_mode(&file, user.as_ref(), mode)
                    .map_err(|errno| refused("write", &path, errno))?;
            }
            return Ok(Self { path, resolved, file: Arc::new(file), offset: 0, place: Destination::Whole });
        }
        let (file, place) =
            open_temporary(parent, existing).map_err(|errno| refused("write", &path, errno))?;
        Ok(Self { path, resolved, file: Arc::new(file), offset: 0, place })
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), RequestError> {
        while !bytes.is_empty() {
            match rustix::io::pwrite(&self.file, bytes, self.offset) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(refused("write", &self.path, errno)),
            }
        }
        Ok(())
    }

    /// Moves up to `count` bytes out of a pipe. Returns how many; 0 if the file only supports [`Target::write`].
    pub(super) fn splice(&mut self, pipe: &OwnedFd, count: usize) -> Result<usize, RequestError> {
        let mut offset = self.offset;
        match rustix::pipe::splice(pipe, None, &self.file, Some(&mut offset), count, SpliceFlags::empty()) {
            Ok(count) => {
                self.offset += count as u64;
                Ok(count)
            }
            Err(Errno::INVAL) => Ok(0),
            Err(Errno::INTR) => self.splice(pipe, count),
            Err(errno) => Err(refused("write", &self.path, errno)),
        }
    }

    /// Sets the owner and the mode, syncs, and sets the name: in this order, so that the name never refers to an
    /// incomplete file.
    fn finish(self, request: &WriteFile) -> Result<(FileEntry, PendingDiskWork), RequestError> {
        let failed = |errno| refused("write", &self.path, errno);
        if matches!(self.place, Destination::Whole) {
            self.settle_in_place(request)?;
            return Ok((look_up(&self.path, true, &users::names())?, PendingDiskWork::default()));
        }
        let existing = match &self.place {
            Destination::Existing | Destination::Whole => None,
            Destination::Nameless { existing } | Destination::Hidden { existing, .. } => existing.as_ref(),
        };
        let user = request.user.as_deref().map(|user| users::resolve(Some(user))).transpose()?;
        let (uid, gid) = match (&user, existing) {
            (Some(user), _) => (Some(user.uid), Some(user.gid)),
            (None, Some(stat)) => (Some(stat.st_uid), Some(stat.st_gid)),
            (None, None) => (None, None),
        };
        if uid.is_some() {
            rustix::fs::fchown(&self.file, uid.map(Uid::from_raw), gid.map(Gid::from_raw)).map_err(failed)?;
        }
        let mode = match (&self.place, request.mode, existing) {
            (_, Some(mode), _) => Some(mode & 0o7777),
            (Destination::Existing | Destination::Whole, None, _) => None,
            (Destination::Nameless { .. } | Destination::Hidden { .. }, None, Some(stat)) => {
                Some(stat.st_mode & 0o7777)
            }
            (Destination::Nameless { .. } | Destination::Hidden { .. }, None, None) => Some(0o644),
        };
        if let Some(mode) = mode {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode)).map_err(failed)?;
        }
        if let Some(wanted) = &request.metadata {
            metadata::replace(&self.file, wanted).map_err(failed)?;
        }
        if request.sync {
            rustix::fs::fsync(&self.file).map_err(failed)?;
        }
        let pending = self.put_in_place(existing, request.sync).map_err(failed)?;
        if request.sync {
            sync_parent(&self.resolved).map_err(failed)?;
        }
        Ok((look_up(&self.path, true, &users::names())?, pending))
    }

    /// Completes a file that was written in place: its length, then owner, mode and metadata if they differ, so that
    /// watchers see no change without effect.
    fn settle_in_place(&self, request: &WriteFile) -> Result<(), RequestError> {
        let failed = |errno| refused("write", &self.path, errno);
        let stat = rustix::fs::fstat(&self.file).map_err(failed)?;
        if u64::try_from(stat.st_size).unwrap_or(0) > self.offset {
            rustix::fs::ftruncate(&self.file, self.offset).map_err(failed)?;
        }
        if let Some(user) = &request.user {
            let user = users::resolve(Some(user))?;
            if (stat.st_uid, stat.st_gid) != (user.uid, user.gid) {
                let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
                rustix::fs::fchown(&self.file, Some(uid), Some(gid)).map_err(failed)?;
            }
        }
        let mode = request.mode.map(|mode| mode & 0o7777);
        if let Some(mode) = mode.filter(|mode| *mode != stat.st_mode & 0o7777) {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode)).map_err(failed)?;
        }
        if let Some(wanted) = &request.metadata
            && *wanted != metadata::read(&self.resolved, true)
        {
            metadata::replace(&self.file, wanted).map_err(failed)?;
        }
        if request.sync {
            rustix::fs::fsync(&self.file).map_err(failed)?;
            sync_parent(&self.resolved).map_err(failed)?;
        }
        Ok(())
    }

    fn put_in_place(&self, existing: Option<&Stat>, synced: bool) -> Result<PendingDiskWork, Errno> {
        let old_size = existing.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        let size = self.offset.max(old_size);
        match &self.place {
            Destination::Existing | Destination::Whole => Ok(PendingDiskWork::default()),
            Destination::Hidden { name, .. } => {
                FinishedFile { from: name, file: &self.file, size, synced }.replace(&self.resolved)
            }
            Destination::Nameless { .. } => {
                let source = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let link = |to: &Path| rustix::fs::linkat(CWD, &source, CWD, to, AtFlags::SYMLINK_FOLLOW);
                match link(&self.resolved) {
                    Err(Errno::EXIST) => {}
                    other => return other.map(|()| PendingDiskWork::default()),
                }
                let hidden = hidden_name(&self.resolved);
                link(&hidden)?;
                let finished = FinishedFile { from: &hidden, file: &self.file, size, synced };
                finished.replace(&self.resolved).inspect_err(|_| {
                    let _ = rustix::fs::unlink(&hidden);
                })
            }
        }
    }
}

/// Follows symbolic links at the end of the path, so that the file they point to is replaced, not the links.
fn resolve_links(path: &str) -> Result<PathBuf, RequestError> {
    let mut path = PathBuf::from(path);
    for _ in 0..LINKS_MAX {
        if path.file_name().is_none() {
            let shown = path.display();
            return Err(fail(ErrorCode::IsADirectory, format_args!("`{shown}` is a directory")));
        }
        let Ok(link) = rustix::fs::readlink(&path, Vec::new()) else {
            return Ok(path);
        };
        let link = PathBuf::from(OsString::from_vec(link.into_bytes()));
        path = path.parent().unwrap_or(Path::new("/")).join(link);
    }
    Err(invalid(format_args!("`{}` has too many levels of symbolic links", path.display())))
}

fn existing_file(resolved: &Path, path: &str) -> Result<Option<Stat>, RequestError> {
    let stat = match rustix::fs::statat(CWD, resolved, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(refused("look up", path, errno)),
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_dir() {
        return Err(fail(ErrorCode::IsADirectory, format_args!("`{path}` is a directory")));
    }
    if !kind.is_file() {
        return Err(fail(ErrorCode::NotAFile, format_args!("`{path}` is not a regular file")));
    }
    Ok(Some(stat))
}

/// Opens the file at `resolved` for overwriting, or creates it. Also returns whether it was created.
fn open_in_place(resolved: &Path, there: bool) -> Result<(OwnedFd, bool), RequestError> {
    let shown = resolved.to_string_lossy();
    if !there {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(resolved, flags, Mode::from_raw_mode(0o644)) {
            Ok(file) => return Ok((file, true)),
            // Another process created it meanwhile.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(refused("write", &shown, errno)),
        }
    }
    Ok((open_regular(&shown, OFlags::WRONLY)?.0, false))
}

fn open_temporary(parent: &Path, existing: Option<Stat>) -> Result<(OwnedFd, Destination), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(parent, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok((file, Destination::Nameless { existing })),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
        Err(errno) => return Err(errno),
    }
    let name = hidden_name(&parent.join("file"));
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok((file, Destination::Hidden { name, existing }))
}

/// An unused name next to `path`.
fn hidden_name(path: &Path) -> PathBuf {
    path.with_file_name(format!("{HIDDEN}{}", new_id()))
}

/// Whether a file has such a temporary name.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    let id = name.as_bytes().strip_prefix(HIDDEN.as_bytes());
    id.is_some_and(|id| id.len() == ID_BYTES && id.starts_with(b"exe"))
}

fn owner(user: Option<&str>) -> Result<User, RequestError> {
    users::resolve(user)
}

/// Creates the missing directories of `parent`, each with the owner.
pub(super) fn make_parents(parent: &Path, owner: &User) -> Result<(), RequestError> {
    let missing: Vec<&Path> = parent.ancestors().take_while(|path| !path.exists()).collect();
    for path in missing.into_iter().rev() {
        make_directory(path, 0o755, owner)?;
    }
    Ok(())
}

/// Sets owner and mode of a new file. Before its content, so that watchers see the events in the order that E2B's
/// clients expect: created, changed, written.
fn set_owner_and_mode(file: &OwnedFd, owner: Option<&User>, mode: u32) -> Result<(), Errno> {
    if let Some(owner) = owner {
        rustix::fs::fchown(file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
}

/// Creates one directory. It is not an error if it exists.
pub(super) fn make_directory(path: &Path, mode: u32, owner: &User) -> Result<(), RequestError> {
    let failed = |errno| refused("make the directory", path.display(), errno);
    match rustix::fs::mkdir(path, Mode::from_raw_mode(mode)) {
        Ok(()) => {}
        Err(Errno::EXIST) if path.is_dir() => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    rustix::fs::fchown(&directory, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))
        .map_err(failed)?;
    // Set again, since the umask removed bits and chown may have.
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode)).map_err(failed)
}

/// A new name is durable only once its directory is.
fn sync_parent(path: &Path) -> Result<(), Errno> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let directory =
        rustix::fs::open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fsync(directory)
}
