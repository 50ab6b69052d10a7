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
