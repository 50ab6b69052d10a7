//! The differences between two read-only disks. The kernel's `send` names the candidates; a comparison of both trees decides.
//! The usual changes are found faster by [`younger`], without the stream.
//!
//! ```text
//!   send(to, parent: from) ─► commands ─► Replay: which names were touched, moved, made, removed
//!                                              └─► candidates, by path ─► look at each in both trees ─► Changes
//! ```
//!
//! The kernel walks only what differs, so the time depends on the number of changes and not on the size of the trees. Its
//! stream is a recipe with temporary names and moves back and forth. It therefore only shows where to search; the two trees
//! decide. A path that exists in both has changed if it is another file now, or if the stream changed it.
//! The content of a moved directory is deleted at the old path and added at the new one, as a walk of both trees would find.
//!
//! Times alone are not a change.
//!
//! With [`Effort::Glance`], the amount of changes is measured first, by the kernel's search for younger blocks, which is
//! far cheaper than its stream. If there are many, only the beginning of the stream is read, and the result says that
//! there are more.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;

use burrow_model::{Change, ChangeKind, Changes, ImageId, SnapshotId};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::stream::{Command, Commands};
use super::{Inner, exclusive, ioctl, younger};
use crate::{ChangedPath, Comparison, DiskError, DiskId, Effort, TimeComparison, Tree, step};

/// How many names are compared. Beyond that, the result contains only those compared: each takes about 200 bytes of RAM.
const CONSIDERED_MAX: usize = 1_000_000;

/// The same for a glance: what the kernel reports within a few tens of milliseconds.
const GLANCE_MAX: usize = 3_000;

/// From this number of created or changed files on, a glance only samples. Fewer are always reported completely.
const MUCH: usize = 1_000;

/// How many names a glance compares when it samples: takes milliseconds.
const SAMPLE_MAX: usize = 200;

/// How many searches a glance makes to count changes, of 64 KiB of the kernel's tree each.
const SEARCHES_MAX: usize = 64;

/// Size of the pipe that the kernel writes to: a larger one means fewer wake-ups on both sides.
const PIPE_BYTES: usize = 1 << 20;

/// The directory in a disk that the sandbox sees as `/`. Files beside it belong to Burrow.
const ROOTFS: &[u8] = b"rootfs";

impl Inner {
    /// See [`crate::Disks::changes`].
    pub(super) fn changes(
        &self,
        from: Option<SnapshotId>,
        to: &SnapshotId,
        image: &ImageId,
        paths_max: usize,
        effort: Effort,
    ) -> Result<Changes, DiskError> {
        let before = from.as_ref().map_or_else(|| image.into(), DiskId::from);
        let after = to.into();
        let (old, new) = (self.open(&before)?, self.open(&after)?);
        let considered_max = match effort {
            Effort::Whole => Ok(CONSIDERED_MAX),
            Effort::Glance => at_a_glance(from.as_ref().map(|_| &old), &new),
        };
        let compared = considered_max.and_then(|max| compare(&old, &new, max, TimeComparison::Ignored));
        // A disk removed during the comparison appeared empty or incomplete; the result is then worthless.
        self.find(&before)?;
        let path = self.find(&after)?;
        let (kinds, followed) = compared.map_err(step("compare with what was before", &path))?;
        let total = kinds.len() as u64;
        let shown = |(path, (kind, _)): (Vec<u8>, (ChangeKind, bool))| Change {
            path: String::from_utf8_lossy(&path).into_owned(),
            kind,
        };
        let paths = kinds.into_iter().take(paths_max).map(shown).collect();
        Ok(Changes { paths, total, more: followed == Completeness::InPart, since: from })
    }
}

impl Inner {
    /// See [`crate::Disks::compare`].
    pub(super) fn compare_trees(
        &self,
        old: &Tree,
        new: &Tree,
        times: TimeComparison,
    ) -> Result<Comparison, DiskError> {
        let (old, new) = (old.into(), new.into());
        let compared = compare(&self.open(&old)?, &self.open(&new)?, CONSIDERED_MAX, times);
        // A tree removed during the comparison appeared empty or incomplete; the result is then worthless.
        self.find(&old)?;
        let path = self.find(&new)?;
        let (kinds, followed) = compared.map_err(step("compare with another", &path))?;
        let told = |(path, (kind, written))| ChangedPath { path, kind, written };
        let paths = kinds.into_iter().map(told).collect();
        Ok(Comparison { paths, more: followed == Completeness::InPart })
    }
}

