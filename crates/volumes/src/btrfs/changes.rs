//! What changed between two read-only volumes: names from the kernel's `send`, decided by a look at both. What is usual is told
//! faster, by [`younger`], and the stream is not asked.
//!
//! ```text
//!   send(to, parent: from) ─► commands ─► Replay: which names were touched, moved, made, removed
//!                                              └─► candidates, by path ─► look at each in both trees ─► Changes
//! ```
//!
//! The kernel walks only what differs, so this takes as long as there are changes, however large the trees are. Its stream
//! is a recipe, with names that exist only for a while and moves back and forth; so it says where to look, and the two
//! trees say what is so. A path that both have is changed if another file is there now, or if the stream changed it.
//! What is in a directory that has moved is deleted there and added here, as a walk of both trees would find it.
//!
//! Times alone are no change.
//!
//! At a [`Effort::Glance`], what was written since is counted first, by the kernel's search for younger blocks, which is
//! far cheaper than its stream: where it is much, only the beginning of the stream is followed, and the answer says that
//! there is more.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;

use burrow_model::{Change, ChangeKind, Changes, ImageId, SnapshotId};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::stream::{Command, Commands};
use super::{Inner, exclusive, ioctl, younger};
use crate::{ChangedPath, Comparison, Effort, Times, Tree, VolumeError, step};

/// How many names are looked at. Beyond, the answer holds what was seen so far: each is about 200 bytes of RAM.
const CONSIDERED_MAX: usize = 1_000_000;

/// The same at a glance: what the kernel tells within a few tens of milliseconds.
const GLANCE_MAX: usize = 3_000;

/// Files made or changed that are much. Fewer are always all told, whatever the effort.
const MUCH: usize = 1_000;

/// How many names are looked at where there is much: a sample, found within milliseconds.
const SAMPLE_MAX: usize = 200;

/// How often the kernel is asked whether there is much, at 64 KiB of its tree each.
const SEARCHES_MAX: usize = 64;

/// Room in the pipe the kernel writes to: fewer wake-ups on both sides.
const PIPE_BYTES: usize = 1 << 20;

/// The directory in a volume that the sandbox sees as `/`. What is beside it is ours.
const ROOTFS: &[u8] = b"rootfs";

impl Inner {
    /// See [`crate::Volumes::changes`].
    pub(super) fn changes(
        &self,
        from: Option<SnapshotId>,
        to: &SnapshotId,
        image: &ImageId,
        paths_max: usize,
        effort: Effort,
    ) -> Result<Changes, VolumeError> {
        let old = match &from {
            Some(from) => self.open_snapshot(from)?,
            None => self.open_image(image)?,
        };
        let new = self.open_snapshot(to)?;
        let path = self.snapshots.path.join(to.as_str());
        let considered_max = match effort {
            Effort::Whole => Ok(CONSIDERED_MAX),
            Effort::Glance => at_a_glance(from.as_ref().map(|_| &old), &new),
        };
        let compared = considered_max.and_then(|max| compare(&old, &new, max, Times::Ignored));
        // One removed meanwhile was found empty, or in part; then nothing is known.
        match &from {
            Some(from) => drop(self.open_snapshot(from)?),
            None => drop(self.open_image(image)?),
        }
        self.open_snapshot(to)?;
        let (kinds, followed) = compared.map_err(step("compare with what was before", &path))?;
        let total = kinds.len() as u64;
        let shown = |(path, (kind, _)): (Vec<u8>, (ChangeKind, bool))| Change {
            path: String::from_utf8_lossy(&path).into_owned(),
            kind,
        };
        let paths = kinds.into_iter().take(paths_max).map(shown).collect();
        Ok(Changes { paths, total, more: followed == Followed::InPart, since: from })
    }
}

impl Inner {
    /// See [`crate::Volumes::compare`].
    pub(super) fn compare_trees(
        &self,
        old: &Tree,
        new: &Tree,
        times: Times,
    ) -> Result<Comparison, VolumeError> {
        let compared = compare(&self.open_tree(old)?, &self.open_tree(new)?, CONSIDERED_MAX, times);
        // One removed meanwhile was found empty, or in part; then nothing is known.
        for tree in [old, new] {
            self.open_tree(tree)?;
        }
        let (kinds, followed) = compared.map_err(step("compare with another", &self.tree_path(new)))?;
        let told = |(path, (kind, written))| ChangedPath { path, kind, written };
        let paths = kinds.into_iter().map(told).collect();
        Ok(Comparison { paths, more: followed == Followed::InPart })
    }
}

impl Inner {
    /// See [`crate::Volumes::names_of`].
    pub(super) fn names_of(&self, tree: &Tree, path: &[u8]) -> Result<Vec<Vec<u8>>, VolumeError> {
        let opened = self.open_tree(tree)?;
        let found = || -> io::Result<Vec<Vec<u8>>> {
            let Some(seen) = look(&opened, &[ROOTFS, path].concat())? else { return Ok(Vec::new()) };
            if seen.directory {
                return Ok(Vec::new());
            }
            Ok(ioctl::paths_of(&opened, seen.inode)?.iter().filter_map(|name| inside(name)).collect())
        };
        found().map_err(step("find the names of a file in", &self.tree_path(tree)))
    }
}

