//! Entries of a tree: paths and metadata, without content.
//!
//! Binary, little endian; a path, a target or a name is its length (2 bytes) and its bytes:
//!
//! ```text
//!  kind 1   path   │ directory, file, symlink, fifo, socket:  mode 4  uid 4  gid 4  mtime 8 + 4
//!                  │                                          attributes: count 2, each: name, length 4, value
//!                  │ file:      size 8, extents: count 4, each: offset 8, length 8
//!                  │ symlink:   target
//!                  │ hard link: target                      (a path that came before)
//!                  │ gone:      nothing                     (incremental files only: the entry of the base is removed)
//! ```
//!
//! Paths are sorted part by part, so none is repeated and a directory precedes its content. Owners are those that the
//! sandbox sees. Device nodes have no kind, so a file cannot contain any.

use crate::PortableError;
use crate::error::shown;

/// The longest path that the kernel accepts.
pub const PATH_BYTES_MAX: usize = 4095;

/// The longest name in a path.
const PART_BYTES_MAX: usize = 255;

/// The maximum depth of directories; walking a tree may keep a descriptor open for each level.
const DEPTH_MAX: usize = 256;

/// All attributes of one entry, names and values.
pub(crate) const ATTRIBUTES_BYTES_MAX: usize = 1 << 20;

/// Extents of one file. A writer joins extents of a file that has more.
pub(crate) const EXTENTS_MAX: usize = 65_536;

/// The largest size that a file may claim: a claim costs nothing, but programs may rely on it.
const FILE_BYTES_MAX: u64 = 8 << 40;

/// Permission bits, with set-uid, set-gid and sticky.
const MODE_MASK: u32 = 0o7777;

const NANOSECONDS: u32 = 1_000_000_000;

/// A path below the root without `.` and `..`; the root itself is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TreePath(Vec<u8>);

impl TreePath {
    /// Refuses paths that are absolute, contain `..`, or are not normalised.
    pub fn new(bytes: &[u8]) -> Result<Self, PortableError> {
        let refuse = |reason| Err(PortableError::Entry { path: shown(bytes), reason });
        if bytes.len() > PATH_BYTES_MAX {
            return refuse("its path is too long");
        }
        if bytes.contains(&0) {
            return refuse("its path contains a zero byte");
        }
        let parts = bytes.split(|byte| *byte == b'/');
        for (depth, part) in parts.enumerate().filter(|_| !bytes.is_empty()) {
            match part {
                b"" => return refuse("its path has an empty part"),
                b"." | b".." => return refuse("its path contains `.` or `..`"),
                _ if part.len() > PART_BYTES_MAX => return refuse("a part of its path is too long"),
                _ if depth >= DEPTH_MAX => return refuse("it is nested too deeply"),
                _ => {}
            }
        }
        Ok(Self(bytes.to_vec()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// For messages.
    pub fn shown(&self) -> String {
        shown(&self.0)
    }
}

impl Ord for TreePath {
    /// Compares part by part, so that the content of a directory directly follows it.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let parts =
            |path: &'_ Self| path.0.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
        match (self.0.is_empty(), other.0.is_empty()) {
            (true, true) => std::cmp::Ordering::Equal,
            (true, false) => std::cmp::Ordering::Less,
            (false, true) => std::cmp::Ordering::Greater,
            (false, false) => parts(self).cmp(&parts(other)),
        }
    }
}

impl PartialOrd for TreePath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: TreePath,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory(Meta),
    /// `extents` are the parts that are not holes; their content follows.
    File {
        meta: Meta,
        size: u64,
        extents: Vec<Extent>,
    },
    Symlink {
        meta: Meta,
        target: Vec<u8>,
    },
    /// A hard link to an earlier entry.
    HardLink {
        target: TreePath,
    },
    Fifo(Meta),
    Socket(Meta),
    /// The base's entry with this path was removed, with everything in it.
    Gone,
}

/// The metadata of every inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Time,
    /// Extended attributes, sorted by name.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// A part of a file that is not a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub bytes: u64,
}

