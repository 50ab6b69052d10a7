//! Layers: volumes kept under what they hold, so that no layer is unpacked and no step is run twice.
//!
//! A layer's row exists only when its volume is whole. What depends on one does not break without it: an image has a
//! volume of its own, and a layer that is gone is made again.

use burrow_model::{ImageId, TenantId};
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::{Columns, integer};
use crate::writer::Manner;
use crate::{Catalog, CatalogError, LayerRow};

impl Catalog {
    /// Stores a layer whose volume is sealed. An older one of the same key stays for those who stand on it, under a key
    /// that nobody asks for.
    pub async fn insert_layer(&self, row: LayerRow) -> Result<(), CatalogError> {
        self.write(Manner::GROWTH, move |connection| {
            connection
                .prepare_cached("UPDATE layers SET key = 'old:' || volume WHERE tenant = ? AND key = ?")?
                .execute([row.tenant.as_str(), row.key.as_str()])?;
            connection
                .prepare_cached(
                    "INSERT INTO layers (tenant, key, volume, parent, what, size_bytes, created_ms, used_ms)
                     VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![
                    row.tenant.as_str(),
                    row.key,
                    row.volume.as_str(),
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

    /// The layer that a volume is.
    pub async fn layer_of_volume(
        &self,
        tenant: &TenantId,
        volume: &ImageId,
    ) -> Result<Option<LayerRow>, CatalogError> {
        let (tenant, volume) = (tenant.clone(), volume.clone());
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM layers WHERE volume = ? AND tenant = ?")?;
            statement
                .query_row([volume.as_str(), tenant.as_str()], |row| Ok(decode(row)))
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

    /// Layers that no image of the tenant stands on.
    pub async fn unused_layers(&self, tenant: &TenantId) -> Result<Vec<LayerRow>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = "WITH RECURSIVE used (volume) AS (
                SELECT layer FROM images WHERE tenant = ?1 AND removed_ms IS NULL AND layer IS NOT NULL
                UNION
                SELECT layers.parent FROM layers JOIN used ON layers.volume = used.volume
                WHERE layers.tenant = ?1 AND layers.parent IS NOT NULL)
                SELECT * FROM layers WHERE tenant = ?1 AND volume NOT IN (SELECT volume FROM used)
                ORDER BY created_ms DESC, key";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([tenant.as_str()], decode)?.collect()
        })
        .await
    }

    /// Notes that a layer was of use.
    pub async fn touch_layer(&self, tenant: &TenantId, key: &str, now_ms: u64) -> Result<(), CatalogError> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.write(Manner::UPKEEP, move |connection| {
            connection
                .prepare_cached("UPDATE layers SET used_ms = ? WHERE tenant = ? AND key = ?")?
                .execute(params![integer(now_ms), tenant.as_str(), key])?;
            Ok(())
        })
        .await
    }

    /// Forgets a layer. Answers whether there was one.
    pub async fn delete_layer(&self, tenant: &TenantId, key: &str) -> Result<bool, CatalogError> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.write(Manner::UPKEEP, move |connection| {
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
        volume: row.parsed("volume")?,
        parent: row.parsed_if_any("parent")?,
        what: row.text("what")?,
        size_bytes: row.count("size_bytes")?,
        created_ms: row.count("created_ms")?,
        used_ms: row.count("used_ms")?,
    })
}
