//! Reads entries: rows to [`Entry`], ids to rows.

use burrow_model::{BranchId, MemoryId};
use rusqlite::{Connection, OptionalExtension, Row as SqlRow};
use serde::de::DeserializeOwned;

use super::put::{ChecksumInput, StoredLists};
use super::types::{Entry, Version, VersionKind};
use crate::space::arena::Row;
use crate::space::load::{damaged, number, unsigned};
use crate::space::marks::Mark;
use crate::space::reader::Reader;
use crate::{MemoryError, View};

/// A row as stored: the fields that do not depend on the view.
pub(crate) struct StoredEntry {
    pub(crate) entry: Entry,
    /// Whether its checksum is correct.
    pub(crate) sound: bool,
}

/// One row, without a check of visibility. `None` if it does not exist or was erased.
pub(crate) fn fetch(connection: &Connection, row: Row) -> Result<Option<StoredEntry>, MemoryError> {
    let mut statement = connection.prepare_cached(
        "SELECT i.id, e.seq, e.version, t.text, (SELECT word FROM words WHERE no = e.kind), t.metadata, e.importance,
                (SELECT word FROM words WHERE no = e.source), (SELECT word FROM words WHERE no = e.session),
                (SELECT word FROM words WHERE no = e.user), (SELECT word FROM words WHERE no = e.agent),
                e.at_ms, l.at_ms, t.valid_from_ms, t.valid_to_ms, t.supersedes, e.count, t.artifacts, t.links,
                b.id, t.sum
         FROM entries e JOIN texts t ON t.row = e.row JOIN ids i ON i.entity = e.entity
              JOIN log l ON l.seq = e.seq JOIN branches b ON b.no = e.branch
         WHERE e.row = ? AND e.erased = 0",
    )?;
    let mut rows = statement.query([row.number()])?;
    rows.next()?.map(of_columns).transpose()
}

fn of_columns(row: &SqlRow<'_>) -> Result<StoredEntry, MemoryError> {
    let id: MemoryId = parsed(row, 0)?;
    let stored = StoredLists {
        metadata: row.get(5)?,
        supersedes: row.get(15)?,
        artifacts: row.get(17)?,
        links: row.get(18)?,
    };
    let branch: BranchId = parsed(row, 19)?;
    let time =
        |column| row.get::<_, Option<i64>>(column).map(|time| time.and_then(|t| u64::try_from(t).ok()));
    let entry = Entry {
        id,
        seq: unsigned(row, 1)?,
        version: unsigned(row, 2)?,
        text: row.get(3)?,
        kind: row.get::<_, Option<String>>(4)?.ok_or_else(|| damaged("an entry has no kind".to_owned()))?,
        metadata: list(stored.metadata.as_deref())?.unwrap_or_default(),
        importance: row.get::<_, f64>(6)? as f32,
        source: row.get(7)?,
        session: row.get(8)?,
        user: row.get(9)?,
        agent: row.get(10)?,
        at_ms: unsigned(row, 11)?,
        stored_ms: unsigned(row, 12)?,
        valid_from_ms: time(13)?,
        valid_to_ms: time(14)?,
        supersedes: list(stored.supersedes.as_deref())?.unwrap_or_default(),
        superseded_by: None,
        count: unsigned(row, 16)?,
        artifacts: list(stored.artifacts.as_deref())?.unwrap_or_default(),
        links: list(stored.links.as_deref())?.unwrap_or_default(),
        cold: false,
        branch,
    };
    let sum: i64 = row.get(20)?;
    let sound = sum
        == stored.sum(&ChecksumInput {
            id: &entry.id,
            seq: entry.seq,
            version: entry.version,
            count: entry.count,
            at_ms: entry.at_ms,
            importance: entry.importance,
            labels: [
                Some(entry.kind.as_str()),
                entry.session.as_deref(),
                entry.source.as_deref(),
                entry.user.as_deref(),
                entry.agent.as_deref(),
            ],
            text: &entry.text,
            valid: [entry.valid_from_ms, entry.valid_to_ms],
        });
    Ok(StoredEntry { entry, sound })
}

fn parsed<T: std::str::FromStr<Err = burrow_model::IdError>>(
    row: &SqlRow<'_>,
    column: usize,
) -> Result<T, MemoryError> {
    let text: String = row.get(column)?;
    text.parse().map_err(|error: burrow_model::IdError| damaged(error.to_string()))
}

fn list<T: DeserializeOwned>(text: Option<&str>) -> Result<Option<T>, MemoryError> {
    let bad = |error: serde_json::Error| damaged(format!("a stored list cannot be read: {error}"));
    text.map(|text| serde_json::from_str(text).map_err(bad)).transpose()
}