impl Entry {
    /// Bytes of content that follow.
    pub fn content_bytes(&self) -> u64 {
        match &self.kind {
            Kind::File { extents, .. } => extents.iter().map(|extent| extent.bytes).sum(),
            Kind::Directory(_)
            | Kind::Symlink { .. }
            | Kind::HardLink { .. }
            | Kind::Fifo(_)
            | Kind::Socket(_)
            | Kind::Gone => 0,
        }
    }

    fn number(&self) -> u8 {
        match &self.kind {
            Kind::Directory(_) => 1,
            Kind::File { .. } => 2,
            Kind::Symlink { .. } => 3,
            Kind::HardLink { .. } => 4,
            Kind::Fifo(_) => 5,
            Kind::Socket(_) => 6,
            Kind::Gone => 7,
        }
    }

    pub(crate) fn write(&self, into: &mut Vec<u8>) -> Result<(), PortableError> {
        let refuse = |reason| PortableError::Unexportable { path: self.path.shown(), reason };
        into.push(self.number());
        short(into, self.path.as_bytes()).map_err(refuse)?;
        match &self.kind {
            Kind::Directory(meta) | Kind::Fifo(meta) | Kind::Socket(meta) => {
                meta.write(into).map_err(refuse)?
            }
            Kind::File { meta, size, extents } => {
                meta.write(into).map_err(refuse)?;
                if *size > FILE_BYTES_MAX || extents.len() > EXTENTS_MAX {
                    return Err(refuse("it is too large"));
                }
                into.extend_from_slice(&size.to_le_bytes());
                let count = u32::try_from(extents.len()).map_err(|_| refuse("it has too many holes"))?;
                into.extend_from_slice(&count.to_le_bytes());
                for extent in extents {
                    into.extend_from_slice(&extent.offset.to_le_bytes());
                    into.extend_from_slice(&extent.bytes.to_le_bytes());
                }
            }
            Kind::Symlink { meta, target } => {
                meta.write(into).map_err(refuse)?;
                short(into, target).map_err(refuse)?;
            }
            Kind::HardLink { target } => short(into, target.as_bytes()).map_err(refuse)?,
            Kind::Gone => {}
        }
        Ok(())
    }

    pub(crate) fn read(from: &mut &[u8]) -> Result<Self, PortableError> {
        let kind = number::<1>(from)?[0];
        let path = TreePath::new(text(from, PATH_BYTES_MAX)?)?;
        let refuse = |reason| PortableError::Entry { path: path.shown(), reason };
        let kind = match kind {
            1 => Kind::Directory(Meta::read(from, &path)?),
            2 => {
                let meta = Meta::read(from, &path)?;
                let size = u64::from_le_bytes(number(from)?);
                let count = u32::from_le_bytes(number(from)?) as usize;
                if size > FILE_BYTES_MAX || count > EXTENTS_MAX {
                    return Err(refuse("it is too large"));
                }
                Kind::File {
                    meta,
                    size,
                    extents: extents(from, count, size)
                        .map_err(|error| error.unwrap_or(refuse("its extents overlap or exceed its size")))?,
                }
            }
            3 => Kind::Symlink { meta: Meta::read(from, &path)?, target: link_target(from, &path)? },
            4 => {
                let target = TreePath::new(text(from, PATH_BYTES_MAX)?)?;
                if target >= path {
                    return Err(refuse("it is a hard link to a later entry"));
                }
                Kind::HardLink { target }
            }
            5 => Kind::Fifo(Meta::read(from, &path)?),
            6 => Kind::Socket(Meta::read(from, &path)?),
            7 => Kind::Gone,
            _ => return Err(refuse("it has an unknown kind")),
        };
        if path.as_bytes().is_empty() && !matches!(kind, Kind::Directory(_)) {
            return Err(refuse("only a directory can be the root"));
        }
        Ok(Self { path, kind })
    }
}

