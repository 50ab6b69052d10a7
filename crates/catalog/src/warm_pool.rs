//! The warm pool: one row for each id of a future sandbox with pre-created resources on the host.

use burrow_model::{ImageId, SandboxId, TenantId};
use rusqlite::{Connection, Row, params};

use crate::connection::{Columns, integer};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError};

/// Pre-created resources, under the id of their future sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmRow {
    pub id: SandboxId,
    /// The tenant of the image.
    pub tenant: TenantId,
    pub image: ImageId,
    pub disk_bytes: u64,
    pub made_ms: u64,
}

impl Catalog {
    /// Records what is about to be created, in one commit.
    pub async fn insert_warm(&self, rows: Vec<WarmRow>) -> Result<(), CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| {
            let mut statement = connection.prepare_cached(
                "INSERT INTO warm_pool (id, tenant, image, disk_bytes, made_ms) VALUES (?, ?, ?, ?, ?)",
            )?;
            for row in &rows {
                statement.execute(params![
                    row.id.as_str(),
                    row.tenant.as_str(),
                    row.image.as_str(),
                    integer(row.disk_bytes),
                    integer(row.made_ms),
                ])?;
            }
            Ok(())
        })
        .await
    }

    /// All pre-created resources, oldest first: for recovery.
    pub async fn all_warm(&self) -> Result<Vec<WarmRow>, CatalogError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT * FROM warm_pool ORDER BY made_ms, id")?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }

    /// Removes the row of resources that have been removed. Does nothing if the id is unknown.
    pub async fn delete_warm(&self, id: &SandboxId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| take(connection, &id)).await
    }
}

/// From here on, the resources under the id belong to a sandbox, or to none.
pub(crate) fn take(connection: &Connection, id: &SandboxId) -> Result<(), CatalogError> {
    connection.prepare_cached("DELETE FROM warm_pool WHERE id = ?")?.execute([id.as_str()])?;
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<WarmRow, CatalogError> {
    Ok(WarmRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        image: row.parsed("image")?,
        disk_bytes: row.count("disk_bytes")?,
        made_ms: row.count("made_ms")?,
    })
}
