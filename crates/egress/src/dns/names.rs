//! The synthetic addresses of a sandbox: one IPv4 and one IPv6 address per name.
//!
//! The address is derived from the name (a fixed hash, then the next free index), so a name keeps its address when
//! the process is replaced, and a program that cached an address does not reach another host. The table has a limit:
//! a new name replaces the least recently used one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use burrow_model::HostName;

/// Largest number of names in one sandbox's table.
pub const NAMES_MAX: usize = 16_384;

/// 198.18.0.0/15, reserved for benchmarks (RFC 2544): no host on the internet has such an address.
const FIRST_V4: u32 = 0xc612_0000;
const ADDRESSES: u32 = 1 << 17;

/// A /64 from the unique local range (it spells `burrow` in ASCII), different from the prefix of sandboxes'
/// interfaces.
const PREFIX_V6: u128 = 0xfd62_7572_726f_7700 << 64;

/// A synthetic address, as its index in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct AddressIndex(u32);

impl AddressIndex {
    fn v4(self) -> Ipv4Addr {
        Ipv4Addr::from(FIRST_V4 + self.0)
    }

    fn v6(self) -> Ipv6Addr {
        Ipv6Addr::from(PREFIX_V6 | u128::from(self.0))
    }

    fn of(address: IpAddr) -> Option<Self> {
        let index = match address.to_canonical() {
            IpAddr::V4(v4) => u32::from(v4).checked_sub(FIRST_V4)?,
            IpAddr::V6(v6) => u32::try_from(u128::from(v6).checked_sub(PREFIX_V6)?).ok()?,
        };
        (index < ADDRESSES).then_some(Self(index))
    }
}

/// Whether `address` is in the synthetic ranges, assigned or not.
pub fn is_synthetic(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => u32::from(v4).wrapping_sub(FIRST_V4) < ADDRESSES,
        IpAddr::V6(v6) => u128::from(v6) >> 64 == PREFIX_V6 >> 64,
    }
}

/// The names of one sandbox and their addresses.
#[derive(Debug, Default)]
pub struct Names {
    indexes: HashMap<HostName, AddressIndex>,
    assignments: HashMap<AddressIndex, Assignment>,
    /// Ordered by last use, the least recently used first.
    order: BTreeMap<u64, AddressIndex>,
    uses: u64,
}

#[derive(Debug)]
struct Assignment {
    name: HostName,
    last_use: u64,
}

impl Names {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn knows(&self, name: &HostName) -> bool {
        self.indexes.contains_key(name)
    }

    /// The addresses of `name`, assigned now if it has none.
    pub fn addresses(&mut self, name: &HostName) -> (Ipv4Addr, Ipv6Addr) {
        let index = match self.indexes.get(name) {
            Some(index) => *index,
            None => self.assign(name),
        };
        self.touch(index);
        (index.v4(), index.v6())
    }

    /// The name to which `address` is assigned.
    pub fn name(&mut self, address: IpAddr) -> Option<HostName> {
        let index = AddressIndex::of(address)?;
        let name = self.assignments.get(&index)?.name.clone();
        self.touch(index);
        Some(name)
    }

    pub fn len(&self) -> usize {
        self.indexes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// Assigns a free index to a new name, evicting another name if the table is full.
    fn assign(&mut self, name: &HostName) -> AddressIndex {
        if self.indexes.len() >= NAMES_MAX
            && let Some((_, longest_idle)) = self.order.pop_first()
            && let Some(gone) = self.assignments.remove(&longest_idle)
        {
            self.indexes.remove(&gone.name);
        }
        let hash = hash(name.as_str());
        // The first and the last address of the range are not used. An odd step visits every index once.
        let step = ((hash >> 32) as u32) | 1;
        let mut index = (hash as u32) % ADDRESSES;
        while index == 0 || index == ADDRESSES - 1 || self.assignments.contains_key(&AddressIndex(index)) {
            index = index.wrapping_add(step) % ADDRESSES;
        }
        self.indexes.insert(name.clone(), AddressIndex(index));
        self.assignments.insert(AddressIndex(index), Assignment { name: name.clone(), last_use: 0 });
        AddressIndex(index)
    }

    fn touch(&mut self, index: AddressIndex) {
        self.uses += 1;
        if let Some(assignments) = self.assignments.get_mut(&index) {
            self.order.remove(&assignments.last_use);
            assignments.last_use = self.uses;
            self.order.insert(self.uses, index);
        }
    }
}

/// FNV-1a with a final mix: stable across processes, which the standard library's hash does not guarantee.
fn hash(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_keeps_its_addresses_and_is_found_by_address() {
        let mut names = Names::new();
        let (v4, v6) = names.addresses(&name("example.com"));
        assert_eq!(names.addresses(&name("example.com")), (v4, v6));
        assert_ne!(names.addresses(&name("example.org")).0, v4);
        for address in [v4.into(), v6.into(), v4.to_ipv6_mapped().into()] {
            assert!(is_synthetic(address));
            assert_eq!(names.name(address), Some(name("example.com")));
        }
        assert_eq!(v4.octets()[0], 198);
        // Another process derives the same addresses.
        assert_eq!(Names::new().addresses(&name("example.com")), (v4, v6));
    }

    #[test]
    fn unassigned_addresses_have_no_name() {
        let mut names = Names::new();
        for address in ["198.17.255.255", "198.20.0.0", "8.8.8.8", "fd88::1", "fd62:7572:726f:7701::1", "::1"]
        {
            let address = address.parse().unwrap();
            assert!(!is_synthetic(address), "{address}");
            assert_eq!(names.name(address), None);
        }
        for address in ["198.18.0.9", "198.19.255.255", "fd62:7572:726f:7700:1::1"] {
            let address = address.parse().unwrap();
            assert!(is_synthetic(address), "{address}");
            assert_eq!(names.name(address), None);
        }
    }

    #[test]
    fn the_least_recently_used_name_is_evicted() {
        let mut names = Names::new();
        let first = names.addresses(&name("first.example")).0;
        let second = names.addresses(&name("second.example")).0;
        for number in 2..NAMES_MAX {
            names.addresses(&name(&format!("n{number}.example")));
        }
        // After this use, the first name is no longer the least recently used.
        assert!(names.name(first.into()).is_some());
        names.addresses(&name("one-more.example"));
        assert_eq!(names.len(), NAMES_MAX);
        assert_eq!(names.name(first.into()), Some(name("first.example")));
        assert_ne!(names.name(second.into()), Some(name("second.example")));
        assert!(!names.knows(&name("second.example")));
        assert_eq!((names.assignments.len(), names.order.len()), (NAMES_MAX, NAMES_MAX));
    }
}
