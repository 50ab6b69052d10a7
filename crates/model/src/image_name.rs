//! The names of images: `debian`, `my-app:v2`, `python:3.12`, `registry.example.com/org/app:1`.
//!
//! `[registry/]path[:tag]`, as in registries, but kept as written: no registry and no `latest` is added, so `debian`
//! and `debian:latest` are two names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ImageId;

/// The longest name that registries accept.
const NAME_LENGTH_MAX: usize = 255;
const TAG_LENGTH_MAX: usize = 128;

/// A name of an image. Never shaped like an id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageName(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an image's name is like `app`, `app:v2` or `registry.example.com/org/app:v2`: lower-case letters, digits and single inner \
     `.`, `_` and `-`, parted by `/`, at most 255 characters, and not shaped like an id"
)]
pub struct ImageNameError;

impl ImageName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageName {
    type Err = ImageNameError;

    fn from_str(text: &str) -> Result<Self, ImageNameError> {
        // A colon before the last slash belongs to a port.
        let last = text.rfind('/').map_or(0, |slash| slash + 1);
        let (path, tag) = match text[last..].find(':') {
            Some(colon) => (&text[..last + colon], Some(&text[last + colon + 1..])),
            None => (text, None),
        };
        let path = match path.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => {
                is_host(host).then_some(rest).ok_or(ImageNameError)?
            }
            Some(_) | None => path,
        };
        // A name shaped like an id would make `burrow image rm img…` ambiguous.
        let good = text.len() <= NAME_LENGTH_MAX
            && tag.is_none_or(is_tag)
            && path.split('/').all(is_component)
            && text.parse::<ImageId>().is_err();
        if good { Ok(Self(text.to_owned())) } else { Err(ImageNameError) }
    }
}

/// Letters and digits, separated by one `.`, one or two `_`, or any number of `-`.
fn is_component(part: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = part.bytes().next().is_some_and(word) && part.bytes().last().is_some_and(word);
    let separator =
        |between: &str| matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-');
    ends && part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).all(separator)
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= TAG_LENGTH_MAX
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

/// `name` or `name:port`, where a name consists of labels separated by dots.
fn is_host(host: &str) -> bool {
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let label = |label: &str| {
        let plain = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        !label.is_empty() && plain && !label.starts_with('-') && !label.ends_with('-')
    };
    let number = |port: &str| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    name.split('.').all(label) && port.is_none_or(number)
}

impl TryFrom<String> for ImageName {
    type Error = ImageNameError;

    fn try_from(text: String) -> Result<Self, ImageNameError> {
        text.parse()
    }
}

impl From<ImageName> for String {
    fn from(name: ImageName) -> String {
        name.0
    }
}

impl From<crate::Name> for ImageName {
    /// Every plain name is a valid image name.
    fn from(name: crate::Name) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A reference to one image, by name or by id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ImageRef {
    Name(ImageName),
    Id(ImageId),
}

impl FromStr for ImageRef {
    type Err = ImageNameError;

    fn from_str(text: &str) -> Result<Self, ImageNameError> {
        match text.parse::<ImageId>() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

impl TryFrom<String> for ImageRef {
    type Error = ImageNameError;

    fn try_from(text: String) -> Result<Self, ImageNameError> {
        text.parse()
    }
}

impl From<ImageRef> for String {
    fn from(image: ImageRef) -> String {
        match image {
            ImageRef::Name(name) => name.into(),
            ImageRef::Id(id) => id.into(),
        }
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Id(id) => id.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, good: bool) {
        assert_eq!(text.parse::<ImageName>().is_ok(), good, "{text:?}");
    }

    #[test]
    fn names_are_taken_as_people_write_them() {
        for good in [
            "debian",
            "my-app:v2",
            "python:3.12",
            "registry.example.com/org/app:1",
            "localhost:5000/x",
            "localhost/x:T_1",
            "127.0.0.1:5000/a/b",
            "a__b/c--d.e",
            "org/app",
            "7zip",
        ] {
            check(good, true);
        }
    }

    #[test]
    fn ambiguous_image_names_are_refused() {
        for bad in [
            "",
            ":",
            "/",
            "a/",
            "/a",
            "a//b",
            "A",
            "a:",
            "a:-x",
            "a b",
            "a@b",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "../a",
            "a/../b",
            "host.io:0/a",
            "host.io:99999/a",
            "host.io:+5/a",
            "h.io/",
            "a\nb",
            "ä",
            "a%2fb",
            "https://h.io/a",
            "-h.io/a",
            "a:b:c",
        ] {
            check(bad, false);
        }
        check(&"a".repeat(256), false);
        check(&format!("a:{}", "t".repeat(129)), false);
        check(ImageId::generate().as_str(), false);
    }

    #[test]
    fn an_image_is_meant_by_name_or_by_id() {
        let id = ImageId::generate();
        assert_eq!(id.as_str().parse::<ImageRef>().unwrap(), ImageRef::Id(id));
        assert!(matches!("a/b:c".parse::<ImageRef>(), Ok(ImageRef::Name(_))));
    }

    #[test]
    fn a_plain_name_is_a_name_of_an_image() {
        for text in ["a", "web-1", "a--b", "x9"] {
            let name: crate::Name = text.parse().unwrap();
            assert_eq!(ImageName::from(name), text.parse().unwrap());
        }
    }
}
