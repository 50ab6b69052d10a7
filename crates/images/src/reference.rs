//! Image references as written by users.
//!
//! `[registry/]repository[:tag][@digest]`, with Docker's defaults: the registry is `docker.io` unless the first part
//! looks like a host, a repository there without a slash is in `library/`, and without tag or digest the tag is
//! `latest`.

use std::fmt;
use std::str::FromStr;

use crate::{Digest, ImageError};

const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_NAMESPACE: &str = "library/";
const DEFAULT_TAG: &str = "latest";

/// Docker's own limit for registry and repository together.
const NAME_BYTES_MAX: usize = 255;
const TAG_BYTES_MAX: usize = 128;

/// The location of an image, with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        read(text).map_err(|reason| ImageError::Reference { text: crate::error::shortened(text), reason })
    }

    /// The host, with a port if it was written.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path within the registry, like `library/python`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Absent only if a digest is given.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest that the image must have, if it was written.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The tag or digest to request: the digest if there is one, since it is exact.
    pub fn wanted(&self) -> String {
        match (self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }

    /// The shortest form with the same meaning: `python:3.12` for `docker.io/library/python:3.12`. Keeps `:latest`.
    pub fn familiar(&self) -> String {
        let name = match self.registry.as_str() {
            DEFAULT_REGISTRY => {
                let short = self.repository.strip_prefix(DEFAULT_NAMESPACE);
                // Without `library/`, `library/a/b` would be parsed as another repository.
                short.filter(|short| !short.contains('/')).unwrap_or(&self.repository).to_owned()
            }
            other => format!("{other}/{}", self.repository),
        };
        // A first component that looks like a host would be parsed as one.
        let name = match name.split_once('/') {
            Some((first, _)) if self.registry == DEFAULT_REGISTRY && looks_like_host(first) => {
                format!("{DEFAULT_REGISTRY}/{}", self.repository)
            }
            Some(_) | None => name,
        };
        name + &self.suffix()
    }

    /// The same image by digest alone.
    pub fn at(&self, digest: Digest) -> Self {
        Self { tag: None, digest: Some(digest), ..self.clone() }
    }

    fn suffix(&self) -> String {
        let tag = self.tag.as_ref().map_or_else(String::new, |tag| format!(":{tag}"));
        let digest = self.digest.map_or_else(String::new, |digest| format!("@{digest}"));
        tag + &digest
    }
}

impl FromStr for Reference {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        Self::parse(text)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}{}", self.registry, self.repository, self.suffix())
    }
}

fn read(text: &str) -> Result<Reference, &'static str> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => {
            (rest, Some(digest.parse::<Digest>().map_err(|_| "the part after `@` is not a sha256 digest")?))
        }
        None => (text, None),
    };
    // A colon before the last slash belongs to a port.
    let name_end = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[name_end..].find(':') {
        Some(colon) => (&rest[..name_end + colon], Some(&rest[name_end + colon + 1..])),
        None => (rest, None),
    };
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if looks_like_host(first) => (first, rest.to_owned()),
        Some(_) | None => (DEFAULT_REGISTRY, name.to_owned()),
    };
    check_host(registry)?;
    // Docker's old name for the same host.
    let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
    let repository = match repository.contains('/') || registry != DEFAULT_REGISTRY {
        true => repository,
        false => format!("{DEFAULT_NAMESPACE}{repository}"),
    };
    check_repository(&repository)?;
    if registry.len() + 1 + repository.len() > NAME_BYTES_MAX {
        return Err("it is longer than 255 characters");
    }
    let tag = match (tag, digest) {
        (None, None) => Some(DEFAULT_TAG),
        (tag, _) => tag,
    };
    Ok(Reference { registry: registry.to_owned(), repository, tag: tag.map(str::to_owned), digest })
}

/// Docker's rule: a dot, a port, a capital letter, or `localhost`.
fn looks_like_host(part: &str) -> bool {
    part == "localhost" || part.contains(['.', ':']) || part.chars().any(|c| c.is_ascii_uppercase())
}

fn check_host(host: &str) -> Result<(), &'static str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) =
                rest.split_once(']').ok_or("the closing `]` of an IPv6 address is missing")?;
            address
                .parse::<std::net::Ipv6Addr>()
                .map_err(|_| "the part in brackets is not an IPv6 address")?;
            match rest.strip_prefix(':') {
                Some(port) => ("", Some(port)),
                None if rest.is_empty() => ("", None),
                None => return Err("the part after `]` is not a port"),
            }
        }
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err() || port.starts_with(['0', '+']) || port.len() > 5)
    {
        return Err("the port is not a number from 1 to 65535");
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !host.starts_with('[') && !name.split('.').all(label) {
        return Err("the registry is not a host name");
    }
    Ok(())
}

/// Lower case letters and digits, separated by one `.`, one or two `_`, or any number of `-`.
fn check_repository(repository: &str) -> Result<(), &'static str> {
    for part in repository.split('/') {
        if part.is_empty() {
            return Err("the name or a part of it is empty");
        }
        if part.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err("the name must be in lower case");
        }
        let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if !part.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'_' | b'-')) {
            return Err("the name may hold only letters, digits, `.`, `_`, `-` and `/`");
        }
        let parted = |separator: &str| match separator {
            "" | "." | "_" | "__" => true,
            other => other.bytes().all(|byte| byte == b'-'),
        };
        let bounded = part.bytes().next().is_some_and(word) && part.bytes().last().is_some_and(word);
        if !bounded || !part.split(|c: char| c.is_ascii_alphanumeric()).all(parted) {
            return Err("separators in the name must be single and between letters or digits");
        }
    }
    Ok(())
}

