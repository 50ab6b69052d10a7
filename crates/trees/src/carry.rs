//! Parts of a tree as a stream of bytes, for trees whose files cannot be opened from here: those in a machine with its
//! own disk.
//!
//! ```text
//!   stream   record* 'E'
//!   record   'P' path node content?   create or replace; a file has content
//!            'A' path node            mode, owner and attributes
//!            'L' path path            the first is a hard link to the second
//!            'R' path u8              remove; 1: an empty directory
//!   node     kind u8, its fields · mode u32 · uid u32 · gid u32 · modified i64 u32 · attributes u32, (bytes bytes)* ·
//!            identity u8, if 1: inode u64, born i64 u32, links u32
//!   content  (offset u64, bytes)*, an empty one ends it; omitted ranges are zero
//!   bytes    length u32, that many
//! ```
//!
//! The receiver trusts nothing: names are checked, numbers and sizes are limited, and everything is executed by
//! [`crate::apply`], below an open root. Numbers are little endian.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::apply::{Sources, apply};
use crate::plan::{Action, Content};
use crate::{Identity, Kind, Node, Root, TreeError, split, step};

/// The longest path that the kernel accepts.
const PATH_BYTES_MAX: usize = 4095;
const NAME_BYTES_MAX: usize = 255;

/// Attributes of one node. The kernel's lists have at most 64 KiB.
const ATTRIBUTES_MAX: usize = 128;
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
const ATTRIBUTES_BYTES_MAX: usize = 256 << 10;

/// Bytes of content that are read and sent at once.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// Content up to this size is kept in RAM instead of a staged file.
const HELD_BYTES_MAX: u64 = 256 << 10;

/// The name of staged content.
const STAGED: &str = "content";

/// Adjusts or refuses the node for a path. The identity in the node is the sender's.
pub type Adjust<'a> = dyn FnMut(&[u8], &mut Node) -> io::Result<()> + 'a;

/// The limits of a received stream.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub records_max: u64,
    /// Bytes of all files' content, without holes.
    pub bytes_max: u64,
    /// Bytes of all files, including holes, which a reader of the files reads, too.
    pub length_max: u64,
}

/// The result of receiving a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveReport {
    pub records: u64,
    pub bytes: u64,
    pub length: u64,
}

/// Sends these names of a tree, with their parent directories; missing names and devices are skipped.
/// Of the root, only its attributes are sent.
pub fn send(root: &Root, names: &BTreeSet<Vec<u8>>, out: &mut dyn Write) -> Result<(), TreeError> {
    let mut sent = BTreeSet::from([b"/".to_vec()]);
    let mut firsts: HashMap<u64, Vec<u8>> = HashMap::new();
    for name in names {
        if name == b"/" {
            let node = root
                .node(name)?
                .ok_or(io::ErrorKind::NotFound)
                .map_err(step("read the metadata of", name))?;
            record(b'A', name, out).and_then(|()| send_node(&node, out)).map_err(step("send", name))?;
            continue;
        }
        for path in above(name) {
            if sent.insert(path.to_vec())
                && let Some(node) = root.node(path)?.filter(Node::is_directory)
            {
                send_put(root, path, &node, out)?;
            }
        }
        if !sent.insert(name.clone()) {
            continue;
        }
        let Some(node) = root.node(name)? else { continue };
        if matches!(node.kind, Kind::Block { .. } | Kind::Character { .. }) {
            continue;
        }
        let linked = node.identity.filter(|identity| identity.links > 1 && !node.is_directory());
        if let Some(identity) = linked {
            if let Some(first) = firsts.get(&identity.inode) {
                record(b'L', name, out).and_then(|()| bytes(first, out)).map_err(step("send", name))?;
                continue;
            }
            firsts.insert(identity.inode, name.clone());
        }
        send_put(root, name, &node, out)?;
    }
    out.write_all(b"E").map_err(step("send", b"/"))
}

