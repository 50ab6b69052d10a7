//! How many bytes only one snapshot refers to.
//!
//! This is the data written to the sandbox since its previous snapshot (or since the sandbox was created) that the next
//! snapshot no longer contains. Previous and next refer to the history of one sandbox: only these two can share data
//! with the snapshot. The kernel skips data older than the previous snapshot, so the time depends on the amount written in
//! between and not on the size of the disk. Data that the sandbox still shares with the snapshot counts, because the
//! sandbox may overwrite it at any moment. Bytes are those on disk, without file system metadata; files so small that
//! btrfs stores them in its metadata count with their length.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use burrow_model::SnapshotId;

use super::Inner;
use super::ioctl::{self, EXTENT_DATA_KEY, SubvolumeInfo};
use super::snapshot::BASE_ATTRIBUTE;
use crate::{DiskError, step};

/// How many pieces of files are counted; beyond that, the estimate covers only these.
const PIECES_MAX: usize = 1_000_000;

/// `EXTENT_DATA`: generation and length of the content (u64), compression and others (4 bytes), type; then, but for
/// inline data, the place and length on disk (u64).
const TYPE_AT: usize = 20;
const PLACE_AT: usize = 21;
const INLINE: u8 = 0;

impl Inner {
    /// See [`crate::Disks::used`] and above.
    pub(super) fn snapshot_bytes(&self, id: &SnapshotId) -> Result<u64, DiskError> {
        let disk = id.into();
        let (snapshot, path) = (self.open(&disk)?, self.path(&disk));
        let info = ioctl::subvolume_info(&snapshot).map_err(step("inspect the snapshot", &path))?;
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

    /// The transaction that created the previous snapshot of the same disk, and the next snapshot.
    fn neighbours(&self, of: &SubvolumeInfo) -> Result<(Option<u64>, Option<File>), DiskError> {
        let (mut before, mut after): (Option<u64>, Option<(u64, File)>) = (None, None);
        for id in self.snapshots.ids::<SnapshotId>()? {
            // A snapshot that was removed in the meantime is not a neighbour.
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

/// The transaction that created the sandbox's disk; 0 if it was not recorded: all data counts then.
pub(super) fn base(snapshot: &File) -> u64 {
    let mut noted = [0; 8];
    match rustix::fs::fgetxattr(snapshot, BASE_ATTRIBUTE, &mut noted) {
        Ok(8) => u64::from_le_bytes(noted),
        Ok(_) | Err(_) => 0,
    }
}

/// The location of data on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum DataLocation {
    Disk(u64),
    /// In the metadata, as part of this file.
    Inline {
        inode: u64,
        generation: u64,
    },
}

/// Data of a subvolume that was written after transaction `since`, with its bytes.
fn written_since(subvolume: &File, since: u64) -> io::Result<HashMap<DataLocation, u64>> {
    let mut found = HashMap::new();
    let mut first = (ioctl::FIRST_FREE_OBJECT_ID, EXTENT_DATA_KEY, 0);
    while found.len() < PIECES_MAX {
        // Tree 0 is that of the subvolume itself.
        let items = ioctl::items_since(subvolume, 0, first, since.saturating_add(1))?;
        let Some(last) = items.last() else { break };
        let Some(next) = after((last.object, last.kind, last.offset)) else { break };
        first = next;
        for item in items.iter().filter(|item| item.kind == EXTENT_DATA_KEY) {
            // A block that was written recently also contains older items.
            if let Some((place, bytes, generation)) = piece(item.object, &item.data)
                && generation > since
            {
                found.insert(place, bytes);
            }
        }
    }
    Ok(found)
}

/// The location of a piece of content, its bytes there, and the transaction that wrote it; `None` for a hole.
fn piece(inode: u64, data: &[u8]) -> Option<(DataLocation, u64, u64)> {
    let number = |at: usize| data.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let generation = number(0)?;
    if *data.get(TYPE_AT)? == INLINE {
        return Some((DataLocation::Inline { inode, generation }, number(8)?, generation));
    }
    let place = number(PLACE_AT)?;
    (place != 0).then_some((DataLocation::Disk(place), number(PLACE_AT + 8)?, generation))
}

/// The key after this one.
pub(super) fn after((object, kind, offset): (u64, u32, u64)) -> Option<(u64, u32, u64)> {
    match (offset.checked_add(1), kind) {
        (Some(offset), _) => Some((object, kind, offset)),
        (None, u32::MAX) => Some((object.checked_add(1)?, 0, 0)),
        (None, _) => Some((object, kind + 1, 0)),
    }
}
