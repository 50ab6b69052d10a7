//! Decides to which addresses connections are permitted.
//!
//! Rules and the mode `open` refer to public hosts. An address that is not public is refused regardless of the name
//! that was resolved to it, unless the operator listed its range. Some addresses are refused even then, because only
//! the host itself, its provider's metadata service, or a whole network segment can answer there.
//!
//! IPv6 addresses that embed an IPv4 address are classified as the embedded address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use burrow_model::IpRange;
use serde::{Deserialize, Serialize};

/// The kind of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressKind {
    Public,
    Loopback,
    LinkLocal,
    Metadata,
    Multicast,
    Broadcast,
    Unspecified,
    /// RFC 1918, and its predecessor in IPv6.
    Private,
    /// RFC 6598, between a provider and its customers.
    Shared,
    /// RFC 4193: the private addresses of IPv6.
    UniqueLocal,
    Documentation,
    /// RFC 2544; also the range of synthetic addresses.
    Benchmark,
    /// Reserved for protocols, relays, or future use.
    Reserved,
    /// One of this host's own addresses. Not determined by the address alone.
    Own,
    /// In a block that the sandbox's policy denies. Not determined by the address alone.
    Denied,
}

impl AddressKind {
    /// Whether the operator's configuration can allow it.
    fn can_be_opened(self) -> bool {
        match self {
            Self::Loopback
            | Self::LinkLocal
            | Self::Metadata
            | Self::Multicast
            | Self::Broadcast
            | Self::Unspecified
            | Self::Denied => false,
            Self::Public
            | Self::Private
            | Self::Shared
            | Self::UniqueLocal
            | Self::Documentation
            | Self::Benchmark
            | Self::Reserved
            | Self::Own => true,
        }
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a metadata service",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "a broadcast address",
            Self::Unspecified => "the unspecified address",
            Self::Private => "a private address",
            Self::Shared => "a shared address (RFC 6598)",
            Self::UniqueLocal => "a private IPv6 address",
            Self::Documentation => "a documentation address",
            Self::Benchmark => "a benchmark address",
            Self::Reserved => "a reserved address",
            Self::Own => "an address of this host",
            Self::Denied => "an address that the sandbox's policy denies",
        })
    }
}

/// Metadata services at addresses of other kinds: AWS, Alibaba, Oracle, Azure, Google.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x254),
];

/// Checks whether a connection to `address` is permitted; the error is the kind of the address.
pub fn judge(address: IpAddr, opened: &[IpRange]) -> Result<(), AddressKind> {
    let kind = classify(address);
    if kind == AddressKind::Public {
        return Ok(());
    }
    admit(address, kind, opened)
}

/// Whether the operator's configuration permits an address of this kind.
pub(crate) fn admit(address: IpAddr, kind: AddressKind, opened: &[IpRange]) -> Result<(), AddressKind> {
    if kind.can_be_opened() && is_listed(address, opened) { Ok(()) } else { Err(kind) }
}

/// Whether one of `ranges` contains the address, or the IPv4 address that it embeds.
pub(crate) fn is_listed(address: IpAddr, ranges: &[IpRange]) -> bool {
    let embedded = embedded(address);
    let listed = |address: IpAddr| ranges.iter().any(|range| range.contains(address));
    listed(address) || embedded.is_some_and(|v4| listed(v4.into()))
}

