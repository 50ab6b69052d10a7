//! The doors of a gateway: the listening sockets on which everything arrives that a sandbox sends.
//!
//! ```text
//! tcp      [::]:15001, transparent: the rules bring every connection here, its destination unchanged
//! dns_udp  [::]:53                  the rules let in what is for the gateway's own address, and nothing else
//! dns_tcp  [::]:53
//! own      [::]:7700                likewise; the daemon serves it, the others the egress process
//! ```
//!
//! Each takes both families, so there is no way by v6 that is not also the way by v4. Two processes must never share a
//! sandbox's traffic: a port is taken away from whoever holds it, which can only be an earlier door, since nobody else
//! makes sockets in a gateway. A listener that was destroyed is closed for good. A UDP socket keeps its port as long as
//! somebody has it open, whatever is done to it; but its holder is told by an error, and of two sockets on one port
//! the kernel gives every packet to the younger.
#![expect(unsafe_code, reason = "the option that makes a socket transparent has no safe wrapper")]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::interfaces::Families;
use super::netlink::{Batch, Protocol, Socket};
use crate::Doors;
use crate::address::{DNS_PORT, EGRESS_PORT, OWN_PORT};

/// Connections that wait to be accepted. More than a program opens at once; whoever floods is told to wait by its own
/// kernel, and takes about 1 KiB of ours for each.
const BACKLOG: i32 = 512;

// From <linux/sock_diag.h> and <linux/inet_diag.h>.
const SOCK_DESTROY: u16 = 21;
const INET_DIAG_NOCOOKIE: [u8; 8] = [0xff; 8];
const STATES_ALL: u32 = u32::MAX;

/// What a door is for.
#[derive(Clone, Copy, Debug)]
enum Door {
    Tcp,
    DnsUdp,
    DnsTcp,
    Own,
}

/// Opens all doors in the current namespace, in place of any earlier ones.
pub(super) fn open() -> io::Result<Doors> {
    open_for(Families::of_this_kernel())
}

/// Opens the door to the sandbox's own API in the current namespace, in place of an earlier one.
pub(super) fn open_own() -> io::Result<OwnedFd> {
    Door::Own.open(Families::of_this_kernel())
}

fn open_for(families: Families) -> io::Result<Doors> {
    let open = |door: Door| door.open(families);
    Ok(Doors { tcp: open(Door::Tcp)?, dns_udp: open(Door::DnsUdp)?, dns_tcp: open(Door::DnsTcp)? })
}

impl Door {
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
                // Whoever opens doors has the dialler's thread to itself, so once is enough.
                Err(error) if taken(&error) => {
                    self.take_over(families)?;
                    self.try_open(families)
                }
                outcome => outcome,
            },
            Self::DnsUdp => {
                // Only to tell its holder: there may be none, and the port is to be had in any case.
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
            // Whatever the host's default is: one door, both families.
            sockopt::set_ipv6_v6only(&socket, false)?;
        }
        if matches!(self, Self::Tcp) {
            make_transparent(&socket, families)?;
        }
        // For what is left of earlier doors: connections that ended a moment ago, a socket that was destroyed and is
        // still open somewhere. It does not let two of them listen.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &anywhere(families, self.port()))?;
        if matches!(self, Self::Tcp | Self::DnsTcp | Self::Own) {
            rustix::net::listen(&socket, BACKLOG)?;
        }
        Ok(socket)
    }

    /// Ends the socket that has this door's port. Whoever waits on it gets an error; what it accepted lives on.
    fn take_over(self, families: Families) -> io::Result<()> {
        let diagnosis = Socket::open(Protocol::SocketDiagnosis)?;
        let mut batch = Batch::default();
        batch.add("take over an earlier door", SOCK_DESTROY, 0, &self.request(families), |_| ());
        match diagnosis.run(&batch) {
            Ok(()) => Ok(()),
            // It was closed in this very moment.
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("an earlier door is still open, and closing it failed: {}", error.source),
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
        // Its peer's port, both addresses and the interface: none.
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

/// Lets a socket be, for its peer, any address there is.
fn make_transparent(socket: &OwnedFd, families: Families) -> io::Result<()> {
    match families {
        Families::Both => switch_on(socket, libc::SOL_IPV6, libc::IPV6_TRANSPARENT),
        Families::V4Only => switch_on(socket, libc::SOL_IP, libc::IP_TRANSPARENT),
    }
}

fn switch_on(socket: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).expect("an int is a few bytes");
    // SAFETY: the socket is open, and the kernel reads one int from where it is told to.
    let answer = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(&on).cast(), length)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::linux::namespace::Traveller;

    #[test]
    fn doors_can_be_opened_again_and_again_while_all_earlier_ones_are_held() {
        for families in [Families::Both, Families::V4Only] {
            let traveller = Traveller::new().unwrap();
            let open_many = || (0..20).map(|_| open_for(families)).collect::<io::Result<Vec<_>>>();
            let (_namespace, held) = traveller.visit_new(open_many).unwrap();
            let mut listeners = held.into_iter().map(|doors| TcpListener::from(doors.tcp));
            let newest = listeners.next_back().unwrap();
            assert_eq!(newest.local_addr().unwrap(), anywhere(families, EGRESS_PORT));
            assert_eq!(newest.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            for earlier in listeners {
                assert_ne!(earlier.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            }
        }
    }

    #[test]
    fn doors_do_not_block_and_are_closed_on_exec() {
        let (_namespace, doors) = Traveller::new().unwrap().visit_new(open).unwrap();
        for door in [&doors.tcp, &doors.dns_udp, &doors.dns_tcp] {
            assert!(rustix::fs::fcntl_getfl(door).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
            assert!(rustix::io::fcntl_getfd(door).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
}