impl Reader<'_> {
    /// The entity of an id, without a check of visibility.
    pub(crate) fn entity(&self, id: &MemoryId) -> Result<Option<u32>, MemoryError> {
        let mut statement = self.connection.prepare_cached("SELECT entity FROM ids WHERE id = ?")?;
        Ok(statement.query_row([id.as_str()], |row| number(row, 0)).optional()?)
    }

    /// The visible row of an id.
    pub fn row_of(&self, id: &MemoryId) -> Result<Option<Row>, MemoryError> {
        Ok(self.entity(id)?.and_then(|entity| self.visibility.row_of(entity)))
    }

    /// The id of a row.
    pub fn id_of(&self, row: Row) -> Result<Option<MemoryId>, MemoryError> {
        let Some((chunk, slot)) = self.visibility.arena.place(row) else { return Ok(None) };
        let mut statement = self.connection.prepare_cached("SELECT id FROM ids WHERE entity = ?")?;
        let id: Option<String> = statement.query_row([chunk.entity[slot]], |row| row.get(0)).optional()?;
        id.map(|id| id.parse().map_err(|error: burrow_model::IdError| damaged(error.to_string()))).transpose()
    }

    /// The texts of rows, in their order; empty for rows that no longer exist.
    pub fn texts(&self, rows: &[Row]) -> Result<Vec<String>, MemoryError> {
        let mut statement = self.connection.prepare_cached("SELECT text FROM texts WHERE row = ?")?;
        let mut text = |row: &Row| statement.query_row([row.number()], |row| row.get(0)).optional();
        rows.iter().map(|row| Ok(text(row)?.unwrap_or_default())).collect()
    }

    /// The entries of rows, in their order; rows that no longer exist are omitted.
    pub fn entries(&self, rows: &[Row]) -> Result<Vec<Entry>, MemoryError> {
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            entries.extend(self.entry(*row)?);
        }
        Ok(entries)
    }

    /// One entry as this view sees it.
    pub fn entry(&self, row: Row) -> Result<Option<Entry>, MemoryError> {
        let Some(StoredEntry { mut entry, .. }) = fetch(self.connection, row)? else { return Ok(None) };
        entry.count += self.visibility.repeated(row);
        entry.cold = self.visibility.cold(row);
        if let Some(superseder) = self.visibility.superseded_by(row) {
            entry.superseded_by = self.id_of(superseder)?;
        }
        Ok(Some(entry))
    }

    fn versions(&self, id: &MemoryId) -> Result<Vec<Version>, MemoryError> {
        let Some(entity) = self.entity(id)? else { return Ok(Vec::new()) };
        let mut seen = self.visibility.arena.marks.seen(entity, &self.visibility.chain);
        if seen.is_empty()
            && let Some(row) = self.visibility.row_of(entity)
            && let Some((chunk, slot)) = self.visibility.arena.place(row)
        {
            let (seq, branch) = (chunk.seq[slot], chunk.branch[slot]);
            seen.push(crate::space::marks::PlacedMark { seq, branch, mark: Mark::Version(row) });
        }
        let mut versions = Vec::with_capacity(seen.len());
        for marked in seen {
            let what = match marked.mark {
                Mark::Version(row) => match fetch(self.connection, row)? {
                    Some(fetched) => VersionKind::Written { entry: Box::new(fetched.entry) },
                    // It was erased meanwhile.
                    None => continue,
                },
                Mark::Forgotten => VersionKind::Forgotten,
                Mark::Cooled => VersionKind::Cooled,
                Mark::Warmed => VersionKind::Warmed,
                Mark::Repeated(times) => VersionKind::Repeated { times },
            };
            let mut statement = self.connection.prepare_cached("SELECT at_ms FROM log WHERE seq = ?")?;
            let seq = crate::space::load::integer(marked.seq);
            let stored_ms = statement.query_row([seq], |row| unsigned(row, 0)).optional()?.unwrap_or(0);
            let Some(branch) = self.visibility.arena.branches.get(marked.branch) else { continue };
            versions.push(Version { seq: marked.seq, stored_ms, branch: branch.id.clone(), what });
        }
        Ok(versions)
    }
}

impl View {
    /// The newest version of an entry. `NotFound` if this view does not see it.
    pub async fn get(&self, id: &MemoryId) -> Result<Entry, MemoryError> {
        let id = id.clone();
        self.read(move |reader| {
            let row = reader.row_of(&id)?;
            let entry = row.map_or(Ok(None), |row| reader.entry(row))?;
            entry.ok_or_else(|| MemoryError::not_found("memory", &id))
        })
        .await
    }

    /// All versions and marks of an entry, from its first version on, even if it was forgotten.
    pub async fn history(&self, id: &MemoryId) -> Result<Vec<Version>, MemoryError> {
        let id = id.clone();
        self.read(move |reader| {
            let versions = reader.versions(&id)?;
            if versions.is_empty() { Err(MemoryError::not_found("memory", &id)) } else { Ok(versions) }
        })
        .await
    }
}
