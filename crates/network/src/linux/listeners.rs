//! The listeners of a gateway: the sockets on which all traffic of a sandbox arrives.
//!
//! ```text
//! tcp      [::]:15001, transparent: the rules redirect every connection here, its destination unchanged
//! dns_udp  [::]:53                  the rules only accept packets for the gateway's own address
//! dns_tcp  [::]:53
//! own      [::]:7700                likewise; served by the daemon, the others by the egress process
//! ```
//!
//! Each accepts both address families, so IPv6 has no path that IPv4 does not have. Two processes must never share a
//! sandbox's traffic: a port is taken from the socket that has it. That can only be an earlier listener, since nothing
//! else creates sockets in a gateway. A destroyed TCP listener is closed for good. A UDP socket keeps its port as long
//! as a process has it open. But its holder gets an error, and of two sockets on one port the kernel delivers every
//! packet to the newer one.
#![expect(unsafe_code, reason = "the option that makes a socket transparent has no safe wrapper")]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::interfaces::Families;
use super::netlink::{Batch, Protocol, Socket};
use crate::Listeners;
use crate::address::{DNS_PORT, EGRESS_PORT, OWN_PORT};

/// Connections that wait to be accepted. More than a program opens at once. If a client floods it, the client's own
/// kernel delays it, at the cost of about 1 KiB of ours for each connection.
const BACKLOG: i32 = 512;

// From <linux/sock_diag.h> and <linux/inet_diag.h>.
const SOCK_DESTROY: u16 = 21;
const INET_DIAG_NOCOOKIE: [u8; 8] = [0xff; 8];
const STATES_ALL: u32 = u32::MAX;

/// The purpose of a listener.
#[derive(Clone, Copy, Debug)]
enum ListenerKind {
    Tcp,
    DnsUdp,
    DnsTcp,
    Own,
}

/// Opens all listeners in the current namespace, in place of any earlier ones.
pub(super) fn open() -> io::Result<Listeners> {
    open_for(Families::of_this_kernel())
}

/// Opens the listener of the sandbox's own API in the current namespace, in place of an earlier one.
pub(super) fn open_own() -> io::Result<OwnedFd> {
    ListenerKind::Own.open(Families::of_this_kernel())
}

fn open_for(families: Families) -> io::Result<Listeners> {
    let open = |listener: ListenerKind| listener.open(families);
    Ok(Listeners {
        tcp: open(ListenerKind::Tcp)?,
        dns_udp: open(ListenerKind::DnsUdp)?,
        dns_tcp: open(ListenerKind::DnsTcp)?,
    })
}

impl ListenerKind {
    fn port(self) -> u16 {
        match self {
            Self::Tcp => EGRESS_PORT,
            Self::DnsUdp | Self::DnsTcp => DNS_PORT,
            Self::Own => OWN_PORT,
        }
    }

    fn kind(self) -> SocketType {
        match self {
            Self::Tcp | Self::DnsTcp | Self::Own => SocketType::STREAM,
            Self::DnsUdp => SocketType::DGRAM,
        }
    }

    fn open(self, families: Families) -> io::Result<OwnedFd> {
        let taken = |error: &io::Error| error.raw_os_error() == Some(Errno::ADDRINUSE.raw_os_error());
        match self {
            Self::Tcp | Self::DnsTcp | Self::Own => match self.try_open(families) {
                // The caller has the dialler's thread to itself, so one retry is enough.
                Err(error) if taken(&error) => {
                    self.take_over(families)?;
                    self.try_open(families)
                }
                outcome => outcome,
            },
            Self::DnsUdp => {
                // Only to give its holder an error: there may be none, and the port is available in any case.
                let _ = self.take_over(families);
                self.try_open(families)
            }
        }
    }

