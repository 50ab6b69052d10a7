//! Shifts the owners of a tree of files to the uid range of sandboxes.
//!
//! Uid 0 in a sandbox is uid [`UID_SHIFT`](crate::UID_SHIFT) of the host, so the files of an image must belong to the
//! shifted ids. When an owner changes, the kernel clears everything that could be a privilege of the old one: the setuid
//! and setgid bits and the file capabilities. This module sets them again, capabilities in the form that is valid only in
//! the sandbox's user namespace. Ids in access control lists are shifted as well. Device nodes are removed: an image must
//! not contain its own.
//!
//! Works by file descriptors, so that no symbolic link in the tree is ever followed. No process may change the tree.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use crate::{DiskError, UID_COUNT};

/// Levels of directories. Each keeps a file descriptor open, of which a process has 1024 by default.
const DEPTH_MAX: usize = 500;

/// The largest value an extended attribute can have.
const XATTR_BYTES_MAX: usize = 65_536;

const CAPABILITY: &CStr = c"security.capability";
const ACCESS_LISTS: [&CStr; 2] = [c"system.posix_acl_access", c"system.posix_acl_default"];

/// What the tree contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShiftReport {
    pub entries: u64,
    pub devices_removed: u64,
    /// Disk space of all files, each counted once.
    pub bytes: u64,
}

/// Shifts the owners of `root` and all below it by `by`.
pub fn shift_owners(root: &Path, by: u32) -> Result<ShiftReport, DiskError> {
    let mut walk =
        Walk { by, device: 0, seen: HashSet::new(), path: root.to_owned(), found: ShiftReport::default() };
    let result = walk.start(root);
    result.map_err(|source| DiskError::Step {
        step: "shift the owner of",
        what: walk.path.display().to_string(),
        source,
    })?;
    Ok(walk.found)
}

struct Walk {
    by: u32,
    /// The tree's file system: mounts in the tree are not part of it.
    device: u64,
    /// Inodes with several names, which must be shifted once.
    seen: HashSet<u64>,
    /// The present position, for error messages.
    path: PathBuf,
    found: ShiftReport,
}

impl Walk {
    fn start(&mut self, root: &Path) -> io::Result<()> {
        let root = rustix::fs::open(root, directory_flags(), Mode::empty())?;
        let found = rustix::fs::fstat(&root)?;
        self.device = found.st_dev;
        self.opened(root.as_fd(), &found)?;
        self.directory(&root, 0)
    }