/// How many names a glance looks at.
fn at_a_glance(old: Option<&File>, new: &File) -> io::Result<usize> {
    let mut since = exclusive::base(new);
    // A snapshot has nothing that is younger than itself; an image was filled after it was made.
    if let Some(old) = old {
        since = since.max(ioctl::subvolume_info(old)?.made_in);
    }
    // Without a time to count from, the bound alone has to do.
    let much = since != 0 && is_much(new, since)?;
    Ok(if much { SAMPLE_MAX } else { GLANCE_MAX })
}

/// Whether [`MUCH`] was made or changed after the transaction `since`. What was removed does not show.
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
            // A block that was written lately has older items in it too.
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

/// `INODE_ITEM`: the transaction that made it (u64), that which changed it last (u64), and more.
const INODE_TRANSID_AT: usize = 8;
/// `DIR_INDEX`: a key (u64, u8, u64), the transaction that wrote it (u64), and more.
const NAME_TRANSID_AT: usize = 17;

/// How a path differs, and whether it is known to have been written to.
type Kinds = BTreeMap<Vec<u8>, (ChangeKind, bool)>;

/// What differs in the subvolume `new` from the subvolume `old`, by path inside the sandbox.
fn compare(old: &File, new: &File, considered_max: usize, times: Times) -> io::Result<(Kinds, Followed)> {
    let (touched, in_place) = (BTreeMap::new(), BTreeMap::new());
    let mut candidates = Candidates { old, new, touched, in_place, max: considered_max };
    let younger = if times == Times::Ignored { younger::find(old, new)? } else { None };
    let mut followed = match younger {
        Some(younger) => {
            candidates.in_place = younger.in_place;
            younger.named.into_iter().for_each(|path| candidates.add(path, Touch::Named));
            Followed::ToTheEnd
        }
        None => {
            let (replay, followed) = replay(old, new, considered_max, times)?;
            candidates.collect(&replay)?;
            followed
        }
    };
    if candidates.count() >= considered_max {
        followed = Followed::InPart;
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
            kinds.insert(inside, (kind, same && *touch == Touch::Written));
        }
    }
    Ok((kinds, followed))
}

/// Has the kernel write its stream, and follows it as far as so many names.
fn replay(old: &File, new: &File, nodes_max: usize, times: Times) -> io::Result<(Replay, Followed)> {
    let parent = ioctl::subvolume_id(old)?;
    let (reader, writer) = std::io::pipe()?;
    // A wish: a smaller pipe only takes longer.
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
            // It was we who stopped reading.
            Ok(Followed::InPart) => Ok((replay, Followed::InPart)),
            // The kernel's own reason says more than that its stream ended early.
            Ok(Followed::ToTheEnd) => sent.map(|()| (replay, Followed::ToTheEnd)),
            Err(error) => {
                Err(sent.err().filter(|sent| sent.kind() != io::ErrorKind::BrokenPipe).unwrap_or(error))
            }
        }
    })
}

fn decide(old: Option<Seen>, new: Option<Seen>, touch: Touch) -> Option<ChangeKind> {
    match (old, new) {
        (None, None) => None,
        (None, Some(_)) => Some(ChangeKind::Added),
        (Some(_), None) => Some(ChangeKind::Deleted),
        (Some(old), Some(new)) => {
            let another = !old.is(&new);
            let changed = match touch {
                Touch::Named => false,
                Touch::Timed => old.modified != new.modified,
                Touch::Resized => old.bytes != new.bytes,
                Touch::Changed | Touch::Written => true,
            };
            (another || changed).then_some(ChangeKind::Changed)
        }
    }
}

/// A path as the sandbox sees it; `None` for what it does not see.
fn inside(path: &[u8]) -> Option<Vec<u8>> {
    match path.strip_prefix(ROOTFS)? {
        b"" => Some(b"/".to_vec()),
        rest if rest.starts_with(b"/") => Some(rest.to_vec()),
        _ => None,
    }
}

// === the trees ===

/// What tells one file from another.
#[derive(Clone, Copy, Debug)]
struct Seen {
    inode: u64,
    /// Two branches of one history give the same number to different files, but not in the same nanosecond.
    born: (i64, u32),
    modified: (i64, u32),
    links: u32,
    bytes: u64,
    directory: bool,
}

impl Seen {
    /// The same file, before or after.
    fn is(&self, other: &Self) -> bool {
        (self.inode, self.born) == (other.inode, other.born)
    }
}

