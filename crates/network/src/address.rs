//! The addresses and ports every sandbox sees, once.

use std::net::{Ipv4Addr, Ipv6Addr};

pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
pub const SANDBOX_V4: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 1);
pub const SANDBOX_V6: Ipv6Addr = Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 2);

/// Where the egress door listens in a gateway namespace. Sandboxes never need to know it: the packet filter brings
/// every connection there.
pub const EGRESS_PORT: u16 = 15_001;

/// Where the resolver's doors listen.
pub const DNS_PORT: u16 = 53;

/// Where a sandbox finds its own API, at the gateway's address: what it remembers, and who it is.
pub const OWN_PORT: u16 = 7700;

/// Locally administered hardware addresses, the same for every sandbox, since every wire has its own pair of ends.
pub const GATEWAY_HARDWARE: [u8; 6] = [0x02, 0x88, 0, 0, 0, 1];
pub const SANDBOX_HARDWARE: [u8; 6] = [0x02, 0x88, 0, 0, 0, 2];

/// A /30 and a /126 hold exactly two machines.
pub const PREFIX_V4: u8 = 30;
pub const PREFIX_V6: u8 = 126;
