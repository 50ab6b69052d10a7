//! Describes a file for the host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Stat};

use super::metadata;
use crate::agent::failure::refused;
use crate::agent::users::Names;
use crate::protocol::{FileEntry, FileKind, RequestError};

/// Returns the entry of a path; `follow` resolves a final symbolic link.
pub(super) fn look_up(path: &str, follow: bool, names: &Names) -> Result<FileEntry, RequestError> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let stat = rustix::fs::statat(CWD, path, flags).map_err(|errno| refused("look up", path, errno))?;
    let is_link = FileType::from_raw_mode(stat.st_mode).is_symlink();
    let target = if is_link { rustix::fs::readlink(path, Vec::new()).ok() } else { None };
    let target = target.map(|target| target.to_string_lossy().into_owned());
    Ok(FileEntry {
        metadata: metadata::read(Path::new(path), follow),
        ..describe(Path::new(path), &stat, target, names)
    })
}

pub(super) fn describe(path: &Path, stat: &Stat, target: Option<String>, names: &Names) -> FileEntry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => FileKind::Other,
    };
    let name = path.file_name().unwrap_or(OsStr::from_bytes(b"/"));
    FileEntry {
        name: name.to_string_lossy().into_owned(),
        path: path.to_string_lossy().into_owned(),
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        user: names.users.get(&stat.st_uid).cloned(),
        group: names.groups.get(&stat.st_gid).cloned(),
        modified_ms: modified_ms(stat),
        resolved: resolved(path, kind),
        target,
        metadata: Default::default(),
    }
}

/// The final target of a link.
fn resolved(path: &Path, kind: FileKind) -> Option<String> {
    match kind {
        FileKind::Symlink => Some(std::fs::canonicalize(path).ok()?.to_string_lossy().into_owned()),
        FileKind::File | FileKind::Directory | FileKind::Other => None,
    }
}

fn modified_ms(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}
