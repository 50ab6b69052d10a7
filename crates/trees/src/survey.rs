//! Finds the names at which two trees differ by walking both, for trees that no pool can compare.
//!
//! If both trees are copies of one disk, a file that has the same inode number, size and times of
//! change in both was not changed since they were copied, and is not read. Everything else is compared completely. Devices are
//! skipped, since they are never copied; so are the files that `mkfs` creates.
//!
//! If a file with several names differs at one, all of its names on either side are reported: a consumer
//! must see that it is one file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};

use crate::root::join;
use crate::{Node, Root, TreeError, diff, step};

/// Exists in the root of every ext4 file system.
const LOST: &[u8] = b"/lost+found";

/// The limits of a survey.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub names_max: usize,
    /// Bytes of all names together.
    pub bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange {
    Added,
    Changed,
    Deleted,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub found: BTreeMap<Vec<u8>, NameChange>,
    /// There are more names than the limits allow.
    pub more: bool,
}

/// All names except the root at which `new` differs from `old`, in anything but times.
pub fn survey(old: &Root, new: &Root, bounds: Bounds) -> Result<Survey, TreeError> {
    let id = |root: &Root| rustix::fs::fstatvfs(&root.fd).map(|found| found.f_fsid);
    let related = match (id(old), id(new)) {
        (Ok(old), Ok(new)) => old == new,
        _ => false,
    };
    let sides = [Side::new(old), Side::new(new)];
    let mut walk = Walk { sides, related, bounds, bytes: 0, survey: Survey::default() };
    walk.run()?;
    walk.name_all();
    Ok(walk.survey)
}

/// Every name of a tree except the root, as if the other tree were empty.
pub fn whole(root: &Root, bounds: Bounds) -> Result<Survey, TreeError> {
    let sides = [Side::new(root), Side::new(root)];
    let mut walk = Walk { sides, related: true, bounds, bytes: 0, survey: Survey::default() };
    walk.alone(1, b"/")?;
    Ok(walk.survey)
}

struct Walk<'a> {
    sides: [Side<'a>; 2],
    /// Both are copies of one file system.
    related: bool,
    bounds: Bounds,
    bytes: usize,
    survey: Survey,
}

struct Side<'a> {
    root: &'a Root,
    /// The names of files with several names, by inode number.
    names: HashMap<u64, Vec<Vec<u8>>>,
    /// Those files that differ.
    touched: HashSet<u64>,
}

/// The metadata of a name that a walk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NameMetadata {
    kind: FileType,
    inode: u64,
    links: u32,
    mode: u16,
    owner: (u32, u32),
    bytes: u64,
    changed: (i64, u32),
    modified: (i64, u32),
}

impl<'a> Side<'a> {
    fn new(root: &'a Root) -> Self {
        Self { root, names: HashMap::new(), touched: HashSet::new() }
    }

    /// The content of a directory, without devices.
    fn list(&self, folder: &[u8]) -> Result<BTreeMap<Vec<u8>, NameMetadata>, TreeError> {
        let mut found = BTreeMap::new();
        let opened = self.root.open_at(folder, OFlags::RDONLY | OFlags::DIRECTORY);
        let Some(opened) = opened.map_err(step("list", folder))? else { return Ok(found) };
        for entry in rustix::fs::Dir::read_from(&opened).map_err(step("list", folder))? {
            let entry = entry.map_err(step("list", folder))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || (folder == b"/" && join(folder, name) == LOST) {
                continue;
            }
            let glance = glance(&opened, name).map_err(step("read the metadata of", &join(folder, name)))?;
            if !matches!(glance.kind, FileType::BlockDevice | FileType::CharacterDevice | FileType::Unknown) {
                found.insert(name.to_vec(), glance);
            }
        }
        Ok(found)
    }

    fn note(&mut self, path: &[u8], glance: &NameMetadata) {
        if glance.links > 1 && glance.kind != FileType::Directory {
            self.names.entry(glance.inode).or_default().push(path.to_vec());
        }
    }

