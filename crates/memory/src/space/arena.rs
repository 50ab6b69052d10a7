//! The columns of a space's entries in RAM, for visibility, filters and the scan of signs.
//!
//! ```text
//!  writer ── commit ──► extends the last chunk (copied) ──► publishes a new Arena
//!  reader ──► takes the current Arena ──► opens its read transaction ──► sees nothing above `head`
//! ```
//!
//! Published chunks never change, except for their flags; a reader keeps using the Arena that it took while the writer
//! continues. The database that a reader opens afterwards is as new or newer, and newer rows are above `head`, so both agree.
//!
//! Invariants: rows are dense from 1, apart from collected ones; a missing row has branch 0, which no
//! chain contains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::chain::{BranchNo, Branches};
use super::marks::Marks;
use super::sessions::Sessions;
use super::words::{WordNo, Words};

/// One version of an entry: the row's number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row(pub(crate) u32);

impl Row {
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Rows of a chunk. A commit copies one chunk: at 100 bytes per row, that takes about ten microseconds.
pub(crate) const CHUNK_ROWS: usize = 1024;

/// The entry has other versions or marks: see [`Marks`].
pub(crate) const MARKED: u8 = 1;
/// An entry supersedes it, on some branch.
pub(crate) const SUPERSEDED: u8 = 2;
/// It was erased.
pub(crate) const ERASED: u8 = 4;

/// One row to add.
#[derive(Clone, Debug)]
pub(crate) struct ArenaRow {
    pub(crate) row: u32,
    pub(crate) entity: u32,
    pub(crate) seq: u64,
    pub(crate) branch: BranchNo,
    pub(crate) at_ms: u64,
    pub(crate) importance: f32,
    pub(crate) kind: WordNo,
    pub(crate) session: WordNo,
    pub(crate) source: WordNo,
    pub(crate) user: WordNo,
    pub(crate) agent: WordNo,
    pub(crate) bytes: u32,
    pub(crate) tags: u64,
    pub(crate) erased: bool,
    pub(crate) signs: Option<Box<[u64]>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) seq: Vec<u64>,
    pub(crate) branch: Vec<BranchNo>,
    pub(crate) at_ms: Vec<u64>,
    pub(crate) importance: Vec<f32>,
    pub(crate) kind: Vec<WordNo>,
    pub(crate) session: Vec<WordNo>,
    pub(crate) source: Vec<WordNo>,
    pub(crate) user: Vec<WordNo>,
    pub(crate) agent: Vec<WordNo>,
    pub(crate) entity: Vec<u32>,
    pub(crate) bytes: Vec<u32>,
    pub(crate) tags: Vec<u64>,
    /// Whether the row has signs in `signs`.
    pub(crate) covered: Vec<bool>,
    /// `stride` words for each row.
    pub(crate) signs: Vec<u64>,
    /// Shared by all copies: a flag only says that marks must be read, or that the row was erased.
    flags: Arc<Flags>,
    /// Properties that all of its rows have in common.
    common: Common,
}

#[derive(Debug)]
struct Flags {
    rows: [AtomicU8; CHUNK_ROWS],
    /// Whether any row has a flag.
    any: AtomicBool,
}

/// Properties of a chunk that avoid examining each row.
#[derive(Clone, Copy, Debug)]
struct Common {
    rows: u32,
    /// The branch of all rows, unless they have different ones.
    branch: Option<BranchNo>,
    seq_max: u64,
}

impl Chunk {
    fn empty() -> Self {
        Self {
            seq: Vec::new(),
            branch: Vec::new(),
            at_ms: Vec::new(),
            importance: Vec::new(),
            kind: Vec::new(),
            session: Vec::new(),
            source: Vec::new(),
            user: Vec::new(),
            agent: Vec::new(),
            entity: Vec::new(),
            bytes: Vec::new(),
            tags: Vec::new(),
            covered: Vec::new(),
            signs: Vec::new(),
            flags: Arc::new(Flags {
                rows: [const { AtomicU8::new(0) }; CHUNK_ROWS],
                any: AtomicBool::new(false),
            }),
            common: Common { rows: 0, branch: None, seq_max: 0 },
        }
    }

