//! A slot: everything a sandbox's network consists of, before it is known whose it will be.
//!
//! ```text
//! user namespace ── owns ──► net namespace: lo, eth0 ◄──veth──► gw0, lo :gateway namespace, with the rules
//! ```
//!
//! A slot is held by descriptors only, so an unused one vanishes with the daemon, however it dies.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::ids::HostIds;
use super::interfaces::{self, Families};
use super::namespace::{self, Traveller, UID_BASE};
use super::netlink::{Protocol, SlotError, Socket};
use super::{rules, tap};

// Each thread sees those of the network namespace it is in.
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
const MPTCP_ENABLED: &str = "/proc/sys/net/mptcp/enabled";
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Which of them paces the wire: the one that does least. Every kernel has it, and every namespace may choose it.
const WIRE_CONGESTION_CONTROL: &str = "reno";

/// Namespaces with their interfaces, addresses, routes and rules, ready for a sandbox.
#[derive(Debug)]
pub struct Slot {
    pub user: OwnedFd,
    /// The sandbox's network namespace; belongs to `user`.
    pub net: OwnedFd,
    pub gateway: OwnedFd,
    /// The ids that `user` maps; `None`: those that are on disk.
    pub ids: Option<HostIds>,
}

/// Makes a slot, with ids of its own or with those that are on disk. Blocks for a few milliseconds, and takes the calling thread into other network namespaces meanwhile
/// (it returns in its own), so it must run on a thread of ours, never on one of the async runtime.
pub fn make(own_ids: bool) -> Result<Slot, SlotError> {
    let traveller = traveller()?;
    let ids = own_ids.then(HostIds::reserve).transpose()?;
    let pair = namespace::make_pair(ids.as_ref().map_or(UID_BASE, |ids| ids.range.base()))?;
    let (gateway, links) = make_gateway(&traveller)?;
    wire(&traveller, &links, pair.net.as_fd())?;
    Ok(Slot { user: pair.user, net: pair.net, gateway, ids })
}

/// Makes the gateway's half of a slot: everything but the wire. Where it may run: as [`make`].
pub(super) fn gateway() -> Result<OwnedFd, SlotError> {
    Ok(make_gateway(&traveller()?)?.0)
}

/// Makes a slot of a gateway and a network namespace that came from elsewhere. Where it may run: as [`make`].
pub(super) fn plug(gateway: BorrowedFd<'_>, net: BorrowedFd<'_>) -> Result<(), SlotError> {
    let traveller = traveller()?;
    let links = open_links(&traveller, gateway, "open netlink in the gateway namespace")?;
    // What was plugged in before goes away with its namespace, but only some time after the last process in it.
    interfaces::cut_off(&links)?;
    wire(&traveller, &links, net)
}

/// Makes the wire of a machine with a network card: a tap in the gateway. Where it may run: as [`make`].
pub(super) fn plug_tap(gateway: BorrowedFd<'_>) -> Result<OwnedFd, SlotError> {
    let traveller = traveller()?;
    let links = open_links(&traveller, gateway, "open netlink in the gateway namespace")?;
    interfaces::cut_off(&links)?;
    let tap = traveller.visit(gateway, tap::open).map_err(at("make the tap"))?;
    links.run(&interfaces::gateway_of_tap(Families::of_this_kernel()))?;
    Ok(tap)
}

/// Connects `net` to the gateway in whose namespace `links` was opened.
fn wire(traveller: &Traveller, links: &Socket, net: BorrowedFd<'_>) -> Result<(), SlotError> {
    let settle = || {
        hurry();
        refuse_multipath()
    };
    traveller.visit(net, settle).map_err(at("switch off multipath TCP"))?;
    let inside = open_links(traveller, net, "open netlink in the sandbox's namespace")?;
    let families = Families::of_this_kernel();
    links.run(&interfaces::gateway(families, net))?;
    inside.run(&interfaces::sandbox(families))?;
    interfaces::wait_for_carrier(links)
}

/// A gateway namespace without an interface, and a socket to give it one.
fn make_gateway(traveller: &Traveller) -> Result<(OwnedFd, Socket), SlotError> {
    let (gateway, (links, filter)) = traveller
        .visit_new(|| {
            stop_forwarding()?;
            hurry();
            Ok((Socket::open(Protocol::Route)?, Socket::open(Protocol::Netfilter)?))
        })
        .map_err(at("make the gateway namespace"))?;
    // From here on the sockets are enough: a netlink socket acts on the namespace it was opened in. The rules come
    // before the interface they guard, so there is no moment at which a packet finds the door open.
    let families = Families::of_this_kernel();
    filter.run(&rules::load(families))?;
    links.run(&interfaces::routing(families))?;
    Ok((gateway, links))
}

fn traveller() -> Result<Traveller, SlotError> {
    Traveller::new().map_err(at("find the own network namespace"))
}

fn open_links(
    traveller: &Traveller,
    namespace: BorrowedFd<'_>,
    step: &'static str,
) -> Result<Socket, SlotError> {
    traveller.visit(namespace, || Socket::open(Protocol::Route)).map_err(at(step))
}

fn at(step: &'static str) -> impl FnOnce(io::Error) -> SlotError {
    move |source| SlotError { step, source }
}

/// Switches routing off in the current namespace: a new one inherits the host's setting, and hosts that run other
/// container software have it on.
fn stop_forwarding() -> io::Result<()> {
    if fs::read(IP_FORWARD)?.trim_ascii() == b"0" { Ok(()) } else { fs::write(IP_FORWARD, "0") }
}