    fn try_open(self, families: Families) -> io::Result<OwnedFd> {
        let family = match families {
            Families::Both => AddressFamily::INET6,
            Families::V4Only => AddressFamily::INET,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, self.kind(), flags, None)?;
        if families == Families::Both {
            // Both families on one socket, whatever the host's default is.
            sockopt::set_ipv6_v6only(&socket, false)?;
        }
        if matches!(self, Self::Tcp) {
            make_transparent(&socket, families)?;
        }
        // For the remains of earlier listeners: connections that ended a moment ago, and a destroyed socket that is
        // still open in some process. It does not allow two of them to listen.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &anywhere(families, self.port()))?;
        if matches!(self, Self::Tcp | Self::DnsTcp | Self::Own) {
            rustix::net::listen(&socket, BACKLOG)?;
        }
        Ok(socket)
    }

    /// Destroys the socket that has this listener's port. Its holder gets an error; accepted connections continue.
    fn take_over(self, families: Families) -> io::Result<()> {
        let diagnosis = Socket::open(Protocol::SocketDiagnosis)?;
        let mut batch = Batch::default();
        batch.add("take over an earlier listener", SOCK_DESTROY, 0, &self.request(families), |_| ());
        match diagnosis.run(&batch) {
            Ok(()) => Ok(()),
            // It was closed at this moment.
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("an earlier listener is still open, and closing it failed: {}", error.source),
            )),
        }
    }

    /// `struct inet_diag_req_v2`, for the socket on this port and any address.
    fn request(self, families: Families) -> Vec<u8> {
        let family = match families {
            Families::Both => AddressFamily::INET6,
            Families::V4Only => AddressFamily::INET,
        };
        let protocol = match self {
            Self::Tcp | Self::DnsTcp | Self::Own => ipproto::TCP,
            Self::DnsUdp => ipproto::UDP,
        };
        let family = u8::try_from(family.as_raw()).expect("both are below 256");
        let protocol = u8::try_from(protocol.as_raw().get()).expect("both are below 256");
        let mut request = vec![family, protocol, 0, 0];
        request.extend(STATES_ALL.to_ne_bytes());
        request.extend(self.port().to_be_bytes());
        // The peer's port, both addresses and the interface: none.
        request.extend([0; 2 + 16 + 16 + 4]);
        request.extend(INET_DIAG_NOCOOKIE);
        request
    }
}

fn anywhere(families: Families, port: u16) -> SocketAddr {
    match families {
        Families::Both => (Ipv6Addr::UNSPECIFIED, port).into(),
        Families::V4Only => (Ipv4Addr::UNSPECIFIED, port).into(),
    }
}

/// Lets a socket have any local address.
fn make_transparent(socket: &OwnedFd, families: Families) -> io::Result<()> {
    match families {
        Families::Both => switch_on(socket, libc::SOL_IPV6, libc::IPV6_TRANSPARENT),
        Families::V4Only => switch_on(socket, libc::SOL_IP, libc::IP_TRANSPARENT),
    }
}

fn switch_on(socket: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).expect("an int is a few bytes");
    // SAFETY: the socket is open, and the kernel reads one int from the given address.
    let answer = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(&on).cast(), length)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::linux::namespace::NamespaceVisitor;

    #[test]
    fn listeners_can_be_opened_repeatedly_while_all_earlier_ones_are_held() {
        for families in [Families::Both, Families::V4Only] {
            let visitor = NamespaceVisitor::new().unwrap();
            let open_many = || (0..20).map(|_| open_for(families)).collect::<io::Result<Vec<_>>>();
            let (_namespace, held) = visitor.visit_new(open_many).unwrap();
            let mut listeners = held.into_iter().map(|listeners| TcpListener::from(listeners.tcp));
            let newest = listeners.next_back().unwrap();
            assert_eq!(newest.local_addr().unwrap(), anywhere(families, EGRESS_PORT));
            assert_eq!(newest.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            for earlier in listeners {
                assert_ne!(earlier.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            }
        }
    }

    #[test]
    fn listeners_are_nonblocking_and_closed_on_exec() {
        let (_namespace, listeners) = NamespaceVisitor::new().unwrap().visit_new(open).unwrap();
        for listener in [&listeners.tcp, &listeners.dns_udp, &listeners.dns_tcp] {
            assert!(rustix::fs::fcntl_getfl(listener).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
            assert!(rustix::io::fcntl_getfd(listener).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
}
