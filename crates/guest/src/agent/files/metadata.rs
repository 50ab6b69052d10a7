//! Metadata that clients attach to files, kept as extended attributes `user.e2b.KEY`.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

const PREFIX: &str = "user.e2b.";

/// Metadata shown of one file, names and values together: the limit of an upload. Programs inside can set more.
const SHOWN_BYTES_MAX: usize = 4096;

/// The kernel's limit for all attribute names of a file together.
const NAMES_BYTES_MAX: usize = 64 << 10;

/// The metadata of the file at `path`. Attributes that cannot be read or exceed the limit are left out.
pub(super) fn read(path: &Path, follow: bool) -> BTreeMap<String, String> {
    // Most files have none: the first call only asks for the size and needs no memory.
    let count = match follow {
        true => rustix::fs::listxattr_query(path),
        false => rustix::fs::llistxattr_query(path),
    };
    if !count.is_ok_and(|count| count > 0) {
        return BTreeMap::new();
    }
    let mut names = vec![0; NAMES_BYTES_MAX];
    let listed = match follow {
        true => rustix::fs::listxattr(path, &mut names[..]),
        false => rustix::fs::llistxattr(path, &mut names[..]),
    };
    let Ok(length) = listed else { return BTreeMap::new() };
    names.truncate(length);
    let value = |name: &str| {
        let mut bytes = [0; SHOWN_BYTES_MAX];
        let length = match follow {
            true => rustix::fs::getxattr(path, name, &mut bytes[..]),
            false => rustix::fs::lgetxattr(path, name, &mut bytes[..]),
        };
        Some(String::from_utf8_lossy(&bytes[..length.ok()?]).into_owned())
    };
    let mut left = SHOWN_BYTES_MAX;
    let shown = |key: &str| {
        let value = value(&format!("{PREFIX}{key}"))?;
        left = left.checked_sub(key.len() + value.len())?;
        Some((key.to_owned(), value))
    };
    keys(&names).filter_map(shown).collect()
}

/// Sets exactly this metadata on an open file. File systems without extended attributes keep none.
pub(super) fn replace(file: &OwnedFd, metadata: &BTreeMap<String, String>) -> Result<(), Errno> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    match rustix::fs::flistxattr(file, &mut names[..]) {
        Ok(length) => names.truncate(length),
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    for key in keys(&names).filter(|key| !metadata.contains_key(*key)) {
        rustix::fs::fremovexattr(file, format!("{PREFIX}{key}"))?;
    }
    for (key, value) in metadata {
        let name = CString::new(format!("{PREFIX}{key}")).map_err(|_| Errno::INVAL)?;
        match rustix::fs::fsetxattr(file, &name, value.as_bytes(), XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            set => set?,
        }
    }
    Ok(())
}

/// The keys in a list of attribute names, each of which ends with a NUL byte.
fn keys(names: &[u8]) -> impl Iterator<Item = &str> {
    names.split(|b| *b == 0).filter_map(|name| {
        let key = OsStr::from_bytes(name).to_str()?.strip_prefix(PREFIX)?;
        (!key.is_empty()).then_some(key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn metadata_is_replaced_as_a_whole_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = OwnedFd::from(std::fs::File::create(&path).unwrap());
        replace(&file, &map(&[("a", "1"), ("b", "two words")])).unwrap();
        if rustix::fs::fgetxattr(&file, "user.e2b.a", &mut [0_u8; 8][..]).is_err() {
            return eprintln!(
                "skipped: the file system of the temporary directory has no extended attributes"
            );
        }
        assert_eq!(read(&path, false), map(&[("a", "1"), ("b", "two words")]));
        replace(&file, &map(&[("b", "new")])).unwrap();
        assert_eq!(read(&path, true), map(&[("b", "new")]));
        rustix::fs::fsetxattr(&file, "user.other", b"x", XattrFlags::empty()).unwrap();
        replace(&file, &BTreeMap::new()).unwrap();
        assert_eq!(read(&path, true), BTreeMap::new());
        assert!(
            rustix::fs::fgetxattr(&file, "user.other", &mut [0_u8; 8][..]).is_ok(),
            "other attributes are kept"
        );
    }
}
