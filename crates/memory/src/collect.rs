//! Removes rows that no sandbox and no snapshot can see any more.
//!
//! The engine passes the branches and moments that are still in use. Rows that none of them sees are garbage: the branches
//! of deleted forks, and the rows that a restore abandoned. The content of forgotten artifacts is released here, too.
//!
//! ```text
//!  branch 1   1 ─ 2 ─ 3 ─ 5 ─ 7      kept: branch 2, and a snapshot of branch 1 at 3
//!  branch 2           └─ 4 ─ 6       dead: 5 and 7
//! ```
//!
//! A union of chains is a bound per branch, so two numbers tell whether a row is dead. Only rows older than a grace period are
//! removed: a fork that was created while the engine built the list is not on it, and its first rows are young.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use burrow_model::{MemoryPoint, MemoryRef, SpaceId};
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use crate::space::chain::{BranchNo, Branches, Chain};
use crate::space::load::{integer, number, unsigned};
use crate::space::slots::Access;
use crate::space::{Space, open_reader};
use crate::{Memory, MemoryError, artifacts, blocking};

/// Younger rows are kept, even if no branch sees them.
pub const COLLECT_GRACE_MS: u64 = 15 * 60 * 1000;

/// Rows of the log that are examined and removed between two commits; other writers run in between.
const ROWS_MAX: usize = 2000;

/// Tables whose rows are found by their sequence number, and that no other rows depend on.
const BY_NUMBER: &[&str] = &[
    "DELETE FROM kv WHERE seq = ?1",
    "DELETE FROM skills WHERE seq = ?1",
    "DELETE FROM skill_outcomes WHERE seq = ?1",
    "DELETE FROM artifacts WHERE seq = ?1",
    "DELETE FROM marks WHERE seq = ?1",
    "DELETE FROM merges WHERE seq = ?1",
    "DELETE FROM merges WHERE seq = ?1",
    "DELETE FROM merge_joins WHERE seq = ?1",
    "DELETE FROM log WHERE seq = ?1",
];

/// A reference that keeps rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptReference {
    /// A sandbox's branch, with everything that it will write.
    Branch(MemoryRef),
    /// A moment that a snapshot refers to.
    Point(MemoryPoint),
}

/// What was removed, or would be in a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CollectReport {
    /// Rows of the log.
    pub rows: u64,
    pub branches: u64,
    /// Versions of artifacts whose content the next sweep may remove.
    pub released: u64,
}

impl Memory {
    /// Removes rows of a space that none of `keep` sees, and releases the content of artifacts that none of it refers to.
    ///
    /// May be interrupted at any point and repeated. [`Memory::sweep`] then removes the content.
    pub async fn collect(
        &self,
        space: &SpaceId,
        keep: &[KeptReference],
        dry_run: bool,
    ) -> Result<CollectReport, MemoryError> {
        let (path, branches) = (self.shared.slots.path(space), keep.to_vec());
        if blocking(move || has_nothing_to_collect(&path, &branches)).await? {
            return Ok(CollectReport::default());
        }
        let open = self.shared.slots.open(space, Access::Read).await?;
        let (keep, now_ms) = (keep.to_vec(), self.shared.clock.now_ms());
        blocking(move || collect(&open, &keep, now_ms.saturating_sub(COLLECT_GRACE_MS), dry_run)).await
    }
}

/// Whether the closed file shows that all rows are kept. Most spaces have one branch, whose sandbox exists,
/// and opening a large space takes time.
fn has_nothing_to_collect(path: &Path, keep: &[KeptReference]) -> Result<bool, MemoryError> {
    if !path.exists() {
        return Ok(true);
    }
    let kept: HashSet<&str> = keep
        .iter()
        .filter_map(|kept| match kept {
            KeptReference::Branch(of) => Some(of.branch.as_str()),
            KeptReference::Point(_) => None,
        })
        .collect();
    let connection = open_reader(path)?;
    let mut statement = connection.prepare("SELECT id FROM branches")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        if !kept.contains(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?) {
            return Ok(false);
        }
    }
    // Forgotten artifacts whose content was not released yet.
    let forgotten = "SELECT 1 FROM artifacts AS gone WHERE gone.hash IS NULL AND EXISTS
        (SELECT 1 FROM artifacts AS held WHERE held.name = gone.name AND held.seq < gone.seq AND held.released = 0)";
    Ok(!connection.prepare(forgotten)?.exists(())?)
}

/// The kept part of each branch: everything up to a number.
struct Bounds(HashMap<BranchNo, u64>);

