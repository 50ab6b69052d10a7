//! A range of addresses, `10.0.0.0/8`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Addresses that share their first `prefix` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpRange {
    first: IpAddr,
    prefix: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpRangeError {
    #[error("a range of addresses is written like `10.0.0.0/8` or `fd00::/8`")]
    Shape,
    #[error("`{first}` is not the first address of its range; write `{expected}`")]
    NotFirst { first: IpAddr, expected: String },
}

impl IpRange {
    /// The range of this length that contains `address`; `None` if the address has fewer bits.
    pub fn around(address: IpAddr, prefix: u8) -> Option<Self> {
        (prefix <= bits(address)).then(|| Self { first: masked(address, prefix), prefix })
    }

    /// Its address, if it contains only one.
    pub fn single(&self) -> Option<IpAddr> {
        (self.prefix == bits(self.first)).then_some(self.first)
    }

    /// Its first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    pub fn is_ipv6(&self) -> bool {
        self.first.is_ipv6()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                masked(address, self.prefix) == self.first
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// `address` with all but its first `prefix` bits cleared.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

impl FromStr for IpRange {
    type Err = IpRangeError;

    fn from_str(text: &str) -> Result<Self, IpRangeError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| IpRangeError::Shape)?;
        let bits = bits(first);
        let prefix: u8 = match prefix {
            // No sign and no leading zero: one form for each range.
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().map_err(|_| IpRangeError::Shape)?
            }
            Some(_) => return Err(IpRangeError::Shape),
            None => bits,
        };
        if prefix > bits {
            return Err(IpRangeError::Shape);
        }
        let start = masked(first, prefix);
        if start != first {
            return Err(IpRangeError::NotFirst { first, expected: format!("{start}/{prefix}") });
        }
        Ok(Self { first, prefix })
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl TryFrom<String> for IpRange {
    type Error = IpRangeError;

    fn try_from(text: String) -> Result<Self, IpRangeError> {
        text.parse()
    }
}

impl From<IpRange> for String {
    fn from(range: IpRange) -> String {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_shares_its_first_bits() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("0.0.0.0/0", "203.0.113.7", "::1"),
            ("203.0.113.7", "203.0.113.7", "203.0.113.8"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
        ] {
            let range: IpRange = range.parse().unwrap();
            assert!(range.contains(inside.parse().unwrap()), "{range} {inside}");
            assert!(!range.contains(outside.parse().unwrap()), "{range} {outside}");
            assert_eq!(range.to_string().parse(), Ok(range));
        }
    }

    #[test]
    fn a_range_around_an_address_begins_where_its_bits_do() {
        for (address, prefix, expected) in [
            ("10.1.2.3", 8, "10.0.0.0/8"),
            ("10.1.2.3", 32, "10.1.2.3/32"),
            ("2001:db8::1", 32, "2001:db8::/32"),
        ] {
            let range = IpRange::around(address.parse().unwrap(), prefix).unwrap();
            assert_eq!(range.to_string(), expected);
            assert_eq!(range.single().is_some(), prefix == 32 && address.contains('.'));
        }
        assert_eq!(IpRange::around("10.1.2.3".parse().unwrap(), 33), None);
    }

    #[test]
    fn a_range_has_one_spelling() {
        for bad in ["", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/", "host/8", "::/129", "10.0.0/8"] {
            assert_eq!(bad.parse::<IpRange>(), Err(IpRangeError::Shape), "{bad}");
        }
        let error = "10.1.0.0/8".parse::<IpRange>().unwrap_err();
        assert_eq!(error.to_string(), "`10.1.0.0` is not the first address of its range; write `10.0.0.0/8`");
    }
}
