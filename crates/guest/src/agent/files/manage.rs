//! Reads the attributes of single files and directories, creates, moves and changes them.

use std::path::Path;

use rustix::fs::{CWD, Mode};
use rustix::io::Errno;

use super::entry::look_up;
use super::upload::{make_directory, make_parents};
use super::{check_path, on_disk};
use crate::agent::failure::{fail, refused};
use crate::agent::users;
use crate::protocol::{ErrorCode, FileEntry, RequestError};

/// Carries out [`crate::protocol::Request::Stat`].
pub(in crate::agent) async fn stat(path: String, follow: bool) -> Result<FileEntry, RequestError> {
    on_disk(move || look_up(check_path(&path)?, follow, &users::names())).await
}

/// Carries out [`crate::protocol::Request::MakeDir`].
pub(in crate::agent) async fn make_dir(
    path: String,
    parents: bool,
    mode: Option<u32>,
    user: Option<String>,
) -> Result<FileEntry, RequestError> {
    on_disk(move || {
        let directory = Path::new(check_path(&path)?);
        let owner = users::resolve(user.as_deref())?;
        let mode = mode.map_or(0o755, |mode| mode & 0o7777);
        if parents {
            make_parents(directory.parent().unwrap_or(Path::new("/")), &owner)?;
        } else if directory.symlink_metadata().is_ok() {
            return Err(fail(ErrorCode::AlreadyExists, format_args!("`{path}` already exists")));
        }
        make_directory(directory, mode, &owner)?;
        look_up(&path, true, &users::names())
    })
    .await
}

/// Carries out [`crate::protocol::Request::Move`].
pub(in crate::agent) async fn rename(from: String, to: String) -> Result<FileEntry, RequestError> {
    on_disk(move || {
        check_path(&from)?;
        check_path(&to)?;
        rustix::fs::renameat(CWD, &from, CWD, &to).map_err(|errno| match errno {
            // The kernel returns the same error for both paths; the message must name the one that is missing.
            Errno::NOENT if Path::new(&from).symlink_metadata().is_ok() => refused("move to", &to, errno),
            Errno::EXIST => refused("move to", &to, Errno::NOTEMPTY),
            Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY | Errno::XDEV => refused("move to", &to, errno),
            _ => refused("move", &from, errno),
        })?;
        look_up(&to, false, &users::names())
    })
    .await
}

/// Carries out [`crate::protocol::Request::ChangeMode`].
pub(in crate::agent) async fn change_mode(path: String, mode: u32) -> Result<FileEntry, RequestError> {
    on_disk(move || {
        check_path(&path)?;
        rustix::fs::chmod(&path, Mode::from_raw_mode(mode & 0o7777))
            .map_err(|errno| refused("change the mode of", &path, errno))?;
        look_up(&path, true, &users::names())
    })
    .await
}