/// Switches multipath TCP off in the current namespace: a socket of it cannot be written down, so a sandbox whose
/// server was given one could never sleep, and some language runtimes ask for it unasked. They are then given TCP.
fn refuse_multipath() -> io::Result<()> {
    match fs::write(MPTCP_ENABLED, "0") {
        // A kernel that does not know it cannot give it to anybody.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Has TCP send as fast as the other end reads, in the current namespace. A wire between two namespaces is a function
/// call: it is never congested, and what a host has chosen for the internet only takes time on it. With BBR, which sets
/// a timer for every piece, a model of the proxy carried a download at 0.57 to 0.73 of what a program gets over such a
/// wire without it, and an upload at 0.57 to 0.68; with this, at 0.81 to 0.96, and at 0.78 to 0.83. (What the proxy sends
/// to the internet leaves from the host's own namespace, where the host's choice stands.)
fn hurry() {
    // A kernel that refuses is slower, and no worse.
    let _ = fs::write(CONGESTION_CONTROL, WIRE_CONGESTION_CONTROL);
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::linux::netlink::Batch;

    const SLOTS: u32 = 50;

    /// Asks for the id under which one namespace knows another; an id goes away with the namespace it names.
    const RTM_NEWNSID: u16 = 88;
    const NETNSA_NSID: u16 = 1;
    const NETNSA_FD: u16 = 3;

    #[test]
    fn forwarding_inherited_from_the_host_is_switched_off() {
        let traveller = Traveller::new().unwrap();
        let turned_off = || {
            fs::write(IP_FORWARD, "1")?;
            let before = fs::read_to_string(IP_FORWARD)?;
            stop_forwarding()?;
            Ok((before, fs::read_to_string(IP_FORWARD)?))
        };
        let (before, after) = traveller.visit_new(turned_off).unwrap().1;
        assert_eq!((before.as_str(), after.as_str()), ("1\n", "0\n"));
    }

    #[test]
    fn no_sandbox_is_given_multipath_tcp_however_it_got_its_network() {
        let traveller = Traveller::new().unwrap();
        let (plugged, before) = traveller.visit_new(|| Ok(fs::read_to_string(MPTCP_ENABLED).ok())).unwrap();
        plug(gateway().unwrap().as_fd(), plugged.as_fd()).unwrap();
        let made = make(false).unwrap();
        for net in [&plugged, &made.net] {
            let inside = traveller.visit(net.as_fd(), || Ok(fs::read_to_string(MPTCP_ENABLED).ok())).unwrap();
            assert_eq!(inside, before.as_ref().map(|_| "0\n".to_owned()));
        }
    }

    #[test]
    fn neither_end_of_the_wire_is_paced_by_the_hosts_choice_however_it_was_made() {
        let traveller = Traveller::new().unwrap();
        let (plugged, ()) = traveller.visit_new(|| Ok(())).unwrap();
        let beside = gateway().unwrap();
        plug(beside.as_fd(), plugged.as_fd()).unwrap();
        let made = make(false).unwrap();
        for namespace in [&plugged, &beside, &made.net, &made.gateway] {
            let chosen =
                traveller.visit(namespace.as_fd(), || fs::read_to_string(CONGESTION_CONTROL)).unwrap();
            assert_eq!(chosen.trim_end(), WIRE_CONGESTION_CONTROL);
        }
    }

    /// What `ip` says of the gateway's interface.
    fn shown(traveller: &Traveller, gateway: &OwnedFd) -> String {
        let list = || Command::new("ip").args(["-o", "address", "show", "dev", "gw0"]).output();
        String::from_utf8(traveller.visit(gateway.as_fd(), list).unwrap().stdout).unwrap()
    }

    #[test]
    fn a_tap_stands_where_a_pair_would_and_takes_its_place_and_goes_with_its_descriptor() {
        let traveller = Traveller::new().unwrap();
        let gateway = gateway().unwrap();
        let (plugged, ()) = traveller.visit_new(|| Ok(())).unwrap();
        plug(gateway.as_fd(), plugged.as_fd()).unwrap();
        let words = |text: &str| {
            let lines =
                text.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" "));
            lines.collect::<Vec<_>>()
        };
        let before = words(&shown(&traveller, &gateway));
        assert!(before.iter().any(|line| line.ends_with("inet 10.88.0.1/30")), "{before:?}");
        let first = plug_tap(gateway.as_fd()).unwrap();
        assert_eq!(words(&shown(&traveller, &gateway)), before);
        let second = plug_tap(gateway.as_fd()).unwrap();
        assert!(rustix::io::write(&first, &[0; 64]).is_err(), "the first was cut off");
        assert_eq!(words(&shown(&traveller, &gateway)), before);
        drop(second);
        // A program that another test is just starting has it open for a moment, too.
        let patience = Instant::now() + Duration::from_secs(60);
        while !shown(&traveller, &gateway).is_empty() {
            assert!(Instant::now() < patience, "the tap stays without its descriptor");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn fifty_slots_made_and_dropped_leave_no_namespace() {
        let traveller = Traveller::new().unwrap();
        let (observer, socket) = traveller.visit_new(|| Socket::open(Protocol::Route)).unwrap();
        let known = || {
            let list = || Command::new("ip").args(["netns", "list-id"]).output();
            let listed = traveller.visit(observer.as_fd(), list).unwrap();
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
