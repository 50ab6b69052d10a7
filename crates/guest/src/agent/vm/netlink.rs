//! A minimal netlink client, one request at a time: a machine sends a dozen requests at its boot, and later hardly
//! any.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// Creates the object; it is not an error if it exists.
pub(super) const MAKE: u16 = 0x400 | 0x100;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// The kernel sends a list in packets of at most this size.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Limits the size of a list.
const LISTED_MAX: usize = 1 << 20;

pub(super) struct Socket(OwnedFd);

impl Socket {
    /// `None` is the protocol for interfaces and routes.
    pub(super) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        Ok(Self(socket))
    }

    /// Sends a request to change something.
    pub(super) fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, &message(kind, flags | NLM_F_ACK, body), SendFlags::empty())?;
        let mut answer = vec![0; PIECE_BYTES_MAX];
        let (length, _) = rustix::net::recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        let (_, body, _) = split(&answer[..length]).ok_or(io::ErrorKind::InvalidData)?;
        outcome(body)
    }

    /// Requests a list and passes each entry to `entry`; collects the `Some` results.
    pub(super) fn list<T>(
        &self,
        kind: u16,
        body: &[u8],
        entry: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        rustix::net::send(&self.0, &message(kind, NLM_F_DUMP, body), SendFlags::empty())?;
        let mut found = Vec::new();
        let mut piece = vec![0; PIECE_BYTES_MAX];
        loop {
            let (length, _) = rustix::net::recv(&self.0, &mut piece[..], RecvFlags::empty())?;
            let mut rest = &piece[..length];
            while let Some((kind, body, after)) = split(rest) {
                rest = after;
                match kind {
                    NLMSG_DONE => return Ok(found),
                    NLMSG_ERROR => outcome(body)?,
                    _ => found.extend(entry(body)),
                }
                if found.len() > LISTED_MAX {
                    return Err(io::ErrorKind::QuotaExceeded.into());
                }
            }
        }
    }
}

/// Adds an attribute to the body of a message.
pub(super) fn put(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("attributes are short");
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + body.len()).expect("requests are short");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

/// The first message of a packet: its type, its body, and the rest of the packet.
fn split(packet: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*packet.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*packet.get(4..)?.first_chunk()?);
    let body = packet.get(HEADER_BYTES..length)?;
    Some((kind, body, packet.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// `struct nlmsgerr`: the negative error number, zero for success.
fn outcome(body: &[u8]) -> io::Result<()> {
    match body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_split_and_truncated_ones_are_rejected() {
        let mut body = vec![7; 4];
        put(&mut body, 3, b"eth0\0");
        assert_eq!(body.len(), 4 + 12);
        let bytes = message(20, 0, &body);
        assert_eq!(split(&bytes), Some((20, &body[..], &[][..])));
        assert_eq!(split(&bytes[..bytes.len() - 1]), None);
        assert!(outcome(&(-17i32).to_ne_bytes()).is_err_and(|error| error.raw_os_error() == Some(17)));
        assert!(outcome(&[]).is_err());
    }
}
