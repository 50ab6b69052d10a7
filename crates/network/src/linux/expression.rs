//! The few expressions our packet filter rules are made of, as nf_tables wants them.
//!
//! A rule is a small program over one register: load something into it, compare it, go on if it matched, and end in a
//! verdict.

use super::netlink::Attributes;

// From <linux/netfilter.h> and <linux/in.h>.
pub(super) const NFPROTO_IPV4: u8 = 2;
pub(super) const NFPROTO_IPV6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_ICMPV6: u8 = 58;
/// Neighbour solicitation and advertisement; router and redirect messages lie beside them and are not let in.
const ND_NEIGHBOUR_SOLICIT: u8 = 135;
const ND_NEIGHBOUR_ADVERT: u8 = 136;
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
const NFT_META_IIF: u32 = 4;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_NFPROTO: u32 = 15;
const NFT_META_L4PROTO: u32 = 16;
const NFT_CT_STATE: u32 = 0;
const NFT_CT_DIRECTION: u32 = 1;
const NFT_CMP_EQ: u32 = 0;
const NFT_CMP_NEQ: u32 = 1;
const NFT_CMP_LTE: u32 = 3;
const NFT_CMP_GTE: u32 = 5;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
const CT_STATE_ESTABLISHED: u32 = 2;
const CT_DIRECTION_REPLY: u8 = 1;

/// Where in a packet's network header a field lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Header {
    Ipv4Source,
    Ipv4Destination,
    Ipv6Source,
    Ipv6Destination,
}

impl Header {
    /// Offset and length.
    fn place(self) -> (u32, u32) {
        match self {
            Self::Ipv4Source => (12, 4),
            Self::Ipv4Destination => (16, 4),
            Self::Ipv6Source => (8, 16),
            Self::Ipv6Destination => (24, 16),
        }
    }
}

/// A rule being written: each method adds a condition, `verdict` ends it.
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
        let mut padded = [0; IFNAMSIZ];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        self.load_meta(NFT_META_IIFNAME).compare(NFT_CMP_NEQ, &padded)
    }

    pub(super) fn of_family(self, family: u8) -> Self {
        self.load_meta(NFT_META_NFPROTO).compare(NFT_CMP_EQ, &[family])
    }

    pub(super) fn field_is(self, field: Header, value: &[u8]) -> Self {
        let (offset, length) = field.place();
        self.load_payload(NFT_PAYLOAD_NETWORK_HEADER, offset, length).compare(NFT_CMP_EQ, value)
    }

    /// The source is within fe80::/10.
    pub(super) fn comes_from_link_local(self) -> Self {
        let (offset, length) = Header::Ipv6Source.place();
        let ten_bits = |high: u8, low: u8| {
            std::array::from_fn::<u8, 16, _>(|i| [high, low].get(i).copied().unwrap_or(0))
        };
        self.load_payload(NFT_PAYLOAD_NETWORK_HEADER, offset, length)
            .mask(&ten_bits(0xff, 0xc0))
            .compare(NFT_CMP_EQ, &ten_bits(0xfe, 0x80))
    }

    /// A TCP packet that goes back along a connection which was opened from this side.
    pub(super) fn answers_a_tcp_dial(self) -> Self {
        self.load_meta(NFT_META_L4PROTO)
            .compare(NFT_CMP_EQ, &[IPPROTO_TCP])
            .load_ct(NFT_CT_DIRECTION)
            .compare(NFT_CMP_EQ, &[CT_DIRECTION_REPLY])
            .load_ct(NFT_CT_STATE)
            .mask(&CT_STATE_ESTABLISHED.to_ne_bytes())
            .compare(NFT_CMP_NEQ, &[0; 4])
    }

    pub(super) fn says_neighbour_discovery(self) -> Self {
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

    fn load_ct(self, key: u32) -> Self {
        self.expression("ct", |data| {
            data.put_be32(1, NFT_REG_1);
            data.put_be32(2, key);
        })
    }

    fn load_payload(self, base: u32, offset: u32, length: u32) -> Self {
        self.expression("payload", |data| {
            data.put_be32(1, NFT_REG_1);
            data.put_be32(2, base);
            data.put_be32(3, offset);
            data.put_be32(4, length);
        })
    }

    /// Keeps the register's bits that are set in `bits`.
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

    /// One expression; the numbers inside `data` are those of the expression's own attributes.
    fn expression(self, name: &str, data: impl FnOnce(&mut Attributes<'_>)) -> Self {
        self.list.nest(NFTA_LIST_ELEM, |element| {
            element.put_text(NFTA_EXPR_NAME, name);
            element.nest(NFTA_EXPR_DATA, data);
        });
        self
    }
}