    fn touch(&mut self, glance: &NameMetadata) {
        if glance.links > 1 && glance.kind != FileType::Directory {
            self.touched.insert(glance.inode);
        }
    }
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), TreeError> {
        let mut left = vec![b"/".to_vec()];
        while let Some(folder) = left.pop() {
            let [old, new] = [self.sides[0].list(&folder)?, self.sides[1].list(&folder)?];
            let names: BTreeSet<&Vec<u8>> = old.keys().chain(new.keys()).collect();
            for name in names {
                let path = join(&folder, name);
                match (old.get(name), new.get(name)) {
                    (Some(before), Some(after)) => {
                        self.sides[0].note(&path, before);
                        self.sides[1].note(&path, after);
                        if self.both(&path, before, after)? {
                            left.push(path);
                        }
                    }
                    (Some(before), None) => self.one(0, &path, before)?,
                    (None, Some(after)) => self.one(1, &path, after)?,
                    (None, None) => {}
                }
                if self.survey.more {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A name on both sides; returns whether both are directories.
    fn both(&mut self, path: &[u8], before: &NameMetadata, after: &NameMetadata) -> Result<bool, TreeError> {
        let folders = (before.kind == FileType::Directory, after.kind == FileType::Directory);
        if self.related && before == after {
            return Ok(folders.0);
        }
        let differs = match folders {
            (true, true) => {
                let node =
                    |side: usize| -> Result<Option<Node>, TreeError> { self.sides[side].root.node(path) };
                match (node(0)?, node(1)?) {
                    (Some(before), Some(after)) => !before.has_same_attributes(&after),
                    (before, after) => before.is_some() != after.is_some(),
                }
            }
            (true, false) | (false, true) => true,
            (false, false) => {
                let one = BTreeSet::from([path.to_vec()]);
                !diff::compare(self.sides[0].root, self.sides[1].root, &one)?.is_empty()
            }
        };
        if differs {
            self.sides[0].touch(before);
            self.sides[1].touch(after);
            self.add(path, NameChange::Changed);
        }
        match folders {
            (true, false) => self.alone(0, path)?,
            (false, true) => self.alone(1, path)?,
            (true, true) | (false, false) => {}
        }
        Ok(folders == (true, true))
    }

    /// A name on one side only, with everything below it.
    fn one(&mut self, side: usize, path: &[u8], glance: &NameMetadata) -> Result<(), TreeError> {
        self.sides[side].note(path, glance);
        self.sides[side].touch(glance);
        self.add(path, if side == 0 { NameChange::Deleted } else { NameChange::Added });
        match glance.kind == FileType::Directory {
            true => self.alone(side, path),
            false => Ok(()),
        }
    }

    /// The content of a directory that the other side does not have.
    fn alone(&mut self, side: usize, folder: &[u8]) -> Result<(), TreeError> {
        let mut left = vec![folder.to_vec()];
        while let Some(folder) = left.pop() {
            for (name, glance) in self.sides[side].list(&folder)? {
                let path = join(&folder, &name);
                self.sides[side].note(&path, &glance);
                self.sides[side].touch(&glance);
                self.add(&path, if side == 0 { NameChange::Deleted } else { NameChange::Added });
                if self.survey.more {
                    return Ok(());
                }
                if glance.kind == FileType::Directory {
                    left.push(path);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &[u8], became: NameChange) {
        self.bytes += path.len();
        if self.survey.found.len() >= self.bounds.names_max || self.bytes > self.bounds.bytes_max {
            self.survey.more = true;
            return;
        }
        self.survey.found.insert(path.to_vec(), became);
    }

    /// Adds the other names of files that differ.
    fn name_all(&mut self) {
        for side in 0..self.sides.len() {
            let side = &mut self.sides[side];
            let (names, touched) = (std::mem::take(&mut side.names), std::mem::take(&mut side.touched));
            for path in touched.iter().filter_map(|inode| names.get(inode)).flatten() {
                if !self.survey.found.contains_key(path) {
                    self.add(path, NameChange::Changed);
                }
            }
        }
    }
}

fn glance(folder: impl AsFd, name: &[u8]) -> rustix::io::Result<NameMetadata> {
    let wanted = StatxFlags::BASIC_STATS;
    let found = rustix::fs::statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
    Ok(NameMetadata {
        kind: FileType::from_raw_mode(found.stx_mode.into()),
        inode: found.stx_ino,
        links: found.stx_nlink,
        mode: found.stx_mode,
        owner: (found.stx_uid, found.stx_gid),
        bytes: found.stx_size,
        changed: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
        modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const BOUNDS: Bounds = Bounds { names_max: 1000, bytes_max: 1 << 20 };

    fn lines(survey: &Survey) -> Vec<String> {
        let one = |(path, became): (&Vec<u8>, &NameChange)| {
            let sign = match became {
                NameChange::Added => '+',
                NameChange::Changed => '~',
                NameChange::Deleted => '-',
            };
            format!("{sign}{}", String::from_utf8_lossy(path))
        };
        survey.found.iter().map(one).collect()
    }

    #[test]
    fn exactly_the_differences_are_reported() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for tree in [old.path(), new.path()] {
            fs::create_dir(tree.join("same")).unwrap();
            fs::write(tree.join("same/file"), "12345").unwrap();
            fs::write(tree.join("content"), "12345").unwrap();
            fs::write(tree.join("mode"), "12345").unwrap();
            fs::create_dir(tree.join("lost+found")).unwrap();
            fs::create_dir(tree.join("folder")).unwrap();
        }
        fs::write(new.path().join("content"), "12x45").unwrap();
        fs::set_permissions(new.path().join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(new.path().join("folder"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(new.path().join("lost+found/x"), "").unwrap();
        fs::create_dir_all(old.path().join("gone/deep")).unwrap();
        fs::write(old.path().join("gone/deep/file"), "").unwrap();
        fs::create_dir(new.path().join("kind")).unwrap();
        fs::write(new.path().join("kind/inside"), "").unwrap();
        fs::write(old.path().join("kind"), "").unwrap();
        symlink("a", old.path().join("link")).unwrap();
        symlink("b", new.path().join("link")).unwrap();
        let (old, new) = (Root::open(old.path()).unwrap(), Root::open(new.path()).unwrap());
        let found = survey(&old, &new, BOUNDS).unwrap();
        assert_eq!(
            lines(&found),
            [
                "~/content",
                "~/folder",
                "-/gone",
                "-/gone/deep",
                "-/gone/deep/file",
                "~/kind",
                "+/kind/inside",
                "~/link",
                "~/mode"
            ]
        );
        assert_eq!(lines(&survey(&old, &old, BOUNDS).unwrap()), [""; 0]);
        assert!(survey(&old, &new, Bounds { names_max: 3, ..BOUNDS }).unwrap().more);
        assert!(survey(&old, &new, Bounds { bytes_max: 20, ..BOUNDS }).unwrap().more);
        assert_eq!(whole(&new, BOUNDS).unwrap().found.len(), 8);
    }

    #[test]
    fn a_file_with_a_new_hard_link_is_reported_at_all_names() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for tree in [old.path(), new.path()] {
            fs::write(tree.join("first"), "12345").unwrap();
        }
        fs::hard_link(new.path().join("first"), new.path().join("second")).unwrap();
        let (old, new) = (Root::open(old.path()).unwrap(), Root::open(new.path()).unwrap());
        assert_eq!(lines(&survey(&old, &new, BOUNDS).unwrap()), ["~/first", "+/second"]);
    }
}
