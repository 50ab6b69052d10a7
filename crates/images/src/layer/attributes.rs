//! Extended attributes of files, and their translation for the user namespace of a sandbox.
//!
//! File capabilities are stored in the form that is valid in one user namespace only (revision 3, with the uid of its
//! root); ids in access control lists are shifted. `user.*` attributes are unchanged. All others have a meaning on
//! the host (labels of security modules, marks of overlays) and are dropped.

use std::ffi::CString;
use std::os::fd::BorrowedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

const CAPABILITY: &[u8] = b"security.capability";
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
const USER: &[u8] = b"user.";

/// The largest value an extended attribute can have.
const VALUE_BYTES_MAX: usize = 65_536;
const NAME_BYTES_MAX: usize = 255;

/// How ids are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// From the image to the host: `by` is added.
    Up { by: u32, count: u32 },
    /// From the host to the image: `by` is subtracted.
    Down { by: u32, count: u32 },
}

/// The translation of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Translation {
    Keep(Vec<u8>),
    Drop,
    Refuse(&'static str),
}

/// The `overflowuid`: ids outside of a user namespace's range appear as this id inside.
const NOBODY: u32 = 65_534;

impl Shift {
    /// The number of ids inside.
    pub(crate) fn count(self) -> u32 {
        match self {
            Self::Up { count, .. } | Self::Down { count, .. } => count,
        }
    }

    /// `None` for an id that does not exist inside, when shifting up.
    pub(crate) fn id(self, id: u64) -> Option<u32> {
        let id = u32::try_from(id).ok();
        match self {
            Self::Up { by, count } => id.filter(|id| *id < count)?.checked_add(by),
            Self::Down { by, count } => {
                Some(id.and_then(|id| id.checked_sub(by)).filter(|id| *id < count).unwrap_or(NOBODY))
            }
        }
    }
}

/// Translates an attribute.
pub(crate) fn translate(name: &[u8], value: &[u8], shift: Shift) -> Translation {
    if name.len() > NAME_BYTES_MAX || name.contains(&0) || value.len() > VALUE_BYTES_MAX {
        return Translation::Refuse("an extended attribute is too large");
    }
    if name == CAPABILITY {
        return match (capability(value, shift), shift) {
            (Some(value), _) => Translation::Keep(value),
            (None, Shift::Up { .. }) => Translation::Refuse("its file capabilities are malformed"),
            (None, Shift::Down { .. }) => Translation::Drop,
        };
    }
    if ACCESS_LISTS.contains(&name) {
        return match (access_list(value, shift), shift) {
            (Some(value), _) => Translation::Keep(value),
            (None, Shift::Up { .. }) => Translation::Refuse("its access control list is malformed"),
            (None, Shift::Down { .. }) => Translation::Drop,
        };
    }
    match name.starts_with(USER) && name.len() > USER.len() {
        true => Translation::Keep(value.to_vec()),
        false => Translation::Drop,
    }
}

