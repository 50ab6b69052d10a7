//! Aborts the connections that lead out of a network namespace.
//!
//! Of a restored machine: the peers of its connections are gone, or still communicate with the machine that was forked.
//! A process that sends would get an error from the gateway; a process that only waits would wait forever. So the
//! kernel aborts those connections before the processes resume: they then read an error, as after a laptop's sleep. The
//! same is done in the gateway of a virtual machine, once the machine is gone.
//!
//! A connection leads out if its other end is not in the same network namespace. By that rule, connections over the
//! loopback interface and between a machine's own addresses continue, and a connection whose other end was not restored
//! (because it had not been accepted yet) is aborted as well.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const AF_INET: u8 = 2;
const IPPROTO_TCP: u8 = 6;
/// The older of two requests. Only this one lists both families in one walk: the kernel walks the connections of the
/// whole host each time, which takes a millisecond or more.
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DESTROY: u16 = 21;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// All states of a connection, except listening (10) and those that the kernel keeps for itself: closed (7), time-wait
/// (6), half open (12).
const CONNECTED: u32 = !(1 << 10 | 1 << 7 | 1 << 6 | 1 << 12);

/// `struct nlmsghdr`, and `struct inet_diag_sockid`, which identifies a socket.
const HEADER_BYTES: usize = 16;
const IDENTITY_BYTES: usize = 48;

/// The kernel sends a dump in parts of at most this size.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// A machine's connections are bounded by its open files; this limits what we store of them.
const CONNECTIONS_MAX: usize = 1 << 20;

