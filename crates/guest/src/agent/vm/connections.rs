//! Ends the connections of a restored machine that lead out of it.
//!
//! The peer is gone, or still communicates with the machine that this one was copied from. The gateway resets such a
//! connection when a process sends; a process that only waits would wait forever. A connection leads out if its other
//! end is not in this machine too. All processes must be frozen meanwhile, or they might connect again.

use std::collections::HashSet;
use std::io;

use rustix::net::netlink;

use super::netlink::Socket;

const IPPROTO_TCP: u8 = 6;
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DESTROY: u16 = 21;

/// All states of a connection except listening (10) and those without a process: closed (7), waiting for late packets
/// (6), half open (12).
const CONNECTED: u32 = !(1 << 10 | 1 << 7 | 1 << 6 | 1 << 12);

/// `struct inet_diag_sockid`, which identifies a socket.
const IDENTITY_BYTES: usize = 48;

/// The port and address of one end.
type Endpoint = ([u8; 2], [u8; 16]);

struct Connection {
    family: u8,
    own: Endpoint,
    other: Endpoint,
    identity: [u8; IDENTITY_BYTES],
}

/// Returns how many connections were reset.
pub(super) fn reset_outside() -> io::Result<usize> {
    let socket = Socket::open(Some(netlink::SOCK_DIAG))?;
    // `struct inet_diag_req`: family and prefixes, which are ignored; which socket (any); states; nothing else.
    let mut anything = vec![0; 4 + IDENTITY_BYTES];
    anything.extend(CONNECTED.to_ne_bytes());
    anything.extend([0; 4]);
    let connections = socket.list(TCPDIAG_GETSOCK, &anything, connection)?;
    let all: HashSet<(Endpoint, Endpoint)> =
        connections.iter().map(|found| (found.own, found.other)).collect();
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

/// `struct inet_diag_msg`: family, state, timer, retransmissions, then the identity of the socket.
fn connection(body: &[u8]) -> Option<Connection> {
    let family = *body.first()?;
    let identity: [u8; IDENTITY_BYTES] = *body.get(4..)?.first_chunk()?;
    let end = |port: usize, address: usize| {
        let address: [u8; 16] = *identity.get(address..)?.first_chunk()?;
        Some((*identity.get(port..)?.first_chunk()?, plain(address)))
    };
    Some(Connection { family, own: end(0, 4)?, other: end(2, 20)?, identity })
}

/// An IPv6 socket may be connected to an IPv4 socket, whose address is then shown in its mapped form.
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
    fn mapped_and_plain_ipv4_addresses_are_equal() {
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 88, 0, 2]);
        let mut own = [0; 16];
        own[..4].copy_from_slice(&[10, 88, 0, 2]);
        assert_eq!(plain(mapped), own);
        assert_eq!(plain(own), own);
    }
}
