//! Sizes as people write them: `50MB`, `512KiB`, or a number of bytes.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A number of bytes, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

const REASON: &str = "a size is a number of bytes above 0, or one with a unit as in `50MB` or `512KiB`";

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (digits, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| text.strip_suffix(unit).map(|digits| (digits, *factor)))
            .unwrap_or((text, 1));
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(REASON);
        }
        let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
        bytes.filter(|bytes| *bytes > 0).map(Self).ok_or(REASON)
    }
}

impl fmt::Display for Size {
    /// In the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = |(_, factor): &&(&str, u64)| self.0.is_multiple_of(*factor);
        let (unit, factor) =
            UNITS.iter().filter(fitting).max_by_key(|(_, factor)| *factor).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;

        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size, as in `50MB`")
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                if bytes == 0 { Err(E::custom(REASON)) } else { Ok(Size(bytes)) }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(SizeVisitor)
    }
}

impl PartialSchema for Size {
    fn schema() -> RefOr<Schema> {
        let bytes = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(1));
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[1-9][0-9]{0,5}(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$"));
        OneOfBuilder::new().item(bytes).item(text).into()
    }
}

impl ToSchema for Size {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_and_without_units() {
        for (text, bytes) in
            [("50MB", 50_000_000), ("1KiB", 1024), ("7", 7), ("7B", 7), ("2kB", 2000), ("1TiB", 1 << 40)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "MB", "5 MB", "-1", "0", "0MB", "1.5MB", "5mb", "99999999999TB", "5XB"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
        for (bytes, text) in [(50_000_000, "50MB"), (1024, "1KiB"), (7, "7B")] {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
    }
}
