//! The addresses and ports that are the same in every sandbox.

use std::net::{Ipv4Addr, Ipv6Addr};

pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
pub const SANDBOX_V4: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 1);
pub const SANDBOX_V6: Ipv6Addr = Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 2);

/// The port of the egress listener in a gateway namespace. Sandboxes never need to know it: the packet filter redirects
/// every connection to it.
pub const EGRESS_PORT: u16 = 15_001;

/// The port of the resolver's listeners.
pub const DNS_PORT: u16 = 53;

/// The port at the gateway's address where a sandbox finds its own API: its memory and its identity.
pub const OWN_PORT: u16 = 7700;

/// Locally administered hardware addresses, the same for every sandbox, since every veth pair is a link of its own.
pub const GATEWAY_HARDWARE: [u8; 6] = [0x02, 0x88, 0, 0, 0, 1];
pub const SANDBOX_HARDWARE: [u8; 6] = [0x02, 0x88, 0, 0, 0, 2];

/// A /30 and a /126 hold exactly two hosts.
pub const PREFIX_V4: u8 = 30;
pub const PREFIX_V6: u8 = 126;
