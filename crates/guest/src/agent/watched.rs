//! Puts a descriptor under the runtime's watch.

#![expect(
    unsafe_code,
    reason = "the runtime cannot check that a descriptor stays the same for as long as it watches"
)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(super) type Watched = AsyncFd<OwnedFd>;

pub(super) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<Watched> {
    // SAFETY: an `OwnedFd` names the same open descriptor until it is dropped, and it moves into the `AsyncFd`,
    // which takes it off the watch first.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
