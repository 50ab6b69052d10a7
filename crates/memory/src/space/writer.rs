//! A write transaction: numbers from the log, the branch, and the rows that the branch sees.
//!
//! Work may run twice (after a failed commit, each job runs again alone) and only the committed run counts. So it
//! is `Fn`, and all of its effects are in the transaction, or in [`Effects`] through the methods here.

use std::collections::HashMap;
use std::sync::Arc;

use burrow_model::{MemoryId, MemoryRef};
use rusqlite::{Connection, OptionalExtension};

use super::apply::{Effects, ListLengths};
use super::arena::{Arena, Row};
use super::chain::{Branch, BranchNo, Branches, Chain};
use super::load::{Counters, integer, number, unsigned};
use super::marks::{Mark, PlacedMark};
use super::visibility::{Binding, Visibility};
use super::words::WordNo;
use crate::MemoryError;
use crate::embed::ModelId;

/// The kind of object that a number in the log belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    Entry,
    Mark,
    Erase,
    Kv,
    Skill,
    Outcome,
    Artifact,
    Merge,
    Session,
}

impl LogKind {
    fn stored(self) -> i64 {
        match self {
            Self::Entry => 1,
            Self::Mark => 2,
            Self::Erase => 3,
            Self::Kv => 4,
            Self::Skill => 5,
            Self::Outcome => 6,
            Self::Artifact => 7,
            Self::Merge => 8,
            Self::Session => 9,
        }
    }
}

/// The state of the jobs of one transaction.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) counters: Counters,
    pub(crate) effects: Effects,
    /// The branches of the file and those that this transaction added.
    branches: Arc<Branches>,
    words: HashMap<String, WordNo>,
    last_word: WordNo,
    pub(crate) model: Option<u32>,
}

/// The state before a job, for rolling it back.
pub(crate) struct Start {
    counters: Counters,
    effects: ListLengths,
    model: Option<u32>,
}

impl Batch {
    pub(crate) fn new(arena: &Arena, counters: Counters, model: Option<u32>) -> Self {
        Self {
            counters,
            effects: Effects::default(),
            branches: Arc::clone(&arena.branches),
            words: HashMap::new(),
            last_word: arena.words.last(),
            model,
        }
    }

    pub(crate) fn start(&self) -> Start {
        Start { counters: self.counters, effects: self.effects.mileage(), model: self.model }
    }

    pub(crate) fn take_back(&mut self, start: &Start, arena: &Arena) {
        self.counters = start.counters;
        self.model = start.model;
        self.effects.take_back(&start.effects);
        self.branches = Arc::clone(&arena.branches);
        for (no, branch) in &self.effects.branches {
            Arc::make_mut(&mut self.branches).insert(*no, branch.clone());
        }
        self.words = self.effects.words.iter().map(|(no, word)| (word.clone(), *no)).collect();
        self.last_word = self.effects.words.last().map_or_else(|| arena.words.last(), |(no, _)| *no);
    }
}

/// Access of one job to the transaction.
#[derive(Debug)]
pub struct Writer<'a> {
    connection: &'a Connection,
    arena: &'a Arc<Arena>,
    batch: &'a mut Batch,
    branch: BranchNo,
    at_ms: u64,
    chain: Chain,
}

/// The newest visible version of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) entity: u32,
    pub(crate) row: Row,
    pub(crate) seq: u64,
    pub(crate) version: u64,
}

impl<'a> Writer<'a> {
    /// The columns at the beginning of the batch.
    pub(crate) fn arena(&self) -> &Arena {
        self.arena
    }

    pub(crate) fn new(
        connection: &'a Connection,
        arena: &'a Arc<Arena>,
        batch: &'a mut Batch,
        binding: &'a Binding,
        of: Option<&MemoryRef>,
        now_ms: u64,
    ) -> Result<Self, MemoryError> {
        // Time within a file never decreases, even if the host's clock does.
        let at_ms = now_ms.max(batch.counters.ms);
        let (branch, chain) = match of {
            Some(of) => (register(connection, batch, of)?, Chain::of(&batch.branches, of, u64::MAX)),
            None => (0, Chain::nothing()),
        };
        // Makes `sees(branch, seq)` of this connection use this branch.
        binding.set(Some(Visibility { arena: Arc::clone(arena), chain: chain.clone() }));
        Ok(Self { connection, arena, batch, branch, at_ms, chain })
    }

    /// The transaction. `sees(branch, seq)` returns what this branch sees, including this job's rows.
    pub fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// The rows that this branch sees, including this job's rows.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The time of everything that this job writes.
    pub fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// The highest used sequence number.
    pub fn last_seq(&self) -> u64 {
        self.batch.counters.seq
    }

    /// As [`Writer::at_ms`]: the time does not change within a job.
    pub fn now_ms(&self) -> u64 {
        self.at_ms
    }

    /// This branch's number in the file.
    pub fn branch(&self) -> BranchNo {
        self.branch
    }

    /// Adds a row of this branch to the log; returns its sequence number and time.
    pub fn next(&mut self, kind: LogKind) -> Result<(u64, u64), MemoryError> {
        Ok((self.next_seq(kind)?, self.at_ms))
    }

    /// Adds a row of this branch to the log; returns its sequence number.
    pub fn next_seq(&mut self, kind: LogKind) -> Result<u64, MemoryError> {
        let branch = self.branch;
        if branch == 0 {
            return Err(MemoryError::invalid("the number", "upkeep has no branch and writes no log rows"));
        }
        let seq = self.batch.counters.seq + 1;
        self.connection
            .prepare_cached("INSERT INTO log (seq, branch, at_ms, what) VALUES (?, ?, ?, ?)")?
            .execute((integer(seq), branch, integer(self.at_ms), kind.stored()))?;
        self.batch.counters.seq = seq;
        self.batch.counters.ms = self.at_ms;
        self.batch.effects.heads.push((branch, seq));
        Ok(seq)
    }