impl Inner {
    /// See [`crate::Disks::names_of`].
    pub(super) fn names_of(&self, tree: &Tree, path: &[u8]) -> Result<Vec<Vec<u8>>, DiskError> {
        let disk = tree.into();
        let opened = self.open(&disk)?;
        let found = || -> io::Result<Vec<Vec<u8>>> {
            let Some(seen) = look(&opened, &[ROOTFS, path].concat())? else { return Ok(Vec::new()) };
            if seen.directory {
                return Ok(Vec::new());
            }
            Ok(ioctl::paths_of(&opened, seen.inode)?.iter().filter_map(|name| inside(name)).collect())
        };
        found().map_err(step("find the names of a file in", &self.path(&disk)))
    }
}

/// How many names a glance compares.
fn at_a_glance(old: Option<&File>, new: &File) -> io::Result<usize> {
    let mut since = exclusive::base(new);
    // Nothing in a snapshot is younger than the snapshot; an image was filled after it was created.
    if let Some(old) = old {
        since = since.max(ioctl::subvolume_info(old)?.made_in);
    }
    // Without a transaction to count from, only the limit applies.
    let much = since != 0 && is_much(new, since)?;
    Ok(if much { SAMPLE_MAX } else { GLANCE_MAX })
}

/// Whether at least [`MUCH`] files were created or changed after the transaction `since`. Removals are not visible this way.
fn is_much(subvolume: &File, since: u64) -> io::Result<bool> {
    let (mut files, mut names) = (0, 0);
    let mut first = (ioctl::FIRST_FREE_OBJECT_ID, 0, 0);
    for _ in 0..SEARCHES_MAX {
        // Tree 0 is that of the subvolume itself.
        let items = ioctl::items_since(subvolume, 0, first, since.saturating_add(1))?;
        for item in &items {
            let (at, count) = match item.kind {
                ioctl::INODE_ITEM_KEY => (INODE_TRANSID_AT, &mut files),
                ioctl::DIR_INDEX_KEY => (NAME_TRANSID_AT, &mut names),
                _ => continue,
            };
            // A block that was written recently also contains older items.
            let transid = item.data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            if transid.is_some_and(|bytes| u64::from_le_bytes(bytes) > since) {
                *count += 1;
            }
        }
        if files > MUCH || names > MUCH {
            return Ok(true);
        }
        let last = items.last().map(|last| (last.object, last.kind, last.offset));
        let Some(next) = last.and_then(exclusive::after) else { break };
        first = next;
    }
    Ok(false)
}

/// `INODE_ITEM`: the transaction that created it (u64), the transaction that changed it last (u64), and more.
const INODE_TRANSID_AT: usize = 8;
/// `DIR_INDEX`: a key (u64, u8, u64), the transaction that wrote it (u64), and more.
const NAME_TRANSID_AT: usize = 17;

/// How a path differs, and whether it is known to have been written to.
type Kinds = BTreeMap<Vec<u8>, (ChangeKind, bool)>;

