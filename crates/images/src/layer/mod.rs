//! Applies a layer to a directory.
//!
//! ```text
//!  stored bytes ─► decompress ─┬─► digest                     (a thread each)
//!                              └─► entries ─► tree ─► files   (the caller's thread)
//! ```
//!
//! The directory contains the result of the layers below. Its root is a descriptor, and every path is resolved
//! beneath it: through links of the image itself, as the programs of that image would, but never out of it. Nothing
//! else may change the directory meanwhile. A layer that is refused, for any reason, leaves the directory partly
//! changed, and the caller must discard it. This includes a wrong digest, which is known only at the end.

pub(crate) mod attributes;
mod create;
mod path;
pub(crate) mod stream;
mod tree;
pub mod unpack;
pub mod walk;

use std::fmt;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;

use self::attributes::Shift;
use self::create::DroppedParts;
use self::path::EntryMeaning;
use self::stream::{StreamOptions, UncompressedStream};
use self::tree::{Paths, Tree};
use crate::entries::{Entries, Kind, Refusal};
use crate::{Compression, DiffId, ImageError};

/// Options for applying a layer.
#[derive(Clone, Copy)]
pub struct ApplyOptions<'a> {
    pub compression: Compression,
    /// The digest of the uncompressed tar; any other refuses the layer.
    pub expected: DiffId,
    /// Added to every uid and gid, in owners, capabilities and access control lists.
    pub uid_shift: u32,
    /// Ids at or above this (before the shift) do not exist inside, and refuse the layer.
    pub uid_count: u32,
    pub limits: ApplyLimits,
    /// Checked between pieces; once true, the operation ends with [`ImageError::Cancelled`].
    pub cancelled: &'a AtomicBool,
    /// Called with the number of stored bytes read, every few hundred KiB.
    pub progress: &'a (dyn Fn(u64) + Send + Sync),
}

/// The limits of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyLimits {
    pub entries: u64,
    /// Of the uncompressed stream; and separately, of all files including their holes.
    pub bytes: u64,
}

/// The result of applying a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppliedLayer {
    /// Entries of the tar, including ignored ones.
    pub entries: u64,
    /// Bytes of the uncompressed stream.
    pub bytes: u64,
    pub whiteouts: u64,
    /// Device nodes, which are never created.
    pub devices_dropped: u64,
    /// Extended attributes that have no meaning in a sandbox, or would grant too much.
    pub attributes_dropped: u64,
}

impl ApplyLimits {
    /// Far above real images (a full desktop has 10^6 files), and within what a disk can hold.
    pub const DEFAULT: Self = Self { entries: 2_000_000, bytes: 64 << 30 };
}

/// Applies the stored bytes of a layer to the directory `root`.
pub fn apply(
    layer: impl Read + Send,
    root: BorrowedFd<'_>,
    options: &ApplyOptions<'_>,
) -> Result<AppliedLayer, ImageError> {
    let stream = StreamOptions {
        compression: options.compression,
        bytes_max: options.limits.bytes,
        cancelled: options.cancelled,
        progress: options.progress,
    };
    let shift = Shift::Up { by: options.uid_shift, count: options.uid_count };
    let (mut applied, found, bytes) = stream::digest_while(layer, stream, |stream| {
        let mut tree =
            Tree::open(root, shift, Paths::Layer).map_err(ImageError::io("open", "the root of the image"))?;
        let applied = entries(&mut Entries::new(stream), &mut tree, &options.limits)?;
        tree.restore_times().map_err(ImageError::io("set the times of", "the directories of the image"))?;
        Ok(applied)
    })?;
    if found != options.expected {
        return Err(ImageError::DiffId { expected: options.expected, found });
    }
    applied.bytes = bytes;
    Ok(applied)
}

/// Computes the diff id of a layer if no document contains it.
pub(crate) fn diff_id(
    layer: impl Read + Send,
    compression: Compression,
    bytes_max: u64,
) -> Result<DiffId, ImageError> {
    let cancelled = AtomicBool::new(false);
    let options = StreamOptions { compression, bytes_max, cancelled: &cancelled, progress: &|_| {} };
    stream::digest_while(layer, options, |_| Ok(())).map(|((), diff_id, _)| diff_id)
}

fn entries(
    entries: &mut Entries<&mut UncompressedStream>,
    tree: &mut Tree<'_>,
    limits: &ApplyLimits,
) -> Result<AppliedLayer, ImageError> {
    let mut applied = AppliedLayer::default();
    let mut file_bytes = 0u64;
    while let Some(mut entry) = entries.next()? {
        applied.entries += 1;
        if applied.entries > limits.entries {
            let what = "the layer".to_owned();
            return Err(ImageError::TooLarge { what, limit: limits.entries, unit: "entries" });
        }
        let size = entry.sparse.as_ref().map_or(entry.size, |sparse| sparse.size);
        file_bytes = file_bytes.saturating_add(size);
        if file_bytes > limits.bytes {
            let what = "the layer".to_owned();
            return Err(ImageError::TooLarge { what, limit: limits.bytes, unit: "bytes of file content" });
        }
        let named = |reason| ImageError::Entry { path: create::shown(&entry.name), reason };
        let dropped = match path::meaning(&entry.name).map_err(named)? {
            EntryMeaning::Place(path) if entry.kind == Kind::File => {
                let size = entry.size;
                tree.file(&path, &mut entry, |content| entries.content(size, |bytes| content.write(bytes)))?
            }
            EntryMeaning::Place(path) => tree.create(&path, &entry)?,
            EntryMeaning::Whiteout(path) => {
                applied.whiteouts += 1;
                entries.skip(entry.size)?;
                tree.whiteout(&path)?;
                DroppedParts::default()
            }
            EntryMeaning::Opaque(path) => {
                applied.whiteouts += 1;
                entries.skip(entry.size)?;
                tree.opaque(&path)?;
                DroppedParts::default()
            }
            EntryMeaning::Ignored => {
                entries.skip(entry.size)?;
                DroppedParts::default()
            }
        };
        applied.attributes_dropped += dropped.attributes;
        applied.devices_dropped += u64::from(dropped.device);
    }
    Ok(applied)
}

impl From<Refusal> for ImageError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Because(reason) => Self::Stream { reason },
            Refusal::At(name, reason) => Self::Entry { path: create::shown(&name), reason },
            Refusal::Read(source) => Self::Io { step: "read", what: "the layer".to_owned(), source },
        }
    }
}

impl fmt::Debug for ApplyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyOptions")
            .field("compression", &self.compression)
            .field("expected", &self.expected)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
