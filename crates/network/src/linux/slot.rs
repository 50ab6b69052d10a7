//! A network slot: the complete network of a sandbox, created before it is assigned to one.
//!
//! ```text
//! user namespace ── owns ──► net namespace: lo, eth0 ◄──veth──► gw0, lo :gateway namespace, with the rules
//! ```
//!
//! A slot is held only by descriptors, so an unused one disappears with the daemon, however the daemon ends.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::ids::HostIds;
use super::interfaces::{self, Families};
use super::namespace::{self, NamespaceVisitor, UID_BASE};
use super::netlink::{Protocol, SlotError, Socket};
use super::{rules, tap};

// Each thread sees the settings of the network namespace that it is in.
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
const MPTCP_ENABLED: &str = "/proc/sys/net/mptcp/enabled";
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The congestion control of the veth pair: the simplest one. Every kernel has it, and every namespace may select it.
const WIRE_CONGESTION_CONTROL: &str = "reno";

/// Namespaces with interfaces, addresses, routes and rules, ready for a sandbox.
#[derive(Debug)]
pub struct Slot {
    pub user: OwnedFd,
    /// The sandbox's network namespace; belongs to `user`.
    pub net: OwnedFd,
    pub gateway: OwnedFd,
    /// The ids that `user` maps to; `None`: the ids on disk.
    pub ids: Option<HostIds>,
}

/// Creates a slot, with its own range of ids or with the ids on disk. Blocks for a few milliseconds, during which the
/// calling thread visits other network namespaces. It must therefore run on one of our threads, never on one of the
/// async runtime.
pub fn make(own_ids: bool) -> Result<Slot, SlotError> {
    let visitor = visitor()?;
    let ids = own_ids.then(HostIds::reserve).transpose()?;
    let pair = namespace::make_pair(ids.as_ref().map_or(UID_BASE, |ids| ids.range.base()))?;
    let (gateway, links) = make_gateway(&visitor)?;
    wire(&visitor, &links, pair.net.as_fd())?;
    Ok(Slot { user: pair.user, net: pair.net, gateway, ids })
}

/// Creates the gateway's half of a slot: everything but the veth pair. For the thread, see [`make`].
pub(super) fn gateway() -> Result<OwnedFd, SlotError> {
    Ok(make_gateway(&visitor()?)?.0)
}

/// Completes a slot from a gateway and a network namespace that was created elsewhere. For the thread, see [`make`].
pub(super) fn plug(gateway: BorrowedFd<'_>, net: BorrowedFd<'_>) -> Result<(), SlotError> {
    let visitor = visitor()?;
    let links = open_links(&visitor, gateway, "open netlink in the gateway namespace")?;
    // The interface of an earlier machine disappears with its namespace, but only some time after the last process in
    // it.
    interfaces::cut_off(&links)?;
    wire(&visitor, &links, net)
}

/// Creates the link of a machine with its own network interface: a tap in the gateway. For the thread, see [`make`].
pub(super) fn plug_tap(gateway: BorrowedFd<'_>) -> Result<OwnedFd, SlotError> {
    let visitor = visitor()?;
    let links = open_links(&visitor, gateway, "open netlink in the gateway namespace")?;
    interfaces::cut_off(&links)?;
    let tap = visitor.visit(gateway, tap::open).map_err(at("create the tap"))?;
    links.run(&interfaces::gateway_of_tap(Families::of_this_kernel()))?;
    Ok(tap)
}

/// Connects `net` to the gateway in whose namespace `links` was opened.
fn wire(visitor: &NamespaceVisitor, links: &Socket, net: BorrowedFd<'_>) -> Result<(), SlotError> {
    let settle = || {
        use_simple_congestion_control();
        disable_multipath()
    };
    visitor.visit(net, settle).map_err(at("switch off multipath TCP"))?;
    let inside = open_links(visitor, net, "open netlink in the sandbox's namespace")?;
    let families = Families::of_this_kernel();
    links.run(&interfaces::gateway(families, net))?;
    inside.run(&interfaces::sandbox(families))?;
    interfaces::wait_for_carrier(links)
}