/// What differs in the subvolume `new` from the subvolume `old`, by path inside the sandbox.
fn compare(
    old: &File,
    new: &File,
    considered_max: usize,
    times: TimeComparison,
) -> io::Result<(Kinds, Completeness)> {
    let (touched, in_place) = (BTreeMap::new(), BTreeMap::new());
    let mut candidates = Candidates { old, new, touched, in_place, max: considered_max };
    let younger = if times == TimeComparison::Ignored { younger::find(old, new)? } else { None };
    let mut followed = match younger {
        Some(younger) => {
            candidates.in_place = younger.in_place;
            younger.named.into_iter().for_each(|path| candidates.add(path, TouchKind::Named));
            Completeness::ToTheEnd
        }
        None => {
            let (replay, followed) = replay(old, new, considered_max, times)?;
            candidates.collect(&replay)?;
            followed
        }
    };
    if candidates.count() >= considered_max {
        followed = Completeness::InPart;
    }
    let changed = candidates.in_place.iter().map(|(path, written)| (path, (ChangeKind::Changed, *written)));
    let mut kinds: BTreeMap<_, _> =
        changed.filter_map(|(path, told)| inside(path).map(|path| (path, told))).collect();
    for (path, touch) in &candidates.touched {
        let (before, after) = (look(old, path)?, look(new, path)?);
        if let Some(kind) = decide(before, after, *touch)
            && let Some(inside) = inside(path)
        {
            let same = before.zip(after).is_some_and(|(before, after)| before.is(&after));
            kinds.insert(inside, (kind, same && *touch == TouchKind::Written));
        }
    }
    Ok((kinds, followed))
}

/// Makes the kernel write its stream, and reads at most `nodes_max` names of it.
fn replay(
    old: &File,
    new: &File,
    nodes_max: usize,
    times: TimeComparison,
) -> io::Result<(Replay, Completeness)> {
    let parent = ioctl::subvolume_id(old)?;
    let (reader, writer) = std::io::pipe()?;
    // Best effort: a smaller pipe is only slower.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let sent = ioctl::send_without_data(new, parent, &writer);
            drop(writer);
            sent
        });
        let mut replay = Replay::new(times);
        let followed = replay.follow(BufReader::with_capacity(64 << 10, reader), nodes_max);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match followed {
            // The kernel's error is expected: this side stopped reading.
            Ok(Completeness::InPart) => Ok((replay, Completeness::InPart)),
            // The kernel's own error explains more than the early end of its stream.
            Ok(Completeness::ToTheEnd) => sent.map(|()| (replay, Completeness::ToTheEnd)),
            Err(error) => {
                Err(sent.err().filter(|sent| sent.kind() != io::ErrorKind::BrokenPipe).unwrap_or(error))
            }
        }
    })
}

fn decide(old: Option<FileState>, new: Option<FileState>, touch: TouchKind) -> Option<ChangeKind> {
    match (old, new) {
        (None, None) => None,
        (None, Some(_)) => Some(ChangeKind::Added),
        (Some(_), None) => Some(ChangeKind::Deleted),
        (Some(old), Some(new)) => {
            let another = !old.is(&new);
            let changed = match touch {
                TouchKind::Named => false,
                TouchKind::Timed => old.modified != new.modified,
                TouchKind::Resized => old.bytes != new.bytes,
                TouchKind::Changed | TouchKind::Written => true,
            };
            (another || changed).then_some(ChangeKind::Changed)
        }
    }
}

/// A path as the sandbox sees it; `None` if it is outside the sandbox's root.
fn inside(path: &[u8]) -> Option<Vec<u8>> {
    match path.strip_prefix(ROOTFS)? {
        b"" => Some(b"/".to_vec()),
        rest if rest.starts_with(b"/") => Some(rest.to_vec()),
        _ => None,
    }
}

// === the trees ===

/// The identity and the metadata of a file.
#[derive(Clone, Copy, Debug)]
struct FileState {
    inode: u64,
    /// Two branches of one history give the same number to different files, but not in the same nanosecond.
    born: (i64, u32),
    modified: (i64, u32),
    links: u32,
    bytes: u64,
    directory: bool,
}

impl FileState {
    /// Whether both are the same file, at different times.
    fn is(&self, other: &Self) -> bool {
        (self.inode, self.born) == (other.inode, other.born)
    }
}

