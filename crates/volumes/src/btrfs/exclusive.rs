//! How much a snapshot holds that no other snapshot does.
//!
//! Data that was written to the sandbox since its previous snapshot (or since the sandbox was made) and that the next
//! snapshot no longer has. Before and after in one sandbox's history only: these two are where a snapshot's data can be
//! shared with another one. The kernel skips what is older than the previous snapshot, so this takes as long as there was
//! written in between, whatever the size of the disk. What the sandbox itself still shares with the snapshot counts: it
//! may write over it at any moment. Bytes are those on disk, without file system metadata; files so small that btrfs
//! keeps them among its metadata count with their length.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use burrow_model::SnapshotId;

use super::Inner;
use super::ioctl::{self, EXTENT_DATA_KEY, SubvolumeInfo};
use super::snapshot::BASE_ATTRIBUTE;
use crate::{VolumeError, step};

/// Pieces of files looked at; beyond, the estimate is of those.
const PIECES_MAX: usize = 1_000_000;

/// `EXTENT_DATA`: generation and length of the content (u64), compression and others (4 bytes), type; then, but for
/// inline data, the place and length on disk (u64).
const TYPE_AT: usize = 20;
const PLACE_AT: usize = 21;
const INLINE: u8 = 0;

impl Inner {
    /// See [`crate::Volumes::snapshot_bytes`] and above.
    pub(super) fn snapshot_bytes(&self, id: &SnapshotId) -> Result<u64, VolumeError> {
        let snapshot = self.open_snapshot(id)?;
        let path = self.snapshots.path.join(id.as_str());
        let info = ioctl::subvolume_info(&snapshot).map_err(step("look at the snapshot", &path))?;
        let (before, after) = self.neighbours(&info)?;
        let since = before.unwrap_or_else(|| base(&snapshot));
        let measure = || -> io::Result<u64> {
            let mut pieces = written_since(&snapshot, since)?;
            if let Some(after) = &after {
                for place in written_since(after, since)?.keys() {
                    pieces.remove(place);
                }
            }
            Ok(pieces.values().sum())
        };
        measure().map_err(step("measure the snapshot", &path))
    }

    /// When the snapshot before this one of the same volume was made, and the one after it.
    fn neighbours(&self, of: &SubvolumeInfo) -> Result<(Option<u64>, Option<File>), VolumeError> {
        let (mut before, mut after): (Option<u64>, Option<(u64, File)>) = (None, None);
        for id in self.snapshots.ids::<SnapshotId>()? {
            // One removed meanwhile is no neighbour.
            let Ok(other) = File::open(self.snapshots.path.join(id.as_str())) else { continue };
            let Ok(info) = ioctl::subvolume_info(&other) else { continue };
            if info.parent_uuid != of.parent_uuid || info.id == of.id {
                continue;
            }
            if (info.made_in, info.id) < (of.made_in, of.id) {
                before = before.max(Some(info.made_in));
            } else if after.as_ref().is_none_or(|(made_in, _)| info.made_in < *made_in) {
                after = Some((info.made_in, other));
            }
        }
        Ok((before, after.map(|(_, file)| file)))
    }
}

/// The transaction that made the sandbox's volume; 0 where that was not noted: all data counts then.
pub(super) fn base(snapshot: &File) -> u64 {
    let mut noted = [0; 8];
    match rustix::fs::fgetxattr(snapshot, BASE_ATTRIBUTE, &mut noted) {
        Ok(8) => u64::from_le_bytes(noted),
        Ok(_) | Err(_) => 0,
    }
}

/// Where on the disk data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Disk(u64),
    /// Among the metadata, as part of this file.
    Inline {
        inode: u64,
        generation: u64,
    },
}

/// Data of a subvolume that was written after transaction `since`, with its bytes.
fn written_since(subvolume: &File, since: u64) -> io::Result<HashMap<Place, u64>> {
    let mut found = HashMap::new();
    let mut first = (ioctl::FIRST_FREE_OBJECT_ID, EXTENT_DATA_KEY, 0);
    while found.len() < PIECES_MAX {
        // Tree 0 is that of the subvolume itself.
        let items = ioctl::items_since(subvolume, 0, first, since.saturating_add(1))?;
        let Some(last) = items.last() else { break };
        let Some(next) = after((last.object, last.kind, last.offset)) else { break };
        first = next;
        for item in items.iter().filter(|item| item.kind == EXTENT_DATA_KEY) {
            // A block that was written lately has older items in it too.
            if let Some((place, bytes, generation)) = piece(item.object, &item.data)
                && generation > since
            {
                found.insert(place, bytes);
            }
        }
    }
    Ok(found)
}

/// Where a piece of content lies, its bytes there, and the transaction that wrote it; `None` for a hole.
fn piece(inode: u64, data: &[u8]) -> Option<(Place, u64, u64)> {
    let number = |at: usize| data.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let generation = number(0)?;
    if *data.get(TYPE_AT)? == INLINE {
        return Some((Place::Inline { inode, generation }, number(8)?, generation));
    }
    let place = number(PLACE_AT)?;
    (place != 0).then_some((Place::Disk(place), number(PLACE_AT + 8)?, generation))
}

/// The key after this one.
pub(super) fn after((object, kind, offset): (u64, u32, u64)) -> Option<(u64, u32, u64)> {
    match (offset.checked_add(1), kind) {
        (Some(offset), _) => Some((object, kind, offset)),
        (None, u32::MAX) => Some((object.checked_add(1)?, 0, 0)),
        (None, _) => Some((object, kind + 1, 0)),
    }
}