    pub(crate) fn flags(&self, slot: usize) -> u8 {
        self.flags.rows[slot].load(Ordering::Acquire)
    }

    fn raise(&self, slot: usize, flag: u8) {
        self.flags.rows[slot].fetch_or(flag, Ordering::AcqRel);
        self.flags.any.store(true, Ordering::Release);
    }

    /// The number of rows, if all belong to one branch that `sees` accepts and none has a flag.
    pub(crate) fn all_seen(&self, sees: impl FnOnce(BranchNo, u64) -> bool) -> Option<u64> {
        let plain = !self.flags.any.load(Ordering::Acquire);
        let Common { rows, branch, seq_max } = self.common;
        branch.filter(|branch| plain && sees(*branch, seq_max)).map(|_| u64::from(rows))
    }

    fn resize(&mut self, rows: usize, stride: usize) {
        self.seq.resize(rows, 0);
        self.branch.resize(rows, 0);
        self.at_ms.resize(rows, 0);
        self.importance.resize(rows, 0.0);
        self.kind.resize(rows, 0);
        self.session.resize(rows, 0);
        self.source.resize(rows, 0);
        self.user.resize(rows, 0);
        self.agent.resize(rows, 0);
        self.entity.resize(rows, 0);
        self.bytes.resize(rows, 0);
        self.tags.resize(rows, 0);
        self.covered.resize(rows, false);
        self.signs.resize(rows * stride, 0);
    }

    fn put(&mut self, slot: usize, row: &ArenaRow, stride: usize) {
        if slot >= self.seq.len() {
            self.resize(slot + 1, stride);
        }
        let Common { rows, branch, seq_max } = &mut self.common;
        *branch = branch.or((*rows == 0).then_some(row.branch)).filter(|known| *known == row.branch);
        *rows += u32::from(self.branch[slot] == 0);
        *seq_max = (*seq_max).max(row.seq);
        self.seq[slot] = row.seq;
        self.branch[slot] = row.branch;
        self.at_ms[slot] = row.at_ms;
        self.importance[slot] = row.importance;
        self.kind[slot] = row.kind;
        self.session[slot] = row.session;
        self.source[slot] = row.source;
        self.user[slot] = row.user;
        self.agent[slot] = row.agent;
        self.entity[slot] = row.entity;
        self.bytes[slot] = row.bytes;
        self.tags[slot] = row.tags;
        self.set_signs(slot, row.signs.as_deref(), stride);
        if row.erased {
            self.raise(slot, ERASED);
        }
    }

    fn set_signs(&mut self, slot: usize, signs: Option<&[u64]>, stride: usize) {
        let signs = signs.filter(|signs| signs.len() == stride);
        self.covered[slot] = signs.is_some();
        if let Some(signs) = signs {
            self.signs[slot * stride..(slot + 1) * stride].copy_from_slice(signs);
        }
    }

    /// Removes the columns of a row that is erased or collected.
    fn clear(&mut self, slot: usize) {
        self.at_ms[slot] = 0;
        self.importance[slot] = 0.0;
        self.bytes[slot] = 0;
        self.tags[slot] = 0;
        for column in [&mut self.kind, &mut self.session, &mut self.source, &mut self.user, &mut self.agent] {
            column[slot] = 0;
        }
        self.covered[slot] = false;
        self.raise(slot, ERASED);
    }
}

/// All rows up to `head`.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// 64-bit words of signs per row, for the current model.
    pub(crate) stride: usize,
    /// The highest published sequence number, and its time.
    pub(crate) head: u64,
    pub(crate) head_ms: u64,
    /// One more than the highest row.
    pub(crate) end: u32,
    /// Rows without a vector of the current model.
    pub(crate) pending: u64,
    pub(crate) branches: Arc<Branches>,
    pub(crate) marks: Arc<Marks>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) words: Arc<Words>,
}

impl Arena {
    pub(crate) fn empty(stride: usize) -> Self {
        Self {
            chunks: Vec::new(),
            stride,
            head: 0,
            head_ms: 0,
            end: 1,
            pending: 0,
            branches: Arc::default(),
            marks: Arc::default(),
            sessions: Arc::default(),
            words: Arc::default(),
        }
    }