/// Sends actions for a tree; content is read from `sources`. `adjust` is called for every node.
pub fn send_actions(
    actions: &[Action],
    sources: Sources<'_>,
    adjust: &dyn Fn(&mut Node),
    out: &mut dyn Write,
) -> Result<(), TreeError> {
    for action in actions {
        match action {
            Action::Put { path, node, content } => {
                let mut node = node.clone();
                adjust(&mut node);
                let of = |error: io::Error| step("send", path)(error);
                match content {
                    Content::Merged { content } => {
                        node.kind = Kind::File { bytes: content.len() as u64 };
                        record(b'P', path, out).and_then(|()| send_node(&node, out)).map_err(of)?;
                        send_held(content, out).map_err(of)?;
                    }
                    Content::None => {
                        record(b'P', path, out).and_then(|()| send_node(&node, out)).map_err(of)?;
                        if node.is_file() {
                            send_held(&[], out).map_err(of)?;
                        }
                    }
                    Content::Ours { path: from } => send_file(path, node, sources.ours, from, out)?,
                    Content::Theirs { path: from } => send_file(path, node, sources.theirs, from, out)?,
                }
            }
            Action::Attributes { path, node } => {
                let mut node = node.clone();
                adjust(&mut node);
                record(b'A', path, out).and_then(|()| send_node(&node, out)).map_err(step("send", path))?;
            }
            Action::Link { path, to } => {
                record(b'L', path, out).and_then(|()| bytes(to, out)).map_err(step("send", path))?;
            }
            Action::Remove { path, directory } => {
                record(b'R', path, out)
                    .and_then(|()| out.write_all(&[u8::from(*directory)]))
                    .map_err(step("send", path))?;
            }
        }
    }
    out.write_all(b"E").map_err(step("send", b"/"))
}

/// Applies a stream to `live`. `staging` is an empty directory on the same file system.
pub fn receive(
    live: &Root,
    staging: &Root,
    input: &mut dyn Read,
    bounds: Bounds,
    adjust: &mut Adjust<'_>,
) -> Result<ReceiveReport, TreeError> {
    let mut receiver =
        Receiver { live, staging, bounds, received: ReceiveReport::default(), folders: Vec::new() };
    let done = receiver.run(input, adjust);
    let _ = rustix::fs::unlinkat(&staging.fd, STAGED, AtFlags::empty());
    done?;
    Ok(receiver.received)
}

struct Receiver<'a> {
    live: &'a Root,
    staging: &'a Root,
    bounds: Bounds,
    received: ReceiveReport,
    /// Directories that were created; their times are set last.
    folders: Vec<Action>,
}

impl Receiver<'_> {
    fn run(&mut self, input: &mut dyn Read, adjust: &mut Adjust<'_>) -> Result<(), TreeError> {
        loop {
            let tag = number::<1>(input).map_err(step("receive", b"/"))?[0];
            if tag == b'E' {
                break;
            }
            self.received.records += 1;
            if self.received.records > self.bounds.records_max {
                return Err(step("receive", b"/")(io::Error::other("there are too many names")));
            }
            let path = take_path(input).map_err(step("receive", b"/"))?;
            let action = self.action(tag, &path, input, adjust).map_err(step("receive", &path))?;
            let sources = Sources { ours: self.staging, theirs: self.staging };
            apply(self.live, sources, std::slice::from_ref(&action), &mut |_| Ok(()))?;
            if let Action::Put { node, .. } = &action
                && node.is_directory()
            {
                self.folders.push(action);
            }
        }
        let sources = Sources { ours: self.staging, theirs: self.staging };
        apply(self.live, sources, &self.folders, &mut |_| Ok(()))
    }

    fn action(
        &mut self,
        tag: u8,
        path: &[u8],
        input: &mut dyn Read,
        adjust: &mut Adjust<'_>,
    ) -> io::Result<Action> {
        let path = path.to_vec();
        let is_root = path == b"/";
        Ok(match tag {
            b'P' if !is_root => {
                let mut node = take_node(input)?;
                adjust(&path, &mut node)?;
                let content = match node.kind {
                    Kind::File { bytes } => self.content(bytes, input)?,
                    Kind::Directory | Kind::Link { .. } | Kind::Pipe | Kind::Socket => Content::None,
                    Kind::Block { .. } | Kind::Character { .. } => return Err(invalid_data("a device")),
                };
                Action::Put { path, node, content }
            }
            b'A' => {
                let mut node = take_node(input)?;
                adjust(&path, &mut node)?;
                Action::Attributes { path, node }
            }
            b'L' if !is_root => Action::Link { path, to: take_path(input)? },
            b'R' if !is_root => Action::Remove { path, directory: number::<1>(input)?[0] == 1 },
            _ => return Err(invalid_data("unknown record")),
        })
    }

    /// The content of a file, in RAM or staged.
    fn content(&mut self, length: u64, input: &mut dyn Read) -> io::Result<Content> {
        self.received.length = self.received.length.saturating_add(length);
        if self.received.length > self.bounds.length_max {
            return Err(too_large());
        }
        if length <= HELD_BYTES_MAX {
            let mut held = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            self.pieces(length, input, &mut |offset, piece| {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                held[start..start + piece.len()].copy_from_slice(piece);
                Ok(())
            })?;
            return Ok(Content::Merged { content: held });
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let staged = rustix::fs::openat(&self.staging.fd, STAGED, flags, Mode::RUSR | Mode::WUSR)?;
        let staged = File::from(staged);
        staged.set_len(length)?;
        self.pieces(length, input, &mut |offset, piece| staged.write_all_at(piece, offset))?;
        Ok(Content::Theirs { path: format!("/{STAGED}").into_bytes() })
    }

    fn pieces(
        &mut self,
        length: u64,
        input: &mut dyn Read,
        take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut at = 0;
        loop {
            let offset = u64::from_le_bytes(number(input)?);
            let piece = take_bytes(input, PIECE_BYTES_MAX)?;
            if piece.is_empty() {
                return Ok(());
            }
            let end = offset.checked_add(piece.len() as u64).filter(|end| *end <= length && offset >= at);
            at = end.ok_or_else(|| invalid_data("content beyond the size of the file"))?;
            self.received.bytes += piece.len() as u64;
            if self.received.bytes > self.bounds.bytes_max {
                return Err(too_large());
            }
            take(offset, &piece)?;
        }
    }
}

