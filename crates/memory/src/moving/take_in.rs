//! Imports rows into a new file, which is used only if it is consistent.

use std::collections::BTreeSet;
use std::path::Path;

use burrow_model::{MemoryPoint, SpaceId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, params, params_from_iter};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{BRANCHES_MAX, CarriedBlob, HeaderLine, LINE_BYTES_MAX, ROWS_VERSION, TABLES};
use crate::artifacts::{BlobHash, Body, check_name};
use crate::check;
use crate::entries::{content_of, fetch, valid};
use crate::space::arena::Row;
use crate::space::load::{integer, number, unsigned};
use crate::space::slots::Access;
use crate::space::{FORMAT_VERSION, migrate};
use crate::{Memory, MemoryError, blocking};

/// Rows of all tables together. A space of this size takes minutes to fill and gigabytes of RAM to search.
const ROWS_MAX: u64 = 10_000_000;

/// The highest sequence number of an imported moment: it leaves enough numbers for all later writes.
const SEQ_MAX: u64 = 1 << 60;

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedMemory {
    /// The point from which the branch continues.
    pub point: MemoryPoint,
    /// Contents that must follow, each by [`Memory::take_blob`].
    pub blobs: BTreeSet<CarriedBlob>,
}

impl Memory {
    /// Fills an empty space from the lines of [`Memory::write_out`]. A failure leaves nothing behind.
    pub async fn take_in(
        &self,
        space: &SpaceId,
        lines: mpsc::Receiver<Vec<u8>>,
    ) -> Result<ImportedMemory, MemoryError> {
        let path = self.shared.slots.path(space);
        let taken = self
            .shared
            .slots
            .closed_for(space, move || {
                if path.exists() {
                    return Err(MemoryError::invalid("the space", "it is not empty".to_owned()));
                }
                take_in(&path, lines)
            })
            .await;
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                self.remove(space).await?;
                return Err(error);
            }
        };
        let bytes = taken.blobs.iter().map(|blob| blob.bytes).fold(0u64, u64::saturating_add);
        if let Err(error) = self.blob_store().check_room(space, bytes) {
            self.remove(space).await?;
            return Err(error);
        }
        self.shared.slots.pending.notify_one();
        Ok(taken)
    }

    /// Stores the content of an artifact that rows of the space refer to. Content with another hash is refused: knowing a hash
    /// does not prove possession of the content.
    pub async fn take_blob(
        &self,
        space: &SpaceId,
        blob: &CarriedBlob,
        body: Body,
    ) -> Result<(), MemoryError> {
        let list = self.blob_store().take_whole(space, blob.hash, blob.bytes, body).await?;
        if list.is_empty() {
            return Ok(());
        }
        let (open, hash) = (self.shared.slots.open(space, Access::Write).await?, blob.hash);
        blocking(move || {
            open.alone(|side| {
                let sql = "INSERT INTO artifact_blocks (hash, blocks) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
                side.connection.execute(sql, params![hash.as_bytes(), list])?;
                Ok(())
            })
        })
        .await
    }
}

fn take_in(path: &Path, mut lines: mpsc::Receiver<Vec<u8>>) -> Result<ImportedMemory, MemoryError> {
    let mut first_batch = lines.blocking_recv().ok_or_else(|| refused("it has no rows"))?;
    let end =
        first_batch.iter().position(|byte| *byte == b'\n').ok_or_else(|| refused("it has no first line"))?;
    let first: HeaderLine =
        serde_json::from_slice(&first_batch[..end]).map_err(|_| refused("its first line is invalid"))?;
    if first.rows > ROWS_VERSION || first.format > FORMAT_VERSION {
        let (found, known) = (first.format, FORMAT_VERSION);
        return Err(MemoryError::TooNew { file: path.to_owned(), found, known });
    }
    first_batch.drain(..=end);
    let connection = migrate::open(path)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let mut rows = 0;
    insert(&connection, &first_batch, &mut rows)?;
    while let Some(batch) = lines.blocking_recv() {
        insert(&connection, &batch, &mut rows)?;
    }
    let taken = settle(&connection, &first)?;
    connection.execute_batch("COMMIT")?;
    // It is rebuilt and checked like any other space.
    check::rebuild(&connection)?;
    check::agree(&connection).map_err(|why| refused(&why))?;
    check_contents(&connection)?;
    Ok(taken)
}

fn insert(connection: &Connection, batch: &[u8], rows: &mut u64) -> Result<(), MemoryError> {
    for line in batch.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        *rows += 1;
        if line.len() > LINE_BYTES_MAX || *rows > ROWS_MAX {
            return Err(refused("it has more rows than a space may have"));
        }
        let line: Vec<Value> = serde_json::from_slice(line).map_err(|_| refused("a line is invalid"))?;
        let name = line.first().and_then(Value::as_str).unwrap_or_default();
        let table = TABLES.iter().find(|table| table.name == name);
        let table = table.ok_or_else(|| refused("a row belongs to an unknown table"))?;
        let columns = table.columns.split(',').count();
        if line.len() != columns + 1 {
            return Err(refused("a row has too few or too many columns"));
        }
        let places = vec!["?"; columns].join(", ");
        // Columns that are indices, not content, are computed below.
        let (more, values) = if table.name == "entries" { (", bytes, tags", ", 0, 0") } else { ("", "") };
        let sql = format!("INSERT INTO {} ({}{more}) VALUES ({places}{values})", table.name, table.columns);
        let values: Vec<Sql> = line.into_iter().skip(1).map(stored).collect::<Result<_, _>>()?;
        let inserted = connection.prepare_cached(&sql)?.execute(params_from_iter(values));
        inserted.map_err(|error| refused(&format!("a row of `{}` is invalid: {error}", table.name)))?;
    }
    Ok(())
}

