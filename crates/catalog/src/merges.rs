//! Merges: one row each, from the intent to change a sandbox's files until memories have been merged too.
//!
//! ```text
//!   begin_merge ─► 'applying' ─► settle_merge ─► 'remembering' ─► finish_merge ─► 'done'
//!                     └─► drop_merge: it was undone
//! ```

use burrow_model::{MergeId, OperationId, SandboxId, TenantId};
use rusqlite::{Connection, Row, params};
use serde_json::Value;

use crate::connection::{Columns, integer, json};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, OperationRow, operations};

/// Merges into one sandbox that are kept for display; older ones are removed.
const KEPT_MAX: u32 = 100;

#[derive(Clone, Debug, PartialEq)]
pub struct MergeRow {
    pub id: MergeId,
    pub tenant: TenantId,
    /// The sandbox that is merged into.
    pub sandbox: SandboxId,
    /// The sandbox that is merged from.
    pub child: SandboxId,
    pub state: MergeState,
    pub created_ms: u64,
    /// Further data; interpreted by the engine.
    pub merge: Value,
}

/// The state of a merge. Stored, so names are only added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeState {
    /// Files are being changed. Undone by recovery.
    Applying,
    /// The files are final; memories may not have been merged yet. Completed by recovery.
    Remembering,
    Done,
}

impl MergeState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applying => "applying",
            Self::Remembering => "remembering",
            Self::Done => "done",
        }
    }

    fn parse(text: &str) -> Self {
        match text {
            "applying" => Self::Applying,
            "remembering" => Self::Remembering,
            // A word of a newer version, which this version cannot continue.
            _ => Self::Done,
        }
    }
}

impl Catalog {
    /// Stores the intent to change a sandbox's files and the operation for it, in one commit.
    pub async fn begin_merge(&self, row: MergeRow, operation: OperationRow) -> Result<(), CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| {
            insert(connection, &row)?;
            operations::insert(connection, &operation)
        })
        .await
    }

    /// Records that the files are final, and ends the operation.
    pub async fn settle_merge(
        &self,
        id: &MergeId,
        merge: Value,
        operation: OperationId,
    ) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            update(connection, &id, MergeState::Remembering, Some(&merge))?;
            operations::remove(connection, &operation)
        })
        .await
    }

    /// Records that the merge is complete.
    pub async fn finish_merge(&self, id: &MergeId, merge: Option<Value>) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            update(connection, &id, MergeState::Done, merge.as_ref())?;
            let sql = "DELETE FROM merges WHERE state = 'done' AND sandbox = (SELECT sandbox FROM merges WHERE id = ?1)
                       AND id NOT IN (SELECT id FROM merges WHERE sandbox = (SELECT sandbox FROM merges WHERE id = ?1)
                                      ORDER BY created_ms DESC, id DESC LIMIT ?2)";
            connection.prepare_cached(sql)?.execute(params![id.as_str(), KEPT_MAX])?;
            Ok(())
        })
        .await
    }

    /// Removes a merge that was undone.
    pub async fn drop_merge(&self, id: &MergeId, operation: OperationId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            connection.prepare_cached("DELETE FROM merges WHERE id = ?")?.execute([id.as_str()])?;
            operations::remove(connection, &operation)
        })
        .await
    }

    /// Merges into a sandbox, newest first.
    pub async fn merges_into(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
    ) -> Result<Vec<MergeRow>, CatalogError> {
        let (tenant, sandbox) = (tenant.clone(), sandbox.clone());
        self.read(move |connection| {
            let sql =
                "SELECT * FROM merges WHERE tenant = ? AND sandbox = ? ORDER BY created_ms DESC, id DESC";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([tenant.as_str(), sandbox.as_str()], decode)?.collect()
        })
        .await
    }

    /// Merges whose files are final and that are not complete, oldest first: recovery has to complete them.
    pub async fn merges_remembering(&self) -> Result<Vec<MergeRow>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM merges WHERE state = 'remembering' ORDER BY created_ms, id";
            connection.prepare_cached(sql)?.query_and_then((), decode)?.collect()
        })
        .await
    }
}

fn insert(connection: &Connection, row: &MergeRow) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "INSERT INTO merges (id, tenant, sandbox, child, state, created_ms, merge) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            row.id.as_str(),
            row.tenant.as_str(),
            row.sandbox.as_str(),
            row.child.as_str(),
            row.state.as_str(),
            integer(row.created_ms),
            json(&row.merge, "merge")?,
        ])?;
    Ok(())
}

fn update(
    connection: &Connection,
    id: &MergeId,
    state: MergeState,
    merge: Option<&Value>,
) -> Result<(), CatalogError> {
    let merge = merge.map(|merge| json(merge, "merge")).transpose()?;
    let changed = connection
        .prepare_cached("UPDATE merges SET state = ?, merge = coalesce(?, merge) WHERE id = ?")?
        .execute(params![state.as_str(), merge, id.as_str()])?;
    if changed == 0 {
        return Err(CatalogError::Unknown { kind: "merge", id: id.to_string() });
    }
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<MergeRow, CatalogError> {
    Ok(MergeRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        sandbox: row.parsed("sandbox")?,
        child: row.parsed("child")?,
        state: MergeState::parse(&row.text("state")?),
        created_ms: row.count("created_ms")?,
        merge: row.json("merge")?,
    })
}
