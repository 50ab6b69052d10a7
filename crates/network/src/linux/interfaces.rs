//! The netlink messages that configure the interfaces, addresses, neighbours and routes of two namespaces.
//!
//! ```text
//! sandbox   sends everything through eth0, to the gateway
//! gateway   redirected (marked) packets are local, whatever their destination; the only other route is gw0
//! ```
//!
//! Both ends get fixed hardware addresses and permanent neighbour entries for each other. So no neighbour discovery
//! precedes the first packet, and a restored machine finds the neighbour that it knows. Neither end has link-local
//! addresses: those would only cause timers and traffic.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use super::netlink::{Batch, CREATE, SlotError, Socket, find_attribute};
use crate::address::{
    GATEWAY_HARDWARE, GATEWAY_V4, GATEWAY_V6, PREFIX_V4, PREFIX_V6, SANDBOX_HARDWARE, SANDBOX_V4, SANDBOX_V6,
};

/// The gateway's end of the pair, as named in the rules.
pub(super) const GATEWAY_INTERFACE: &str = "gw0";
const SANDBOX_INTERFACE: &str = "eth0";

/// The mark of a packet that the rules redirected to a listener, and the routing table in which every address is local.
/// Both are only used inside the gateway namespace, so any numbers work.
pub(super) const HANDED_OVER: u32 = 1;
const EVERYTHING_IS_LOCAL: u8 = 100;

/// Neither answer ARP nor learn from it, unless both of its addresses are of the subnet. The neighbour table has one
/// limit for the whole host, and a sandbox could use it up by making its gateway learn thousands of neighbours.
const ARP_IGNORE_OTHER_SUBNETS: u32 = 2;

/// The loopback interface always has index 1.
const LOOPBACK: u32 = 1;
/// The index of either end, chosen by us so that one batch can refer to the pair that it creates. Far above the
/// fallback tunnels that some kernel modules add to every new namespace.
pub(super) const PAIR: u32 = 100;

/// How long to wait for the carrier: two seconds in total. A host so loaded that it needs longer has no capacity for
/// one more sandbox.
const CARRIER_QUERIES_MAX: usize = 10_000;
const CARRIER_PAUSE: Duration = Duration::from_micros(200);

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

// From <linux/rtnetlink.h>, <linux/if_link.h>, <linux/if_addr.h>, <linux/neighbour.h>, <linux/fib_rules.h>,
// <linux/ip.h> and <linux/veth.h>.
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;
const RTM_NEWRULE: u16 = 32;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_OPERSTATE: u16 = 16;
const IF_OPER_UP: u8 = 6;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET_CONF: u16 = 1;
const IPV4_DEVCONF_ARP_IGNORE: u16 = 19;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFLA_NET_NS_FD: u16 = 28;
const VETH_INFO_PEER: u16 = 1;
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
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_HOST: u8 = 254;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const FR_ACT_TO_TBL: u8 = 1;
const FRA_IIFNAME: u16 = 3;
const FRA_FWMARK: u16 = 10;

/// Whether this kernel supports IPv6: it can be disabled at boot, and sandboxes then have IPv4 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Families {
    V4Only,
    Both,
}

impl Families {
    pub(super) fn of_this_kernel() -> Self {
        if std::path::Path::new("/proc/sys/net/ipv6").exists() { Self::Both } else { Self::V4Only }
    }

    fn keep(self, address: IpAddr) -> bool {
        self == Self::Both || address.is_ipv4()
    }
}

/// For the gateway namespace: creates the pair, moves the other end into `sandbox`, and configures this end.
pub(super) fn gateway(families: Families, sandbox: BorrowedFd<'_>) -> Batch {
    let mut batch = Batch::default();
    make_pair(&mut batch, sandbox);
    configure_gateway(&mut batch, families);
    batch
}

/// For the gateway namespace with a tap of that index: the same, without another end.
pub(super) fn gateway_of_tap(families: Families) -> Batch {
    let mut batch = Batch::default();
    batch.add("give the tap its address", RTM_NEWLINK, 0, &link_header(PAIR, 0), |link| {
        link.put(IFLA_ADDRESS, &GATEWAY_HARDWARE);
    });
    configure_gateway(&mut batch, families);
    batch
}

fn configure_gateway(batch: &mut Batch, families: Families) {
    limit_arp(batch);
    bring_up(batch, families);
    for (own, other) in ends().filter(|(own, _)| families.keep(*own)) {
        add_address(batch, own);
        add_neighbour(batch, other, SANDBOX_HARDWARE);
    }
}

