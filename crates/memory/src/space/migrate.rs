//! Opens a space's file and migrates it to the current version.
//!
//! The version is SQLite's `user_version`: the number of applied [`MIGRATIONS`]. Each runs in a transaction with
//! the number that it sets, so a crash leaves one version or the next.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::MemoryError;

const MIGRATIONS: &[&str] = &[include_str!("schema.sql"), include_str!("contradictions.sql")];

/// The version that this program writes.
pub const FORMAT_VERSION: u32 = MIGRATIONS.len() as u32;

/// Only a backup tool or an administrator can lock a file for longer than a moment.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The journal is truncated to this size when it is used again from its start: it counts against quotas.
const JOURNAL_BYTES_MAX: u64 = 1 << 20;

/// More than the number of statements in this crate.
const STATEMENTS_CACHED: usize = 128;

/// The connection that may write; creates the file if it does not exist.
pub(crate) fn open(path: &Path) -> Result<Connection, MemoryError> {
    let fresh = !path.exists();
    let connection = Connection::open(path)?;
    prepare(&connection)?;
    // `secure_delete` overwrites deleted data, which `erase` requires; the log deletes nothing else.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY;",
    )?;
    connection.execute_batch(&format!("PRAGMA journal_size_limit = {JOURNAL_BYTES_MAX}"))?;
    migrate(&connection, path)?;
    if fresh {
        // SQLite syncs the folder only for its journals.
        let folder = path.parent().unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| MemoryError::Folder { path: folder.to_owned(), source })?;
    }
    Ok(connection)
}

/// A connection that reads.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, MemoryError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    prepare(&connection)?;
    connection.execute_batch("PRAGMA temp_store = MEMORY")?;
    Ok(connection)
}

/// An empty in-memory database, for a space that has no file.
pub(crate) fn open_vacant() -> Result<Connection, MemoryError> {
    let connection = Connection::open_in_memory()?;
    prepare(&connection)?;
    migrate(&connection, Path::new(":memory:"))?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> Result<(), MemoryError> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    // Without it, a statement is planned again whenever a row number is bound to it: with partial indices, the plan
    // depends on the number, and one plan suits all of them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The page cache of one connection, in KiB: the upper levels of a million rows.
    connection.execute_batch("PRAGMA cache_size = -8000")?;
    Ok(())
}

fn migrate(connection: &Connection, path: &Path) -> Result<(), MemoryError> {
    let found: u32 = connection.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    if found > FORMAT_VERSION {
        return Err(MemoryError::TooNew { file: path.to_owned(), found, known: FORMAT_VERSION });
    }
    for (version, sql) in (1..).zip(MIGRATIONS).skip(found as usize) {
        let script = format!("BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {version}; COMMIT;");
        if let Err(error) = connection.execute_batch(&script) {
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK")?;
            }
            return Err(error.into());
        }
    }
    Ok(())
}
