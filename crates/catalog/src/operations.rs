//! The journal of operations in progress. A row is durable before the first step, and removed in the commit of the last one.

use burrow_model::OperationId;
use rusqlite::{Connection, Row, params};
use serde_json::Value;

use crate::connection::{Columns, integer, json};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, OperationRow, SandboxChange, sandboxes};

impl Catalog {
    /// Records an operation and, in the same commit, the change of its sandbox.
    pub async fn begin_operation(
        &self,
        row: OperationRow,
        change: Option<SandboxChange>,
    ) -> Result<(), CatalogError> {
        self.write(WriteMode::UPKEEP, move |connection| {
            if let Some(change) = &change {
                sandboxes::apply(connection, &row.sandbox, change)?;
            }
            insert(connection, &row)
        })
        .await
    }

    /// Replaces the journal's record of an operation's steps.
    pub async fn update_operation(&self, id: &OperationId, steps: Value) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            let changed = connection
                .prepare_cached("UPDATE operations SET steps = ? WHERE id = ?")?
                .execute(params![json(&steps, "steps")?, id.as_str()])?;
            if changed == 0 {
                return Err(CatalogError::Unknown { kind: "operation", id: id.to_string() });
            }
            Ok(())
        })
        .await
    }

    /// Ends an operation whose outcome changes no sandbox. Does nothing if it has ended.
    pub async fn finish_operation(&self, id: &OperationId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| remove(connection, &id)).await
    }

    /// Every operation in progress, oldest first: recovery has to complete or undo it.
    pub async fn open_operations(&self) -> Result<Vec<OperationRow>, CatalogError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM operations ORDER BY started_ms, rowid")?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }
}

pub(crate) fn insert(connection: &Connection, row: &OperationRow) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "INSERT INTO operations (id, tenant, sandbox, kind, steps, started_ms, detail)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            row.id.as_str(),
            row.tenant.as_str(),
            row.sandbox.as_str(),
            row.kind,
            json(&row.steps, "steps")?,
            integer(row.started_ms),
            json(&row.detail, "detail")?,
        ])?;
    Ok(())
}

pub(crate) fn remove(connection: &Connection, id: &OperationId) -> Result<(), CatalogError> {
    connection.prepare_cached("DELETE FROM operations WHERE id = ?")?.execute([id.as_str()])?;
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<OperationRow, CatalogError> {
    Ok(OperationRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        sandbox: row.parsed("sandbox")?,
        kind: row.text("kind")?,
        steps: row.json("steps")?,
        started_ms: row.count("started_ms")?,
        detail: row.json("detail")?,
    })
}
