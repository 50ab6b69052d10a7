//! Lists directories, up to a depth and a number of entries, without following links.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::entry::describe;
use super::metadata;
use super::{check_path, on_disk};
use crate::agent::failure::{fail, refused};
use crate::agent::users::{self, Names};
use crate::agent::wire::{Outbox, WireError};
use crate::protocol::{ErrorCode, FileEntry, Frame, ListFiles, RequestError};

/// Entries held at once, whatever the host requests: some 30 MiB, plus the metadata.
const ENTRIES_MAX: usize = 100_000;

/// Metadata held at once. Further entries are listed without theirs.
const METADATA_BYTES_MAX: usize = 16 << 20;

/// Entries in one frame of a streamed list, or fewer if they do not fit.
const ENTRIES_PER_FRAME: usize = 64;

/// Carries out [`crate::protocol::Request::List`].
pub(in crate::agent) async fn list(request: ListFiles) -> Result<Vec<FileEntry>, RequestError> {
    on_disk(move || walk(&request)).await
}

/// Carries out [`crate::protocol::Request::ListStream`].
pub(in crate::agent) async fn list_stream(
    request: ListFiles,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let entries = match list(request).await {
        Ok(entries) => entries,
        Err(error) => return outbox.reply::<()>(Err(error)).await,
    };
    outbox.push_reply(Ok(()))?;
    for chunk in entries.chunks(ENTRIES_PER_FRAME) {
        push_entries(chunk, outbox)?;
        outbox.flush().await?;
    }
    outbox.push(&Frame::End);
    outbox.flush().await
}

/// Sends the entries in as many frames as they need.
fn push_entries(entries: &[FileEntry], outbox: &mut Outbox<'_>) -> Result<(), WireError> {
    match outbox.push_control(&entries) {
        Err(WireError::TooLarge { .. }) if entries.len() > 1 => {
            let (one, other) = entries.split_at(entries.len() / 2);
            push_entries(one, outbox)?;
            push_entries(other, outbox)
        }
        pushed => pushed,
    }
}

fn walk(request: &ListFiles) -> Result<Vec<FileEntry>, RequestError> {
    let path = check_path(&request.path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| refused("list", path, errno))?;
    let limit = (request.entries_max as usize).min(ENTRIES_MAX);
    let names = users::names();
    let mut entries = Vec::new();
    let mut metadata_left = METADATA_BYTES_MAX;
    // Directories still to be read, and how many levels below them are wanted. They are opened by path and one at a
    // time, so that no depth exhausts the descriptors; directories that were removed or replaced by links are left
    // out.
    let mut waiting = Vec::new();
    let depth = request.depth.max(1);
    for name in read(Path::new(path), &root, limit, &names, &mut entries, &mut metadata_left)? {
        waiting.push((Path::new(path).join(name), depth - 1));
    }
    while let Some((directory, depth)) = waiting.pop() {
        if depth == 0 {
            continue;
        }
        let Ok(fd) = rustix::fs::open(&directory, flags | OFlags::NOFOLLOW, Mode::empty()) else { continue };
        for name in read(&directory, &fd, limit, &names, &mut entries, &mut metadata_left)? {
            waiting.push((directory.join(name), depth - 1));
        }
    }
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

/// Adds a directory's entries, and returns the names of its subdirectories.
fn read(
    directory: &Path,
    fd: &OwnedFd,
    limit: usize,
    names: &Names,
    entries: &mut Vec<FileEntry>,
    metadata_left: &mut usize,
) -> Result<Vec<std::ffi::OsString>, RequestError> {
    let failed = |errno| refused("list", directory.display(), errno);
    let mut subdirectories = Vec::new();
    for found in Dir::read_from(fd).map_err(failed)? {
        let found = found.map_err(failed)?;
        let name = found.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entries.len() == limit {
            return Err(fail(ErrorCode::TooMany, format_args!("there are more than {limit} entries")));
        }
        // It was removed since the directory was read.
        let Ok(stat) = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let target = if kind.is_symlink() { rustix::fs::readlinkat(fd, name, Vec::new()).ok() } else { None };
        let name = OsStr::from_bytes(name.to_bytes());
        let target = target.map(|target| target.to_string_lossy().into_owned());
        let path = directory.join(name);
        let metadata = match kind.is_file() && *metadata_left > 0 {
            true => metadata::read(&path, false),
            false => Default::default(),
        };
        let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        *metadata_left = metadata_left.saturating_sub(bytes);
        entries.push(FileEntry { metadata, ..describe(&path, &stat, target, names) });
        if kind == FileType::Directory {
            subdirectories.push(name.to_owned());
        }
    }
    Ok(subdirectories)
}