/// The parent directories of a path except the root, topmost first.
fn above(path: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut next = split(path);
    while let Some((folder, _)) = next {
        next = split(folder);
        if next.is_some() {
            found.push(folder);
        }
    }
    found.reverse();
    found
}

fn send_put(root: &Root, path: &[u8], node: &Node, out: &mut dyn Write) -> Result<(), TreeError> {
    match node.is_file() {
        true => send_file(path, node.clone(), root, path, out),
        false => record(b'P', path, out).and_then(|()| send_node(node, out)).map_err(step("send", path)),
    }
}

fn send_file(
    path: &[u8],
    mut node: Node,
    root: &Root,
    from: &[u8],
    out: &mut dyn Write,
) -> Result<(), TreeError> {
    let file = root.file(from)?.ok_or(io::ErrorKind::NotFound).map_err(step("open", from))?;
    let mut sent = || -> io::Result<()> {
        let length = file.metadata()?.len();
        node.kind = Kind::File { bytes: length };
        record(b'P', path, out)?;
        send_node(&node, out)?;
        let mut piece = vec![0; PIECE_BYTES_MAX.min(usize::try_from(length).unwrap_or(PIECE_BYTES_MAX))];
        let mut at = 0;
        while at < length {
            // Holes are not sent.
            match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(data) => at = data,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            }
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(at))?.min(length);
            while at < hole {
                let want = piece.len().min(usize::try_from(hole - at).unwrap_or(piece.len()));
                file.read_exact_at(&mut piece[..want], at)?;
                out.write_all(&at.to_le_bytes())?;
                bytes(&piece[..want], out)?;
                at += want as u64;
            }
        }
        out.write_all(&at.to_le_bytes())?;
        bytes(b"", out)
    };
    sent().map_err(step("send", path))
}

fn send_held(content: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut at = 0u64;
    for piece in content.chunks(PIECE_BYTES_MAX) {
        out.write_all(&at.to_le_bytes())?;
        bytes(piece, out)?;
        at += piece.len() as u64;
    }
    out.write_all(&at.to_le_bytes())?;
    bytes(b"", out)
}

fn record(tag: u8, path: &[u8], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&[tag])?;
    bytes(path, out)
}

