//! Receives a file's bytes: into a nameless file beside the target, which takes its place when all have come.
//!
//! A hang-up, a full disk or the death of the agent leaves the target as it was and nothing beside it.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::entry::look_up;
use super::open::open_regular;
use super::{check_path, on_disk, transfer_permit};
use crate::agent::exec::new_id;
use crate::agent::failure::{fail, invalid, refused};
use crate::agent::users::{self, User};
use crate::agent::wire::{Inbox, Outbox, Piece, WireError};
use crate::protocol::{ErrorCode, FileEntry, RequestError, WriteFile};

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Carries out [`crate::protocol::Request::Write`].
pub(in crate::agent) async fn write(
    request: WriteFile,
    inbox: &mut Inbox<'_>,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let permit = transfer_permit().await;
    let written = receive(request, inbox).await?;
    drop(permit);
    outbox.reply(written).await
}

async fn receive(
    request: WriteFile,
    inbox: &mut Inbox<'_>,
) -> Result<Result<FileEntry, RequestError>, WireError> {
    let (mut one, mut other) = (Piece::new(), Piece::new());
    inbox.fill(&mut one).await?;
    // A piece that is not full is the last.
    if one.is_full() {
        inbox.fill(&mut other).await?;
    }
    // Most files come whole in the first piece: they take one trip to the pool instead of three.
    if other.filled().is_empty() {
        return Ok(on_disk(move || {
            let mut target = Target::open(&request)?;
            target.write(one.filled())?;
            target.finish(&request)
        })
        .await);
    }
    let (mut target, request) = match on_disk(move || Ok((Target::open(&request)?, request))).await {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    // One piece is written while the next is being received.
    let (mut full, mut spare) = (one, other);
    let mut first = true;
    while !full.filled().is_empty() {
        let writing = tokio::task::spawn_blocking(move || {
            let written = target.write(full.filled());
            (target, full, written)
        });
        // The second piece is here already.
        let received = if first { Ok(()) } else { inbox.fill(&mut spare).await };
        first = false;
        let written;
        (target, full, written) = writing.await.map_err(|_| WireError::HungUp)?;
        received?;
        if let Err(error) = written {
            return Ok(Err(error));
        }
        std::mem::swap(&mut full, &mut spare);
    }
    Ok(on_disk(move || target.finish(&request)).await)
}

/// Where the bytes go until they are complete.
struct Target {
    /// As the host wrote it.
    path: String,
    /// With symbolic links at its end resolved.
    resolved: PathBuf,
    file: Arc<OwnedFd>,
    offset: u64,
    place: Place,
}

enum Place {
    /// The existing file itself.
    Existing,
    /// A file without a name, in the same directory.
    Nameless { existing: Option<Stat> },
    /// The same with a hidden name, where the file system has no nameless files.
    Hidden { name: PathBuf, existing: Option<Stat> },
}

impl Drop for Target {
    fn drop(&mut self) {
        match &self.place {
            Place::Hidden { name, .. } => {
                let _ = rustix::fs::unlink(name);
            }
            Place::Existing | Place::Nameless { .. } => {}
        }
    }
}

impl Target {
    fn open(request: &WriteFile) -> Result<Self, RequestError> {
        let path = check_path(&request.path)?.to_owned();
        if let Some(offset) = request.offset {
            let (file, _) = open_regular(&path, OFlags::WRONLY)?;
            let resolved = PathBuf::from(&path);
            return Ok(Self { path, resolved, file: Arc::new(file), offset, place: Place::Existing });
        }
        let resolved = resolve_links(&path)?;
        let Some(parent) = resolved.parent() else {
            return Err(fail(ErrorCode::IsADirectory, format_args!("`{path}` is a directory")));
        };
        if request.parents {
            make_parents(parent, &owner(request.user.as_deref())?)?;
        }
        let existing = existing_file(&resolved, &path)?;
        let (file, place) =
            open_temporary(parent, existing).map_err(|errno| refused("write", &path, errno))?;
        Ok(Self { path, resolved, file: Arc::new(file), offset: 0, place })
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), RequestError> {
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

    /// Owner, mode, disk, name: in this order, so that the name never stands for less.
    fn finish(self, request: &WriteFile) -> Result<FileEntry, RequestError> {
        let failed = |errno| refused("write", &self.path, errno);
        let existing = match &self.place {
            Place::Existing => None,
            Place::Nameless { existing } | Place::Hidden { existing, .. } => existing.as_ref(),
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
            (Place::Existing, None, _) => None,
            (Place::Nameless { .. } | Place::Hidden { .. }, None, Some(stat)) => Some(stat.st_mode & 0o7777),
            (Place::Nameless { .. } | Place::Hidden { .. }, None, None) => Some(0o644),
        };
        if let Some(mode) = mode {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode)).map_err(failed)?;
        }
        if request.sync {
            rustix::fs::fsync(&self.file).map_err(failed)?;
        }
        self.put_in_place().map_err(failed)?;
        if request.sync {
            sync_parent(&self.resolved).map_err(failed)?;
        }
        look_up(&self.path, true, &users::names())
    }

    fn put_in_place(&self) -> Result<(), Errno> {
        match &self.place {
            Place::Existing => Ok(()),
            Place::Hidden { name, .. } => rustix::fs::rename(name, &self.resolved),
            Place::Nameless { .. } => {
                let source = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let link = |to: &Path| rustix::fs::linkat(CWD, &source, CWD, to, AtFlags::SYMLINK_FOLLOW);
                match link(&self.resolved) {
                    Err(Errno::EXIST) => {}
                    other => return other,
                }
                let hidden = hidden_name(&self.resolved);
                link(&hidden)?;
                rustix::fs::rename(&hidden, &self.resolved).inspect_err(|_| {
                    let _ = rustix::fs::unlink(&hidden);
                })
            }
        }
    }
}

/// Follows symbolic links at the end of the path, so that the file they point to is replaced, not they.
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
    Err(invalid(format_args!("`{}` leads through too many symbolic links", path.display())))
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

fn open_temporary(parent: &Path, existing: Option<Stat>) -> Result<(OwnedFd, Place), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(parent, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok((file, Place::Nameless { existing })),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
        Err(errno) => return Err(errno),
    }
    let name = hidden_name(&parent.join("file"));
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok((file, Place::Hidden { name, existing }))
}

/// A name beside `path` that nobody else uses.
fn hidden_name(path: &Path) -> PathBuf {
    path.with_file_name(format!(".burrow-{}", new_id()))
}

fn owner(user: Option<&str>) -> Result<User, RequestError> {
    users::resolve(user)
}

/// Makes the missing directories of `parent`, each with the owner.
pub(super) fn make_parents(parent: &Path, owner: &User) -> Result<(), RequestError> {
    let missing: Vec<&Path> = parent.ancestors().take_while(|path| !path.exists()).collect();
    for path in missing.into_iter().rev() {
        make_directory(path, 0o755, owner)?;
    }
    Ok(())
}

/// Makes one directory; one that exists is fine.
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
    // Once more, since the umask took bits off and chown may have.
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode)).map_err(failed)
}

/// The new name is durable only once its directory is.
fn sync_parent(path: &Path) -> Result<(), Errno> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let directory =
        rustix::fs::open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fsync(directory)
}
