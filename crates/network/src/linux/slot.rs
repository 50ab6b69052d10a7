//! A slot: everything a sandbox's network consists of, before it is known whose it will be.
//!
//! ```text
//! user namespace ── owns ──► net namespace: lo, eth0 ◄──veth──► gw0, lo :gateway namespace, with the rules
//! ```
//!
//! A slot is held by descriptors only, so an unused one vanishes with the daemon, however it dies.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::interfaces::{self, Families};
use super::namespace::{self, Traveller};
use super::netlink::{Protocol, SlotError, Socket};
use super::rules;

const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// Namespaces with their interfaces, addresses, routes and rules, ready for a sandbox.
#[derive(Debug)]
pub struct Slot {
    pub user: OwnedFd,
    /// The sandbox's network namespace; belongs to `user`.
    pub net: OwnedFd,
    pub gateway: OwnedFd,
}

/// Makes a slot. Blocks for a few milliseconds, and takes the calling thread into other network namespaces meanwhile
/// (it returns in its own), so it must run on a thread of ours, never on one of the async runtime.
pub fn make() -> Result<Slot, SlotError> {
    let at = |step| move |source| SlotError { step, source };
    let traveller = Traveller::new().map_err(at("find the own network namespace"))?;
    let pair = namespace::make_pair()?;
    let (gateway, (links, filter)) = traveller
        .visit_new(|| {
            stop_forwarding()?;
            Ok((Socket::open(Protocol::Route)?, Socket::open(Protocol::Netfilter)?))
        })
        .map_err(at("make the gateway namespace"))?;
    let inside = traveller
        .visit(pair.net.as_fd(), || Socket::open(Protocol::Route))
        .map_err(at("open netlink in the sandbox's namespace"))?;
    // From here on the sockets are enough: a netlink socket acts on the namespace it was opened in. The rules come
    // before the interface they guard, so there is no moment at which a packet finds the door open.
    let families = Families::of_this_kernel();
    filter.run(&rules::load(families))?;
    links.run(&interfaces::gateway(families, pair.net.as_fd()))?;
    inside.run(&interfaces::sandbox(families))?;
    interfaces::wait_for_carrier(&links)?;
    Ok(Slot { user: pair.user, net: pair.net, gateway })
}

/// Switches routing off in the current namespace: a new one inherits the host's setting, and hosts that run other
/// container software have it on.
fn stop_forwarding() -> io::Result<()> {
    if fs::read(IP_FORWARD)?.trim_ascii() == b"0" { Ok(()) } else { fs::write(IP_FORWARD, "0") }
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
    fn fifty_slots_made_and_dropped_leave_no_namespace() {
        let traveller = Traveller::new().unwrap();
        let (observer, socket) = traveller.visit_new(|| Socket::open(Protocol::Route)).unwrap();
        let known = || {
            let list = || Command::new("ip").args(["netns", "list-id"]).output();
            let listed = traveller.visit(observer.as_fd(), list).unwrap();
            assert!(listed.status.success(), "{listed:?}");
            String::from_utf8(listed.stdout).unwrap().lines().count()
        };

        let slots: Vec<Slot> = (0..SLOTS).map(|_| make().unwrap()).collect();
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