/// For the gateway namespace, before it has an interface: the part that is the same for every interface.
pub(super) fn routing(families: Families) -> Batch {
    let mut batch = Batch::default();
    batch.add("bring up an interface", RTM_NEWLINK, 0, &link_header(LOOPBACK, IFF_UP), |_| ());
    for (gateway, _) in ends().filter(|(gateway, _)| families.keep(*gateway)) {
        deliver_redirected_packets(&mut batch, family_of(gateway));
    }
    batch
}

/// Removes the pair whose end is in the namespace of `links`, together with its other end, or the tap. Not an error if
/// there is none.
pub(super) fn cut_off(links: &Socket) -> Result<(), SlotError> {
    let mut batch = Batch::default();
    batch.add("remove the veth pair", RTM_DELLINK, 0, &link_header(PAIR, 0), |_| ());
    match links.run(&batch) {
        Err(error) if error.source.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        outcome => outcome,
    }
}

/// For the sandbox's namespace, once the pair exists: configures this end, and adds the route to the gateway.
pub(super) fn sandbox(families: Families) -> Batch {
    let mut batch = Batch::default();
    bring_up(&mut batch, families);
    for (gateway, own) in ends().filter(|(gateway, _)| families.keep(*gateway)) {
        add_address(&mut batch, own);
        add_neighbour(&mut batch, gateway, GATEWAY_HARDWARE);
        add_default_route(&mut batch, gateway);
    }
    batch
}

/// Returns once the gateway's end can send. `links` is a socket of its namespace, and both ends are up.
///
/// The end that came up first gets its carrier with the second one, and the kernel notices this some time later, in the
/// background. Until then all packets are lost, and TCP retransmits only after a whole second. A query of the interface
/// makes newer kernels notice, so one query is usually enough.
pub(super) fn wait_for_carrier(links: &Socket) -> Result<(), SlotError> {
    const STEP: &str = "wait for the gateway's interface";
    for _ in 0..CARRIER_QUERIES_MAX {
        let answer = links.ask(STEP, RTM_GETLINK, &link_header(PAIR, 0))?;
        if find_attribute(&answer, link_header(0, 0).len(), IFLA_OPERSTATE) == Some(&[IF_OPER_UP]) {
            return Ok(());
        }
        std::thread::sleep(CARRIER_PAUSE);
    }
    Err(SlotError { step: STEP, source: io::ErrorKind::TimedOut.into() })
}

/// The gateway's and the sandbox's address, per family.
fn ends() -> impl Iterator<Item = (IpAddr, IpAddr)> {
    [(GATEWAY_V4.into(), SANDBOX_V4.into()), (GATEWAY_V6.into(), SANDBOX_V6.into())].into_iter()
}

fn make_pair(batch: &mut Batch, sandbox: BorrowedFd<'_>) {
    let header = link_header(PAIR, 0);
    batch.add("create the veth pair", RTM_NEWLINK, CREATE, &header, |link| {
        link.put_text(IFLA_IFNAME, GATEWAY_INTERFACE);
        link.put(IFLA_ADDRESS, &GATEWAY_HARDWARE);
        link.nest(IFLA_LINKINFO, |info| {
            info.put_text(IFLA_INFO_KIND, "veth");
            info.nest(IFLA_INFO_DATA, |data| {
                data.nest_with_header(VETH_INFO_PEER, &header, |peer| {
                    peer.put_text(IFLA_IFNAME, SANDBOX_INTERFACE);
                    peer.put(IFLA_ADDRESS, &SANDBOX_HARDWARE);
                    peer.put(IFLA_NET_NS_FD, &sandbox.as_raw_fd().to_ne_bytes());
                });
            });
        });
    });
}

fn limit_arp(batch: &mut Batch) {
    batch.add("limit the sources of ARP entries", RTM_NEWLINK, 0, &link_header(PAIR, 0), |link| {
        link.nest(IFLA_AF_SPEC, |spec| {
            spec.nest(AF_INET.into(), |inet| {
                inet.nest(IFLA_INET_CONF, |conf| {
                    conf.put(IPV4_DEVCONF_ARP_IGNORE, &ARP_IGNORE_OTHER_SUBNETS.to_ne_bytes());
                });
            });
        });
    });
}

