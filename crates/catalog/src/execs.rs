//! Execs: the history of commands run in each sandbox.
//!
//! These writes survive the death of this process but are not synced one by one: a power failure also ends the processes
//! that they describe, and an exec must not wait for the disk.

use burrow_model::{ExecId, SandboxId, TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use crate::connection::{Columns, integer, json, word};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, ExecRow, ExecState, Page, PageRequest};

/// Ended execs kept per sandbox; older ones are pruned.
pub const EXECS_KEPT: u32 = 1000;

/// Key in a row's `command` for the promise made for the exec, until it is fulfilled.
pub const PROMISE: &str = "rollback";

/// Key in a row's `command` that marks an exec as not yet stored in memory, until it is.
pub const UNREMEMBERED: &str = "unremembered";

impl Catalog {
    /// Execs of existing sandboxes that are not yet stored in memory, of all tenants, newest first.
    pub async fn unremembered_execs(&self, limit: u32) -> Result<Vec<ExecRow>, CatalogError> {
        self.read(move |connection| {
            let sql = "SELECT * FROM execs WHERE state = 'running' AND json_extract(command, '$.' || ?1) IS NOT NULL
                       ORDER BY started_ms DESC, id DESC LIMIT ?2";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then(params![UNREMEMBERED, limit], decode)?.collect()
        })
        .await
    }

    /// Removes the mark of an exec that was stored in memory, or is not to be any more. Repeatable.
    pub async fn exec_remembered(&self, id: &ExecId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| {
            connection
                .prepare_cached("UPDATE execs SET command = json_remove(command, '$.' || ?1) WHERE id = ?2")?
                .execute(params![UNREMEMBERED, id.as_str()])?;
            Ok(())
        })
        .await
    }

    /// Records an exec. Also on a full disk, from the reserve: it may be the `rm` that makes room.
    pub async fn insert_exec(&self, row: ExecRow) -> Result<(), CatalogError> {
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| insert(connection, &row)).await
    }

    /// Records an exec with a promise: before it runs, and durably.
    pub async fn insert_promised_exec(&self, row: ExecRow) -> Result<(), CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| insert(connection, &row)).await
    }

    /// Execs whose promise is not yet fulfilled, of all tenants, oldest first.
    pub async fn promised_execs(&self) -> Result<Vec<ExecRow>, CatalogError> {
        self.read(move |connection| {
            let sql = "SELECT * FROM execs WHERE json_extract(command, '$.' || ?) IS NOT NULL ORDER BY started_ms, id";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([PROMISE], decode)?.collect()
        })
        .await
    }

    /// Changes the promise of an exec, durably; `None` removes it.
    pub async fn set_promise(&self, id: &ExecId, promise: Option<Value>) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            let promise = promise.as_ref().map(|promise| json(promise, PROMISE)).transpose()?;
            connection
                .prepare_cached(
                    "UPDATE execs SET command = CASE WHEN ?1 IS NULL THEN json_remove(command, '$.' || ?2)
                                                     ELSE json_set(command, '$.' || ?2, json(?1)) END
                     WHERE id = ?3",
                )?
                .execute(params![promise, PROMISE, id.as_str()])?;
            Ok(())
        })
        .await
    }

    /// Removes the record of an exec that did not start.
    pub async fn forget_exec(&self, id: &ExecId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            connection.prepare_cached("DELETE FROM execs WHERE id = ?")?.execute([id.as_str()])?;
            Ok(())
        })
        .await
    }

    /// Records how an exec ended. Does nothing unless the exec is recorded as running, so the first end is kept.
    pub async fn finish_exec(&self, id: &ExecId, ended_ms: u64, outcome: Value) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| {
            connection
                .prepare_cached(
                    "UPDATE execs SET state = 'ended', ended_ms = ?, outcome = ? WHERE id = ? AND state = 'running'",
                )?
                .execute(params![integer(ended_ms), json(&outcome, "outcome")?, id.as_str()])?;
            Ok(())
        })
        .await
    }

    pub async fn exec(&self, tenant: &TenantId, id: &ExecId) -> Result<Option<ExecRow>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM execs WHERE id = ? AND tenant = ?")?;
            statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
        })
        .await
    }

    /// A page of a sandbox's execs, newest first.
    pub async fn list_execs(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        page: PageRequest,
    ) -> Result<Page<ExecRow>, CatalogError> {
        let (tenant, sandbox) = (tenant.clone(), sandbox.clone());
        let rows_max = page.rows_max();
        // The empty text sorts before every id, and the largest number after every time: the first page starts there.
        let (at_ms, id) =
            page.after::<ExecId>()?.map_or((i64::MAX, String::new()), |(at, id)| (at, id.into()));
        self.read(move |connection| {
            let sql = "SELECT * FROM execs WHERE sandbox = ? AND (started_ms, id) < (?, ?) AND tenant = ?
                       ORDER BY started_ms DESC, id DESC LIMIT ?";
            let limit = integer(rows_max as u64 + 1);
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement
                .query_and_then(params![sandbox.as_str(), at_ms, id, tenant.as_str(), limit], decode)?
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Page::cut(rows, rows_max, |row| (row.started_ms, row.id.as_str())))
        })
        .await
    }

    /// Execs of a sandbox that are recorded as running, oldest first: those that a restarted daemon has to find again.
    pub async fn running_execs(&self, sandbox: &SandboxId) -> Result<Vec<ExecRow>, CatalogError> {
        let sandbox = sandbox.clone();
        self.read(move |connection| {
            let sql = "SELECT * FROM execs WHERE sandbox = ? AND state = 'running' ORDER BY started_ms, id";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([sandbox.as_str()], decode)?.collect()
        })
        .await
    }

    /// Marks execs of a sandbox as lost that still ran in its generations up to the given one. Returns their number.
    pub async fn mark_execs_lost(
        &self,
        sandbox: &SandboxId,
        generation: u64,
        ended_ms: u64,
    ) -> Result<u64, CatalogError> {
        let sandbox = sandbox.clone();
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| {
            let changed = connection
                .prepare_cached(
                    "UPDATE execs SET state = 'lost', ended_ms = ?
                     WHERE sandbox = ? AND state = 'running' AND generation <= ?",
                )?
                .execute(params![integer(ended_ms), sandbox.as_str(), integer(generation)])?;
            Ok(changed as u64)
        })
        .await
    }

    /// Removes the oldest ended execs of every sandbox that has more than [`EXECS_KEPT`]. Returns their number.
    pub async fn prune_execs(&self) -> Result<u64, CatalogError> {
        let crowded: Vec<SandboxId> = self
            .read(|connection| {
                let sql = "SELECT sandbox FROM execs GROUP BY sandbox HAVING count(*) > ?";
                let mut statement = connection.prepare_cached(sql)?;
                statement.query_and_then([EXECS_KEPT], |row| row.parsed("sandbox"))?.collect()
            })
            .await?;
        let mut pruned = 0;
        // One short transaction per sandbox, so that other writers need not wait for all of them.
        for sandbox in crowded {
            pruned +=
                self.write(WriteMode::LIGHT_UPKEEP, move |connection| prune(connection, &sandbox)).await?;
        }
        Ok(pruned)
    }
}

