//! Marks a socket, so that packet filter rules can recognise its packets.
#![expect(unsafe_code, reason = "this option of a socket has no safe wrapper here")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

pub(super) fn set(socket: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<u32>()).expect("four bytes fit");
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads exactly the bytes of the value.
    let answer = unsafe {
        let value = (&raw const mark).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MARK, value, length)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