/// A gateway namespace without an interface, and a socket to add one.
fn make_gateway(visitor: &NamespaceVisitor) -> Result<(OwnedFd, Socket), SlotError> {
    let (gateway, (links, filter)) = visitor
        .visit_new(|| {
            disable_forwarding()?;
            use_simple_congestion_control();
            Ok((Socket::open(Protocol::Route)?, Socket::open(Protocol::Netfilter)?))
        })
        .map_err(at("create the gateway namespace"))?;
    // From here on the sockets are enough: a netlink socket acts on the namespace in which it was opened. The rules are
    // loaded before the interface that they guard exists, so there is no moment at which a packet meets no rules.
    let families = Families::of_this_kernel();
    filter.run(&rules::load(families))?;
    links.run(&interfaces::routing(families))?;
    Ok((gateway, links))
}

fn visitor() -> Result<NamespaceVisitor, SlotError> {
    NamespaceVisitor::new().map_err(at("find the current network namespace"))
}

fn open_links(
    visitor: &NamespaceVisitor,
    namespace: BorrowedFd<'_>,
    step: &'static str,
) -> Result<Socket, SlotError> {
    visitor.visit(namespace, || Socket::open(Protocol::Route)).map_err(at(step))
}

fn at(step: &'static str) -> impl FnOnce(io::Error) -> SlotError {
    move |source| SlotError { step, source }
}

/// Disables routing in the current namespace. A new namespace inherits the host's setting, and hosts that run other
/// container software enable it.
fn disable_forwarding() -> io::Result<()> {
    if fs::read(IP_FORWARD)?.trim_ascii() == b"0" { Ok(()) } else { fs::write(IP_FORWARD, "0") }
}

