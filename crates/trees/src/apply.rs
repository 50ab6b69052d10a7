//! Applies a plan to a tree.
//!
//! A file is created under a temporary name beside its destination and moved over the existing one. So a process that has the
//! old file open keeps the old one, and opening the path returns the old or the new file. If no process has the existing file open,
//! it gets its new content in place ([`crate::in_place`]). No link is followed: the directory of a name is opened below the root
//! without links, and the name is resolved in it. Content shares its extents if the file system supports it. The caller must make
//! sure that no other process opens or changes anything in the tree meanwhile, and that the tree is synced afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::plan::{Action, Content};
use crate::{Kind, Node, Root, TreeError, in_place, split, step};

/// The prefix of temporary names. No other program uses it.
const PASSING_PREFIX: &str = ".burrow-merge-";

/// The sources of content.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    pub ours: &'a Root,
    pub theirs: &'a Root,
}

/// Executes a plan step by step; `before` is called before each step, and its failure ends the work there.
pub fn apply(
    live: &Root,
    sources: Sources<'_>,
    actions: &[Action],
    before: &mut dyn FnMut(usize) -> Result<(), TreeError>,
) -> Result<(), TreeError> {
    let mut folders = Folders { live, open: None };
    for (number, action) in actions.iter().enumerate() {
        before(number)?;
        carry_out(&mut folders, sources, action, number).map_err(step("merge", action.path()))?;
    }
    // Creating entries in a directory changes its time, so the times of new directories are set last.
    for action in actions.iter().rev() {
        if let Action::Put { path, node, .. } = action
            && node.is_directory()
            && let Some(made) =
                live.open_at(path, OFlags::PATH | OFlags::DIRECTORY).map_err(step("open", path))?
        {
            set_times(made.as_fd(), b"", node).map_err(step("set the times of", path))?;
        }
    }
    Ok(())
}

/// The steps that make these paths of a tree equal to those of another tree: used to roll back a merge.
pub fn mirror(live: &Root, source: &Root, paths: &BTreeSet<Vec<u8>>) -> Result<Vec<Action>, TreeError> {
    let (mut removals, mut rest) = (Vec::new(), Vec::new());
    let mut firsts: BTreeMap<(u64, (i64, u32)), Vec<u8>> = BTreeMap::new();
    for path in paths {
        let (now, then) = (live.node(path)?, source.node(path)?);
        let directory = now.as_ref().is_some_and(Node::is_directory);
        let in_the_way = now.is_some() && then.as_ref().is_none_or(|then| then.is_directory() != directory);
        if in_the_way {
            removals.push(Action::Remove { path: path.clone(), directory });
        }
        let Some(node) = then else { continue };
        if node.is_directory() && directory {
            rest.push(Action::Attributes { path: path.clone(), node });
            continue;
        }
        let key = node.identity.filter(|identity| identity.links > 1 && node.is_file());
        if let Some(identity) = key {
            match firsts.get(&(identity.inode, identity.born)) {
                Some(first) => {
                    rest.push(Action::Link { path: path.clone(), to: first.clone() });
                    continue;
                }
                None => drop(firsts.insert((identity.inode, identity.born), path.clone())),
            }
        }
        let content = match node.is_file() {
            true => Content::Theirs { path: path.clone() },
            false => Content::None,
        };
        rest.push(Action::Put { path: path.clone(), node, content });
    }
    removals.reverse();
    removals.extend(rest);
    Ok(removals)
}

/// Keeps the last directory open, because actions are sorted by path.
struct Folders<'a> {
    live: &'a Root,
    open: Option<(Vec<u8>, OwnedFd)>,
}

