//! The machine's network interface: addresses, the gateway as a static neighbour, and routes to it.

use std::fs;
use std::io;
use std::net::IpAddr;

use super::netlink::{MAKE, Socket, put};
use crate::protocol::VmNetwork;

const CARD: &str = "/sys/class/net/eth0/ifindex";
const LOOPBACK: u32 = 1;

// From <linux/rtnetlink.h>, <linux/if_link.h>, <linux/if_addr.h> and <linux/neighbour.h>.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;
const IFF_UP: u32 = 1;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const NLA_F_NESTED: u16 = 1 << 15;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

pub(super) fn set_up(network: &VmNetwork) -> io::Result<()> {
    let links = Socket::open(None)?;
    let interface = super::init::await_device(|| fs::read_to_string(CARD).ok()?.trim().parse::<u32>().ok());
    let interface =
        interface.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no network interface"))?;
    // Link-local addresses would cause timers and traffic; a kernel without IPv6 has none.
    let _ = links.ask(RTM_NEWLINK, 0, &no_link_local(interface));
    for index in [LOOPBACK, interface] {
        links.ask(RTM_NEWLINK, 0, &link(index, IFF_UP))?;
    }
    let v4 = (network.address_v4.0.into(), network.address_v4.1, network.gateway_v4.into());
    let v6 = (network.address_v6.0.into(), network.address_v6.1, network.gateway_v6.into());
    join(&links, interface, v4, network.gateway_hardware)?;
    match join(&links, interface, v6, network.gateway_hardware) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        joined => joined,
    }
}

/// The interface over which programs of one machine communicate.
pub(super) fn raise_loopback() -> io::Result<()> {
    Socket::open(None)?.ask(RTM_NEWLINK, 0, &link(LOOPBACK, IFF_UP))
}

/// Configures one family: the address, the neighbour, the route.
fn join(
    links: &Socket,
    interface: u32,
    (own, prefix, gateway): (IpAddr, u8, IpAddr),
    hardware: [u8; 6],
) -> io::Result<()> {
    let family = if own.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut address = vec![family, prefix, IFA_F_NODAD, 0];
    address.extend(interface.to_ne_bytes());
    for kind in [IFA_LOCAL, IFA_ADDRESS] {
        put(&mut address, kind, &octets(own));
    }
    links.ask(RTM_NEWADDR, MAKE, &address)?;

    let mut neighbour = vec![family, 0, 0, 0];
    neighbour.extend(interface.to_ne_bytes());
    neighbour.extend(NUD_PERMANENT.to_ne_bytes());
    neighbour.extend([0; 2]);
    put(&mut neighbour, NDA_DST, &octets(gateway));
    put(&mut neighbour, NDA_LLADDR, &hardware);
    links.ask(RTM_NEWNEIGH, MAKE, &neighbour)?;

    let mut route = vec![family, 0, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_UNICAST, 0, 0, 0, 0];
    put(&mut route, RTA_GATEWAY, &octets(gateway));
    put(&mut route, RTA_OIF, &interface.to_ne_bytes());
    links.ask(RTM_NEWROUTE, MAKE, &route)
}

/// `struct ifinfomsg`.
fn link(index: u32, flags: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    header.extend(index.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header
}

fn no_link_local(index: u32) -> Vec<u8> {
    let (mut mode, mut inet6) = (Vec::new(), Vec::new());
    put(&mut mode, IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
    put(&mut inet6, u16::from(AF_INET6) | NLA_F_NESTED, &mode);
    let mut body = link(index, 0);
    put(&mut body, IFLA_AF_SPEC | NLA_F_NESTED, &inet6);
    body
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