/// The kind of `address`, without regard to the host or the policy.
pub fn classify(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => match embedded(address) {
            Some(v4) => {
                // A Teredo address also contains its server, to which its packets are sent first.
                let server = is_teredo(v6).then(|| Ipv4Addr::from(u32::from_be_bytes(four(v6, 4))));
                match server.map(classify_v4) {
                    None | Some(AddressKind::Public) => classify_v4(v4),
                    Some(other) => other,
                }
            }
            None => classify_v6(v6),
        },
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressKind {
    use AddressKind::*;
    if METADATA_V4.contains(&address) {
        return Metadata;
    }
    match address.octets() {
        [0, ..] => Unspecified,
        [127, ..] => Loopback,
        [169, 254, ..] => LinkLocal,
        [255, 255, 255, 255] => Broadcast,
        [224..=239, ..] => Multicast,
        [240..=255, ..] => Reserved,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Private,
        [100, 64..=127, ..] => Shared,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Documentation,
        [198, 18..=19, ..] => Benchmark,
        [192, 0, 0, _] | [192, 88, 99, _] => Reserved,
        _ => Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressKind {
    use AddressKind::*;
    if METADATA_V6.contains(&address) {
        return Metadata;
    }
    let segments = address.segments();
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Loopback,
        [0xfe80..=0xfebf, ..] => LinkLocal,
        [0xfec0..=0xfeff, ..] => Private,
        [0xff00..=0xffff, ..] => Multicast,
        [0xfc00..=0xfdff, ..] => UniqueLocal,
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Documentation,
        [0x2001, 0x0002, 0, ..] => Benchmark,
        // RFC 2928: the first /23 of 2001::/16 is for protocols.
        [0x2001, 0..=0x01ff, ..] => Reserved,
        [0x2000..=0x3fff, ..] => Public,
        _ => Reserved,
    }
}

/// The IPv4 address that an IPv6 address embeds, if any.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return None };
    let segments = v6.segments();
    let last = || Ipv4Addr::from(four(v6, 12));
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // Mapped, compatible, translated (RFC 2765), and NAT64.
        [0, 0, 0, 0, 0, 0xffff | 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            Some(last())
        }
        // 6to4.
        [0x2002, ..] => Some(Ipv4Addr::from(four(v6, 2))),
        // Teredo: the client's address is stored inverted.
        [0x2001, 0, ..] => Some(Ipv4Addr::from(!u32::from_be_bytes(four(v6, 12)))),
        // ISATAP.
        [_, _, _, _, 0 | 0x0200, 0x5efe, ..] => Some(last()),
        _ => None,
    }
}

fn is_teredo(address: Ipv6Addr) -> bool {
    address.segments()[..2] == [0x2001, 0]
}

