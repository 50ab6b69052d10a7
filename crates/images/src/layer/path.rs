//! Names of entries as paths beneath the root.

use std::ffi::CString;

use crate::entries::NAME_BYTES_MAX;

/// The kernel's own limit for one name.
const PART_BYTES_MAX: usize = 255;

/// Nested directories; each may keep a descriptor open while a tree is removed.
const DEPTH_MAX: usize = 256;

const WHITEOUT: &[u8] = b".wh.";
/// Internal files of AUFS, which some old images contain; only `.wh..wh..opq` has a meaning.
const WHITEOUT_META: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A path that leads only downwards. The root itself is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryPath {
    /// Components separated by `/`; no `.`, no `..`, no NUL byte.
    bytes: Vec<u8>,
}

/// The meaning of an entry's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryMeaning {
    Place(EntryPath),
    /// Removes what lower layers have at this path.
    Whiteout(EntryPath),
    /// Removes what lower layers have in this directory.
    Opaque(EntryPath),
    /// No effect.
    Ignored,
}

impl EntryPath {
    /// Refuses paths with `..` and absolute paths.
    pub(super) fn parse(name: &[u8]) -> Result<Self, &'static str> {
        if name.contains(&0) {
            return Err("its name contains a NUL byte");
        }
        if name.starts_with(b"/") {
            return Err("its name is absolute");
        }
        if name.len() > NAME_BYTES_MAX {
            return Err("its name is too long");
        }
        let mut bytes = Vec::with_capacity(name.len());
        let mut depth = 0;
        for part in name.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => continue,
                b".." => return Err("its name contains `..`"),
                _ if part.len() > PART_BYTES_MAX => return Err("a part of its name is too long"),
                _ => {}
            }
            depth += 1;
            if depth > DEPTH_MAX {
                return Err("it is nested too deeply");
            }
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(part);
        }
        Ok(Self { bytes })
    }

    /// The parent directory, and the name in it. `None` for the root.
    pub(super) fn split(&self) -> Option<(&[u8], CString)> {
        let (parent, name) = match self.bytes.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&self.bytes[..slash], &self.bytes[slash + 1..]),
            None if self.bytes.is_empty() => return None,
            None => (&[][..], &self.bytes[..]),
        };
        Some((parent, CString::new(name).expect("checked for NUL bytes")))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Distinguishes whiteouts from entries.
pub(super) fn meaning(name: &[u8]) -> Result<EntryMeaning, &'static str> {
    let path = EntryPath::parse(name)?;
    if !path.bytes.windows(WHITEOUT.len()).any(|window| window == WHITEOUT) {
        return Ok(EntryMeaning::Place(path));
    }
    let parts: Vec<&[u8]> = path.bytes.split(|&byte| byte == b'/').collect();
    let Some((last, parents)) = parts.split_last() else { return Ok(EntryMeaning::Place(path)) };
    if parents.iter().chain([last]).any(|part| part.starts_with(WHITEOUT_META) && *part != OPAQUE) {
        return Ok(EntryMeaning::Ignored);
    }
    if parents.iter().any(|part| part.starts_with(WHITEOUT)) {
        return Err("it is inside a whiteout");
    }
    let parent = EntryPath { bytes: parents.join(&b'/') };
    if *last == OPAQUE {
        return Ok(EntryMeaning::Opaque(parent));
    }
    match last.strip_prefix(WHITEOUT) {
        None => Ok(EntryMeaning::Place(path)),
        Some(b"" | b"." | b"..") => Err("it is a whiteout without a name"),
        Some(hidden) => {
            let mut bytes = parent.bytes;
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(hidden);
            Ok(EntryMeaning::Whiteout(EntryPath { bytes }))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath { bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn names_are_normalised() {
        for (name, expected) in [
            ("a/b", "a/b"),
            ("./a/b", "a/b"),
            ("a//b/", "a/b"),
            ("./", ""),
            (".", ""),
            ("", ""),
            ("a/./b", "a/b"),
            ("..a/b..", "..a/b.."),
            ("a/...", "a/..."),
        ] {
            assert_eq!(meaning(name.as_bytes()).unwrap(), EntryMeaning::Place(path(expected)), "{name}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let long = "a".repeat(256);
        let deep = "a/".repeat(257);
        let huge = "a/".repeat(2100);
        for name in ["..", "../a", "a/../b", "a/..", "./..", "/a", "/", "//a", "a\0b", &long, &deep, &huge] {
            assert!(meaning(name.as_bytes()).is_err(), "{name}");
        }
        for name in [".wh.", "a/.wh..", "a/.wh...", "a/.wh.b/c", ".wh../x"] {
            assert!(meaning(name.as_bytes()).is_err(), "{name}");
        }
    }

    #[test]
    fn whiteouts_are_distinguished_from_names() {
        for (name, expected) in [
            ("a/.wh.b", EntryMeaning::Whiteout(path("a/b"))),
            (".wh.b", EntryMeaning::Whiteout(path("b"))),
            (".wh..hidden", EntryMeaning::Whiteout(path(".hidden"))),
            (".wh....", EntryMeaning::Whiteout(path("..."))),
            ("a/.wh..wh..opq", EntryMeaning::Opaque(path("a"))),
            (".wh..wh..opq", EntryMeaning::Opaque(path(""))),
            (".wh..wh.plnk/12.34", EntryMeaning::Ignored),
            ("a/.wh..wh.orph", EntryMeaning::Ignored),
            ("a.wh.b", EntryMeaning::Place(path("a.wh.b"))),
            (".who", EntryMeaning::Place(path(".who"))),
        ] {
            assert_eq!(meaning(name.as_bytes()), Ok(expected), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_name_contains_a_parent_component(name in "[./ab\\x00wh]{0,40}") {
            let paths = match meaning(name.as_bytes()) {
                Ok(EntryMeaning::Place(path) | EntryMeaning::Whiteout(path) | EntryMeaning::Opaque(path)) => path,
                Ok(EntryMeaning::Ignored) | Err(_) => return Ok(()),
            };
            prop_assert!(!paths.bytes.starts_with(b"/"));
            for part in paths.bytes.split(|&byte| byte == b'/').filter(|_| !paths.bytes.is_empty()) {
                prop_assert!(!matches!(part, b"" | b"." | b".."), "{}", name);
            }
        }
    }
}
