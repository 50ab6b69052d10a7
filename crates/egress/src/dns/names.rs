//! The synthetic addresses of a sandbox: one of each family per name, the same for its life.
//!
//! An address is chosen by the name itself (a fixed hash, then the next free place), so that a name has the same
//! address after the process was replaced, and a program that kept it does not reach another host by it. The table is
//! bounded: the name that was idle longest makes room for a new one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use burrow_model::HostName;

/// Names one sandbox may have at a time.
pub const NAMES_MAX: usize = 16_384;

/// 198.18.0.0/15, set aside for benchmarks between networks (RFC 2544): no host on the internet has one.
const FIRST_V4: u32 = 0xc612_0000;
const PLACES: u32 = 1 << 17;

/// A /64 of the range for private use, of our own (`burrow` in ASCII); not the one sandboxes' interfaces have.
const PREFIX_V6: u128 = 0xfd62_7572_726f_7700 << 64;

/// A synthetic address: its place in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place(u32);

impl Place {
    fn v4(self) -> Ipv4Addr {
        Ipv4Addr::from(FIRST_V4 + self.0)
    }

    fn v6(self) -> Ipv6Addr {
        Ipv6Addr::from(PREFIX_V6 | u128::from(self.0))
    }

    fn of(address: IpAddr) -> Option<Self> {
        let place = match address.to_canonical() {
            IpAddr::V4(v4) => u32::from(v4).checked_sub(FIRST_V4)?,
            IpAddr::V6(v6) => u32::try_from(u128::from(v6).checked_sub(PREFIX_V6)?).ok()?,
        };
        (place < PLACES).then_some(Self(place))
    }
}

/// Whether `address` is of the synthetic ranges, given to somebody or not.
pub fn is_synthetic(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => u32::from(v4).wrapping_sub(FIRST_V4) < PLACES,
        IpAddr::V6(v6) => u128::from(v6) >> 64 == PREFIX_V6 >> 64,
    }
}

/// The names of one sandbox.
#[derive(Debug, Default)]
pub struct Names {
    places: HashMap<HostName, Place>,
    taken: HashMap<Place, Taken>,
    /// By last use, the longest idle first.
    order: BTreeMap<u64, Place>,
    uses: u64,
}

#[derive(Debug)]
struct Taken {
    name: HostName,
    last_use: u64,
}

impl Names {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn knows(&self, name: &HostName) -> bool {
        self.places.contains_key(name)
    }

    /// The addresses of `name`, which gets them now if it has none.
    pub fn addresses(&mut self, name: &HostName) -> (Ipv4Addr, Ipv6Addr) {
        let place = match self.places.get(name) {
            Some(place) => *place,
            None => self.settle(name),
        };
        self.touch(place);
        (place.v4(), place.v6())
    }

    /// The name that `address` stands for.
    pub fn name(&mut self, address: IpAddr) -> Option<HostName> {
        let place = Place::of(address)?;
        let name = self.taken.get(&place)?.name.clone();
        self.touch(place);
        Some(name)
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Finds a free place for a new name, making room if there is none.
    fn settle(&mut self, name: &HostName) -> Place {
        if self.places.len() >= NAMES_MAX
            && let Some((_, longest_idle)) = self.order.pop_first()
            && let Some(gone) = self.taken.remove(&longest_idle)
        {
            self.places.remove(&gone.name);
        }
        let hash = hash(name.as_str());
        // The first and the last address of the range are left alone. An odd step meets every place once.
        let step = ((hash >> 32) as u32) | 1;
        let mut place = (hash as u32) % PLACES;
        while place == 0 || place == PLACES - 1 || self.taken.contains_key(&Place(place)) {
            place = place.wrapping_add(step) % PLACES;
        }
        self.places.insert(name.clone(), Place(place));
        self.taken.insert(Place(place), Taken { name: name.clone(), last_use: 0 });
        Place(place)
    }

    fn touch(&mut self, place: Place) {
        self.uses += 1;
        if let Some(taken) = self.taken.get_mut(&place) {
            self.order.remove(&taken.last_use);
            taken.last_use = self.uses;
            self.order.insert(self.uses, place);
        }
    }
}

/// FNV-1a with a final mix: the same in every process, which the standard library's does not promise.
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
    fn a_name_keeps_its_addresses_and_is_found_by_them() {
        let mut names = Names::new();
        let (v4, v6) = names.addresses(&name("example.com"));
        assert_eq!(names.addresses(&name("example.com")), (v4, v6));
        assert_ne!(names.addresses(&name("example.org")).0, v4);
        for address in [v4.into(), v6.into(), v4.to_ipv6_mapped().into()] {
            assert!(is_synthetic(address));
            assert_eq!(names.name(address), Some(name("example.com")));
        }
        assert_eq!(v4.octets()[0], 198);
        // A new process gives the same ones.
        assert_eq!(Names::new().addresses(&name("example.com")), (v4, v6));
    }

    #[test]
    fn other_addresses_stand_for_nothing() {
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
    fn the_longest_idle_name_makes_room() {
        let mut names = Names::new();
        let first = names.addresses(&name("first.example")).0;
        let second = names.addresses(&name("second.example")).0;
        for number in 2..NAMES_MAX {
            names.addresses(&name(&format!("n{number}.example")));
        }
        // Used again, the first is no longer the longest idle.
        assert!(names.name(first.into()).is_some());
        names.addresses(&name("one-more.example"));
        assert_eq!(names.len(), NAMES_MAX);
        assert_eq!(names.name(first.into()), Some(name("first.example")));
        assert_ne!(names.name(second.into()), Some(name("second.example")));
        assert!(!names.knows(&name("second.example")));
        assert_eq!((names.taken.len(), names.order.len()), (NAMES_MAX, NAMES_MAX));
    }
}
