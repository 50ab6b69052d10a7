//! The addresses every sandbox sees, once.

use std::net::{Ipv4Addr, Ipv6Addr};

pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
pub const SANDBOX_V4: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 1);
pub const SANDBOX_V6: Ipv6Addr = Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 2);