impl Bounds {
    fn of(chains: &[Chain]) -> Self {
        let mut bounds = HashMap::new();
        for (branch, bound) in chains.iter().flat_map(Chain::links) {
            let known = bounds.entry(branch).or_insert(bound);
            *known = bound.max(*known);
        }
        Self(bounds)
    }

    fn is_dead(&self, branch: BranchNo, seq: u64) -> bool {
        self.0.get(&branch).is_none_or(|bound| seq > *bound)
    }
}

fn collect(
    space: &Arc<Space>,
    keep: &[KeptReference],
    before_ms: u64,
    dry_run: bool,
) -> Result<CollectReport, MemoryError> {
    let branches = Arc::clone(&space.arena().branches);
    let chains: Vec<Chain> = keep.iter().map(|kept| chain_of(&branches, kept, u64::MAX)).collect();
    let bounds = Bounds::of(&chains);
    let released = space.alone(|side| {
        in_transaction(&side.connection, dry_run, |connection| {
            // Artifacts forgotten within the grace period are kept: a fork that is not on the list yet may have them.
            let before = last_before(connection, before_ms)?;
            let earlier = keep.iter().map(|kept| chain_of(&branches, kept, before));
            let had: Vec<Chain> = chains.iter().cloned().chain(earlier).collect();
            artifacts::release(connection, &had, before_ms)
        })
    })?;
    let mut collected = CollectReport { released, ..CollectReport::default() };
    if branches.iter().any(|(no, _)| bounds.is_dead(no, space.head(no))) {
        collected.rows = remove_rows(space, &bounds, before_ms, dry_run)?;
        collected.branches = space.alone(|side| {
            in_transaction(&side.connection, dry_run, |connection| {
                // Dead rows are removed by now, unless this is a dry run.
                let young_ms = if dry_run { before_ms } else { 0 };
                remove_branches(connection, &branches, &bounds, young_ms)
            })
        })?;
        if collected.rows + collected.branches > 0 && !dry_run {
            space.alone(|side| space.reload(side))?;
        }
    }
    Ok(collected)
}

fn chain_of(branches: &Branches, kept: &KeptReference, cut: u64) -> Chain {
    match kept {
        KeptReference::Branch(of) => Chain::of(branches, of, cut),
        KeptReference::Point(point) => Chain::at(branches, Some(point), cut),
    }
}

/// The highest number written before a time. Searched from the end, where the young rows are.
fn last_before(connection: &Connection, before_ms: u64) -> Result<u64, MemoryError> {
    let found = connection
        .prepare_cached("SELECT seq FROM log WHERE at_ms < ?1 ORDER BY seq DESC LIMIT 1")?
        .query_row(params![integer(before_ms)], |row| unsigned(row, 0))
        .optional()?;
    Ok(found.unwrap_or(0))
}

/// Walks over the log once, in steps.
fn remove_rows(space: &Space, bounds: &Bounds, before_ms: u64, dry_run: bool) -> Result<u64, MemoryError> {
    let (mut from, mut removed) = (0, 0);
    loop {
        let stretch = space.alone(|side| {
            in_transaction(&side.connection, dry_run, |connection| {
                let stretch = dead_after(connection, bounds, from, before_ms)?;
                stretch.dead.iter().try_for_each(|seq| remove(connection, *seq))?;
                Ok(stretch)
            })
        })?;
        removed += stretch.dead.len() as u64;
        match stretch.upto {
            Some(upto) => from = upto,
            None => break,
        }
    }
    if removed > 0 {
        // These have no index by number, so they are scanned once, at the end.
        space.alone(|side| {
            in_transaction(&side.connection, dry_run, |connection| {
                connection.execute("DELETE FROM merge_joins WHERE seq NOT IN (SELECT seq FROM log)", ())?;
                Ok(())
            })
        })?;
    }
    Ok(removed)
}

struct DeadRows {
    dead: Vec<u64>,
    /// Where to continue; `None` at the end.
    upto: Option<u64>,
}

fn dead_after(
    connection: &Connection,
    bounds: &Bounds,
    from: u64,
    before_ms: u64,
) -> Result<DeadRows, MemoryError> {
    let mut statement = connection
        .prepare_cached("SELECT seq, branch FROM log WHERE seq > ?1 AND at_ms < ?2 ORDER BY seq LIMIT ?3")?;
    let mut rows = statement.query(params![integer(from), integer(before_ms), integer(ROWS_MAX as u64)])?;
    let mut stretch = DeadRows { dead: Vec::new(), upto: None };
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let (seq, branch) = (unsigned(row, 0)?, number(row, 1)?);
        if bounds.is_dead(branch, seq) && !is_tombstone(connection, seq)? {
            stretch.dead.push(seq);
        }
        count += 1;
        if count == ROWS_MAX {
            stretch.upto = Some(seq);
        }
    }
    Ok(stretch)
}

