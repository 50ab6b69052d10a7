//! A space as one view sees it at one moment: the visible rows and their state.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use super::arena::{Arena, CHUNK_ROWS, Chunk, ERASED, MARKED, Row, SUPERSEDED};
use super::chain::Chain;
use crate::MemoryError;

#[derive(Clone, Debug)]
pub(crate) struct Visibility {
    pub(crate) arena: Arc<Arena>,
    pub(crate) chain: Chain,
}

impl Visibility {
    /// Visible: on the chain, the newest visible version, and neither forgotten nor erased.
    pub(crate) fn visible(&self, row: Row) -> bool {
        self.arena.place(row).is_some_and(|(chunk, slot)| self.visible_at(chunk, slot, row))
    }

    fn visible_at(&self, chunk: &Chunk, slot: usize, row: Row) -> bool {
        if !self.chain.sees(chunk.branch[slot], chunk.seq[slot]) {
            return false;
        }
        let flags = chunk.flags(slot);
        if flags & ERASED != 0 {
            return false;
        }
        flags & MARKED == 0 || self.arena.marks.standing(chunk.entity[slot], &self.chain).row == Some(row)
    }

    /// The number of visible rows.
    pub(crate) fn count(&self) -> u64 {
        let in_chunk = |(at, chunk): (usize, &Arc<Chunk>)| {
            if let Some(rows) = chunk.all_seen(|branch, seq| self.chain.sees(branch, seq)) {
                return rows;
            }
            let rows = (0..chunk.seq.len()).zip(at * CHUNK_ROWS..);
            // A missing row has branch 0, which no chain contains.
            rows.filter(|(slot, row)| self.visible_at(chunk, *slot, Row(*row as u32))).count() as u64
        };
        self.arena.chunks.iter().enumerate().map(in_chunk).sum()
    }

    pub(crate) fn cold(&self, row: Row) -> bool {
        let Some((chunk, slot)) = self.arena.place(row) else { return false };
        chunk.flags(slot) & MARKED != 0 && self.arena.marks.standing(chunk.entity[slot], &self.chain).cold
    }

    /// The number of visible repetitions.
    pub(crate) fn repeated(&self, row: Row) -> u64 {
        let Some((chunk, slot)) = self.arena.place(row) else { return 0 };
        if chunk.flags(slot) & MARKED == 0 {
            return 0;
        }
        self.arena.marks.standing(chunk.entity[slot], &self.chain).repeated
    }

    /// The newest visible entry that supersedes this one.
    pub(crate) fn superseded_by(&self, row: Row) -> Option<Row> {
        let (chunk, slot) = self.arena.place(row)?;
        if chunk.flags(slot) & SUPERSEDED == 0 {
            return None;
        }
        let superseders = self.arena.marks.superseders(chunk.entity[slot]);
        superseders.into_iter().rev().find(|superseder| self.visible(*superseder))
    }

    /// The visible row of an entity.
    pub(crate) fn row_of(&self, entity: u32) -> Option<Row> {
        let row = Row(entity);
        if self.visible(row) {
            return Some(row);
        }
        self.arena.marks.standing(entity, &self.chain).row.filter(|row| self.visible(*row))
    }
}

/// The view that the SQL functions of a connection use; set for each transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Binding(Arc<Mutex<Option<Visibility>>>);

impl Binding {
    /// Registers the function `sees(branch, seq)` on a connection.
    pub(crate) fn install(connection: &Connection) -> Result<Self, MemoryError> {
        let binding = Self::default();
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
        let bound = binding.clone();
        connection.create_scalar_function("sees", 2, flags, move |context| {
            let branch = u32::try_from(context.get::<i64>(0)?).unwrap_or(0);
            let seq = u64::try_from(context.get::<i64>(1)?).unwrap_or(u64::MAX);
            Ok(bound.with(|visibility| visibility.chain.sees(branch, seq)))
        })?;
        Ok(binding)
    }

    pub(crate) fn set(&self, visibility: Option<Visibility>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = visibility;
    }

    /// Without a view, nothing is visible.
    fn with(&self, ask: impl FnOnce(&Visibility) -> bool) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(ask)
    }
}
