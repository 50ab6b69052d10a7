//! Reads a space's columns into RAM when it is opened.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, Row as SqlRow};

use super::apply::insert_mark;
use super::arena::{Arena, ArenaRow, Row, SUPERSEDED};
use super::chain::{Branch, BranchNo, Branches};
use super::marks::{Mark, PlacedMark};
use super::sessions::Sessions;
use super::signs;
use crate::MemoryError;
use crate::embed::ModelId;

/// The content of a file, except its texts.
pub(crate) struct LoadedSpace {
    pub(crate) arena: Arena,
    pub(crate) counters: Counters,
    pub(crate) heads: HashMap<BranchNo, u64>,
    /// The number of the current model, if the file has vectors of it.
    pub(crate) model: Option<u32>,
}

/// The counters that never decrease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) seq: u64,
    pub(crate) ms: u64,
    pub(crate) row: u32,
}

pub(crate) fn load(connection: &Connection, model: &ModelId) -> Result<LoadedSpace, MemoryError> {
    let transaction = connection.unchecked_transaction()?;
    let counters = transaction.query_row("SELECT last_seq, last_ms, last_row FROM state", (), |row| {
        Ok(Counters { seq: unsigned(row, 0)?, ms: unsigned(row, 1)?, row: number(row, 2)? })
    })?;
    let found = transaction
        .prepare("SELECT no FROM models WHERE name = ? AND dimensions = ?")?
        .query_map((model.name.as_str(), integer(model.dims as u64)), |row| number(row, 0))?
        .next();
    let dims = model.dims;
    let model = found.transpose()?;
    let mut arena = Arena::empty(signs::words(dims));
    (arena.head, arena.head_ms) = (counters.seq, counters.ms);
    let heads = branches(&transaction, &mut arena)?;
    words(&transaction, &arena)?;
    rows(&transaction, &mut arena, model)?;
    marks(&transaction, &arena)?;
    transaction.commit()?;
    Ok(LoadedSpace { arena, counters, heads, model })
}

fn branches(connection: &Connection, arena: &mut Arena) -> Result<HashMap<BranchNo, u64>, MemoryError> {
    let mut found = Branches::default();
    let mut heads = HashMap::new();
    let mut statement = connection.prepare("SELECT no, id, parent, parent_seq, head FROM branches")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let id: String = row.get(1)?;
        let id = id.parse().map_err(|error: burrow_model::IdError| damaged(error.to_string()))?;
        let parent = match row.get::<_, Option<i64>>(2)? {
            Some(_) => Some((number(row, 2)?, unsigned(row, 3)?)),
            None => None,
        };
        heads.insert(number(row, 0)?, unsigned(row, 4)?);
        found.insert(number(row, 0)?, Branch { id, parent });
    }
    arena.branches = Arc::new(found);
    Ok(heads)
}

fn words(connection: &Connection, arena: &Arena) -> Result<(), MemoryError> {
    let mut statement = connection.prepare("SELECT no, word FROM words")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        arena.words.insert(number(row, 0)?, row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?);
    }
    Ok(())
}

fn rows(connection: &Connection, arena: &mut Arena, model: Option<u32>) -> Result<(), MemoryError> {
    let mut statement = connection.prepare(
        "SELECT row, entity, seq, branch, at_ms, importance, kind, session, source, user, agent, bytes, erased,
                model, signs, tags
         FROM entries ORDER BY row",
    )?;
    let mut further = Vec::new();
    let mut places = Vec::new();
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let has_signs = match row.get::<_, Option<i64>>(13)? {
            Some(of) => model.is_some_and(|model| i64::from(model) == of),
            None => false,
        };
        let signs =
            if has_signs { row.get_ref(14)?.as_blob_or_null().map_err(rusqlite::Error::from)? } else { None };
        let put = ArenaRow {
            row: number(row, 0)?,
            entity: number(row, 1)?,
            seq: unsigned(row, 2)?,
            branch: number(row, 3)?,
            at_ms: unsigned(row, 4)?,
            importance: row.get::<_, f64>(5)? as f32,
            kind: number(row, 6)?,
            session: number(row, 7)?,
            source: number(row, 8)?,
            user: number(row, 9)?,
            agent: number(row, 10)?,
            bytes: number(row, 11)?,
            tags: row.get::<_, i64>(15)?.cast_unsigned(),
            erased: row.get(12)?,
            signs: signs.map(signs::from_bytes),
        };
        if put.row != put.entity {
            let marked = PlacedMark { seq: put.seq, branch: put.branch, mark: Mark::Version(Row(put.row)) };
            further.push((put.entity, marked));
        }
        if put.session != 0 && !put.erased {
            places.push((put.session, put.at_ms, put.entity, put.row));
        }
        arena.put_apart(&put);
    }
    arena.sessions = Arc::new(Sessions::of(places));
    further.into_iter().for_each(|(entity, marked)| insert_mark(arena, entity, marked));
    Ok(())
}

fn marks(connection: &Connection, arena: &Arena) -> Result<(), MemoryError> {
    let mut statement =
        connection.prepare("SELECT seq, branch, entity, what, value FROM marks ORDER BY seq")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let mark = Mark::from_stored(row.get(3)?, unsigned(row, 4)?)
            .ok_or_else(|| damaged(format!("mark {} has an unknown kind", unsigned(row, 0).unwrap_or(0))))?;
        let marked = PlacedMark { seq: unsigned(row, 0)?, branch: number(row, 1)?, mark };
        insert_mark(arena, number(row, 2)?, marked);
    }
    let mut statement = connection.prepare("SELECT row, target FROM supersedes ORDER BY row")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let target = number(row, 1)?;
        arena.marks.insert_superseder(target, Row(number(row, 0)?));
        arena.raise_entity(target, SUPERSEDED);
    }
    Ok(())
}

/// SQLite's integers are signed; larger numbers do not occur.
pub(crate) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(row: &SqlRow<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

pub(crate) fn number(row: &SqlRow<'_>, column: usize) -> Result<u32, rusqlite::Error> {
    let value: i64 = row.get(column)?;
    u32::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

/// The caller that opened the file adds its path.
pub(crate) fn damaged(why: String) -> MemoryError {
    MemoryError::Damaged { file: std::path::PathBuf::new(), why }
}