/// One end of a connection, as the kernel lists it.
struct Connection {
    family: u8,
    ends: ConnectionEnds,
    identity: [u8; IDENTITY_BYTES],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ConnectionEnds {
    own: SocketAddr,
    other: SocketAddr,
}

/// Aborts the connections that lead out of a network namespace, and returns their number. Its processes must be frozen,
/// or they might open new ones meanwhile.
pub fn reset_outside(namespace: BorrowedFd<'_>) -> io::Result<usize> {
    // A separate thread, since it never leaves that namespace.
    thread::scope(|scope| {
        scope.spawn(|| reset(namespace)).join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

/// Whether this kernel supports that. A request for a connection that cannot exist is answered with "not found", or
/// with an error if the kernel does not know the request.
pub fn can_reset() -> io::Result<bool> {
    let ends = ConnectionEnds {
        own: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        other: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
    };
    // A cookie of ones matches any socket.
    let mut identity = [0; IDENTITY_BYTES];
    identity[IDENTITY_BYTES - 8..].fill(0xff);
    match destroy(&open()?, &Connection { family: AF_INET, ends, identity }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

fn open() -> io::Result<OwnedFd> {
    let protocol = Some(netlink::SOCK_DIAG);
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?)
}

fn reset(namespace: BorrowedFd<'_>) -> io::Result<usize> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
    let socket = open()?;
    let connections = list(&socket)?;
    let all: HashSet<ConnectionEnds> = connections.iter().map(|connection| connection.ends).collect();
    let mut count = 0;
    for connection in connections {
        let ConnectionEnds { own, other } = connection.ends;
        if !all.contains(&ConnectionEnds { own: other, other: own }) {
            count += usize::from(destroy(&socket, &connection)?);
        }
    }
    Ok(count)
}

fn list(socket: &OwnedFd) -> io::Result<Vec<Connection>> {
    // `struct inet_diag_req`: family and prefixes, none of which is used; any socket; states; no filter.
    let mut anything = vec![0; 4 + IDENTITY_BYTES];
    anything.extend(CONNECTED.to_ne_bytes());
    anything.extend([0; 4]);
    send(socket, &request(TCPDIAG_GETSOCK, NLM_F_DUMP, &anything), SendFlags::empty())?;
    let mut found = Vec::new();
    let mut piece = vec![0; PIECE_BYTES_MAX];
    loop {
        let (length, _) = recv(socket, &mut piece[..], RecvFlags::empty())?;
        let mut rest = &piece[..length];
        while let Some((kind, body, after)) = split(rest) {
            rest = after;
            match kind {
                NLMSG_DONE => return Ok(found),
                NLMSG_ERROR => outcome(body)?,
                _ => found.extend(connection(body)),
            }
            if found.len() > CONNECTIONS_MAX {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
        }
    }
}

/// Whether the connection still existed.
fn destroy(socket: &OwnedFd, connection: &Connection) -> io::Result<bool> {
    // `struct inet_diag_req_v2`: family and protocol, states, socket.
    let mut body = vec![connection.family, IPPROTO_TCP, 0, 0];
    body.extend(CONNECTED.to_ne_bytes());
    body.extend(connection.identity);
    send(socket, &request(SOCK_DESTROY, NLM_F_ACK, &body), SendFlags::empty())?;
    let mut answer = vec![0; PIECE_BYTES_MAX];
    let (length, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    let (_, body, _) = split(&answer[..length]).ok_or(io::ErrorKind::InvalidData)?;
    match outcome(body) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        other => other.map(|()| true),
    }
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + body.len()).expect("a request is far below 4 GiB");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

/// The first message of a packet: its kind, its body, and the rest of the packet.
fn split(packet: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*packet.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*packet.get(4..)?.first_chunk()?);
    let body = packet.get(HEADER_BYTES..length)?;
    Some((kind, body, packet.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// `struct nlmsgerr`: starts with the negative error number, or zero for success.
fn outcome(body: &[u8]) -> io::Result<()> {
    match body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// `struct inet_diag_msg`: family, state, timer, retransmissions, then the socket's identity.
fn connection(body: &[u8]) -> Option<Connection> {
    let family = *body.first()?;
    let identity: [u8; IDENTITY_BYTES] = *body.get(4..)?.first_chunk()?;
    let port = |at: usize| Some(u16::from_be_bytes(*identity.get(at..)?.first_chunk()?));
    let address = |at: usize| {
        let bytes: [u8; 16] = *identity.get(at..)?.first_chunk()?;
        let [a, b, c, d, ..] = bytes;
        // A socket of one family may be connected to one of the other, which is then listed with its mapped address.
        Some(match family {
            AF_INET => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            _ => IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical(),
        })
    };
    let own = SocketAddr::new(address(4)?, port(0)?);
    let other = SocketAddr::new(address(20)?, port(2)?);
    Some(Connection { family, ends: ConnectionEnds { own, other }, identity })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::process::Command;

    use super::*;

    /// Runs a command in the network namespace of this thread.
    fn run(words: &str) {
        let mut words = words.split(' ');
        assert!(Command::new(words.next().unwrap()).args(words).status().unwrap().success());
    }

    /// Two namespaces with a veth pair between them: the listener is in one; a connection to it and a local connection
    /// are in the other, where the test runs.
    #[test]
    fn outside_connections_fail_and_inside_connections_continue() {
        let inside = || {
            new_namespace();
            run("ip link set lo up");
            let (send, receive) = std::sync::mpsc::channel();
            let outside = thread::spawn(move || {
                new_namespace();
                let namespace = File::open("/proc/thread-self/ns/net").unwrap();
                send.send((namespace, gettid())).unwrap();
                // The interface comes up when the other thread has created the pair.
                let listener = loop {
                    match TcpListener::bind(("10.99.0.1", 9)) {
                        Ok(listener) => break listener,
                        Err(_) => thread::yield_now(),
                    }
                };
                let mut accepted = listener.accept().unwrap().0;
                accepted.read(&mut [0]).unwrap_or(0)
            });
            let (namespace, tid) = receive.recv().unwrap();
            run(&format!("ip link add a0 type veth peer name b0 netns {tid}"));
            run("ip address add 10.99.0.2/30 dev a0");
            run("ip link set a0 up");
            thread::scope(|scope| {
                scope.spawn(|| {
                    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                    run("ip address add 10.99.0.1/30 dev b0");
                    run("ip link set b0 up");
                });
            });
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut near_end = listener.accept().unwrap().0;
            let mut far = loop {
                match TcpStream::connect(("10.99.0.1", 9)) {
                    Ok(far) => break far,
                    Err(_) => thread::yield_now(),
                }
            };

            let own = File::open("/proc/thread-self/ns/net").unwrap();
            assert_eq!(reset_outside(own.as_fd()).unwrap(), 1);
            assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
            near.write_all(b"x").unwrap();
            assert_eq!(near_end.read(&mut [0]).unwrap(), 1);
            assert_eq!(reset_outside(own.as_fd()).unwrap(), 0);
            assert_eq!(outside.join().unwrap(), 0, "the other end sees the end, too");
        };
        thread::spawn(inside).join().unwrap();
    }

    fn new_namespace() {
        let flags = rustix::thread::UnshareFlags::NEWNET;
        #[expect(unsafe_code, reason = "unshare has no safe interface")]
        // SAFETY: no file table is unshared, and nothing here assumes which network namespace a thread is in.
        unsafe { rustix::thread::unshare_unsafe(flags) }.unwrap();
    }

    fn gettid() -> i32 {
        rustix::thread::gettid().as_raw_nonzero().get()
    }
}
