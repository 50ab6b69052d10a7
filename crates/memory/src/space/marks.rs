//! Changes of entries after they were added: further versions, and marks.
//!
//! Only entries with changes are here; the arena's flags say which. Every change has its number
//! and branch, so the same lists serve every branch and every moment.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use super::arena::Row;
use super::chain::{BranchNo, Chain};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A version of the entry.
    Version(Row),
    Forgotten,
    Cooled,
    Warmed,
    /// This many repetitions.
    Repeated(u64),
}

impl Mark {
    /// Its stored form. `None` for a version, which is a separate row.
    pub(crate) fn stored(self) -> Option<(i64, u64)> {
        match self {
            Self::Version(_) => None,
            Self::Forgotten => Some((1, 0)),
            Self::Cooled => Some((2, 0)),
            Self::Warmed => Some((3, 0)),
            Self::Repeated(times) => Some((4, times)),
        }
    }

    pub(crate) fn from_stored(what: i64, value: u64) -> Option<Self> {
        match what {
            1 => Some(Self::Forgotten),
            2 => Some(Self::Cooled),
            3 => Some(Self::Warmed),
            4 => Some(Self::Repeated(value)),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedMark {
    pub(crate) seq: u64,
    pub(crate) branch: BranchNo,
    pub(crate) mark: Mark,
}

/// The state of an entry on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryState {
    /// The newest visible version, unless it was forgotten since.
    pub(crate) row: Option<Row>,
    pub(crate) cold: bool,
    pub(crate) repeated: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// By entity, sorted by sequence number.
    lists: RwLock<HashMap<u32, Vec<PlacedMark>>>,
    /// Rows that supersede an entity.
    superseders: RwLock<HashMap<u32, Vec<Row>>>,
}

impl Marks {
    pub(crate) fn insert(&self, entity: u32, marked: PlacedMark) {
        let mut lists = self.lists.write().unwrap_or_else(PoisonError::into_inner);
        let list = lists.entry(entity).or_default();
        // Mostly at the end; a file that is being loaded adds versions and marks separately.
        let at = list.partition_point(|other| other.seq < marked.seq);
        if list.get(at).is_none_or(|other| other.seq != marked.seq) {
            list.insert(at, marked);
        }
    }

    pub(crate) fn insert_superseder(&self, entity: u32, row: Row) {
        let mut superseders = self.superseders.write().unwrap_or_else(PoisonError::into_inner);
        let list = superseders.entry(entity).or_default();
        if !list.contains(&row) {
            list.push(row);
        }
    }

    pub(crate) fn remove(&self, entity: u32) {
        self.lists.write().unwrap_or_else(PoisonError::into_inner).remove(&entity);
        self.superseders.write().unwrap_or_else(PoisonError::into_inner).remove(&entity);
    }

    pub(crate) fn standing(&self, entity: u32, chain: &Chain) -> EntryState {
        let mut standing = EntryState { row: None, cold: false, repeated: 0 };
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
        let list = lists.get(&entity).map_or(&[][..], Vec::as_slice);
        for marked in list.iter().filter(|marked| chain.sees(marked.branch, marked.seq)) {
            match marked.mark {
                Mark::Version(row) => standing.row = Some(row),
                Mark::Forgotten => standing.row = None,
                Mark::Cooled => standing.cold = true,
                Mark::Warmed => standing.cold = false,
                Mark::Repeated(times) => standing.repeated += times,
            }
        }
        standing
    }

    pub(crate) fn superseders(&self, entity: u32) -> Vec<Row> {
        let superseders = self.superseders.read().unwrap_or_else(PoisonError::into_inner);
        superseders.get(&entity).cloned().unwrap_or_default()
    }

    /// All versions of an entity that has changes.
    pub(crate) fn versions(&self, entity: u32) -> Vec<Row> {
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
        let list = lists.get(&entity).map_or(&[][..], Vec::as_slice);
        let version =
            |marked: &PlacedMark| if let Mark::Version(row) = marked.mark { Some(row) } else { None };
        list.iter().filter_map(version).collect()
    }

    /// The changes of an entry that a chain sees, in order.
    pub(crate) fn seen(&self, entity: u32, chain: &Chain) -> Vec<PlacedMark> {
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
        let list = lists.get(&entity).map_or(&[][..], Vec::as_slice);
        list.iter().filter(|marked| chain.sees(marked.branch, marked.seq)).copied().collect()
    }
}