/// Disables multipath TCP in the current namespace. CRIU cannot dump an MPTCP socket, so a sandbox whose server has one
/// could never hibernate, and some language runtimes request it by default. They get TCP instead.
fn disable_multipath() -> io::Result<()> {
    match fs::write(MPTCP_ENABLED, "0") {
        // A kernel without multipath TCP cannot provide it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Makes TCP send as fast as the other end reads, in the current namespace. A veth pair is a function call: it is never
/// congested, and the congestion control that the host uses for the internet only costs time. With BBR, which sets a
/// timer for every segment, a model of the proxy carried a download at 0.57 to 0.73 of the rate that a program gets
/// over such a link without the proxy, and an upload at 0.57 to 0.68. With this setting: at 0.81 to 0.96, and at 0.78
/// to 0.83. (The proxy sends to the internet from the host's own namespace, where the host's setting applies.)
fn use_simple_congestion_control() {
    // A kernel that refuses is only slower.
    let _ = fs::write(CONGESTION_CONTROL, WIRE_CONGESTION_CONTROL);
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::linux::netlink::Batch;

    const SLOTS: u32 = 50;

    /// Requests the id under which one namespace knows another. An id disappears with its namespace.
    const RTM_NEWNSID: u16 = 88;
    const NETNSA_NSID: u16 = 1;
    const NETNSA_FD: u16 = 3;

    #[test]
    fn forwarding_inherited_from_the_host_is_disabled() {
        let visitor = NamespaceVisitor::new().unwrap();
        let turned_off = || {
            fs::write(IP_FORWARD, "1")?;
            let before = fs::read_to_string(IP_FORWARD)?;
            disable_forwarding()?;
            Ok((before, fs::read_to_string(IP_FORWARD)?))
        };
        let (before, after) = visitor.visit_new(turned_off).unwrap().1;
        assert_eq!((before.as_str(), after.as_str()), ("1\n", "0\n"));
    }

    #[test]
    fn no_sandbox_has_multipath_tcp_whether_connected_or_plugged() {
        let visitor = NamespaceVisitor::new().unwrap();
        let (plugged, before) = visitor.visit_new(|| Ok(fs::read_to_string(MPTCP_ENABLED).ok())).unwrap();
        plug(gateway().unwrap().as_fd(), plugged.as_fd()).unwrap();
        let made = make(false).unwrap();
        for net in [&plugged, &made.net] {
            let inside = visitor.visit(net.as_fd(), || Ok(fs::read_to_string(MPTCP_ENABLED).ok())).unwrap();
            assert_eq!(inside, before.as_ref().map(|_| "0\n".to_owned()));
        }
    }

    #[test]
    fn neither_end_of_the_link_uses_the_hosts_congestion_control() {
        let visitor = NamespaceVisitor::new().unwrap();
        let (plugged, ()) = visitor.visit_new(|| Ok(())).unwrap();
        let beside = gateway().unwrap();
        plug(beside.as_fd(), plugged.as_fd()).unwrap();
        let made = make(false).unwrap();
        for namespace in [&plugged, &beside, &made.net, &made.gateway] {
            let chosen = visitor.visit(namespace.as_fd(), || fs::read_to_string(CONGESTION_CONTROL)).unwrap();
            assert_eq!(chosen.trim_end(), WIRE_CONGESTION_CONTROL);
        }
    }

    /// The output of `ip` for the gateway's interface.
    fn shown(visitor: &NamespaceVisitor, gateway: &OwnedFd) -> String {
        let list = || Command::new("ip").args(["-o", "address", "show", "dev", "gw0"]).output();
        String::from_utf8(visitor.visit(gateway.as_fd(), list).unwrap().stdout).unwrap()
    }

    #[test]
    fn a_tap_replaces_the_pair_and_disappears_with_its_descriptor() {
        let visitor = NamespaceVisitor::new().unwrap();
        let gateway = gateway().unwrap();
        let (plugged, ()) = visitor.visit_new(|| Ok(())).unwrap();
        plug(gateway.as_fd(), plugged.as_fd()).unwrap();
        let words = |text: &str| {
            let lines =
                text.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" "));
            lines.collect::<Vec<_>>()
        };
        let before = words(&shown(&visitor, &gateway));
        assert!(before.iter().any(|line| line.ends_with("inet 10.88.0.1/30")), "{before:?}");
        let first = plug_tap(gateway.as_fd()).unwrap();
        assert_eq!(words(&shown(&visitor, &gateway)), before);
        let second = plug_tap(gateway.as_fd()).unwrap();
        assert!(rustix::io::write(&first, &[0; 64]).is_err(), "the first was cut off");
        assert_eq!(words(&shown(&visitor, &gateway)), before);
        drop(second);
        // A program that another test is starting may have it open for a moment, too.
        let patience = Instant::now() + Duration::from_secs(60);
        while !shown(&visitor, &gateway).is_empty() {
            assert!(Instant::now() < patience, "the tap still exists after its descriptor was closed");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn fifty_slots_made_and_dropped_leave_no_namespace() {
        let visitor = NamespaceVisitor::new().unwrap();
        let (observer, socket) = visitor.visit_new(|| Socket::open(Protocol::Route)).unwrap();
        let known = || {
            let list = || Command::new("ip").args(["netns", "list-id"]).output();
            let listed = visitor.visit(observer.as_fd(), list).unwrap();
            assert!(listed.status.success(), "{listed:?}");
            String::from_utf8(listed.stdout).unwrap().lines().count()
        };

        let slots: Vec<Slot> = (0..SLOTS).map(|_| make(false).unwrap()).collect();
        let mut batch = Batch::default();
        for (number, namespace) in slots.iter().flat_map(|slot| [&slot.net, &slot.gateway]).enumerate() {
            use std::os::fd::AsRawFd;
            batch.add("name a namespace", RTM_NEWNSID, 0, &[0; 4], |attributes| {
                attributes.put(NETNSA_NSID, &i32::try_from(number).unwrap().to_ne_bytes());
                attributes.put(NETNSA_FD, &namespace.as_raw_fd().to_ne_bytes());
            });
        }
        socket.run(&batch).unwrap();
        assert_eq!(known(), 100, "the observer sees every namespace while it lives");

        drop(slots);
        let patience = Instant::now() + Duration::from_secs(60);
        while known() > 0 {
            assert!(Instant::now() < patience, "{} namespaces are left", known());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