/// The remaining row of an erased entry records that the entry was erased, so it must stay.
fn is_tombstone(connection: &Connection, seq: u64) -> Result<bool, MemoryError> {
    let sql = "SELECT 1 FROM entries WHERE seq = ?1 AND erased <> 0";
    Ok(connection.prepare_cached(sql)?.exists(params![integer(seq)])?)
}

/// Removes all rows that belong to one number of the log.
fn remove(connection: &Connection, seq: u64) -> Result<(), MemoryError> {
    let entry: Option<(i64, i64)> = connection
        .prepare_cached("SELECT row, entity FROM entries WHERE seq = ?1")?
        .query_row(params![integer(seq)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let marked: Option<i64> = connection
        .prepare_cached("SELECT entity FROM marks WHERE seq = ?1")?
        .query_row(params![integer(seq)], |row| row.get(0))
        .optional()?;
    if let Some((row, entity)) = entry {
        remove_entry(connection, row, entity)?;
    }
    // A key has the number of the row that it was added with: a version, or a repetition.
    if let Some(entity) = entry.map(|(_, entity)| entity).or(marked) {
        connection
            .prepare_cached("DELETE FROM keys WHERE entity = ?1 AND seq = ?2")?
            .execute(params![entity, integer(seq)])?;
    }
    for sql in BY_NUMBER {
        connection.prepare_cached(sql)?.execute(params![integer(seq)])?;
    }
    Ok(())
}

fn remove_entry(connection: &Connection, row: i64, entity: i64) -> Result<(), MemoryError> {
    let text: Option<String> = connection
        .prepare_cached("SELECT text FROM texts WHERE row = ?1")?
        .query_row(params![row], |row| row.get(0))
        .optional()?;
    if let Some(text) = text {
        // The text index keeps no copy of the text, so a deletion must pass it.
        connection
            .prepare_cached("INSERT INTO fts (fts, rowid, text) VALUES ('delete', ?1, ?2)")?
            .execute(params![row, text])?;
        connection.prepare_cached("DELETE FROM texts WHERE row = ?1")?.execute(params![row])?;
    }
    connection.prepare_cached("DELETE FROM vectors WHERE row = ?1")?.execute(params![row])?;
    connection.prepare_cached("DELETE FROM supersedes WHERE row = ?1")?.execute(params![row])?;
    connection.prepare_cached("DELETE FROM entries WHERE row = ?1")?.execute(params![row])?;
    // The id stays while another version has it.
    connection
        .prepare_cached(
            "DELETE FROM ids WHERE entity = ?1
               AND NOT EXISTS (SELECT 1 FROM entries WHERE row = ?1)
               AND NOT EXISTS (SELECT 1 FROM entries WHERE entity = ?1 AND (version > 1 OR row <> entity))",
        )?
        .execute(params![entity])?;
    Ok(())
}

/// Removes branches that are not kept and have no rows from `young_ms` on. Youngest first, because a branch with children
/// stays.
fn remove_branches(
    connection: &Connection,
    branches: &Branches,
    bounds: &Bounds,
    young_ms: u64,
) -> Result<u64, MemoryError> {
    let mut dead: Vec<BranchNo> = branches.iter().map(|(no, _)| no).collect();
    dead.retain(|no| !bounds.0.contains_key(no));
    dead.sort_unstable_by(|a, b| b.cmp(a));
    let mut removed = 0;
    for no in dead {
        let sql = "DELETE FROM branches WHERE no = ?1
                     AND NOT EXISTS (SELECT 1 FROM log WHERE branch = ?1 AND at_ms >= ?2)
                     AND NOT EXISTS (SELECT 1 FROM branches AS child WHERE child.parent = ?1)";
        removed += connection.prepare_cached(sql)?.execute(params![no, integer(young_ms)])? as u64;
    }
    Ok(removed)
}

/// Commits what `work` does, or rolls it back if it fails or in a dry run.
fn in_transaction<T>(
    connection: &Connection,
    dry_run: bool,
    work: impl FnOnce(&Connection) -> Result<T, MemoryError>,
) -> Result<T, MemoryError> {
    let transaction = connection.unchecked_transaction()?;
    let result = work(connection)?;
    if dry_run {
        transaction.rollback()?;
    } else {
        transaction.commit()?;
    }
    Ok(result)
}
