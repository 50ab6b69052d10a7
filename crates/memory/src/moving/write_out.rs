//! Exports the rows that a moment of a branch sees.

use std::path::Path;

use burrow_model::{MemoryPoint, SpaceId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{BATCH_BYTES, CarriedBlob, HeaderLine, LINE_BYTES_MAX, ROWS_VERSION, TABLES};
use crate::artifacts::{BlobHash, Content};
use crate::space::chain::{Branch, Branches, Chain};
use crate::space::load::{damaged, integer, number, unsigned};
use crate::space::{FORMAT_VERSION, open_reader};
use crate::{Memory, MemoryError, blocking};

/// Temporary tables: the branches with their bounds, the visible entries, and their new numbers.
const NUMBERING: &str = "
    CREATE TEMP TABLE e AS SELECT t.* FROM entries t JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound;
    CREATE INDEX temp.e_row ON e (row);
    CREATE INDEX temp.e_entity ON e (entity);
    CREATE TEMP TABLE r AS SELECT old, row_number() OVER (ORDER BY old) AS new
        FROM (SELECT row AS old FROM e UNION SELECT entity FROM e);
    CREATE UNIQUE INDEX temp.r_old ON r (old);
";

impl Memory {
    /// Sends all rows that a moment of a branch sees, as batches of lines. Returns the contents of artifacts that belong to
    /// it. Ends early without an error if the receiver is dropped.
    pub async fn write_out(
        &self,
        space: &SpaceId,
        point: &MemoryPoint,
        into: mpsc::Sender<Vec<u8>>,
    ) -> Result<Vec<CarriedBlob>, MemoryError> {
        let (path, point) = (self.shared.slots.path(space), point.clone());
        blocking(move || write_out(&path, &point, &into)).await
    }

    /// The content of an artifact that [`Self::write_out`] returned, verified block by block.
    pub async fn read_blob(&self, space: &SpaceId, blob: &CarriedBlob) -> Result<Content, MemoryError> {
        let (path, wanted) = (self.shared.slots.path(space), *blob);
        let list = blocking(move || {
            let connection = open_reader(&path)?;
            let sql = "SELECT blocks FROM artifact_blocks WHERE hash = ?1";
            let found = connection.query_row(sql, params![wanted.hash.as_bytes()], |row| row.get(0));
            Ok(found.optional()?.unwrap_or_default())
        });
        let list: Vec<u8> = list.await?;
        self.blob_store().read_whole(blob.hash, blob.bytes, &list).await
    }
}

fn write_out(
    path: &Path,
    point: &MemoryPoint,
    into: &mpsc::Sender<Vec<u8>>,
) -> Result<Vec<CarriedBlob>, MemoryError> {
    let connection = open_reader(path)?;
    // One transaction, so that all tables are read at the same moment.
    connection.execute_batch("BEGIN")?;
    choose(&connection, point)?;
    let ms: u64 = connection.query_row(
        "SELECT coalesce(max(t.at_ms), 0) FROM log t JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound",
        (),
        |row| unsigned(row, 0),
    )?;
    let (branch, seq) = (point.branch.to_string(), point.seq);
    let first = HeaderLine { rows: ROWS_VERSION, format: FORMAT_VERSION, branch, seq, ms };
    let mut batch = serde_json::to_vec(&first).map_err(|error| damaged(error.to_string()))?;
    batch.push(b'\n');
    for table in TABLES {
        let mut statement = connection.prepare(table.select)?;
        let columns = statement.column_count();
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let mut line = vec![Value::from(table.name)];
            for column in 0..columns {
                line.push(portable(row.get_ref(column)?)?);
            }
            let start = batch.len();
            serde_json::to_writer(&mut batch, &line).map_err(|error| damaged(error.to_string()))?;
            batch.push(b'\n');
            if batch.len() - start > LINE_BYTES_MAX {
                return Err(MemoryError::too_large("a row of memory", batch.len() - start, LINE_BYTES_MAX));
            }
            if batch.len() >= BATCH_BYTES && into.blocking_send(std::mem::take(&mut batch)).is_err() {
                return Ok(Vec::new());
            }
        }
    }
    if !batch.is_empty() && into.blocking_send(batch).is_err() {
        return Ok(Vec::new());
    }
    blobs(&connection)
}

/// Creates the tables of visible rows, in the connection's temporary database.
fn choose(connection: &Connection, point: &MemoryPoint) -> Result<(), MemoryError> {
    let mut branches = Branches::default();
    let mut statement = connection.prepare("SELECT no, id, parent, parent_seq FROM branches")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let id: String = row.get(1)?;
        let id = id.parse().map_err(|error: burrow_model::IdError| damaged(error.to_string()))?;
        let parent = match row.get::<_, Option<i64>>(2)? {
            Some(_) => Some((number(row, 2)?, unsigned(row, 3)?)),
            None => None,
        };
        branches.insert(number(row, 0)?, Branch { id, parent });
    }
    connection.execute_batch(
        "CREATE TEMP TABLE b (old INTEGER PRIMARY KEY, bound INTEGER NOT NULL, new INTEGER NOT NULL)",
    )?;
    let mut insert = connection.prepare("INSERT INTO temp.b (old, bound, new) VALUES (?1, ?2, ?3)")?;
    for (new, (old, bound)) in (1i64..).zip(Chain::at(&branches, Some(point), u64::MAX).links()) {
        insert.execute(params![old, integer(bound), new])?;
    }
    drop(insert);
    Ok(connection.execute_batch(NUMBERING)?)
}

fn blobs(connection: &Connection) -> Result<Vec<CarriedBlob>, MemoryError> {
    let mut statement = connection.prepare(
        "SELECT DISTINCT t.hash, t.bytes FROM artifacts t JOIN temp.b AS b ON b.old = t.branch AND t.seq <= b.bound
         WHERE t.hash IS NOT NULL AND t.released = 0 ORDER BY t.hash",
    )?;
    let mut rows = statement.query(())?;
    let mut blobs = Vec::new();
    while let Some(row) = rows.next()? {
        let hash = row.get_ref(0)?.as_blob().ok().and_then(BlobHash::from_bytes);
        let hash = hash.ok_or_else(|| damaged("an artifact's hash is not 32 bytes long".to_owned()))?;
        blobs.push(CarriedBlob { hash, bytes: unsigned(row, 1)? });
    }
    Ok(blobs)
}

fn portable(value: ValueRef<'_>) -> Result<Value, MemoryError> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::from(number),
        ValueRef::Real(number) => Value::from(number),
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text);
            Value::from(text.map_err(|_| damaged("a text is not UTF-8".to_owned()))?)
        }
        ValueRef::Blob(bytes) => json!({ "x": data_encoding::HEXLOWER.encode(bytes) }),
    })
}