/// Opens a path of a tree without following any link, so no name in it leads out of the tree.
pub(super) fn open_beneath(tree: &File, path: &[u8], flags: OFlags) -> io::Result<Option<OwnedFd>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let path = if path.is_empty() { b"." } else { path };
    match rustix::fs::openat2(tree, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
    {
        Ok(opened) => Ok(Some(opened)),
        // Missing, or its directory is now something else. A path too long for the kernel counts as missing.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn look(tree: &File, path: &[u8]) -> io::Result<Option<FileState>> {
    let Some(opened) = open_beneath(tree, path, OFlags::PATH)? else { return Ok(None) };
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(&opened, "", AtFlags::EMPTY_PATH, wanted)?;
    Ok(Some(FileState {
        inode: found.stx_ino,
        born: (found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
        modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        links: found.stx_nlink,
        bytes: found.stx_size,
        directory: rustix::fs::FileType::from_raw_mode(found.stx_mode.into())
            == rustix::fs::FileType::Directory,
    }))
}

/// Names that may have changed.
struct Candidates<'a> {
    old: &'a File,
    new: &'a File,
    touched: BTreeMap<Vec<u8>, TouchKind>,
    /// Paths of the same file at the same place that have changed; the value says whether its content was written to. For
    /// these the old tree is not inspected, which would take a read of the disk each.
    in_place: BTreeMap<Vec<u8>, bool>,
    max: usize,
}

impl Candidates<'_> {
    fn collect(&mut self, replay: &Replay) -> io::Result<()> {
        for (node, path) in replay.final_paths() {
            let origin = replay.origin(node);
            let stayed = origin.as_deref() == Some(&*path);
            let node = &replay.nodes[node];
            if node.touch != TouchKind::Named {
                self.touch_all_names(&path, node.touch, stayed && !node.placed)?;
            }
            if node.placed && !stayed {
                self.add(path.clone(), TouchKind::Named);
                // For a created directory, the stream has a command for each entry.
                if origin.is_some() {
                    self.add_beneath(self.new, &path)?;
                }
            }
        }
        let final_paths: HashMap<usize, Vec<u8>> = replay.final_paths().into_iter().collect();
        for node in &replay.vacated {
            let Some(origin) = replay.origin(*node) else { continue };
            if final_paths.get(node) != Some(&origin) {
                self.add(origin.clone(), TouchKind::Named);
                self.add_beneath(self.old, &origin)?;
            }
        }
        Ok(())
    }

    fn count(&self) -> usize {
        self.touched.len() + self.in_place.len()
    }

    fn add(&mut self, path: Vec<u8>, touch: TouchKind) {
        if self.count() < self.max {
            let known = self.touched.entry(path).or_insert(touch);
            *known = touch.max(*known);
        }
    }

    /// Marks all names of a changed file; the kernel reports only one of them.
    fn touch_all_names(&mut self, path: &[u8], touch: TouchKind, in_place: bool) -> io::Result<()> {
        let seen = look(self.new, path)?;
        let only_name = seen.is_some_and(|seen| seen.links == 1 || seen.directory);
        if in_place && only_name && touch >= TouchKind::Changed {
            if self.count() < self.max {
                self.in_place.insert(path.to_vec(), touch == TouchKind::Written);
            }
            return Ok(());
        }
        self.add(path.to_vec(), touch);
        match seen {
            Some(seen) if seen.links > 1 && !seen.directory => {
                for name in ioctl::paths_of(self.new, seen.inode)? {
                    self.add(name, touch);
                }
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    /// Adds everything beneath a directory. Does nothing for other files.
    fn add_beneath(&mut self, tree: &File, top: &[u8]) -> io::Result<()> {
        let mut left = vec![top.to_vec()];
        while let Some(path) = left.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let Some(opened) = open_beneath(tree, &path, flags)? else { continue };
            for entry in rustix::fs::Dir::new(opened)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                if self.count() >= self.max {
                    return Ok(());
                }
                let child = join(&path, name);
                if entry.file_type() == rustix::fs::FileType::Directory {
                    left.push(child.clone());
                }
                self.add(child, TouchKind::Named);
            }
        }
        Ok(())
    }
}

pub(super) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() { name.to_vec() } else { [parent, b"/", name].concat() }
}

// === the stream, followed ===

/// What the stream did to a file, in ascending order of importance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum TouchKind {
    /// At most its name changed.
    #[default]
    Named,
    /// Its times, if its time of last change differs.
    Timed,
    /// Its size, if it differs.
    Resized,
    Changed,
    Written,
}

