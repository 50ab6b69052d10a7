//! Snapshots of volumes. (Those of sandboxes are separate.)

use std::collections::BTreeSet;

use burrow_model::{Name, TenantId, VOLUME_SNAPSHOTS_MAX, VolumeId, VolumeSnapshot, VolumeSnapshotId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::find_at_rest;
use super::mounts::forget_lost;
use crate::connection::{Columns, integer};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSnapshotRow {
    pub tenant: TenantId,
    pub snapshot: VolumeSnapshot,
    /// Whether it is complete. Until then, only recovery finds it.
    pub ready: bool,
}

impl Catalog {
    /// Stores the intent to take a snapshot of a volume.
    pub async fn insert_volume_snapshot(
        &self,
        tenant: &TenantId,
        snapshot: VolumeSnapshot,
    ) -> Result<(), CatalogError> {
        let tenant = tenant.clone();
        self.write(WriteMode::GROWTH, move |connection| {
            let row = find_at_rest(connection, &tenant, &snapshot.volume)?;
            let others = of_volume(connection, &snapshot.volume)?;
            if others.len() >= VOLUME_SNAPSHOTS_MAX {
                return Err(CatalogError::TooManyVolumeSnapshots { name: row.volume.name });
            }
            let same =
                |other: &&VolumeSnapshotRow| snapshot.name.is_some() && other.snapshot.name == snapshot.name;
            if let Some(taken) = others.iter().find(same) {
                return Err(CatalogError::VolumeSnapshotNameTaken { existing: taken.snapshot.id.clone() });
            }
            insert(connection, &tenant, &snapshot)
        })
        .await
    }

    /// Records that a snapshot of a volume is complete.
    pub async fn settle_volume_snapshot(&self, id: &VolumeSnapshotId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            let sql = "UPDATE volume_snapshots SET ready = 1 WHERE id = ?";
            match connection.prepare_cached(sql)?.execute([id.as_str()])? {
                0 => Err(unknown(id.as_str())),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Removes the row of a snapshot, unless a volume is being created from it or restored to it. Its files are removed later.
    pub async fn delete_volume_snapshot(
        &self,
        tenant: &TenantId,
        id: &VolumeSnapshotId,
    ) -> Result<(), CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let Some(row) = find(connection, &tenant, &id)? else { return Ok(()) };
            if row.ready {
                let volume = super::find(connection, &tenant, &row.snapshot.volume)?;
                let volume = volume.ok_or_else(|| super::unknown(row.snapshot.volume.as_str()))?;
                refuse_needed(connection, &volume.volume.name, &id)?;
            }
            connection.prepare_cached("DELETE FROM volume_snapshots WHERE id = ?")?.execute([id.as_str()])?;
            Ok(())
        })
        .await
    }

    /// Complete snapshots of a volume, newest first.
    pub async fn snapshots_of_volume(&self, id: &VolumeId) -> Result<Vec<VolumeSnapshot>, CatalogError> {
        let id = id.clone();
        self.read(move |connection| {
            let rows = of_volume(connection, &id)?.into_iter().filter(|row| row.ready);
            Ok(rows.map(|row| row.snapshot).collect())
        })
        .await
    }

    pub async fn volume_snapshot(
        &self,
        tenant: &TenantId,
        id: &VolumeSnapshotId,
    ) -> Result<Option<VolumeSnapshot>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| {
            Ok(find(connection, &tenant, &id)?.filter(|row| row.ready).map(|row| row.snapshot))
        })
        .await
    }

    /// Every snapshot of every volume of every tenant, oldest first, complete or not: for recovery and backups.
    pub async fn all_volume_snapshots(&self) -> Result<Vec<VolumeSnapshotRow>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM volume_snapshots ORDER BY created_ms, id";
            connection.prepare_cached(sql)?.query_and_then((), decode)?.collect()
        })
        .await
    }

    /// Adapts the volumes to a backup, which contains these and no others. Only for a catalog that no engine has opened
    /// yet.
    pub async fn settle_volumes_of_backup(
        &self,
        kept: BTreeSet<VolumeId>,
        snapshots: BTreeSet<VolumeSnapshotId>,
    ) -> Result<(), CatalogError> {
        self.write(WriteMode::UPKEEP, move |connection| {
            forget_lost(connection, &kept)?;
            let sql = "SELECT * FROM volume_snapshots ORDER BY created_ms, id";
            let all: Vec<VolumeSnapshotRow> =
                connection.prepare(sql)?.query_and_then((), decode)?.collect::<Result<_, CatalogError>>()?;
            for lost in all.iter().filter(|row| !snapshots.contains(&row.snapshot.id)) {
                connection
                    .execute("DELETE FROM volume_snapshots WHERE id = ?", [lost.snapshot.id.as_str()])?;
            }
            Ok(())
        })
        .await
    }
}

fn insert(connection: &Connection, tenant: &TenantId, snapshot: &VolumeSnapshot) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "INSERT INTO volume_snapshots (id, tenant, volume, name, ready, created_ms) VALUES (?, ?, ?, ?, 0, ?)",
        )?
        .execute(params![
            snapshot.id.as_str(),
            tenant.as_str(),
            snapshot.volume.as_str(),
            snapshot.name.as_ref().map(Name::as_str),
            integer(snapshot.created_ms),
        ])?;
    Ok(())
}

/// Newest first.
pub(super) fn of_volume(
    connection: &Connection,
    id: &VolumeId,
) -> Result<Vec<VolumeSnapshotRow>, CatalogError> {
    let sql = "SELECT * FROM volume_snapshots WHERE volume = ? ORDER BY created_ms DESC, id DESC";
    connection.prepare_cached(sql)?.query_and_then([id.as_str()], decode)?.collect()
}

pub(super) fn find_ready(
    connection: &Connection,
    tenant: &TenantId,
    id: &VolumeSnapshotId,
) -> Result<VolumeSnapshot, CatalogError> {
    let found = find(connection, tenant, id)?.filter(|row| row.ready);
    found.map(|row| row.snapshot).ok_or_else(|| unknown(id.as_str()))
}

/// Refuses if a volume is being created from the snapshot or restored to it.
pub(super) fn refuse_needed(
    connection: &Connection,
    name: &Name,
    id: &VolumeSnapshotId,
) -> Result<(), CatalogError> {
    let sql =
        "SELECT EXISTS (SELECT 1 FROM volumes WHERE goes_to = ?1 OR (origin = ?1 AND state = 'making'))";
    let needed: bool = connection.prepare_cached(sql)?.query_row([id.as_str()], |row| row.get(0))?;
    if needed { Err(CatalogError::VolumeBusy { name: name.clone() }) } else { Ok(()) }
}

fn find(
    connection: &Connection,
    tenant: &TenantId,
    id: &VolumeSnapshotId,
) -> Result<Option<VolumeSnapshotRow>, CatalogError> {
    let sql = "SELECT * FROM volume_snapshots WHERE id = ? AND tenant = ?";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
}

fn unknown(what: &str) -> CatalogError {
    CatalogError::Unknown { kind: "volume snapshot", id: what.to_owned() }
}

fn decode(row: &Row<'_>) -> Result<VolumeSnapshotRow, CatalogError> {
    let snapshot = VolumeSnapshot {
        id: row.parsed("id")?,
        volume: row.parsed("volume")?,
        name: row.parsed_if_any("name")?,
        created_ms: row.count("created_ms")?,
    };
    Ok(VolumeSnapshotRow { tenant: row.parsed("tenant")?, snapshot, ready: row.count("ready")? != 0 })
}
