//! Brings a database to the version this program knows, one migration at a time.
//!
//! The version is SQLite's `user_version`: how many of [`MIGRATIONS`] were applied. Each runs in a transaction with
//! the number it sets, so a crash leaves one version or the next. A migration that was released never changes.

use rusqlite::Connection;

use crate::CatalogError;

const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_foundation.sql"),
    include_str!("../migrations/0002_images.sql"),
    include_str!("../migrations/0003_ports.sql"),
    include_str!("../migrations/0004_egress.sql"),
    include_str!("../migrations/0005_stock.sql"),
    include_str!("../migrations/0006_snapshots.sql"),
    include_str!("../migrations/0007_memory.sql"),
    include_str!("../migrations/0008_secrets.sql"),
    include_str!("../migrations/0009_merges.sql"),
    include_str!("../migrations/0010_moving.sql"),
    include_str!("../migrations/0011_ssh_keys.sql"),
    include_str!("../migrations/0012_shelves.sql"),
    include_str!("../migrations/0013_token_generations.sql"),
];

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
    // Off while tables may be rebuilt, as SQLite asks for; it cannot be turned off inside the transaction.
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
        // A full disk is told as such: the caller can release the reserve and try again.
        return Err(if let CatalogError::Sql { source } = error {
            CatalogError::Migrate { version, source }
        } else {
            error
        });
    }
    tracing::info!(version, "catalog migrated");
    Ok(())
}
