//! The link of a machine with its own network interface: a tap in the gateway, and a descriptor for the machine.

#![expect(unsafe_code, reason = "the requests to the tun driver have no safe interface")]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use super::interfaces::{GATEWAY_INTERFACE, PAIR};

const DEVICE: &str = "/dev/net/tun";

// From <linux/if_tun.h>.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETIFINDEX: libc::Ioctl = 0x4004_54da;
/// Ethernet frames, without the driver's own header, with a `virtio_net_hdr` that says what the other end may leave to
/// this one: checksums, and the segmentation of large segments.
const FLAGS: libc::c_short = 0x0002 | 0x1000 | 0x4000;

/// `struct ifreq`, as much of it as the driver reads.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// Creates the tap in the network namespace of this thread, with the name and index of a gateway's interface.
pub(super) fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let device = OpenOptions::new().read(true).write(true).custom_flags(flags).open(DEVICE)?;
    let mut request = Request { name: [0; 16], flags: FLAGS, rest: [0; 22] };
    request.name[..GATEWAY_INTERFACE.len()].copy_from_slice(GATEWAY_INTERFACE.as_bytes());
    let index: u32 = PAIR;
    // SAFETY: each call gets a structure of the size that it reads, which outlives the call.
    unsafe {
        answer(libc::ioctl(device.as_raw_fd(), TUNSETIFINDEX, &raw const index))?;
        answer(libc::ioctl(device.as_raw_fd(), TUNSETIFF, &raw mut request))?;
    }
    Ok(device.into())
}

fn answer(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