impl Meta {
    fn write(&self, into: &mut Vec<u8>) -> Result<(), &'static str> {
        for word in [self.mode & MODE_MASK, self.uid, self.gid] {
            into.extend_from_slice(&word.to_le_bytes());
        }
        into.extend_from_slice(&self.mtime.seconds.to_le_bytes());
        into.extend_from_slice(&self.mtime.nanoseconds.to_le_bytes());
        let bytes: usize = self.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        let count =
            u16::try_from(self.attributes.len()).map_err(|_| "it has too many extended attributes")?;
        if bytes > ATTRIBUTES_BYTES_MAX {
            return Err("its extended attributes are too large");
        }
        into.extend_from_slice(&count.to_le_bytes());
        for (name, value) in &self.attributes {
            short(into, name)?;
            let length = u32::try_from(value.len()).map_err(|_| "an extended attribute is too large")?;
            into.extend_from_slice(&length.to_le_bytes());
            into.extend_from_slice(value);
        }
        Ok(())
    }

    fn read(from: &mut &[u8], path: &TreePath) -> Result<Self, PortableError> {
        let refuse = |reason| PortableError::Entry { path: path.shown(), reason };
        let mode = u32::from_le_bytes(number(from)?);
        let (uid, gid) = (u32::from_le_bytes(number(from)?), u32::from_le_bytes(number(from)?));
        let mtime = Time {
            seconds: i64::from_le_bytes(number(from)?),
            nanoseconds: u32::from_le_bytes(number(from)?),
        };
        if mode & !MODE_MASK != 0 || mtime.nanoseconds >= NANOSECONDS {
            return Err(refuse("its mode or time is out of range"));
        }
        let count = u16::from_le_bytes(number(from)?);
        let mut attributes: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        for _ in 0..count {
            let name = text(from, PART_BYTES_MAX)?.to_vec();
            let length = u32::from_le_bytes(number(from)?) as usize;
            bytes += name.len() + length;
            if bytes > ATTRIBUTES_BYTES_MAX {
                return Err(refuse("its extended attributes are too large"));
            }
            if name.is_empty()
                || name.contains(&0)
                || attributes.last().is_some_and(|(last, _)| *last >= name)
            {
                return Err(refuse("its extended attributes are out of order"));
            }
            attributes.push((name, take(from, length)?.to_vec()));
        }
        Ok(Self { mode, uid, gid, mtime, attributes })
    }
}

fn link_target(from: &mut &[u8], path: &TreePath) -> Result<Vec<u8>, PortableError> {
    let target = text(from, PATH_BYTES_MAX)?.to_vec();
    if target.is_empty() || target.contains(&0) {
        return Err(PortableError::Entry {
            path: path.shown(),
            reason: "its target is empty or contains a zero byte",
        });
    }
    Ok(target)
}

/// Sorted, non-empty extents within the file. `Err(None)` if they are not.
fn extents(from: &mut &[u8], count: usize, size: u64) -> Result<Vec<Extent>, Option<PortableError>> {
    let mut extents = Vec::with_capacity(count.min(from.len() / 16));
    let mut end = 0;
    for _ in 0..count {
        let offset = u64::from_le_bytes(number(from).map_err(Some)?);
        let bytes = u64::from_le_bytes(number(from).map_err(Some)?);
        let last = offset.checked_add(bytes).filter(|last| *last <= size);
        let (Some(last), true, true) = (last, offset >= end, bytes > 0) else { return Err(None) };
        end = last;
        extents.push(Extent { offset, bytes });
    }
    Ok(extents)
}

fn short(into: &mut Vec<u8>, bytes: &[u8]) -> Result<(), &'static str> {
    let length = u16::try_from(bytes.len()).map_err(|_| "its name or path is too long")?;
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(bytes);
    Ok(())
}

fn text<'b>(from: &mut &'b [u8], bytes_max: usize) -> Result<&'b [u8], PortableError> {
    let length = usize::from(u16::from_le_bytes(number(from)?));
    if length > bytes_max {
        return Err(PortableError::refused("a name or path in it is too long"));
    }
    take(from, length)
}

fn number<const BYTES: usize>(from: &mut &[u8]) -> Result<[u8; BYTES], PortableError> {
    let bytes = take(from, BYTES)?;
    Ok(bytes.try_into().expect("as many as were requested"))
}

fn take<'b>(from: &mut &'b [u8], count: usize) -> Result<&'b [u8], PortableError> {
    let Some((taken, rest)) = from.split_at_checked(count) else {
        return Err(PortableError::refused("a list of entries ends in the middle of one"));
    };
    *from = rest;
    Ok(taken)
}