/// Translates a file capability; `None` if it is invalid or grants nothing inside.
///
/// Layout: revision and flags, then permitted and inheritable sets in words of 32 bits (one pair in revision 1, two
/// since), then since revision 3 the uid of the root of the namespace it is for. All little endian.
fn capability(value: &[u8], shift: Shift) -> Option<Vec<u8>> {
    const REVISION_MASK: u32 = 0xff00_0000;
    const REVISION_2: u32 = 0x0200_0000;
    const REVISION_3: u32 = 0x0300_0000;
    let words: Vec<u32> =
        value.chunks(4).map(|word| word.try_into().map(u32::from_le_bytes)).collect::<Result<_, _>>().ok()?;
    let (sets, root) = match (*words.first()? & REVISION_MASK, words.len()) {
        (0x0100_0000, 3) => ([words[1], words[2], 0, 0], 0),
        (REVISION_2, 5) => ([words[1], words[2], words[3], words[4]], 0),
        (REVISION_3, 6) => ([words[1], words[2], words[3], words[4]], words[5]),
        _ => return None,
    };
    let flags = words[0] & !REVISION_MASK;
    let [a, b, c, d] = sets;
    let words = match shift {
        Shift::Up { .. } => vec![REVISION_3 | flags, a, b, c, d, shift.id(u64::from(root))?],
        Shift::Down { by, count } => match root.checked_sub(by) {
            Some(0) => vec![REVISION_2 | flags, a, b, c, d],
            Some(root) if root < count => vec![REVISION_3 | flags, a, b, c, d, root],
            // For the root of another namespace, it grants nothing inside.
            Some(_) | None => return None,
        },
    };
    Some(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// Translates an access control list: a version, then entries of tag, permissions and id, little endian.
fn access_list(value: &[u8], shift: Shift) -> Option<Vec<u8>> {
    const VERSION: [u8; 4] = 2u32.to_le_bytes();
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x08;
    if !value.starts_with(&VERSION) || !(value.len() - 4).is_multiple_of(8) {
        return None;
    }
    let mut shifted = value.to_vec();
    for entry in shifted[4..].chunks_exact_mut(8) {
        let (tag, id) = (u16::from_le_bytes([entry[0], entry[1]]), &mut entry[4..8]);
        if tag == USER || tag == GROUP {
            let old = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
            id.copy_from_slice(&shift.id(u64::from(old))?.to_le_bytes());
        }
    }
    Some(shifted)
}

/// Sets attributes in the given order. `false` if the file system does not support this kind.
pub(super) fn set(file: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Result<bool, Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    match rustix::fs::fsetxattr(file, &name, value, XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes all attributes that a file has from an older entry, or inherited from its directory.
pub(super) fn clear(file: BorrowedFd<'_>) -> Result<(), Errno> {
    for name in names(file)? {
        let ours = name.as_bytes().starts_with(USER)
            || ACCESS_LISTS.contains(&name.as_bytes())
            || name.as_bytes() == CAPABILITY;
        if ours {
            match rustix::fs::fremovexattr(file, &name) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Whether files in a directory inherit an access control list from it.
pub(super) fn has_default_acl(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    // Any list is larger than this.
    match rustix::fs::fgetxattr(directory, c"system.posix_acl_default", &mut [0u8; 1][..]) {
        Ok(_) | Err(Errno::RANGE) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The names of a file's extended attributes. Most files have none.
pub(crate) fn names(file: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut small = [0u8; 256];
    let list = match rustix::fs::flistxattr(file, &mut small) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(length) => small[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut names = vec![0u8; VALUE_BYTES_MAX];
            let length = rustix::fs::flistxattr(file, names.as_mut_slice())?;
            names.truncate(length);
            names
        }
        Err(error) => return Err(error),
    };
    let parts = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(parts.map(|name| CString::new(name).expect("it was split at zero bytes")).collect())
}

pub(crate) fn value(file: BorrowedFd<'_>, name: &CString) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0u8; VALUE_BYTES_MAX];
    let length = rustix::fs::fgetxattr(file, name, value.as_mut_slice())?;
    value.truncate(length);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Shift = Shift::Up { by: 100_000, count: 65_536 };
    const DOWN: Shift = Shift::Down { by: 100_000, count: 65_536 };

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn capabilities_are_translated_for_the_namespace_and_back() {
        let net_raw = 1 << 13;
        let outside = words(&[0x0200_0001, net_raw, 0, 7, 0]);
        let inside = words(&[0x0300_0001, net_raw, 0, 7, 0, 100_000]);
        assert_eq!(translate(CAPABILITY, &outside, UP), Translation::Keep(inside.clone()));
        assert_eq!(translate(CAPABILITY, &inside, DOWN), Translation::Keep(outside.clone()));
        let nested = words(&[0x0300_0001, net_raw, 0, 7, 0, 5]);
        let nested_inside = words(&[0x0300_0001, net_raw, 0, 7, 0, 100_005]);
        assert_eq!(translate(CAPABILITY, &nested, UP), Translation::Keep(nested_inside.clone()));
        assert_eq!(translate(CAPABILITY, &nested_inside, DOWN), Translation::Keep(nested));
        // Capabilities that are valid for the host's root, or for another namespace's, are not exported.
        assert_eq!(translate(CAPABILITY, &outside, DOWN), Translation::Drop);
        let far = words(&[0x0300_0001, net_raw, 0, 7, 0, 70_000]);
        assert!(matches!(translate(CAPABILITY, &far, UP), Translation::Refuse(_)));
        assert!(matches!(translate(CAPABILITY, b"abc", UP), Translation::Refuse(_)));
    }

    #[test]
    fn only_named_users_and_groups_of_a_list_are_shifted() {
        let undefined = u32::MAX;
        let list = |user: u32, group: u32| {
            words(&[2, 0x7_0001, undefined, 0x6_0002, user, 0x4_0004, undefined, 0x4_0008, group])
        };
        let [outside, inside] = [list(1000, 50), list(101_000, 100_050)];
        assert_eq!(translate(ACCESS_LISTS[0], &outside, UP), Translation::Keep(inside.clone()));
        assert_eq!(translate(ACCESS_LISTS[0], &inside, DOWN), Translation::Keep(outside));
        assert!(matches!(translate(ACCESS_LISTS[1], &list(70_000, 1), UP), Translation::Refuse(_)));
        assert!(matches!(translate(ACCESS_LISTS[1], b"\x03\0\0\0", UP), Translation::Refuse(_)));
    }

    #[test]
    fn attributes_with_a_meaning_on_the_host_are_dropped() {
        for name in
            ["trusted.overlay.opaque", "security.selinux", "security.ima", "system.other", "user.", "x"]
        {
            assert_eq!(translate(name.as_bytes(), b"y", UP), Translation::Drop, "{name}");
        }
        assert_eq!(translate(b"user.a", b"y", UP), Translation::Keep(b"y".to_vec()));
        assert!(matches!(translate(b"user.a", &[0; 65_537], UP), Translation::Refuse(_)));
    }

    #[test]
    fn ids_outside_the_range_are_refused_on_import_and_nobody_on_export() {
        assert_eq!((UP.id(0), UP.id(65_535), UP.id(65_536)), (Some(100_000), Some(165_535), None));
        assert_eq!((UP.id(u64::MAX), UP.id(1 << 32)), (None, None));
        assert_eq!((DOWN.id(100_005), DOWN.id(0), DOWN.id(165_536)), (Some(5), Some(65_534), Some(65_534)));
    }
}
