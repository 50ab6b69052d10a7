//! The nf_tables expressions of which our packet filter rules consist.
//!
//! A rule is a small program over one register: load a value into it, compare it, continue if it matched, and end in a
//! verdict. A rule that stops before its verdict has no effect, and the next rule is evaluated.

use super::netlink::Attributes;

// From <linux/netfilter.h> and <linux/in.h>.
pub(super) const NFPROTO_IPV4: u8 = 2;
pub(super) const NFPROTO_IPV6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const IPPROTO_ICMPV6: u8 = 58;
/// Neighbour solicitation and advertisement. The adjacent types, router and redirect messages, are not allowed.
const ND_NEIGHBOUR_SOLICIT: u8 = 135;
const ND_NEIGHBOUR_ADVERT: u8 = 136;
/// Position of the destination port, the same for TCP and UDP.
const DESTINATION_PORT: (u32, u32) = (2, 2);
/// Position of TCP's flags.
const TCP_FLAGS: (u32, u32) = (13, 1);
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;
const ARPHRD_ETHER: u16 = 1;
const IFNAMSIZ: usize = 16;
const LOOPBACK_INDEX: u32 = 1;

// From <linux/netfilter/nf_tables.h>.
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFT_REG_VERDICT: u32 = 0;
const NFT_REG_1: u32 = 1;
const NFT_META_MARK: u32 = 3;
const NFT_META_IIF: u32 = 4;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_OIFNAME: u32 = 7;
const NFT_META_IIFTYPE: u32 = 8;
const NFT_META_NFPROTO: u32 = 15;
const NFT_META_L4PROTO: u32 = 16;
const NFT_SOCKET_TRANSPARENT: u32 = 0;
const NFT_SOCKET_MARK: u32 = 1;
const NFT_LIMIT_PACKETS: u32 = 0;
const NFT_LIMIT_BYTES: u32 = 1;
/// The limit matches packets *over* it.
const NFT_LIMIT_INVERTED: u32 = 1;
const NFT_CMP_EQ: u32 = 0;
const NFT_CMP_NEQ: u32 = 1;
const NFT_CMP_LTE: u32 = 3;
const NFT_CMP_GTE: u32 = 5;
const NFT_PAYLOAD_LINK_HEADER: u32 = 0;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;

/// A protocol with ports.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

/// Packets allowed per second, and the burst that is allowed after a quiet time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketRate {
    pub(super) per_second: u64,
    pub(super) burst: u32,
}

/// A field of a packet's link or network header.
#[derive(Clone, Copy, Debug)]
pub(super) enum Header {
    EthernetSource,
    Ipv4Source,
    Ipv4Destination,
    Ipv6Source,
    Ipv6Destination,
}

impl Header {
    /// The header that contains the field, and the field's offset and length.
    fn place(self) -> (u32, u32, u32) {
        match self {
            Self::EthernetSource => (NFT_PAYLOAD_LINK_HEADER, 6, 6),
            Self::Ipv4Source => (NFT_PAYLOAD_NETWORK_HEADER, 12, 4),
            Self::Ipv4Destination => (NFT_PAYLOAD_NETWORK_HEADER, 16, 4),
            Self::Ipv6Source => (NFT_PAYLOAD_NETWORK_HEADER, 8, 16),
            Self::Ipv6Destination => (NFT_PAYLOAD_NETWORK_HEADER, 24, 16),
        }
    }
}

/// A rule that is being built: each method adds a condition, `verdict` ends it.
#[derive(Debug)]
pub(super) struct Rule<'list, 'bytes> {
    list: &'list mut Attributes<'bytes>,
}

impl<'list, 'bytes> Rule<'list, 'bytes> {
    pub(super) fn new(list: &'list mut Attributes<'bytes>) -> Self {
        Self { list }
    }

    pub(super) fn interface_is_loopback(self) -> Self {
        self.load_meta(NFT_META_IIF).compare(NFT_CMP_EQ, &LOOPBACK_INDEX.to_ne_bytes())
    }