fn insert(connection: &Connection, row: &ExecRow) -> Result<(), CatalogError> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO execs (id, tenant, sandbox, argv, command, started_ms, ended_ms, outcome, state, generation)
             SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = ?3 AND tenant = ?2)",
        )?
        .execute(params![
            row.id.as_str(),
            row.tenant.as_str(),
            row.sandbox.as_str(),
            json(&row.argv, "argv")?,
            json(&row.command, "command")?,
            integer(row.started_ms),
            row.ended_ms.map(integer),
            row.outcome.as_ref().map(|outcome| json(outcome, "outcome")).transpose()?,
            word(&row.state, "state")?,
            integer(row.generation),
        ])?;
    if inserted == 0 { Err(CatalogError::unknown_sandbox(&row.sandbox)) } else { Ok(()) }
}

fn prune(connection: &Connection, sandbox: &SandboxId) -> Result<u64, CatalogError> {
    let pruned = connection
        .prepare_cached(
            "DELETE FROM execs WHERE id IN (
                 SELECT id FROM execs WHERE sandbox = ? AND state <> 'running'
                 ORDER BY started_ms DESC, id DESC LIMIT -1 OFFSET ?)",
        )?
        .execute(params![sandbox.as_str(), EXECS_KEPT])?;
    Ok(pruned as u64)
}

fn decode(row: &Row<'_>) -> Result<ExecRow, CatalogError> {
    Ok(ExecRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        sandbox: row.parsed("sandbox")?,
        argv: row.json("argv")?,
        command: row.json("command")?,
        started_ms: row.count("started_ms")?,
        ended_ms: row.count_if_any("ended_ms")?,
        outcome: row.json_if_any("outcome")?,
        state: row.word::<ExecState>("state")?,
        generation: row.count("generation")?,
    })
}
