//! Layers: disks identified by their content, so that no layer is unpacked twice and no step is run twice.
//!
//! A layer's row exists only when its disk is complete. Nothing breaks if a layer is missing: an image has its own disk,
//! and a missing layer is created again.

use burrow_model::{ImageId, TenantId};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::{Columns, integer};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, LayerRow};

impl Catalog {
    /// Stores a layer whose disk is sealed. An older layer with the same key is kept for the images and layers above it, under
    /// a key that is never looked up.
    pub async fn insert_layer(&self, row: LayerRow) -> Result<(), CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| {
            connection
                .prepare_cached("UPDATE layers SET key = 'old:' || disk WHERE tenant = ? AND key = ?")?
                .execute([row.tenant.as_str(), row.key.as_str()])?;
            connection
                .prepare_cached(
                    "INSERT INTO layers (tenant, key, disk, parent, what, size_bytes, created_ms, used_ms)
                     VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![
                    row.tenant.as_str(),
                    row.key,
                    row.disk.as_str(),
                    row.parent.as_ref().map(|parent| parent.as_str()),
                    row.what,
                    integer(row.size_bytes),
                    integer(row.created_ms),
                    integer(row.used_ms),
                ])?;
            Ok(())
        })
        .await
    }

    pub async fn layer(&self, tenant: &TenantId, key: &str) -> Result<Option<LayerRow>, CatalogError> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM layers WHERE tenant = ? AND key = ?")?;
            statement
                .query_row([tenant.as_str(), key.as_str()], |row| Ok(decode(row)))
                .optional()?
                .transpose()
        })
        .await
    }

    /// The layer that a disk belongs to.
    pub async fn layer_of_disk(
        &self,
        tenant: &TenantId,
        disk: &ImageId,
    ) -> Result<Option<LayerRow>, CatalogError> {
        let (tenant, disk) = (tenant.clone(), disk.clone());
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM layers WHERE disk = ? AND tenant = ?")?;
            statement
                .query_row([disk.as_str(), tenant.as_str()], |row| Ok(decode(row)))
                .optional()?
                .transpose()
        })
        .await
    }

    /// Every layer of every tenant: for recovery.
    pub async fn all_layers(&self) -> Result<Vec<LayerRow>, CatalogError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM layers ORDER BY created_ms, tenant, key")?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }

    /// A tenant's layers, oldest first.
    pub async fn list_layers(&self, tenant: &TenantId) -> Result<Vec<LayerRow>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = "SELECT * FROM layers WHERE tenant = ? ORDER BY created_ms, key";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([tenant.as_str()], decode)?.collect()
        })
        .await
    }

    /// Layers that no image of the tenant uses.
    pub async fn unused_layers(&self, tenant: &TenantId) -> Result<Vec<LayerRow>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = "WITH RECURSIVE used (disk) AS (
                SELECT layer FROM images WHERE tenant = ?1 AND removed_ms IS NULL AND layer IS NOT NULL
                UNION
                SELECT layers.parent FROM layers JOIN used ON layers.disk = used.disk
                WHERE layers.tenant = ?1 AND layers.parent IS NOT NULL)
                SELECT * FROM layers WHERE tenant = ?1 AND disk NOT IN (SELECT disk FROM used)
                ORDER BY created_ms DESC, key";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([tenant.as_str()], decode)?.collect()
        })
        .await
    }

    /// Records that a layer was used.
    pub async fn touch_layer(&self, tenant: &TenantId, key: &str, now_ms: u64) -> Result<(), CatalogError> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.write(WriteMode::UPKEEP, move |connection| {
            connection
                .prepare_cached("UPDATE layers SET used_ms = ? WHERE tenant = ? AND key = ?")?
                .execute(params![integer(now_ms), tenant.as_str(), key])?;
            Ok(())
        })
        .await
    }

    /// Removes the row of a layer. Returns whether it existed.
    pub async fn delete_layer(&self, tenant: &TenantId, key: &str) -> Result<bool, CatalogError> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.write(WriteMode::UPKEEP, move |connection| {
            let deleted = connection
                .prepare_cached("DELETE FROM layers WHERE tenant = ? AND key = ?")?
                .execute([tenant.as_str(), key.as_str()])?;
            Ok(deleted > 0)
        })
        .await
    }
}

fn decode(row: &Row<'_>) -> Result<LayerRow, CatalogError> {
    Ok(LayerRow {
        tenant: row.parsed("tenant")?,
        key: row.text("key")?,
        disk: row.parsed("disk")?,
        parent: row.parsed_if_any("parent")?,
        what: row.text("what")?,
        size_bytes: row.count("size_bytes")?,
        created_ms: row.count("created_ms")?,
        used_ms: row.count("used_ms")?,
    })
}
