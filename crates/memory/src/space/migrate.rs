//! Opens a space's file and brings it to the version this program knows.
//!
//! The version is SQLite's `user_version`: how many of [`MIGRATIONS`] were applied. Each runs in a transaction with
//! the number it sets, so a crash leaves one version or the next.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::MemoryError;

const MIGRATIONS: &[&str] = &[include_str!("schema.sql"), include_str!("contradictions.sql")];

/// The version this program writes.
pub const FORMAT_VERSION: u32 = MIGRATIONS.len() as u32;

/// Only a backup tool or a person with a shell can hold a file for longer than a moment.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// More than the statements we have.
const STATEMENTS_CACHED: usize = 128;

/// The connection that may write; makes the file if there is none.
pub(crate) fn open(path: &Path) -> Result<Connection, MemoryError> {
    let fresh = !path.exists();
    let connection = Connection::open(path)?;
    prepare(&connection)?;
    // `secure_delete` overwrites what is deleted: `erase` means it, and the log deletes nothing else.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY;",
    )?;
    migrate(&connection, path)?;
    if fresh {
        // SQLite syncs the folder for its journals only.
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

/// A space nobody wrote to: everything is there to be read, and it is empty.
pub(crate) fn open_vacant() -> Result<Connection, MemoryError> {
    let connection = Connection::open_in_memory()?;
    prepare(&connection)?;
    migrate(&connection, Path::new(":memory:"))?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> Result<(), MemoryError> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    // Without it a statement is planned anew whenever a row's number is bound to it: the partial indices make the planner
    // ask what the number is, and one plan suits all of them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Pages one connection keeps, in KiB, as far as it meets them: the upper levels of a million rows.
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