/// Four bytes of an address, from `start`.
fn four(address: Ipv6Addr, start: usize) -> [u8; 4] {
    let bytes = address.octets();
    [bytes[start], bytes[start + 1], bytes[start + 2], bytes[start + 3]]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(address: &str, kind: AddressKind) {
        assert_eq!(classify(address.parse().unwrap()), kind, "{address}");
    }

    #[test]
    fn e_n2_every_range_is_classified() {
        use AddressKind::*;
        for (address, kind) in [
            ("93.184.216.34", Public),
            ("1.1.1.1", Public),
            ("172.15.255.255", Public),
            ("172.32.0.1", Public),
            ("100.63.255.255", Public),
            ("198.20.0.1", Public),
            ("2606:4700::1111", Public),
            ("2a00:1450:4001::200e", Public),
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Unspecified),
            ("::", Unspecified),
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("::1", Loopback),
            ("169.254.1.1", LinkLocal),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("169.254.169.254", Metadata),
            ("100.100.100.200", Metadata),
            ("192.0.0.192", Metadata),
            ("168.63.129.16", Metadata),
            ("fd00:ec2::254", Metadata),
            ("fd20:ce::254", Metadata),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("ff02::1", Multicast),
            ("255.255.255.255", Broadcast),
            ("240.0.0.1", Reserved),
            ("10.0.0.1", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("fec0::1", Private),
            ("100.64.0.1", Shared),
            ("fc00::1", UniqueLocal),
            ("fd88::1", UniqueLocal),
            ("192.0.2.1", Documentation),
            ("198.51.100.1", Documentation),
            ("203.0.113.1", Documentation),
            ("2001:db8::1", Documentation),
            ("3fff:fff::1", Documentation),
            ("198.18.0.1", Benchmark),
            ("198.19.255.255", Benchmark),
            ("2001:2::1", Benchmark),
            ("192.0.0.1", Reserved),
            ("192.88.99.1", Reserved),
            ("2001:20::1", Reserved),
            ("100::1", Reserved),
            ("64:ff9b:1::1", Reserved),
            ("4000::1", Reserved),
        ] {
            check(address, kind);
        }
    }

    #[test]
    fn e_n2_an_embedded_address_is_classified_as_itself() {
        use AddressKind::*;
        for (address, kind) in [
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:169.254.169.254", Metadata),
            ("::ffff:8.8.8.8", Public),
            ("::127.0.0.1", Loopback),
            ("::10.0.0.1", Private),
            ("::ffff:0:10.0.0.1", Private),
            ("64:ff9b::169.254.169.254", Metadata),
            ("64:ff9b::8.8.8.8", Public),
            ("2002:7f00:1::", Loopback),
            ("2002:a9fe:a9fe::1", Metadata),
            ("2002:808:808::1", Public),
            // The client, inverted, is 127.0.0.1.
            ("2001:0:808:808::80ff:fffe", Loopback),
            // The client is public, the server is not.
            ("2001:0:a00:1::f7f7:f7f7", Private),
            ("2001:0:808:808::f7f7:f7f7", Public),
            ("2606:4700::5efe:10.0.0.1", Private),
            ("2606:4700::200:5efe:127.0.0.1", Loopback),
        ] {
            check(address, kind);
        }
    }

    #[test]
    fn the_operator_can_allow_private_ranges_but_never_the_host_or_metadata() {
        let all: Vec<IpRange> = ["0.0.0.0/0", "::/0"].map(|range| range.parse().unwrap()).to_vec();
        let ours: Vec<IpRange> = vec!["10.1.0.0/16".parse().unwrap()];
        for (address, with_all, with_ours) in [
            ("10.1.2.3", true, true),
            ("::ffff:10.1.2.3", true, true),
            ("10.2.0.1", true, false),
            ("fd88::1", true, false),
            ("203.0.113.7", true, false),
            ("100.64.0.1", true, false),
            ("8.8.8.8", true, true),
            ("127.0.0.1", false, false),
            ("::ffff:127.0.0.1", false, false),
            ("::1", false, false),
            ("169.254.169.254", false, false),
            ("169.254.0.1", false, false),
            ("100.100.100.200", false, false),
            ("fd00:ec2::254", false, false),
            ("fe80::1", false, false),
            ("224.0.0.1", false, false),
            ("255.255.255.255", false, false),
            ("0.0.0.0", false, false),
            ("64:ff9b::7f00:1", false, false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(judge(address, &all).is_ok(), with_all, "{address}");
            assert_eq!(judge(address, &ours).is_ok(), with_ours, "{address}");
            assert_eq!(judge(address, &[]).is_ok(), classify(address) == AddressKind::Public, "{address}");
        }
    }

    proptest! {
        #[test]
        fn e_n2_embedding_does_not_change_the_decision(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from(bits);
            let plain = judge(v4.into(), &[]);
            let [a, b, c, d] = v4.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let mut forms = vec![
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0x0808, 0x0808, 0, 0, !high, !low),
            ];
            // `::` and `::1` do not embed an IPv4 address.
            if bits > 1 {
                forms.push(Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low));
            }
            for form in forms {
                prop_assert_eq!(judge(form.into(), &[]), plain, "{} as {}", v4, form);
            }
        }

        #[test]
        fn every_address_has_a_kind_and_only_global_unicast_is_public(bits in any::<u128>()) {
            let address = Ipv6Addr::from(bits);
            if classify(address.into()) == AddressKind::Public && embedded(address.into()).is_none() {
                prop_assert_eq!(address.segments()[0] >> 13, 1);
            }
        }
    }
}
