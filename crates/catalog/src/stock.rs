//! What is made ahead of the sandboxes that will have it: one row for each id that holds something on the host.

use burrow_model::{ImageId, SandboxId, TenantId};
use rusqlite::{Connection, Row, params};

use crate::connection::{Columns, integer};
use crate::writer::Manner;
use crate::{Catalog, CatalogError};

/// Something in stock, under the id that its sandbox will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockRow {
    pub id: SandboxId,
    /// The image's.
    pub tenant: TenantId,
    pub image: ImageId,
    pub disk_bytes: u64,
    pub made_ms: u64,
}

impl Catalog {
    /// Names what is about to be made, all in one commit.
    pub async fn insert_stock(&self, rows: Vec<StockRow>) -> Result<(), CatalogError> {
        self.write(Manner::GROWTH, move |connection| {
            let mut statement = connection.prepare_cached(
                "INSERT INTO stock (id, tenant, image, disk_bytes, made_ms) VALUES (?, ?, ?, ?, ?)",
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

    /// All that is in stock, oldest first: for recovery.
    pub async fn all_stock(&self) -> Result<Vec<StockRow>, CatalogError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT * FROM stock ORDER BY made_ms, id")?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }

    /// Forgets what has been removed. Of an unknown id: nothing to do.
    pub async fn delete_stock(&self, id: &SandboxId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(Manner::UPKEEP, move |connection| take(connection, &id)).await
    }
}

/// From here on, what the id names is a sandbox's, or nobody's.
pub(crate) fn take(connection: &Connection, id: &SandboxId) -> Result<(), CatalogError> {
    connection.prepare_cached("DELETE FROM stock WHERE id = ?")?.execute([id.as_str()])?;
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<StockRow, CatalogError> {
    Ok(StockRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        image: row.parsed("image")?,
        disk_bytes: row.count("disk_bytes")?,
        made_ms: row.count("made_ms")?,
    })
}
