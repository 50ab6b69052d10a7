//! Address ranges that an operator may allow, and those that are never allowed.

use std::net::IpAddr;

use burrow_model::IpRange;
use burrow_model::network::IpRangeError;

/// Never connected to for a sandbox, whatever the configuration says (the egress process enforces this as well):
/// services at these addresses trust every client. Rejected here, so that no operator believes to have allowed them.
const CLOSED: [(&str, &str); 11] = [
    ("127.0.0.0/8", "the host's own loopback addresses"),
    ("::1/128", "the host's own loopback address"),
    ("0.0.0.0/8", "addresses that mean this host"),
    ("::/128", "the address that means this host"),
    ("169.254.0.0/16", "link-local addresses, where clouds keep their metadata"),
    ("fe80::/10", "link-local addresses"),
    ("fd00:ec2::254/128", "a cloud's metadata"),
    ("224.0.0.0/4", "multicast addresses"),
    ("ff00::/8", "multicast addresses"),
    // The IPv4 ranges above in IPv6 form.
    ("::ffff:0:0/96", "IPv4 addresses in IPv6 form (write them as IPv4)"),
    ("64:ff9b::/96", "IPv4 addresses in IPv6 form (write them as IPv4)"),
];

#[derive(Debug, thiserror::Error)]
pub(super) enum RangeError {
    #[error(transparent)]
    Shape(#[from] IpRangeError),
    #[error("it contains {what}, which sandboxes may never connect to")]
    Closed { what: &'static str },
}

pub(super) fn parse(text: &str) -> Result<IpRange, RangeError> {
    let range: IpRange = text.parse()?;
    for (closed, what) in CLOSED {
        let single = closed.ends_with("/128");
        let closed: IpRange = closed.parse().expect("the table holds ranges");
        // A single address inside a large range stays closed, without the need to write a range around it.
        if closed.contains(first(range)) || (!single && range.contains(first(closed))) {
            return Err(RangeError::Closed { what });
        }
    }
    Ok(range)
}

fn first(range: IpRange) -> IpAddr {
    let text = range.to_string();
    let address = text.split('/').next().unwrap_or_default();
    address.parse().expect("a range is written as its first address and its length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_metadata_and_multicast_ranges_cannot_be_allowed() {
        for bad in [
            "0.0.0.0/0",
            "::/0",
            "127.0.0.1",
            "169.254.169.254",
            "fe80::/64",
            "fd00:ec2::254",
            "::ffff:10.0.0.0/104",
        ] {
            assert!(matches!(parse(bad), Err(RangeError::Closed { .. })), "{bad}");
        }
        for good in ["10.0.0.0/8", "198.51.100.0/24", "203.0.113.7", "2001:db8::/32", "fd00::/8"] {
            parse(good).unwrap();
        }
        assert!(matches!(parse("ten"), Err(RangeError::Shape(_))));
    }
}
