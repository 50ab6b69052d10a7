//! Migrates a database to the version of this program, one migration at a time.
//!
//! The version is SQLite's `user_version`: the number of [`MIGRATIONS`] that were applied. Each runs in a transaction with
//! the number that it sets, so a crash leaves either version. A released migration never changes.

use rusqlite::Connection;

use crate::CatalogError;

const MIGRATIONS: &[&str] =
    &[include_str!("../migrations/0001_schema.sql"), include_str!("../migrations/0002_key_families.sql")];

/// The version this program writes.
pub const VERSION: u32 = MIGRATIONS.len() as u32;

pub(crate) fn migrate(connection: &Connection) -> Result<(), CatalogError> {
    let found: u32 = connection.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    if found > VERSION {
        return Err(CatalogError::TooNew { found, known: VERSION });
    }
    if found == VERSION {
        return Ok(());
    }
    // Off while tables may be rebuilt, as SQLite requires; it cannot be disabled inside the transaction.
    connection.execute_batch("PRAGMA foreign_keys = OFF")?;
    let result = (1..)
        .zip(MIGRATIONS)
        .skip(found as usize)
        .try_for_each(|(version, sql)| apply(connection, version, sql));
    connection.execute_batch("PRAGMA foreign_keys = ON")?;
    result
}

fn apply(connection: &Connection, version: u32, sql: &str) -> Result<(), CatalogError> {
    let script = format!("BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {version}; COMMIT;");
    if let Err(source) = connection.execute_batch(&script) {
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK")?;
        }
        let error = CatalogError::from(source);
        // A full disk is reported as such: the caller can release the reserve and try again.
        return Err(if let CatalogError::Sql { source } = error {
            CatalogError::Migrate { version, source }
        } else {
            error
        });
    }
    tracing::info!(version, "catalog migrated");
    Ok(())
}
