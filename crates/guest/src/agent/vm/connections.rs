//! Ends the connections of a restored machine that lead out of it.
//!
//! Whoever was at the other end is gone, or still talks to the machine this one was copied from. A process that sends
//! would learn so from the gateway; one that only waits would wait for ever. A connection leads out if its other end is
//! not in this machine too. Processes must stand still meanwhile, or they might connect anew.

use std::collections::HashSet;
use std::io;

use rustix::net::netlink;

use super::netlink::Socket;

const IPPROTO_TCP: u8 = 6;
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DESTROY: u16 = 21;

/// Every state of a connection, but not that of a listener (10), nor of the kernel's own leftovers: closed (7), waiting
/// for late packets (6), half open (12).
const CONNECTED: u32 = !(1 << 10 | 1 << 7 | 1 << 6 | 1 << 12);

/// `struct inet_diag_sockid`, which names a socket.
const IDENTITY_BYTES: usize = 48;

/// Port and address of one end.
type End = ([u8; 2], [u8; 16]);

struct Connection {
    family: u8,
    own: End,
    other: End,
    identity: [u8; IDENTITY_BYTES],
}

/// Says how many there were.
pub(super) fn reset_outside() -> io::Result<usize> {
    let socket = Socket::open(Some(netlink::SOCK_DIAG))?;
    // `struct inet_diag_req`: family and prefixes, none of which is looked at; which socket, any; states; no more.
    let mut anything = vec![0; 4 + IDENTITY_BYTES];
    anything.extend(CONNECTED.to_ne_bytes());
    anything.extend([0; 4]);
    let connections = socket.list(TCPDIAG_GETSOCK, &anything, connection)?;
    let all: HashSet<(End, End)> = connections.iter().map(|found| (found.own, found.other)).collect();
    let mut count = 0;
    for found in &connections {
        if all.contains(&(found.other, found.own)) {
            continue;
        }
        // `struct inet_diag_req_v2`: family and protocol, states, which socket.
        let mut body = vec![found.family, IPPROTO_TCP, 0, 0];
        body.extend(CONNECTED.to_ne_bytes());
        body.extend(found.identity);
        match socket.ask(SOCK_DESTROY, 0, &body) {
            Ok(()) => count += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// `struct inet_diag_msg`: family, state, timer, retransmissions, then what names the socket.
fn connection(body: &[u8]) -> Option<Connection> {
    let family = *body.first()?;
    let identity: [u8; IDENTITY_BYTES] = *body.get(4..)?.first_chunk()?;
    let end = |port: usize, address: usize| {
        let address: [u8; 16] = *identity.get(address..)?.first_chunk()?;
        Some((*identity.get(port..)?.first_chunk()?, plain(address)))
    };
    Some(Connection { family, own: end(0, 4)?, other: end(2, 20)?, identity })
}

/// A socket of one family may be connected to one of the other, which then goes by its mapped address.
fn plain(address: [u8; 16]) -> [u8; 16] {
    let mut plain = address;
    if let Some(v4) = address.strip_prefix(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]) {
        plain = [0; 16];
        plain[..4].copy_from_slice(v4);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_write_a_v4_address_are_one() {
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 88, 0, 2]);
        let mut own = [0; 16];
        own[..4].copy_from_slice(&[10, 88, 0, 2]);
        assert_eq!(plain(mapped), own);
        assert_eq!(plain(own), own);
    }
}