impl Folders<'_> {
    fn get(&mut self, path: &[u8]) -> io::Result<BorrowedFd<'_>> {
        if self.open.as_ref().is_none_or(|(known, _)| known != path) {
            let opened = self.live.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
            self.open = Some((path.to_vec(), opened.ok_or(io::ErrorKind::NotFound)?));
        }
        self.open.as_ref().map(|(_, folder)| folder.as_fd()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn carry_out(
    folders: &mut Folders<'_>,
    sources: Sources<'_>,
    action: &Action,
    number: usize,
) -> io::Result<()> {
    let root = (&b"/"[..], &b"."[..]);
    let (above, name) = split(action.path()).unwrap_or(root);
    match action {
        Action::Remove { directory, .. } => {
            let folder = match folders.get(above) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                folder => folder?,
            };
            let flags = if *directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            match rustix::fs::unlinkat(folder, name, flags) {
                Ok(()) | Err(Errno::NOENT) => {
                    // Another entry may replace it.
                    folders.open = None;
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        }
        Action::Put { node, content, .. } => {
            let folder = folders.get(above)?;
            put(folder, name, node, content, sources, &passing_name(number))
        }
        Action::Attributes { path, node } => {
            let Some(opened) = folders.live.open_at(path, OFlags::PATH)? else {
                return Err(io::ErrorKind::NotFound.into());
            };
            set_attributes(&opened, node, FileAge::Old)
        }
        Action::Link { to, .. } => {
            let Some(first) = folders.live.open_at(to, OFlags::PATH)? else {
                return Err(io::ErrorKind::NotFound.into());
            };
            let folder = folders.get(above)?;
            let passing = passing_name(number);
            // By descriptor, so that no name is resolved again.
            rustix::fs::linkat(&first, "", folder, &*passing, AtFlags::EMPTY_PATH)?;
            Ok(rustix::fs::renameat(folder, &*passing, folder, name)?)
        }
    }
}

fn passing_name(number: usize) -> String {
    format!("{PASSING_PREFIX}{number}")
}

fn put(
    folder: BorrowedFd<'_>,
    name: &[u8],
    node: &Node,
    content: &Content,
    sources: Sources<'_>,
    passing: &str,
) -> io::Result<()> {
    if node.is_directory() {
        match rustix::fs::mkdirat(folder, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(folder, name, flags, Mode::empty())?;
        return set_attributes(&made, node, FileAge::New);
    }
    if let Some(source) = source_of(content, sources)?
        && in_place::renew(folder, name, node, &source)?
    {
        return Ok(());
    }
    make(folder, node, content, sources, passing)?;
    let placed = rustix::fs::renameat(folder, passing, folder, name);
    if placed.is_err() {
        let _ = rustix::fs::unlinkat(folder, passing, AtFlags::empty());
    }
    Ok(placed?)
}

/// Creates anything but a directory under its temporary name.
fn make(
    folder: BorrowedFd<'_>,
    node: &Node,
    content: &Content,
    sources: Sources<'_>,
    passing: &str,
) -> io::Result<()> {
    let special = |kind: FileType| rustix::fs::mknodat(folder, passing, kind, Mode::empty(), 0);
    match &node.kind {
        Kind::File { .. } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut made = File::from(rustix::fs::openat(folder, passing, flags, Mode::RUSR | Mode::WUSR)?);
            fill(&mut made, content, sources)?;
            let made = OwnedFd::from(made);
            set_attributes(&made, node, FileAge::New)?;
            return set_times(made.as_fd(), b"", node);
        }
        Kind::Link { target } => rustix::fs::symlinkat(&**target, folder, passing)?,
        Kind::Pipe => special(FileType::Fifo)?,
        Kind::Socket => special(FileType::Socket)?,
        // The whiteout device of overlay file systems, which any user may create.
        Kind::Character { device: (0, 0) } => special(FileType::CharacterDevice)?,
        // No sandbox can create these, so no sandbox did.
        Kind::Directory | Kind::Block { .. } | Kind::Character { .. } => {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(folder, passing, flags, Mode::empty())?;
    set_attributes(&made, node, FileAge::New)?;
    set_times(folder, passing.as_bytes(), node)
}

fn fill(made: &mut File, content: &Content, sources: Sources<'_>) -> io::Result<()> {
    if let Content::Merged { content } = content {
        return made.write_all(content);
    }
    let Some(source) = source_of(content, sources)? else { return Ok(()) };
    match rustix::fs::ioctl_ficlone(&*made, &source) {
        Ok(()) => Ok(()),
        // File systems without support, and ranges that are too small or not aligned.
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS) => {
            copy(source, made)
        }
        Err(error) => Err(error.into()),
    }
}

/// Copies the written parts of a file; holes stay holes.
fn copy(mut source: File, made: &mut File) -> io::Result<()> {
    let length = source.metadata()?.len();
    made.set_len(length)?;
    let mut at = 0;
    while at < length {
        match rustix::fs::seek(&source, SeekFrom::Data(at)) {
            Ok(data) => at = data,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        }
        let hole = rustix::fs::seek(&source, SeekFrom::Hole(at))?.min(length);
        rustix::fs::seek(&source, SeekFrom::Start(at))?;
        rustix::fs::seek(&*made, SeekFrom::Start(at))?;
        let copied = io::copy(&mut (&mut source).take(hole - at), made)?;
        if copied == 0 {
            break;
        }
        at += copied;
    }
    Ok(())
}

/// The file that has the content; `None` if the content is not in a file.
fn source_of(content: &Content, sources: Sources<'_>) -> io::Result<Option<File>> {
    let (root, path) = match content {
        Content::None | Content::Merged { .. } => return Ok(None),
        Content::Ours { path } => (sources.ours, path),
        Content::Theirs { path } => (sources.theirs, path),
    };
    let source = root.file(path).map_err(io::Error::other)?;
    source.map(Some).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Whether the existing file may have attributes that must be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileAge {
    New,
    Old,
}

pub(crate) fn set_attributes(opened: &OwnedFd, node: &Node, known: FileAge) -> io::Result<()> {
    let owner = (Some(Uid::from_raw(node.uid)), Some(Gid::from_raw(node.gid)));
    rustix::fs::chownat(opened, "", owner.0, owner.1, AtFlags::EMPTY_PATH)?;
    // A file that was opened with `O_PATH` is changed through this name, which leads to nothing else.
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    if !matches!(node.kind, Kind::Link { .. }) {
        // After the owner, because changing the owner clears bits.
        rustix::fs::chmod(&*path, Mode::from_raw_mode(node.mode))?;
    }
    if known == FileAge::Old {
        let mut names = vec![0; 64 << 10];
        let length = match rustix::fs::listxattr(&*path, &mut *names) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => 0,
            Err(error) => return Err(error.into()),
        };
        for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            if crate::root::is_carried(name) && !node.attributes.contains_key(name) {
                rustix::fs::removexattr(&*path, name)?;
            }
        }
    }
    for (name, value) in &node.attributes {
        rustix::fs::setxattr(&*path, &**name, value, XattrFlags::empty())?;
    }
    Ok(())
}

pub(crate) fn set_times(folder: BorrowedFd<'_>, name: &[u8], node: &Node) -> io::Result<()> {
    let modified = Timespec { tv_sec: node.modified.0, tv_nsec: node.modified.1.into() };
    let times = Timestamps { last_access: modified, last_modification: modified };
    let flags = if name.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::SYMLINK_NOFOLLOW };
    Ok(rustix::fs::utimensat(folder, name, &times, flags)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn fine(_: usize) -> Result<(), TreeError> {
        Ok(())
    }

    #[test]
    fn a_tree_is_mirrored_with_all_metadata() {
        let (live, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| source.path().join(name);
        fs::create_dir_all(at("d/e")).unwrap();
        fs::write(at("d/e/f"), "content").unwrap();
        fs::set_permissions(at("d/e/f"), fs::Permissions::from_mode(0o4751)).unwrap();
        fs::hard_link(at("d/e/f"), at("also")).unwrap();
        symlink("/nowhere", at("link")).unwrap();
        xattr::set(at("d"), "user.note", b"x").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        // The destination has other kinds, more attributes, and other names.
        fs::create_dir_all(live.path().join("also/inside")).unwrap();
        fs::write(live.path().join("d"), "a file").unwrap();
        fs::write(live.path().join("extra"), "x").unwrap();
        let (to, from) = (Root::open(live.path()).unwrap(), Root::open(source.path()).unwrap());
        let paths: BTreeSet<_> = to.walk(99).unwrap().into_iter().chain(from.walk(99).unwrap()).collect();
        let actions = mirror(&to, &from, &paths).unwrap();
        apply(&to, Sources { ours: &from, theirs: &from }, &actions, &mut fine).unwrap();
        assert_eq!(crate::diff::compare(&from, &to, &paths).unwrap(), []);
        let (file, also) = (fs::metadata(live.path().join("d/e/f")), fs::metadata(live.path().join("also")));
        assert_eq!(file.as_ref().unwrap().ino(), also.unwrap().ino(), "two names of one file");
        assert_eq!(file.unwrap().mtime(), fs::metadata(at("d/e/f")).unwrap().mtime());
        assert_eq!(
            fs::metadata(live.path().join("d")).unwrap().mtime(),
            fs::metadata(at("d")).unwrap().mtime()
        );
        // A second run changes nothing.
        let again = mirror(&to, &from, &paths).unwrap();
        apply(&to, Sources { ours: &from, theirs: &from }, &again, &mut fine).unwrap();
        assert_eq!(crate::diff::compare(&from, &to, &paths).unwrap(), []);
    }

    #[test]
    fn nothing_is_written_through_a_link_that_appears_in_the_way() {
        let (live, source, host) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(source.path().join("d")).unwrap();
        fs::write(source.path().join("d/f"), "theirs").unwrap();
        symlink(host.path(), live.path().join("d")).unwrap();
        let (to, from) = (Root::open(live.path()).unwrap(), Root::open(source.path()).unwrap());
        let node = from.node(b"/d/f").unwrap().unwrap();
        let content = Content::Theirs { path: b"/d/f".to_vec() };
        let action = Action::Put { path: b"/d/f".to_vec(), node, content };
        let sources = Sources { ours: &from, theirs: &from };
        assert!(apply(&to, sources, std::slice::from_ref(&action), &mut fine).is_err());
        // The name itself is a link to a file of the host: it is replaced, not followed.
        fs::remove_file(live.path().join("d")).unwrap();
        fs::create_dir(live.path().join("d")).unwrap();
        fs::write(host.path().join("f"), "the host's").unwrap();
        symlink(host.path().join("f"), live.path().join("d/f")).unwrap();
        apply(&to, sources, &[action], &mut fine).unwrap();
        assert_eq!(fs::read_to_string(live.path().join("d/f")).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(host.path().join("f")).unwrap(), "the host's");
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 1);
    }

    #[test]
    fn devices_are_never_made() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::open(tree.path()).unwrap();
        let mut node = root.node(b"/").unwrap().unwrap();
        node.kind = Kind::Block { device: (8, 0) };
        let action = Action::Put { path: b"/disk".to_vec(), node, content: Content::None };
        assert!(apply(&root, Sources { ours: &root, theirs: &root }, &[action], &mut fine).is_err());
        assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 0);
    }
}
