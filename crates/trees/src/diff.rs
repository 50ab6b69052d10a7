//! The differences between two trees, at given paths.

use std::collections::BTreeSet;

use crate::root::same_content;
use crate::{Node, Root, TreeError, step};

/// One path at which two trees differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub path: Vec<u8>,
    /// `None`: it did not exist.
    pub old: Option<Node>,
    /// `None`: it no longer exists.
    pub new: Option<Node>,
    pub what: DifferenceKinds,
}

/// The kinds of differences; all false if it exists on one side only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DifferenceKinds {
    /// The kind of file, for example a file instead of a directory.
    pub kind: bool,
    /// A file's bytes.
    pub content: bool,
    /// A link's target, or a device's number.
    pub target: bool,
    pub mode: bool,
    pub owner: bool,
    pub attributes: bool,
}

impl DifferenceKinds {
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// The differences at these paths, in order.
pub fn compare(old: &Root, new: &Root, paths: &BTreeSet<Vec<u8>>) -> Result<Vec<Difference>, TreeError> {
    let mut found = Vec::new();
    for path in paths {
        let (before, after) = (old.node(path)?, new.node(path)?);
        let what = match (&before, &after) {
            (None, None) => continue,
            (Some(before), Some(after)) => {
                let what = differs((old, before), (new, after), path)?;
                if what.is_nothing() {
                    continue;
                }
                what
            }
            (None, Some(_)) | (Some(_), None) => DifferenceKinds::default(),
        };
        found.push(Difference { path: path.clone(), old: before, new: after, what });
    }
    Ok(found)
}

fn differs(old: (&Root, &Node), new: (&Root, &Node), path: &[u8]) -> Result<DifferenceKinds, TreeError> {
    let (before, after) = (old.1, new.1);
    let same_kind = std::mem::discriminant(&before.kind) == std::mem::discriminant(&after.kind);
    let content = match (before.is_file() && after.is_file(), before.bytes() == after.bytes()) {
        (false, _) => false,
        (true, false) => true,
        (true, true) => !is_same_content(old.0, new.0, path, path)?,
    };
    Ok(DifferenceKinds {
        kind: !same_kind,
        content,
        target: same_kind && !before.is_file() && before.kind != after.kind,
        mode: before.mode != after.mode,
        owner: (before.uid, before.gid) != (after.uid, after.gid),
        attributes: before.attributes != after.attributes,
    })
}

/// Whether two regular files have the same content; other kinds have none.
pub(crate) fn is_same_content(
    old: &Root,
    new: &Root,
    path: &[u8],
    new_path: &[u8],
) -> Result<bool, TreeError> {
    match (old.file(path)?, new.file(new_path)?) {
        (Some(mut old), Some(mut new)) => same_content(&mut old, &mut new).map_err(step("read", path)),
        (old, new) => Ok(old.is_none() && new.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn each_kind_of_difference_is_reported() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for tree in [&old, &new] {
            for file in ["same", "content", "mode", "note", "kind"] {
                fs::write(tree.path().join(file), "12345").unwrap();
            }
        }
        fs::write(old.path().join("gone"), "x").unwrap();
        fs::write(new.path().join("added"), "x").unwrap();
        fs::write(new.path().join("content"), "12x45").unwrap();
        fs::set_permissions(new.path().join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        xattr::set(new.path().join("note"), "user.note", b"x").unwrap();
        fs::remove_file(new.path().join("kind")).unwrap();
        fs::create_dir(new.path().join("kind")).unwrap();
        symlink("a", old.path().join("link")).unwrap();
        symlink("b", new.path().join("link")).unwrap();
        let (old, new) = (Root::open(old.path()).unwrap(), Root::open(new.path()).unwrap());
        let paths: BTreeSet<_> = old.walk(99).unwrap().into_iter().chain(new.walk(99).unwrap()).collect();
        let found = compare(&old, &new, &paths).unwrap();
        let shown: Vec<String> = found
            .iter()
            .map(|difference| {
                let DifferenceKinds { kind, content, target, mode, owner, attributes } = difference.what;
                let flags = [(kind, 'k'), (content, 'c'), (target, 't'), (owner, 'o'), (attributes, 'x')];
                let mut shown: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
                // A directory has another mode than the file that it replaced.
                if mode && !kind {
                    shown.push('m');
                }
                let sign = match (&difference.old, &difference.new) {
                    (None, _) => "+",
                    (_, None) => "-",
                    _ => "",
                };
                format!("{sign}{} {shown}", String::from_utf8_lossy(&difference.path))
            })
            .collect();
        assert_eq!(shown, ["+/added ", "/content c", "-/gone ", "/kind k", "/link t", "/mode m", "/note x"]);
    }
}
