//! Moves an unpacked tree into an existing directory.
//!
//! A first pass checks that every entry can be moved, and only the second pass moves them. Directories that exist on
//! both sides keep the target's owner and mode; files and links replace files and links. A link in the target is
//! never followed, because it could lead anywhere.

use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::agent::failure::{fail, refused};
use crate::protocol::{ErrorCode, RequestError};

/// Nested directories that exist on both sides.
const DEPTH_MAX: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum MergePass {
    Look,
    Move,
}

struct Level {
    from: OwnedFd,
    entries: Dir,
    to: OwnedFd,
}

/// `staging` may lie inside `target`, under the name `hidden`.
pub(super) fn merge(staging: &OwnedFd, target: &Path, hidden: Option<&OsStr>) -> Result<(), RequestError> {
    let failed = |errno| refused("unpack into", target.display(), errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for round in [MergePass::Look, MergePass::Move] {
        let to = rustix::fs::open(target, flags, Mode::empty()).map_err(failed)?;
        let from = staging.try_clone().map_err(|_| failed(Errno::MFILE))?;
        walk(Level::open(from, to).map_err(failed)?, round, target, hidden)?;
    }
    Ok(())
}

fn walk(top: Level, round: MergePass, target: &Path, hidden: Option<&OsStr>) -> Result<(), RequestError> {
    let failed = |errno| refused("unpack into", target.display(), errno);
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.entries.read() else {
            levels.pop();
            continue;
        };
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_owned();
        if matches!(name.as_bytes(), b"." | b"..") {
            continue;
        }
        if levels.len() == 1 && hidden.is_some_and(|hidden| hidden.as_encoded_bytes() == name.as_bytes()) {
            continue;
        }
        if let Some(next) = merge_entry(levels.last().expect("not empty"), &name, round)? {
            if levels.len() == DEPTH_MAX {
                return Err(fail(ErrorCode::TooMany, "the archive's directories are nested too deeply"));
            }
            levels.push(next);
        }
    }
    Ok(())
}

/// Checks or moves one entry. Returns the level to descend into if it is a directory on both sides.
fn merge_entry(level: &Level, name: &CString, round: MergePass) -> Result<Option<Level>, RequestError> {
    let shown = name.to_string_lossy();
    let failed = |errno| refused("unpack", &shown, errno);
    let kind = |fd: &OwnedFd| {
        rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| FileType::from_raw_mode(stat.st_mode))
    };
    let from = kind(&level.from).map_err(failed)?;
    let to = match kind(&level.to) {
        Ok(to) => Some(to),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(failed(errno)),
    };
    match (from, to) {
        (FileType::Directory, Some(FileType::Directory)) => {
            let from = open_directory(&level.from, name).map_err(failed)?;
            let to = open_directory(&level.to, name).map_err(failed)?;
            return Level::open(from, to).map(Some).map_err(failed);
        }
        (FileType::Directory, Some(_)) => {
            return Err(fail(
                ErrorCode::NotADirectory,
                format_args!("`{shown}` is not a directory, but the archive has a directory there"),
            ));
        }
        (_, Some(FileType::Directory)) => {
            return Err(fail(
                ErrorCode::IsADirectory,
                format_args!("`{shown}` is a directory, but the archive has a file there"),
            ));
        }
        (_, Some(_) | None) => {}
    }
    if round == MergePass::Move {
        rustix::fs::renameat(&level.from, name, &level.to, name).map_err(failed)?;
    }
    Ok(None)
}

impl Level {
    fn open(from: OwnedFd, to: OwnedFd) -> Result<Self, Errno> {
        // A descriptor of its own: the two passes must not share a read position.
        let own = rustix::fs::openat(
            &from,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self { entries: Dir::new(own)?, from, to })
    }
}

fn open_directory(parent: &OwnedFd, name: &CString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}