    pub(super) fn interface_is_not(self, name: &str) -> Self {
        self.load_meta(NFT_META_IIFNAME).compare(NFT_CMP_NEQ, &padded(name))
    }

    pub(super) fn output_interface_is_not(self, name: &str) -> Self {
        self.load_meta(NFT_META_OIFNAME).compare(NFT_CMP_NEQ, &padded(name))
    }

    pub(super) fn arrives_by_ethernet(self) -> Self {
        self.load_meta(NFT_META_IIFTYPE).compare(NFT_CMP_EQ, &ARPHRD_ETHER.to_ne_bytes())
    }

    pub(super) fn of_family(self, family: u8) -> Self {
        self.load_meta(NFT_META_NFPROTO).compare(NFT_CMP_EQ, &[family])
    }

    pub(super) fn field_is(self, field: Header, value: &[u8]) -> Self {
        let (base, offset, length) = field.place();
        self.load_payload(base, offset, length).compare(NFT_CMP_EQ, value)
    }

    pub(super) fn field_is_not(self, field: Header, value: &[u8]) -> Self {
        let (base, offset, length) = field.place();
        self.load_payload(base, offset, length).compare(NFT_CMP_NEQ, value)
    }

    pub(super) fn speaks(self, transport: Transport) -> Self {
        let number = match transport {
            Transport::Tcp => IPPROTO_TCP,
            Transport::Udp => IPPROTO_UDP,
        };
        self.load_meta(NFT_META_L4PROTO).compare(NFT_CMP_EQ, &[number])
    }

    /// Only after [`Rule::speaks`].
    pub(super) fn goes_to_port(self, port: u16) -> Self {
        let (offset, length) = DESTINATION_PORT;
        self.load_payload(NFT_PAYLOAD_TRANSPORT_HEADER, offset, length)
            .compare(NFT_CMP_EQ, &port.to_be_bytes())
    }

    /// A TCP packet that opens a connection. Only after [`Rule::speaks`].
    pub(super) fn opens(self) -> Self {
        self.load_opening().compare(NFT_CMP_EQ, &[TCP_SYN])
    }

    /// A TCP packet that does not open a connection and belongs to a socket in this namespace other than the egress
    /// listener's. Only after [`Rule::speaks`].
    pub(super) fn belongs_to_a_local_socket(self) -> Self {
        self.load_opening()
            .compare(NFT_CMP_NEQ, &[TCP_SYN])
            .expression("socket", |data| {
                data.put_be32(1, NFT_SOCKET_TRANSPARENT);
                data.put_be32(2, NFT_REG_1);
            })
            .compare(NFT_CMP_EQ, &[0])
    }

    /// For a socket in this namespace with this mark.
    pub(super) fn for_marked(self, mark: u32) -> Self {
        self.expression("socket", |data| {
            data.put_be32(1, NFT_SOCKET_MARK);
            data.put_be32(2, NFT_REG_1);
        })
        .compare(NFT_CMP_EQ, &mark.to_ne_bytes())
    }

    /// From a socket in this namespace with this mark.
    pub(super) fn of_marked(self, mark: u32) -> Self {
        self.load_meta(NFT_META_MARK).compare(NFT_CMP_EQ, &mark.to_ne_bytes())
    }

    /// A packet over `rate`.
    pub(super) fn exceeds(self, rate: PacketRate) -> Self {
        self.expression("limit", |data| {
            data.put(1, &rate.per_second.to_be_bytes());
            data.put(2, &1_u64.to_be_bytes());
            data.put_be32(3, rate.burst);
            data.put_be32(4, NFT_LIMIT_PACKETS);
            data.put_be32(5, NFT_LIMIT_INVERTED);
        })
    }

    /// Packets over this many bytes per second. After a quiet time, a second's worth passes at once: the kernel's
    /// bucket is never smaller, whatever burst is set.
    pub(super) fn exceeds_bytes(self, per_second: u64) -> Self {
        self.expression("limit", |data| {
            data.put(1, &per_second.to_be_bytes());
            data.put(2, &1_u64.to_be_bytes());
            data.put_be32(3, 0);
            data.put_be32(4, NFT_LIMIT_BYTES);
            data.put_be32(5, NFT_LIMIT_INVERTED);
        })
    }

