//! Files: every path of a request is absolute and resolved here, inside the sandbox, relative to its root.
//!
//! Disk work runs on the blocking pool, in steps that wait for the network for at most a millisecond. Bulk data moves
//! in pieces of at most a frame, so that a transfer of any size uses a constant amount of RAM.

mod download;
mod entry;
mod list;
mod manage;
mod metadata;
mod open;
mod remove;
mod replace;
mod splice;
mod tar;
mod upload;
mod watch;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::failure::{fail, invalid};
use crate::protocol::{ErrorCode, RequestError};

pub(super) use self::download::read;
pub(super) use self::list::{list, list_stream};
pub(super) use self::manage::{change_mode, make_dir, rename, stat};
pub(super) use self::remove::remove;
pub(super) use self::tar::{tar_in, tar_out};
pub(super) use self::upload::write;
pub(super) use self::watch::watch;

/// PATH_MAX of Linux.
const PATH_BYTES_MAX: usize = 4096;

/// Bulk transfers at once. Each uses up to a frame of 1 MiB, here or in the kernel; further ones wait.
static TRANSFERS: Semaphore = Semaphore::const_new(16);

/// Refuses a string that cannot be a path inside.
fn check_path(path: &str) -> Result<&str, RequestError> {
    if !path.starts_with('/') {
        return Err(invalid(format_args!("`{path}` is not an absolute path")));
    }
    if path.len() >= PATH_BYTES_MAX {
        return Err(invalid(format_args!("the path is longer than {PATH_BYTES_MAX} bytes")));
    }
    if path.contains('\0') {
        return Err(invalid("the path contains a NUL byte"));
    }
    Ok(path)
}

/// Runs disk work on the pool.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(fail(ErrorCode::Internal, "the disk operation was interrupted")))
}

async fn transfer_permit() -> SemaphorePermit<'static> {
    TRANSFERS.acquire().await.expect("the semaphore is never closed")
}