fn bring_up(batch: &mut Batch, families: Families) {
    // Link-local addresses are created when the interface comes up, so this has to come first.
    if families == Families::Both {
        batch.add("disable link-local addresses", RTM_NEWLINK, 0, &link_header(PAIR, 0), |link| {
            link.nest(IFLA_AF_SPEC, |spec| {
                spec.nest(AF_INET6.into(), |inet6| {
                    inet6.put(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE])
                });
            });
        });
    }
    for index in [LOOPBACK, PAIR] {
        batch.add("bring up an interface", RTM_NEWLINK, 0, &link_header(index, IFF_UP), |_| ());
    }
}

fn add_address(batch: &mut Batch, address: IpAddr) {
    let (family, prefix) = if address.is_ipv4() { (AF_INET, PREFIX_V4) } else { (AF_INET6, PREFIX_V6) };
    // With duplicate address detection, an IPv6 address could not be used for its first second.
    let mut header = vec![family, prefix, IFA_F_NODAD, 0];
    header.extend(PAIR.to_ne_bytes());
    batch.add("add an address", RTM_NEWADDR, CREATE, &header, |attributes| {
        attributes.put(IFA_LOCAL, &octets(address));
        attributes.put(IFA_ADDRESS, &octets(address));
    });
}

fn add_neighbour(batch: &mut Batch, address: IpAddr, hardware: [u8; 6]) {
    let mut header = vec![family_of(address), 0, 0, 0];
    header.extend(PAIR.to_ne_bytes());
    header.extend(NUD_PERMANENT.to_ne_bytes());
    header.extend([0, 0]);
    batch.add("add a neighbour", RTM_NEWNEIGH, CREATE, &header, |attributes| {
        attributes.put(NDA_DST, &octets(address));
        attributes.put(NDA_LLADDR, &hardware);
    });
}

fn add_default_route(batch: &mut Batch, gateway: IpAddr) {
    let header = route_header(family_of(gateway), RT_TABLE_MAIN, RT_SCOPE_UNIVERSE, RTN_UNICAST);
    batch.add("add a default route", RTM_NEWROUTE, CREATE, &header, |attributes| {
        attributes.put(RTA_GATEWAY, &octets(gateway));
        attributes.put(RTA_OIF, &PAIR.to_ne_bytes());
    });
}

/// Delivers marked packets locally, though their destination is elsewhere. The loopback interface must be up.
fn deliver_redirected_packets(batch: &mut Batch, family: u8) {
    let header = route_header(family, EVERYTHING_IS_LOCAL, RT_SCOPE_HOST, RTN_LOCAL);
    batch.add("make every address local", RTM_NEWROUTE, CREATE, &header, |attributes| {
        attributes.put(RTA_OIF, &LOOPBACK.to_ne_bytes());
    });
    // `struct fib_rule_hdr`.
    let header = [family, 0, 0, 0, EVERYTHING_IS_LOCAL, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
    batch.add("route marked packets", RTM_NEWRULE, CREATE, &header, |attributes| {
        // Only for incoming packets. If the host's `src_valid_mark` is on (namespaces inherit it), the kernel looks up
        // the *return* route with the same mark. It would be local, and the source would be considered forged.
        attributes.put_text(FRA_IIFNAME, GATEWAY_INTERFACE);
        attributes.put(FRA_FWMARK, &HANDED_OVER.to_ne_bytes());
    });
}

/// `struct rtmsg`: a route to everywhere.
fn route_header(family: u8, table: u8, scope: u8, kind: u8) -> Vec<u8> {
    let mut header = vec![family, 0, 0, 0, table, RTPROT_STATIC, scope, kind];
    header.extend([0; 4]);
    header
}

/// `struct ifinfomsg`: the link with this index, with `flags` set.
fn link_header(index: u32, flags: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    header.extend(index.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header
}

fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_kernel_without_ipv6_gets_no_ipv6_messages() {
        let any = File::open("/proc/self/ns/net").unwrap();
        for (both, v4_only) in [
            (gateway(Families::Both, any.as_fd()), gateway(Families::V4Only, any.as_fd())),
            (sandbox(Families::Both), sandbox(Families::V4Only)),
        ] {
            let mentions = |batch: &Batch, address: IpAddr| {
                let octets = octets(address);
                batch.bytes().windows(octets.len()).any(|window| window == octets)
            };
            for (gateway, sandbox) in ends() {
                assert!(mentions(&both, gateway) && mentions(&both, sandbox));
                assert_eq!(mentions(&v4_only, gateway), gateway.is_ipv4());
                assert_eq!(mentions(&v4_only, sandbox), sandbox.is_ipv4());
            }
        }
    }
}