    /// Gives the packet to the connection that it belongs to, or else to the listener on `port`, and marks it for
    /// routing. Without a listener, the rule ends here without effect. Only after [`Rule::of_family`] and
    /// [`Rule::speaks`].
    pub(super) fn redirect_to(self, family: u8, port: u16, mark: u32) -> Self {
        self.set_register(&port.to_be_bytes())
            .expression("tproxy", |data| {
                data.put_be32(1, family.into());
                data.put_be32(3, NFT_REG_1);
            })
            .set_register(&mark.to_ne_bytes())
            .expression("meta", |data| {
                data.put_be32(2, NFT_META_MARK);
                data.put_be32(3, NFT_REG_1);
            })
    }

    pub(super) fn speaks_neighbour_discovery(self) -> Self {
        self.load_meta(NFT_META_L4PROTO)
            .compare(NFT_CMP_EQ, &[IPPROTO_ICMPV6])
            .load_payload(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1)
            .compare(NFT_CMP_GTE, &[ND_NEIGHBOUR_SOLICIT])
            .compare(NFT_CMP_LTE, &[ND_NEIGHBOUR_ADVERT])
    }

    pub(super) fn verdict(self, code: u32) {
        self.expression("immediate", |data| {
            data.put_be32(1, NFT_REG_VERDICT);
            data.nest(2, |value| {
                value.nest(NFTA_DATA_VERDICT, |verdict| verdict.put_be32(NFTA_VERDICT_CODE, code))
            });
        });
    }

    fn load_meta(self, key: u32) -> Self {
        self.expression("meta", |data| {
            data.put_be32(1, NFT_REG_1);
            data.put_be32(2, key);
        })
    }

    fn set_register(self, value: &[u8]) -> Self {
        self.expression("immediate", |data| {
            data.put_be32(1, NFT_REG_1);
            data.nest(2, |data| data.put(NFTA_DATA_VALUE, value));
        })
    }

    /// Loads those flags of TCP that identify the first packet of a connection.
    fn load_opening(self) -> Self {
        let (offset, length) = TCP_FLAGS;
        self.load_payload(NFT_PAYLOAD_TRANSPORT_HEADER, offset, length).mask(&[TCP_SYN | TCP_ACK])
    }

    fn load_payload(self, base: u32, offset: u32, length: u32) -> Self {
        self.expression("payload", |data| {
            data.put_be32(1, NFT_REG_1);
            data.put_be32(2, base);
            data.put_be32(3, offset);
            data.put_be32(4, length);
        })
    }

    /// Keeps the bits of the register that are set in `bits`.
    fn mask(self, bits: &[u8]) -> Self {
        let length = u32::try_from(bits.len()).expect("a register holds 16 bytes");
        self.expression("bitwise", |data| {
            data.put_be32(1, NFT_REG_1);
            data.put_be32(2, NFT_REG_1);
            data.put_be32(3, length);
            data.nest(4, |value| value.put(NFTA_DATA_VALUE, bits));
            data.nest(5, |value| value.put(NFTA_DATA_VALUE, &vec![0; bits.len()]));
        })
    }

    fn compare(self, operator: u32, value: &[u8]) -> Self {
        self.expression("cmp", |data| {
            data.put_be32(1, NFT_REG_1);
            data.put_be32(2, operator);
            data.nest(3, |data| data.put(NFTA_DATA_VALUE, value));
        })
    }

    /// Adds one expression. The attribute numbers inside `data` are those of that expression.
    fn expression(self, name: &str, data: impl FnOnce(&mut Attributes<'_>)) -> Self {
        self.list.nest(NFTA_LIST_ELEM, |element| {
            element.put_text(NFTA_EXPR_NAME, name);
            element.nest(NFTA_EXPR_DATA, data);
        });
        self
    }
}

/// An interface's name, padded as the kernel compares it.
fn padded(name: &str) -> [u8; IFNAMSIZ] {
    let mut padded = [0; IFNAMSIZ];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    padded
}