    /// The newest version of an entry that this branch sees, unless it was forgotten or erased.
    pub(crate) fn find(&self, id: &MemoryId) -> Result<Option<Current>, MemoryError> {
        match self.entity(id)? {
            Some(entity) => self.current(entity),
            None => Ok(None),
        }
    }

    /// The entity of an id, visible or not.
    pub(crate) fn entity(&self, id: &MemoryId) -> Result<Option<u32>, MemoryError> {
        let mut statement = self.connection.prepare_cached("SELECT entity FROM ids WHERE id = ?")?;
        Ok(statement.query_row([id.as_str()], |row| number(row, 0)).optional()?)
    }

    pub(crate) fn current(&self, entity: u32) -> Result<Option<Current>, MemoryError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT row, seq, version FROM entries
             WHERE (row = ?1 OR row IN (SELECT row FROM entries WHERE entity = ?1 AND (version > 1 OR row <> entity)))
               AND entity = ?1 AND erased = 0 AND sees(branch, seq)
             ORDER BY seq DESC LIMIT 1",
        )?;
        let newest = statement
            .query_row([entity], |row| {
                Ok(Current {
                    entity,
                    row: Row(number(row, 0)?),
                    seq: unsigned(row, 1)?,
                    version: unsigned(row, 2)?,
                })
            })
            .optional()?;
        let Some(newest) = newest else { return Ok(None) };
        let mut statement = self.connection.prepare_cached(
            "SELECT 1 FROM marks WHERE entity = ? AND what = 1 AND seq > ? AND sees(branch, seq)",
        )?;
        let forgotten = statement.exists((entity, integer(newest.seq)))?;
        Ok((!forgotten).then_some(newest))
    }

    /// Marks an entry on this branch.
    pub(crate) fn mark(&mut self, entity: u32, mark: Mark) -> Result<u64, MemoryError> {
        let seq = self.next_seq(LogKind::Mark)?;
        let branch = self.branch;
        let (what, value) =
            mark.stored().ok_or_else(|| MemoryError::invalid("the mark", "a version is not a mark"))?;
        self.connection
            .prepare_cached("INSERT INTO marks (seq, branch, entity, what, value) VALUES (?, ?, ?, ?, ?)")?
            .execute((integer(seq), branch, entity, what, integer(value)))?;
        self.batch.effects.marks.push((entity, PlacedMark { seq, branch, mark }));
        Ok(seq)
    }

    /// The number of a label, which is added to the file if it is new. 0 for none.
    pub(crate) fn word(&mut self, word: Option<&str>) -> Result<WordNo, MemoryError> {
        let Some(word) = word else { return Ok(0) };
        if let Some(no) = self.arena.words.number(word).or_else(|| self.batch.words.get(word).copied()) {
            return Ok(no);
        }
        let no = self.batch.last_word + 1;
        self.connection.prepare_cached("INSERT INTO words (no, word) VALUES (?, ?)")?.execute((no, word))?;
        self.batch.last_word = no;
        self.batch.words.insert(word.to_owned(), no);
        self.batch.effects.words.push((no, word.to_owned()));
        Ok(no)
    }

    /// The next row number of entries.
    pub(crate) fn next_row(&mut self) -> u32 {
        self.batch.counters.row += 1;
        self.batch.counters.row
    }

    /// The number of the current model, which is added to the file if it is new.
    pub(crate) fn model(&mut self, model: &ModelId) -> Result<u32, MemoryError> {
        if let Some(no) = self.batch.model {
            return Ok(no);
        }
        let (name, dimensions) = (model.name.as_str(), integer(model.dims as u64));
        self.connection
            .prepare_cached("INSERT OR IGNORE INTO models (name, dimensions) VALUES (?, ?)")?
            .execute((name, dimensions))?;
        let no = self
            .connection
            .prepare_cached("SELECT no FROM models WHERE name = ? AND dimensions = ?")?
            .query_row((name, dimensions), |row| number(row, 0))?;
        self.batch.model = Some(no);
        Ok(no)
    }

    pub(crate) fn effects(&mut self) -> &mut Effects {
        &mut self.batch.effects
    }
}

/// A branch is added to the file by its first write. If its first job wrote nothing, it has no head, and is treated as
/// absent.
fn register(connection: &Connection, batch: &mut Batch, of: &MemoryRef) -> Result<BranchNo, MemoryError> {
    if let Some(no) = batch.branches.number(&of.branch) {
        return Ok(no);
    }
    let parent = match &of.from {
        None => None,
        Some(point) => {
            let no = batch.branches.number(&point.branch);
            Some((no.ok_or_else(|| MemoryError::not_found("branch", &point.branch))?, point.seq))
        }
    };
    let no = batch.branches.last() + 1;
    connection
        .prepare_cached("INSERT INTO branches (no, id, parent, parent_seq, head) VALUES (?, ?, ?, ?, 0)")?
        .execute((no, of.branch.as_str(), parent.map(|(no, _)| no), parent.map(|(_, seq)| integer(seq))))?;
    let branch = Branch { id: of.branch.clone(), parent };
    Arc::make_mut(&mut batch.branches).insert(no, branch.clone());
    batch.effects.branches.push((no, branch));
    Ok(no)
}
