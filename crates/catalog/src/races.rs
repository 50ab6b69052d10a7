//! Races: one row each, from the intent to fork until the winner is known and the other forks are removed.

use burrow_model::{RaceId, SandboxId, TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use crate::connection::{Columns, integer, json};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError};

/// Finished races of one tenant that are kept for display; older ones are removed.
pub const RACES_KEPT: u32 = 200;

#[derive(Clone, Debug, PartialEq)]
pub struct RaceRow {
    pub id: RaceId,
    pub tenant: TenantId,
    /// The sandbox whose forks race.
    pub sandbox: SandboxId,
    /// The race is finished and cleaned up.
    pub done: bool,
    pub created_ms: u64,
    /// Further data; interpreted by the engine.
    pub race: Value,
}

impl Catalog {
    pub async fn insert_race(&self, row: RaceRow) -> Result<(), CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| {
            let sql =
                "INSERT INTO races (id, tenant, sandbox, state, created_ms, race) VALUES (?, ?, ?, ?, ?, ?)";
            connection.prepare_cached(sql)?.execute(params![
                row.id.as_str(),
                row.tenant.as_str(),
                row.sandbox.as_str(),
                word(row.done),
                integer(row.created_ms),
                json(&row.race, "race")?,
            ])?;
            let sql = "DELETE FROM races WHERE tenant = ?1 AND state = 'done' AND id NOT IN
                       (SELECT id FROM races WHERE tenant = ?1 ORDER BY created_ms DESC, id DESC LIMIT ?2)";
            connection.prepare_cached(sql)?.execute(params![row.tenant.as_str(), RACES_KEPT])?;
            Ok(())
        })
        .await
    }

    /// Updates a race. Does nothing if it does not exist.
    pub async fn update_race(&self, id: &RaceId, done: bool, race: Value) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            connection
                .prepare_cached("UPDATE races SET state = ?, race = ? WHERE id = ?")?
                .execute(params![word(done), json(&race, "race")?, id.as_str()])?;
            Ok(())
        })
        .await
    }

    pub async fn delete_race(&self, id: &RaceId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            connection.prepare_cached("DELETE FROM races WHERE id = ?")?.execute([id.as_str()])?;
            Ok(())
        })
        .await
    }

    pub async fn race(&self, tenant: &TenantId, id: &RaceId) -> Result<Option<RaceRow>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM races WHERE id = ? AND tenant = ?")?;
            let found = statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row)));
            found.optional()?.transpose()
        })
        .await
    }

    /// A tenant's races, newest first.
    pub async fn races(&self, tenant: &TenantId) -> Result<Vec<RaceRow>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = "SELECT * FROM races WHERE tenant = ?1 ORDER BY created_ms DESC, id DESC LIMIT ?2";
            all(connection, sql, params![tenant.as_str(), RACES_KEPT])
        })
        .await
    }

    /// Unfinished races of every tenant, oldest first: the next start continues them.
    pub async fn open_races(&self) -> Result<Vec<RaceRow>, CatalogError> {
        self.read(|connection| {
            all(connection, "SELECT * FROM races WHERE state <> 'done' ORDER BY created_ms, id", params![])
        })
        .await
    }
}

fn all(
    connection: &Connection,
    sql: &str,
    given: &[&dyn rusqlite::ToSql],
) -> Result<Vec<RaceRow>, CatalogError> {
    connection.prepare_cached(sql)?.query_and_then(given, decode)?.collect()
}

fn word(done: bool) -> &'static str {
    if done { "done" } else { "running" }
}

fn decode(row: &Row<'_>) -> Result<RaceRow, CatalogError> {
    Ok(RaceRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        sandbox: row.parsed("sandbox")?,
        done: row.text("state")? == "done",
        created_ms: row.count("created_ms")?,
        race: row.json("race")?,
    })
}