fn bytes(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

fn send_node(node: &Node, out: &mut dyn Write) -> io::Result<()> {
    match &node.kind {
        Kind::File { bytes } => {
            out.write_all(b"f")?;
            out.write_all(&bytes.to_le_bytes())?;
        }
        Kind::Directory => out.write_all(b"d")?,
        Kind::Link { target } => {
            out.write_all(b"l")?;
            bytes(target, out)?;
        }
        Kind::Pipe => out.write_all(b"p")?,
        Kind::Socket => out.write_all(b"s")?,
        Kind::Block { .. } | Kind::Character { .. } => return Err(invalid_data("a device")),
    }
    for value in [node.mode, node.uid, node.gid] {
        out.write_all(&value.to_le_bytes())?;
    }
    out.write_all(&node.modified.0.to_le_bytes())?;
    out.write_all(&node.modified.1.to_le_bytes())?;
    let count = u32::try_from(node.attributes.len()).map_err(io::Error::other)?;
    out.write_all(&count.to_le_bytes())?;
    for (name, value) in &node.attributes {
        bytes(name, out)?;
        bytes(value, out)?;
    }
    let Some(Identity { inode, born, links }) = node.identity else { return out.write_all(&[0]) };
    out.write_all(&[1])?;
    out.write_all(&inode.to_le_bytes())?;
    out.write_all(&born.0.to_le_bytes())?;
    out.write_all(&born.1.to_le_bytes())?;
    out.write_all(&links.to_le_bytes())
}

fn take_node(input: &mut dyn Read) -> io::Result<Node> {
    let kind = match number::<1>(input)?[0] {
        b'f' => Kind::File { bytes: u64::from_le_bytes(number(input)?) },
        b'd' => Kind::Directory,
        b'l' => {
            let target = take_bytes(input, PATH_BYTES_MAX)?;
            if target.is_empty() || target.contains(&0) {
                return Err(invalid_data("invalid link target"));
            }
            Kind::Link { target }
        }
        b'p' => Kind::Pipe,
        b's' => Kind::Socket,
        _ => return Err(invalid_data("unknown kind")),
    };
    let [mode, uid, gid] = [number(input)?, number(input)?, number(input)?].map(u32::from_le_bytes);
    let modified = (i64::from_le_bytes(number(input)?), u32::from_le_bytes(number(input)?));
    if modified.1 >= 1_000_000_000 {
        return Err(invalid_data("invalid time"));
    }
    let (mut attributes, mut total) = (BTreeMap::new(), 0);
    let count = u32::from_le_bytes(number(input)?);
    if usize::try_from(count).map_or(true, |count| count > ATTRIBUTES_MAX) {
        return Err(invalid_data("too many attributes"));
    }
    for _ in 0..count {
        let (name, value) = (take_bytes(input, NAME_BYTES_MAX)?, take_bytes(input, ATTRIBUTE_BYTES_MAX)?);
        total += name.len() + value.len();
        if name.is_empty() || name.contains(&0) || total > ATTRIBUTES_BYTES_MAX {
            return Err(invalid_data("invalid attribute"));
        }
        if crate::root::is_carried(&name) {
            attributes.insert(name, value);
        }
    }
    let identity = match number::<1>(input)?[0] {
        0 => None,
        _ => Some(Identity {
            inode: u64::from_le_bytes(number(input)?),
            born: (i64::from_le_bytes(number(input)?), u32::from_le_bytes(number(input)?)),
            links: u32::from_le_bytes(number(input)?),
        }),
    };
    Ok(Node { kind, mode: mode & 0o7777, uid, gid, attributes, modified, identity })
}

/// A path in the accepted form: absolute and normalised.
fn take_path(input: &mut dyn Read) -> io::Result<Vec<u8>> {
    let path = take_bytes(input, PATH_BYTES_MAX)?;
    if is_plain(&path) { Ok(path) } else { Err(invalid_data("invalid path")) }
}

/// Whether a path is absolute, normalised, and accepted by the kernel.
pub fn is_plain(path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(b"/") else { return false };
    let fine = |name: &[u8]| {
        !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_BYTES_MAX && !name.contains(&0)
    };
    path.len() <= PATH_BYTES_MAX && (rest.is_empty() || rest.split(|byte| *byte == b'/').all(fine))
}

fn take_bytes(input: &mut dyn Read, length_max: usize) -> io::Result<Vec<u8>> {
    let length = u32::from_le_bytes(number(input)?);
    let length = usize::try_from(length).ok().filter(|length| *length <= length_max);
    let mut bytes = vec![0; length.ok_or_else(|| invalid_data("too long"))?];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn number<const BYTES: usize>(input: &mut dyn Read) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the files are too large")
}

fn invalid_data(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