    /// The chunk and the index in it, if the row exists.
    pub(crate) fn place(&self, row: Row) -> Option<(&Chunk, usize)> {
        let number = row.0 as usize;
        let chunk = self.chunks.get(number / CHUNK_ROWS)?;
        let slot = number % CHUNK_ROWS;
        (slot < chunk.seq.len() && chunk.branch[slot] != 0).then_some((&**chunk, slot))
    }

    pub(crate) fn put(&mut self, row: &ArenaRow) {
        self.put_apart(row);
        if row.session != 0 && !row.erased {
            self.sessions.insert(row.session, row.at_ms, row.entity, row.row);
        }
    }

    /// As [`Arena::put`], for a loader that fills the sessions itself.
    pub(crate) fn put_apart(&mut self, row: &ArenaRow) {
        let number = row.row as usize;
        while self.chunks.len() <= number / CHUNK_ROWS {
            // All chunks except the last are full, so that scans need not check.
            if let Some(last) = self.chunks.last_mut()
                && last.seq.len() < CHUNK_ROWS
            {
                let stride = self.stride;
                Arc::make_mut(last).resize(CHUNK_ROWS, stride);
            }
            self.chunks.push(Arc::new(Chunk::empty()));
        }
        let stride = self.stride;
        let chunk = Arc::make_mut(&mut self.chunks[number / CHUNK_ROWS]);
        chunk.put(number % CHUNK_ROWS, row, stride);
        self.pending += u64::from(!row.erased && !chunk.covered[number % CHUNK_ROWS]);
        self.end = self.end.max(row.row + 1);
    }

    /// Sets the signs of a row whose vector was computed.
    pub(crate) fn cover(&mut self, row: u32, signs: &[u64]) {
        let (number, stride) = (row as usize, self.stride);
        if self.place(Row(row)).is_none() || signs.len() != stride {
            return;
        }
        let chunk = Arc::make_mut(&mut self.chunks[number / CHUNK_ROWS]);
        self.pending -= u64::from(!chunk.covered[number % CHUNK_ROWS]).min(self.pending);
        chunk.set_signs(number % CHUNK_ROWS, Some(signs), stride);
    }

    /// Erases a row. Readers with an older arena no longer see it, either.
    pub(crate) fn erase(&mut self, row: u32) {
        let number = row as usize;
        if self.place(Row(row)).is_none() {
            return;
        }
        let chunk = Arc::make_mut(&mut self.chunks[number / CHUNK_ROWS]);
        let slot = number % CHUNK_ROWS;
        let (session, at_ms, entity) = (chunk.session[slot], chunk.at_ms[slot], chunk.entity[slot]);
        let counted = chunk.flags(slot) & ERASED == 0 && !chunk.covered[slot];
        self.pending -= u64::from(counted).min(self.pending);
        chunk.clear(slot);
        self.sessions.remove(session, at_ms, entity, row);
    }

    pub(crate) fn raise(&self, row: u32, flag: u8) {
        if let Some((chunk, slot)) = self.place(Row(row)) {
            chunk.raise(slot, flag);
        }
    }

    /// Sets a flag on every version.
    pub(crate) fn raise_entity(&self, entity: u32, flag: u8) {
        self.raise(entity, flag);
        self.marks.versions(entity).into_iter().for_each(|row| self.raise(row.0, flag));
    }

    /// Rows newest first.
    pub(crate) fn rows_down(&self) -> impl Iterator<Item = Row> + use<> {
        (1..self.end).rev().map(Row)
    }

    pub(crate) fn rows_up(&self) -> impl Iterator<Item = Row> + use<> {
        self.rows_from(1)
    }

    /// Rows oldest first, from `first` on.
    pub(crate) fn rows_from(&self, first: u32) -> impl Iterator<Item = Row> + use<> {
        (first.max(1)..self.end).map(Row)
    }

    /// The approximate RAM that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let row = 72 + self.stride as u64 * 8 + 24;
        self.chunks.len() as u64 * CHUNK_ROWS as u64 * row
    }
}