/// Opens a path of a tree without following any link: names in it lead nowhere else.
pub(super) fn open_beneath(tree: &File, path: &[u8], flags: OFlags) -> io::Result<Option<OwnedFd>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let path = if path.is_empty() { b"." } else { path };
    match rustix::fs::openat2(tree, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
    {
        Ok(opened) => Ok(Some(opened)),
        // Not there, or there is something else where its directory was; a path too long for the kernel has no name.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn look(tree: &File, path: &[u8]) -> io::Result<Option<Seen>> {
    let Some(opened) = open_beneath(tree, path, OFlags::PATH)? else { return Ok(None) };
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(&opened, "", AtFlags::EMPTY_PATH, wanted)?;
    Ok(Some(Seen {
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
    touched: BTreeMap<Vec<u8>, Touch>,
    /// Those that have, and are what they were and where they were; and whether they were written to. Nothing has to be looked
    /// at in the old tree, where it takes a read of the disk each.
    in_place: BTreeMap<Vec<u8>, bool>,
    max: usize,
}

impl Candidates<'_> {
    fn collect(&mut self, replay: &Replay) -> io::Result<()> {
        for (node, path) in replay.final_paths() {
            let origin = replay.origin(node);
            let stayed = origin.as_deref() == Some(&*path);
            let node = &replay.nodes[node];
            if node.touch != Touch::Named {
                self.touch_all_names(&path, node.touch, stayed && !node.placed)?;
            }
            if node.placed && !stayed {
                self.add(path.clone(), Touch::Named);
                // One that was made has had its contents made too, each by a command of its own.
                if origin.is_some() {
                    self.add_beneath(self.new, &path)?;
                }
            }
        }
        let final_paths: HashMap<usize, Vec<u8>> = replay.final_paths().into_iter().collect();
        for node in &replay.vacated {
            let Some(origin) = replay.origin(*node) else { continue };
            if final_paths.get(node) != Some(&origin) {
                self.add(origin.clone(), Touch::Named);
                self.add_beneath(self.old, &origin)?;
            }
        }
        Ok(())
    }

    fn count(&self) -> usize {
        self.touched.len() + self.in_place.len()
    }

    fn add(&mut self, path: Vec<u8>, touch: Touch) {
        if self.count() < self.max {
            let known = self.touched.entry(path).or_insert(touch);
            *known = touch.max(*known);
        }
    }

    /// A file that has changed has changed under each of its names; the kernel says one.
    fn touch_all_names(&mut self, path: &[u8], touch: Touch, in_place: bool) -> io::Result<()> {
        let seen = look(self.new, path)?;
        let only_name = seen.is_some_and(|seen| seen.links == 1 || seen.directory);
        if in_place && only_name && touch >= Touch::Changed {
            if self.count() < self.max {
                self.in_place.insert(path.to_vec(), touch == Touch::Written);
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

    /// Everything beneath a directory; of what is none: nothing.
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
                self.add(child, Touch::Named);
            }
        }
        Ok(())
    }
}

pub(super) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() { name.to_vec() } else { [parent, b"/", name].concat() }
}

// === the stream, followed ===

/// What the stream did to a file, the more the later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Touch {
    /// At most its name.
    #[default]
    Named,
    /// Its times, if that of its last change is another one.
    Timed,
    /// Its size, if that is another one.
    Resized,
    Changed,
    Written,
}

/// The names the stream has spoken of, in a tree of their own that its commands are applied to.
#[derive(Debug)]
struct Replay {
    nodes: Vec<Node>,
    /// Those whose name went: removed, or moved away.
    vacated: Vec<usize>,
    times: Times,
}

#[derive(Debug, Default)]
struct Node {
    children: HashMap<Box<[u8]>, usize>,
    /// Where it was at first: a directory and a name in it. `None` for what the stream made.
    origin: Option<(usize, Box<[u8]>)>,
    touch: Touch,
    /// Whether it came to its place by the stream.
    placed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    ToTheEnd,
    /// There was more than may be considered.
    InPart,
}

const TOP: usize = 0;

impl Replay {
    fn new(times: Times) -> Self {
        Self { nodes: vec![Node::default()], vacated: Vec::new(), times }
    }

    fn follow(&mut self, stream: impl io::Read, nodes_max: usize) -> io::Result<Followed> {
        let mut commands = Commands::new(stream)?;
        while let Some(command) = commands.next()? {
            self.apply(command);
            if self.nodes.len() > nodes_max {
                return Ok(Followed::InPart);
            }
        }
        Ok(Followed::ToTheEnd)
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
            Command::Change { path } => self.touch(&path, Touch::Changed),
            Command::Write { path } => self.touch(&path, Touch::Written),
            Command::Resize { path } => self.touch(&path, Touch::Resized),
            Command::Times { path } if self.times == Times::Count => self.touch(&path, Touch::Timed),
            Command::Times { .. } => {}
        }
    }

    fn touch(&mut self, path: &[u8], touch: Touch) {
        let node = self.find(path);
        self.nodes[node].touch = self.nodes[node].touch.max(touch);
    }

    /// Takes what is at `path` from there; `None` for the top, which stays.
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

    /// The node at `path`, as the names are now. One not met before has been there from the start.
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

    /// Where a node was before the stream; `None` for one that was nowhere.
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

    /// Every node that is somewhere after the stream, with its path.
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
