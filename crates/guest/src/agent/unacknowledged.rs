//! How many of the bytes written to a connection the peer has not received yet.

#![expect(unsafe_code, reason = "the request for it has no safe wrapper")]

use std::io;

use rustix::ioctl::{Getter, ioctl};
use tokio::net::TcpStream;

/// `SIOCOUTQ`, which has the number of `TIOCOUTQ`.
const SIOCOUTQ: rustix::ioctl::Opcode = libc::TIOCOUTQ as rustix::ioctl::Opcode;

/// Bytes that are not acknowledged, including the end of the stream.
pub(super) fn bytes(stream: &TcpStream) -> io::Result<libc::c_int> {
    // SAFETY: the request writes one `int`, and nothing else.
    Ok(unsafe { ioctl(stream, Getter::<SIOCOUTQ, libc::c_int>::new()) }?)
}