/// The names in the stream, in a tree that the stream's commands are applied to.
#[derive(Debug)]
struct Replay {
    nodes: Vec<Node>,
    /// Nodes that lost their name: removed, or moved away.
    vacated: Vec<usize>,
    times: TimeComparison,
}

#[derive(Debug, Default)]
struct Node {
    children: HashMap<Box<[u8]>, usize>,
    /// Its original directory and name. `None` if the stream created it.
    origin: Option<(usize, Box<[u8]>)>,
    touch: TouchKind,
    /// Whether the stream put it at its present place.
    placed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completeness {
    ToTheEnd,
    /// There were more names than the limit.
    InPart,
}

const TOP: usize = 0;

impl Replay {
    fn new(times: TimeComparison) -> Self {
        Self { nodes: vec![Node::default()], vacated: Vec::new(), times }
    }

    fn follow(&mut self, stream: impl io::Read, nodes_max: usize) -> io::Result<Completeness> {
        let mut commands = Commands::new(stream)?;
        while let Some(command) = commands.next()? {
            self.apply(command);
            if self.nodes.len() > nodes_max {
                return Ok(Completeness::InPart);
            }
        }
        Ok(Completeness::ToTheEnd)
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Nothing => {}
            Command::Make { path } | Command::Link { path } => {
                let made = self.add(Node { placed: true, ..Node::default() });
                self.put(&path, made);
            }
            Command::Rename { from, to } => {
                if let Some(moved) = self.take(&from) {
                    self.nodes[moved].placed = true;
                    self.put(&to, moved);
                }
            }
            Command::Remove { path } => drop(self.take(&path)),
            Command::Change { path } => self.touch(&path, TouchKind::Changed),
            Command::Write { path } => self.touch(&path, TouchKind::Written),
            Command::Resize { path } => self.touch(&path, TouchKind::Resized),
            Command::Times { path } if self.times == TimeComparison::Count => {
                self.touch(&path, TouchKind::Timed)
            }
            Command::Times { .. } => {}
        }
    }

    fn touch(&mut self, path: &[u8], touch: TouchKind) {
        let node = self.find(path);
        self.nodes[node].touch = self.nodes[node].touch.max(touch);
    }

    /// Removes the node at `path` from its directory; `None` for the root, which stays.
    fn take(&mut self, path: &[u8]) -> Option<usize> {
        let taken = self.find(path);
        let (above, name) = split(path)?;
        let above = self.find(above);
        self.nodes[above].children.remove(name);
        if self.nodes[taken].origin.is_some() {
            self.vacated.push(taken);
        }
        Some(taken)
    }

    fn put(&mut self, path: &[u8], node: usize) {
        if let Some((above, name)) = split(path) {
            let above = self.find(above);
            self.nodes[above].children.insert(name.into(), node);
        }
    }

    /// The node at `path`, according to the present names. A node not encountered before existed from the start.
    fn find(&mut self, path: &[u8]) -> usize {
        let mut at = TOP;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = match self.nodes[at].children.get(name) {
                Some(child) => *child,
                None => {
                    let child = self.add(Node { origin: Some((at, name.into())), ..Node::default() });
                    self.nodes[at].children.insert(name.into(), child);
                    child
                }
            };
        }
        at
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The path of a node before the stream; `None` if it did not exist.
    fn origin(&self, node: usize) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = node;
        while at != TOP {
            let (above, name) = self.nodes[at].origin.as_ref()?;
            names.push(&**name);
            at = *above;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// Every node that exists after the stream, with its path.
    fn final_paths(&self) -> Vec<(usize, Vec<u8>)> {
        let mut found = Vec::new();
        let mut left = vec![(TOP, Vec::new())];
        while let Some((node, path)) = left.pop() {
            left.extend(self.nodes[node].children.iter().map(|(name, child)| (*child, join(&path, name))));
            found.push((node, path));
        }
        found
    }
}

/// The directory and the name of a path.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => Some((&path[..at], &path[at + 1..])),
        None if path.is_empty() => None,
        None => Some((b"", path)),
    }
}
