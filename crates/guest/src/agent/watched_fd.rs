//! Registers a descriptor with the async runtime.

#![expect(
    unsafe_code,
    reason = "the runtime cannot check that a descriptor stays the same for as long as it watches"
)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(super) type WatchedFd = AsyncFd<OwnedFd>;

pub(super) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<WatchedFd> {
    // SAFETY: an `OwnedFd` names the same open descriptor until it is dropped, and it moves into the `AsyncFd`, which
    // deregisters it first.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