fn check_tag(tag: &str) -> Result<(), &'static str> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if tag.is_empty() || tag.len() > TAG_BYTES_MAX {
        return Err("a tag must have 1 to 128 characters");
    }
    if !tag.bytes().next().is_some_and(word)
        || !tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
    {
        return Err(
            "a tag may contain letters, digits, `_`, `.` and `-`, and must start with a letter, a digit or `_`",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[track_caller]
    fn check(text: &str, whole: &str, familiar: &str) {
        let reference = Reference::parse(text).unwrap();
        assert_eq!(reference.to_string(), whole, "{text}");
        assert_eq!(reference.familiar(), familiar, "{text}");
        assert_eq!(Reference::parse(whole).unwrap(), reference);
        assert_eq!(Reference::parse(familiar).unwrap(), reference);
    }

    #[test]
    fn missing_parts_of_a_reference_have_the_defaults_of_docker() {
        check("python", "docker.io/library/python:latest", "python:latest");
        check("python:3.12", "docker.io/library/python:3.12", "python:3.12");
        check("org/app", "docker.io/org/app:latest", "org/app:latest");
        check("docker.io/python", "docker.io/library/python:latest", "python:latest");
        check("index.docker.io/a/b:c", "docker.io/a/b:c", "a/b:c");
        check(
            "registry.example.com/org/app:v1",
            "registry.example.com/org/app:v1",
            "registry.example.com/org/app:v1",
        );
        check("localhost:5000/x:tag", "localhost:5000/x:tag", "localhost:5000/x:tag");
        check("localhost/x", "localhost/x:latest", "localhost/x:latest");
        check("127.0.0.1:5000/a/b/c", "127.0.0.1:5000/a/b/c:latest", "127.0.0.1:5000/a/b/c:latest");
        check("[::1]:5000/a", "[::1]:5000/a:latest", "[::1]:5000/a:latest");
        check("a__b/c--d.e:T_1.x-y", "docker.io/a__b/c--d.e:T_1.x-y", "a__b/c--d.e:T_1.x-y");
        check("library/a/b", "docker.io/library/a/b:latest", "library/a/b:latest");
    }

    #[test]
    fn a_digest_may_replace_or_follow_the_tag() {
        check(&format!("app@{DIGEST}"), &format!("docker.io/library/app@{DIGEST}"), &format!("app@{DIGEST}"));
        let both = format!("registry.example.com/o/app:v1@{DIGEST}");
        check(&both, &both, &both);
        let reference = Reference::parse(&both).unwrap();
        assert_eq!((reference.tag(), reference.wanted()), (Some("v1"), DIGEST.to_owned()));
    }

    #[test]
    fn invalid_references_are_refused_with_a_reason() {
        for text in [
            "",
            ":",
            "/",
            "a/",
            "/a",
            "a//b",
            "Python",
            "a:",
            "a:-x",
            "a:b c",
            "a b",
            "a@",
            "a@sha256:00",
            "a@md5:00",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "a._b",
            "host:port/a",
            "host:0/a",
            "host:99999/a",
            "ho_st.x/a",
            "../a",
            "a/../b",
            "a/./b",
            "https://registry.example.com/a",
            "a\nb",
            "ä",
            "[::1/a",
            "[x]:1/a",
            "-h.io/a",
            "h.io/",
            "a?b",
            "a%2fb",
            "host.io:+5/a",
        ] {
            let error = Reference::parse(text).unwrap_err();
            assert!(error.hint().is_some() && error.to_string().contains("image reference"), "{text}");
        }
        assert!(Reference::parse(&format!("a:{}", "t".repeat(129))).is_err());
        assert!(Reference::parse(&"a/".repeat(200)).is_err());
        assert!(Reference::parse(&"a".repeat(300)).is_err());
    }

    proptest! {
        #[test]
        fn references_survive_formatting_and_parsing(text in "\\PC{0,80}") {
            if let Ok(reference) = Reference::parse(&text) {
                prop_assert_eq!(&Reference::parse(&reference.to_string()).unwrap(), &reference);
                prop_assert_eq!(&Reference::parse(&reference.familiar()).unwrap(), &reference);
            }
        }

        #[test]
        fn common_references_are_parsed(
            text in "([a-zA-Z0-9.:-]{1,12}/)?[a-z0-9._-]{1,9}(/[a-z0-9._-]{1,9}){0,2}(:[A-Za-z0-9._-]{1,9})?"
        ) {
            if let Ok(reference) = Reference::parse(&text) {
                prop_assert!(!reference.repository().contains(".."));
                prop_assert!(!reference.repository().contains("//"));
                prop_assert_eq!(&Reference::parse(&reference.to_string()).unwrap(), &reference);
                prop_assert_eq!(&Reference::parse(&reference.familiar()).unwrap(), &reference);
            }
        }
    }
}
