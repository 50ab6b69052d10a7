//! The identities of exported files that contain a snapshot.

use burrow_model::{Image, Snapshot, SnapshotId, TenantId};
use rusqlite::params;

use crate::connection::{Columns, integer};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, images, snapshots};

/// How many identities of one snapshot are returned, newest first: as many as a file lists for its base.
const IDENTITIES_MAX: u32 = 64;

impl Catalog {
    /// Records that a file with this identity contains a snapshot of this tenant, ready or in progress. Repeatable.
    pub async fn note_identity(
        &self,
        tenant: &TenantId,
        snapshot: &SnapshotId,
        identity: &str,
        now_ms: u64,
    ) -> Result<(), CatalogError> {
        let (tenant, snapshot, identity) = (tenant.clone(), snapshot.clone(), identity.to_owned());
        self.write(WriteMode::GROWTH, move |connection| {
            let sql = "INSERT INTO snapshot_identities (tenant, identity, snapshot, noted_ms)
                       SELECT ?1, ?2, id, ?4 FROM snapshots WHERE id = ?3 AND tenant = ?1
                       ON CONFLICT DO UPDATE SET noted_ms = max(noted_ms, excluded.noted_ms)";
            let values = params![tenant.as_str(), identity, snapshot.as_str(), integer(now_ms)];
            match connection.prepare_cached(sql)?.execute(values)? {
                0 => Err(CatalogError::Unknown { kind: "snapshot", id: snapshot.to_string() }),
                _ => Ok(()),
            }
        })
        .await
    }

    /// The identities of the files that contain a snapshot, newest first.
    pub async fn identities_of(&self, snapshot: &SnapshotId) -> Result<Vec<String>, CatalogError> {
        let snapshot = snapshot.clone();
        self.read(move |connection| {
            let sql = "SELECT identity FROM snapshot_identities WHERE snapshot = ? ORDER BY noted_ms DESC, identity LIMIT ?";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then(params![snapshot.as_str(), IDENTITIES_MAX], |row| row.text("identity"))?.collect()
        })
        .await
    }

    /// The newest ready snapshot of this tenant with one of these identities.
    pub async fn snapshot_by_identities(
        &self,
        tenant: &TenantId,
        identities: &[String],
    ) -> Result<Option<Snapshot>, CatalogError> {
        let (tenant, identities) = (tenant.clone(), identities.to_vec());
        self.read(move |connection| {
            let sql = "SELECT s.id AS id FROM snapshot_identities i JOIN snapshots s ON s.id = i.snapshot
                       WHERE i.tenant = ? AND i.identity = ? AND s.state = 'ready' ORDER BY i.noted_ms DESC LIMIT 1";
            let mut statement = connection.prepare_cached(sql)?;
            for identity in identities.iter().take(IDENTITIES_MAX as usize) {
                let mut found = statement.query_and_then([tenant.as_str(), identity], |row| row.parsed("id"))?;
                if let Some(id) = found.next() {
                    return snapshots::find(connection, &tenant, &id?);
                }
            }
            Ok(None)
        })
        .await
    }

    /// Stores an image's defaults for processes, for a snapshot that was imported without its image: a record like that of a
    /// removed image, which is removed with the last snapshot and sandbox of it.
    pub async fn insert_image_record(
        &self,
        tenant: &TenantId,
        image: Image,
        now_ms: u64,
    ) -> Result<(), CatalogError> {
        let tenant = tenant.clone();
        self.write(WriteMode::GROWTH, move |connection| {
            images::insert(connection, &tenant, &image)?;
            connection
                .prepare_cached("UPDATE images SET removed_ms = ? WHERE id = ?")?
                .execute(params![integer(now_ms), image.id.as_str()])?;
            Ok(())
        })
        .await
    }
}