fn stored(value: Value) -> Result<Sql, MemoryError> {
    Ok(match value {
        Value::Null => Sql::Null,
        Value::String(text) => Sql::Text(text),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Sql::Integer(whole),
            (None, Some(real)) if real.is_finite() => Sql::Real(real),
            (None, _) => return Err(refused("a number is too large")),
        },
        Value::Object(object) => {
            let hex = object.get("x").and_then(Value::as_str).filter(|_| object.len() == 1);
            let bytes = hex.and_then(|hex| data_encoding::HEXLOWER.decode(hex.as_bytes()).ok());
            Sql::Blob(bytes.ok_or_else(|| refused("a value is invalid"))?)
        }
        Value::Bool(_) | Value::Array(_) => return Err(refused("a value is invalid")),
    })
}

/// Sets the counters, and checks what the schema does not.
fn settle(connection: &Connection, first: &HeaderLine) -> Result<ImportedMemory, MemoryError> {
    let branch = first.branch.parse().map_err(|_| refused("its branch has no id"))?;
    let count = |sql: &str| connection.query_row(sql, (), |row| unsigned(row, 0));
    let entries = count("SELECT count(*) FROM entries")?;
    let last_row = count(
        "SELECT max(coalesce((SELECT max(row) FROM entries), 0), coalesce((SELECT max(entity) FROM ids), 0))",
    )?;
    let branches = count("SELECT count(*) FROM branches")?;
    let last_branch = count("SELECT coalesce(max(no), 0) FROM branches")?;
    // Numbers index arrays in RAM, so they must be without gaps, as they were written.
    if last_row > entries.saturating_mul(2) || last_branch > branches || branches > BRANCHES_MAX as u64 {
        return Err(refused("its row numbers have gaps"));
    }
    let (last_seq, last_ms) =
        (count("SELECT coalesce(max(seq), 0) FROM log")?, count("SELECT coalesce(max(at_ms), 0) FROM log")?);
    let known: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM branches WHERE id = ?1)",
        [first.branch.as_str()],
        |row| row.get(0),
    )?;
    if !known || last_seq > first.seq || first.seq > SEQ_MAX {
        return Err(refused("its branch does not contain the moment that was exported"));
    }
    connection.execute(
        "UPDATE state SET last_seq = ?1, last_ms = ?2, last_row = ?3",
        params![integer(first.seq), integer(last_ms.max(first.ms)), integer(last_row)],
    )?;
    Ok(ImportedMemory { point: MemoryPoint { branch, seq: first.seq }, blobs: needed(connection)? })
}

/// Contents that rows refer to. A hash must have one length.
fn needed(connection: &Connection) -> Result<BTreeSet<CarriedBlob>, MemoryError> {
    let mut statement = connection
        .prepare("SELECT name, hash, bytes, released FROM artifacts WHERE hash IS NOT NULL ORDER BY hash")?;
    let mut rows = statement.query(())?;
    let mut blobs: BTreeSet<CarriedBlob> = BTreeSet::new();
    let mut last: Option<CarriedBlob> = None;
    while let Some(row) = rows.next()? {
        check_name(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
        let hash = row.get_ref(1)?.as_blob().ok().and_then(BlobHash::from_bytes);
        let hash = hash.ok_or_else(|| refused("an artifact has an invalid hash"))?;
        let blob = CarriedBlob { hash, bytes: unsigned(row, 2)? };
        if last.is_some_and(|last| last.hash == hash && last.bytes != blob.bytes) {
            return Err(refused("an artifact has two different lengths"));
        }
        last = Some(blob);
        if !row.get::<_, bool>(3)? {
            blobs.insert(blob);
        }
    }
    Ok(blobs)
}

/// Checks that each entry could have been added here.
fn check_contents(connection: &Connection) -> Result<(), MemoryError> {
    let mut statement = connection.prepare("SELECT row FROM entries WHERE erased = 0")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let row = number(row, 0)?;
        let fetched = fetch(connection, Row(row))?;
        let fetched = fetched.ok_or_else(|| refused("an entry cannot be read"))?;
        valid::check(&content_of(fetched.entry))?;
    }
    Ok(())
}

fn refused(why: &str) -> MemoryError {
    MemoryError::invalid("the memory in the file", why.to_owned())
}

/// A body of one piece; also used by tests.
#[cfg(test)]
pub(super) fn body(bytes: Vec<u8>) -> Body {
    use futures_util::StreamExt as _;
    futures_util::stream::iter([Ok(bytes::Bytes::from(bytes))]).boxed()
}