    /// Shifts the content of a directory; the directory itself is shifted already.
    fn directory(&mut self, directory: &OwnedFd, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        // All names are read first: removals and changes must not disturb the reading.
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            let name = entry?.file_name().to_owned();
            if name.as_c_str() != c"." && name.as_c_str() != c".." {
                names.push(name);
            }
        }
        for name in names {
            self.path.push(name.to_string_lossy().as_ref());
            self.entry(directory, &name, depth)?;
            self.path.pop();
        }
        Ok(())
    }

    fn entry(&mut self, directory: &OwnedFd, name: &CString, depth: usize) -> io::Result<()> {
        let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if found.st_dev != self.device {
            return Err(Errno::XDEV.into());
        }
        match FileType::from_raw_mode(found.st_mode) {
            FileType::CharacterDevice | FileType::BlockDevice => {
                rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
                self.found.devices_removed += 1;
                Ok(())
            }
            FileType::Directory => {
                let inside = rustix::fs::openat(directory, name, directory_flags(), Mode::empty())?;
                self.opened(inside.as_fd(), &found)?;
                self.directory(&inside, depth + 1)
            }
            FileType::RegularFile => {
                if found.st_nlink > 1 && !self.seen.insert(found.st_ino) {
                    return Ok(());
                }
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
                self.opened(file.as_fd(), &found)
            }
            // These have neither the bits nor the attributes that a change of owner clears, or they have no effect.
            FileType::Symlink | FileType::Fifo | FileType::Socket | FileType::Unknown => {
                if found.st_nlink > 1 && !self.seen.insert(found.st_ino) {
                    return Ok(());
                }
                let (uid, gid) = self.shifted(&found)?;
                rustix::fs::chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                self.count(&found);
                Ok(())
            }
        }
    }

    /// Shifts a file or directory with everything that depends on its owner.
    fn opened(&mut self, file: BorrowedFd<'_>, found: &Stat) -> io::Result<()> {
        let (uid, gid) = self.shifted(found)?;
        let attributes = attribute_names(file)?;
        let capability = attribute(file, &attributes, CAPABILITY)?;
        let mut lists = Vec::new();
        for name in ACCESS_LISTS {
            if let Some(value) = attribute(file, &attributes, name)? {
                lists.push((name, value));
            }
        }

        rustix::fs::fchown(file, Some(uid), Some(gid))?;
        let mode = Mode::from_raw_mode(found.st_mode);
        if mode.intersects(Mode::SUID | Mode::SGID) {
            rustix::fs::fchmod(file, mode)?;
        }
        for (name, value) in lists {
            let value = shift_access_list(&value, self.by).ok_or(Errno::INVAL)?;
            rustix::fs::fsetxattr(file, name, &value, XattrFlags::empty())?;
        }
        // Last, since any change of owner or content clears it again.
        if let Some(value) = capability {
            let value = shift_capability(&value, self.by).ok_or(Errno::INVAL)?;
            rustix::fs::fsetxattr(file, CAPABILITY, &value, XattrFlags::empty())?;
        }
        self.count(found);
        Ok(())
    }

    fn shifted(&self, found: &Stat) -> io::Result<(Uid, Gid)> {
        let shift = |id: u32| if id < UID_COUNT { id.checked_add(self.by) } else { None };
        match (shift(found.st_uid), shift(found.st_gid)) {
            (Some(uid), Some(gid)) => Ok((Uid::from_raw(uid), Gid::from_raw(gid))),
            // No such id exists inside: the file would have no owner inside, and no user there could change that.
            (None, _) | (_, None) => Err(Errno::OVERFLOW.into()),
        }
    }

    fn count(&mut self, found: &Stat) {
        self.found.entries += 1;
        self.found.bytes += u64::try_from(found.st_blocks).unwrap_or(0) * 512;
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// The names of a file's extended attributes, each ended by a zero byte. Most files have none.
fn attribute_names(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut small = [0u8; 256];
    match rustix::fs::flistxattr(file, &mut small) {
        Ok(length) => Ok(small[..length].to_vec()),
        Err(Errno::RANGE) => {
            let mut names = vec![0u8; XATTR_BYTES_MAX];
            let length = rustix::fs::flistxattr(file, names.as_mut_slice())?;
            names.truncate(length);
            Ok(names)
        }
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn attribute(file: BorrowedFd<'_>, names: &[u8], name: &CStr) -> io::Result<Option<Vec<u8>>> {
    if !names.split(|byte| *byte == 0).any(|found| found == name.to_bytes()) {
        return Ok(None);
    }
    let mut value = vec![0u8; XATTR_BYTES_MAX];
    let length = rustix::fs::fgetxattr(file, name, value.as_mut_slice())?;
    value.truncate(length);
    Ok(Some(value))
}

/// The value of an attribute of a file after its owners are shifted up by `by`. `None` if the value cannot be
/// expressed there, or if the kernel would not accept it.
pub fn shift_attribute(name: &[u8], value: &[u8], by: u32) -> Option<Vec<u8>> {
    match name {
        name if name == CAPABILITY.to_bytes() => shift_capability(value, by),
        name if ACCESS_LISTS.iter().any(|list| list.to_bytes() == name) => shift_access_list(value, by),
        _ => Some(value.to_vec()),
    }
}

/// The inverse of [`shift_attribute`].
pub fn unshift_attribute(name: &[u8], value: &[u8], by: u32) -> Option<Vec<u8>> {
    match name {
        name if name == CAPABILITY.to_bytes() => unshift_capability(value, by),
        name if ACCESS_LISTS.iter().any(|list| list.to_bytes() == name) => {
            change_access_list(value, |id| id.checked_sub(by))
        }
        _ => Some(value.to_vec()),
    }
}

/// A capability for the namespace whose root is `by` higher, as root in that namespace sees it.
fn unshift_capability(value: &[u8], by: u32) -> Option<Vec<u8>> {
    let (sets, root) = value.split_last_chunk::<4>()?;
    match (u32::from_le_bytes(*root).checked_sub(by)?, sets.first_chunk::<4>().map(|word| word[3])?) {
        (0, 3) if value.len() == 24 => {
            let mut plain = sets.to_vec();
            plain[3] = 2;
            Some(plain)
        }
        (root, 3) if value.len() == 24 => Some([sets, &root.to_le_bytes()].concat()),
        _ => None,
    }
}

/// A file capability, valid for the user namespace whose root is `by` higher. `None` if the value is not a capability.
///
/// Layout: revision and flags, then permitted and inheritable sets in words of 32 bits (one pair in revision 1, two
/// later), then, since revision 3, the uid of the root of its namespace. All little-endian.
fn shift_capability(value: &[u8], by: u32) -> Option<Vec<u8>> {
    const REVISION_MASK: u32 = 0xff00_0000;
    const REVISION_3: u32 = 0x0300_0000;
    let words: Vec<u32> =
        value.chunks(4).map(|word| word.try_into().map(u32::from_le_bytes)).collect::<Result<_, _>>().ok()?;
    let (sets, root) = match (*words.first()? & REVISION_MASK, words.len()) {
        (0x0100_0000, 3) => ([words[1], words[2], 0, 0], 0),
        (0x0200_0000, 5) => ([words[1], words[2], words[3], words[4]], 0),
        (REVISION_3, 6) => ([words[1], words[2], words[3], words[4]], words[5]),
        _ => return None,
    };
    let flags = words[0] & !REVISION_MASK;
    let shifted = [REVISION_3 | flags, sets[0], sets[1], sets[2], sets[3], root.checked_add(by)?];
    Some(shifted.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// An access control list with its users and groups shifted. `None` if the value is not a list.
///
/// Layout: version 2, then entries of tag (16 bits), permissions (16) and id (32), little-endian.
fn shift_access_list(value: &[u8], by: u32) -> Option<Vec<u8>> {
    change_access_list(value, |id| id.checked_add(by))
}

fn change_access_list(value: &[u8], change: impl Fn(u32) -> Option<u32>) -> Option<Vec<u8>> {
    const VERSION: u32 = 2;
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x08;
    let (version, entries) = value.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    let mut shifted = value.to_vec();
    for entry in shifted[4..].chunks_exact_mut(8) {
        let (tag, id) = (u16::from_le_bytes([entry[0], entry[1]]), &mut entry[4..8]);
        if tag == USER || tag == GROUP {
            let old = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
            id.copy_from_slice(&change(old)?.to_le_bytes());
        }
    }
    Some(shifted)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;
    use crate::UID_SHIFT;
    use crate::command::{command, run};

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_capability_of_any_revision_becomes_one_for_the_namespace() {
        let net_raw = 1 << 13;
        let expected = words(&[0x0300_0001, net_raw, 0, 7, 0, 100_000]);
        assert_eq!(shift_capability(&words(&[0x0200_0001, net_raw, 0, 7, 0]), 100_000).unwrap(), expected);
        let shifted_before = words(&[0x0300_0001, net_raw, 0, 7, 0, 5]);
        assert_eq!(
            shift_capability(&shifted_before, 100_000).unwrap(),
            words(&[0x0300_0001, net_raw, 0, 7, 0, 100_005])
        );
        let oldest = words(&[0x0100_0000, net_raw, 3]);
        assert_eq!(
            shift_capability(&oldest, 100_000).unwrap(),
            words(&[0x0300_0000, net_raw, 3, 0, 0, 100_000])
        );
    }

    #[test]
    fn a_shifted_attribute_is_unshifted_to_its_first_value() {
        let list = words(&[2, 0x7_0001, u32::MAX, 0x6_0002, 1000, 0x4_0008, 50]);
        let capability = words(&[0x0200_0001, 1 << 13, 0, 7, 0]);
        for (name, value) in [
            (&b"security.capability"[..], &capability),
            (b"system.posix_acl_access", &list),
            (b"system.posix_acl_default", &list),
            (b"user.note", &b"whatever".to_vec()),
        ] {
            let shifted = shift_attribute(name, value, 100_000).unwrap();
            assert_eq!(shifted == *value, name.starts_with(b"user."));
            assert_eq!(unshift_attribute(name, &shifted, 100_000).as_ref(), Some(value));
        }
        assert_eq!(unshift_attribute(b"security.capability", &capability, 100_000), None);
        assert_eq!(unshift_attribute(b"security.capability", b"", 100_000), None);
        assert_eq!(unshift_attribute(b"system.posix_acl_access", &list, 100_000), None);
    }

    #[test]
    fn values_that_are_not_capabilities_or_lists_are_refused() {
        for value in [&[][..], b"abc", &words(&[0x0200_0001, 1]), &words(&[0x0900_0001, 1, 2, 3, 4])] {
            assert_eq!(shift_capability(value, 1), None, "{value:?}");
        }
        for value in [&[][..], b"ab", &words(&[3, 0, 0]), &words(&[2, 0])] {
            assert_eq!(shift_access_list(value, 1), None, "{value:?}");
        }
    }

    #[test]
    fn only_named_users_and_groups_of_a_list_are_shifted() {
        // user::rwx, user:1000:rw-, group::r--, group:50:r--, mask::rw-, other::---
        let undefined = u32::MAX;
        let list = |user: u32, group: u32| {
            words(&[2, 0x7_0001, undefined, 0x6_0002, user, 0x4_0004, undefined, 0x4_0008, group])
        };
        assert_eq!(shift_access_list(&list(1000, 50), 100_000).unwrap(), list(101_000, 100_050));
    }

    /// A tree with everything that a change of owner breaks.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("folder/deeper")).unwrap();
        fs::write(at("folder/plain"), "text").unwrap();
        fs::write(at("setuid"), "").unwrap();
        fs::set_permissions(at("setuid"), fs::Permissions::from_mode(0o4755)).unwrap();
        fs::write(at("setgid"), "").unwrap();
        std::os::unix::fs::chown(at("setgid"), Some(3), Some(42)).unwrap();
        fs::set_permissions(at("setgid"), fs::Permissions::from_mode(0o2711)).unwrap();
        fs::set_permissions(at("folder/deeper"), fs::Permissions::from_mode(0o3775)).unwrap();
        fs::write(at("capable"), "").unwrap();
        xattr::set(at("capable"), "security.capability", &words(&[0x0200_0001, 1 << 13, 0, 0, 0])).unwrap();
        fs::hard_link(at("folder/plain"), at("folder/second name")).unwrap();
        symlink("/etc/passwd", at("link")).unwrap();
        let list = words(&[
            2,
            0x7_0001,
            u32::MAX,
            0x6_0002,
            1000,
            0x4_0004,
            u32::MAX,
            0x6_0010,
            u32::MAX,
            0x4_0020,
            u32::MAX,
        ]);
        xattr::set(at("folder/plain"), "system.posix_acl_access", &list).unwrap();
        xattr::set(at("folder"), "system.posix_acl_default", &list).unwrap();
        run(command("mknod").arg(at("null")).args(["c", "1", "3"])).unwrap();
        root
    }

    #[test]
    fn owners_bits_capabilities_and_lists_of_a_tree_are_shifted() {
        let passwd = fs::metadata("/etc/passwd").unwrap().uid();
        let root = tree();
        let at = |name: &str| root.path().join(name);
        let found = shift_owners(root.path(), UID_SHIFT).unwrap();
        assert_eq!((found.entries, found.devices_removed), (8, 1));

        let check = |name: &str, uid: u32, gid: u32, mode: u32| {
            let found = fs::symlink_metadata(at(name)).unwrap();
            assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (uid, gid, mode), "{name}");
        };
        check("folder", 100_000, 100_000, 0o755);
        check("setuid", 100_000, 100_000, 0o4755);
        check("setgid", 100_003, 100_042, 0o2711);
        check("folder/deeper", 100_000, 100_000, 0o3775);
        check("folder/second name", 100_000, 100_000, 0o764);
        assert_eq!(fs::symlink_metadata(at("link")).unwrap().uid(), 100_000);
        assert_eq!(fs::metadata("/etc/passwd").unwrap().uid(), passwd, "a link was followed");
        assert!(!at("null").exists());

        let capability = xattr::get(at("capable"), "security.capability").unwrap().unwrap();
        assert_eq!(capability, words(&[0x0300_0001, 1 << 13, 0, 0, 0, 100_000]));
        for (name, list) in [("folder/plain", "access"), ("folder", "default")] {
            let list = xattr::get(at(name), format!("system.posix_acl_{list}")).unwrap().unwrap();
            assert_eq!(u32::from_le_bytes(list[16..20].try_into().unwrap()), 101_000);
        }
    }

    #[test]
    fn an_owner_outside_the_range_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("far"), "").unwrap();
        std::os::unix::fs::chown(root.path().join("far"), Some(70_000), None).unwrap();
        let error = shift_owners(root.path(), UID_SHIFT).unwrap_err().to_string();
        assert!(error.contains("shift the owner of") && error.contains("/far`"), "{error}");
    }
}
