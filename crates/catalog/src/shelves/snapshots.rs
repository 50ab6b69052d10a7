//! Snapshots of volumes, which are no snapshots of sandboxes.

use std::collections::BTreeSet;

use burrow_model::{Name, SHELF_SNAPSHOTS_MAX, ShelfId, ShelfSnapshot, ShelfSnapshotId, TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::find_at_rest;
use super::mounts::forget_lost;
use crate::connection::{Columns, integer};
use crate::writer::Manner;
use crate::{Catalog, CatalogError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShelfSnapshotRow {
    pub tenant: TenantId,
    pub snapshot: ShelfSnapshot,
    /// Whether it is complete. Until then only recovery sees it.
    pub ready: bool,
}

impl Catalog {
    /// Stores the intent to take a snapshot of a volume.
    pub async fn insert_shelf_snapshot(
        &self,
        tenant: &TenantId,
        snapshot: ShelfSnapshot,
    ) -> Result<(), CatalogError> {
        let tenant = tenant.clone();
        self.write(Manner::GROWTH, move |connection| {
            let row = find_at_rest(connection, &tenant, &snapshot.shelf)?;
            let others = of_shelf(connection, &snapshot.shelf)?;
            if others.len() >= SHELF_SNAPSHOTS_MAX {
                return Err(CatalogError::TooManyShelfSnapshots { name: row.shelf.name });
            }
            let same =
                |other: &&ShelfSnapshotRow| snapshot.name.is_some() && other.snapshot.name == snapshot.name;
            if let Some(taken) = others.iter().find(same) {
                return Err(CatalogError::ShelfSnapshotNameTaken { existing: taken.snapshot.id.clone() });
            }
            insert(connection, &tenant, &snapshot)
        })
        .await
    }

    /// A snapshot of a volume is complete.
    pub async fn settle_shelf_snapshot(&self, id: &ShelfSnapshotId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(Manner::UPKEEP, move |connection| {
            let sql = "UPDATE shelf_snapshots SET ready = 1 WHERE id = ?";
            match connection.prepare_cached(sql)?.execute([id.as_str()])? {
                0 => Err(unknown(id.as_str())),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Forgets a snapshot, unless a volume is being made from it or goes back to it. Its files go after it.
    pub async fn delete_shelf_snapshot(
        &self,
        tenant: &TenantId,
        id: &ShelfSnapshotId,
    ) -> Result<(), CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(Manner::UPKEEP, move |connection| {
            let Some(row) = find(connection, &tenant, &id)? else { return Ok(()) };
            if row.ready {
                let shelf = super::find(connection, &tenant, &row.snapshot.shelf)?;
                let shelf = shelf.ok_or_else(|| super::unknown(row.snapshot.shelf.as_str()))?;
                refuse_needed(connection, &shelf.shelf.name, &id)?;
            }
            connection.prepare_cached("DELETE FROM shelf_snapshots WHERE id = ?")?.execute([id.as_str()])?;
            Ok(())
        })
        .await
    }

    /// Snapshots of a volume that are complete, newest first.
    pub async fn snapshots_of_shelf(&self, id: &ShelfId) -> Result<Vec<ShelfSnapshot>, CatalogError> {
        let id = id.clone();
        self.read(move |connection| {
            let rows = of_shelf(connection, &id)?.into_iter().filter(|row| row.ready);
            Ok(rows.map(|row| row.snapshot).collect())
        })
        .await
    }

    pub async fn shelf_snapshot(
        &self,
        tenant: &TenantId,
        id: &ShelfSnapshotId,
    ) -> Result<Option<ShelfSnapshot>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| {
            Ok(find(connection, &tenant, &id)?.filter(|row| row.ready).map(|row| row.snapshot))
        })
        .await
    }

    /// Every snapshot of every volume of every tenant, oldest first, complete or not: for recovery and backups.
    pub async fn all_shelf_snapshots(&self) -> Result<Vec<ShelfSnapshotRow>, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT * FROM shelf_snapshots ORDER BY created_ms, id";
            connection.prepare_cached(sql)?.query_and_then((), decode)?.collect()
        })
        .await
    }

    /// Brings volumes in line with a backup, which holds these and no others. Only for a catalog that no engine has taken up
    /// yet.
    pub async fn settle_shelves_of_backup(
        &self,
        kept: BTreeSet<ShelfId>,
        snapshots: BTreeSet<ShelfSnapshotId>,
    ) -> Result<(), CatalogError> {
        self.write(Manner::UPKEEP, move |connection| {
            forget_lost(connection, &kept)?;
            let sql = "SELECT * FROM shelf_snapshots ORDER BY created_ms, id";
            let all: Vec<ShelfSnapshotRow> =
                connection.prepare(sql)?.query_and_then((), decode)?.collect::<Result<_, CatalogError>>()?;
            for lost in all.iter().filter(|row| !snapshots.contains(&row.snapshot.id)) {
                connection
                    .execute("DELETE FROM shelf_snapshots WHERE id = ?", [lost.snapshot.id.as_str()])?;
            }
            Ok(())
        })
        .await
    }
}

fn insert(connection: &Connection, tenant: &TenantId, snapshot: &ShelfSnapshot) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "INSERT INTO shelf_snapshots (id, tenant, shelf, name, ready, created_ms) VALUES (?, ?, ?, ?, 0, ?)",
        )?
        .execute(params![
            snapshot.id.as_str(),
            tenant.as_str(),
            snapshot.shelf.as_str(),
            snapshot.name.as_ref().map(Name::as_str),
            integer(snapshot.created_ms),
        ])?;
    Ok(())
}

/// Newest first.
pub(super) fn of_shelf(connection: &Connection, id: &ShelfId) -> Result<Vec<ShelfSnapshotRow>, CatalogError> {
    let sql = "SELECT * FROM shelf_snapshots WHERE shelf = ? ORDER BY created_ms DESC, id DESC";
    connection.prepare_cached(sql)?.query_and_then([id.as_str()], decode)?.collect()
}

pub(super) fn find_ready(
    connection: &Connection,
    tenant: &TenantId,
    id: &ShelfSnapshotId,
) -> Result<ShelfSnapshot, CatalogError> {
    let found = find(connection, tenant, id)?.filter(|row| row.ready);
    found.map(|row| row.snapshot).ok_or_else(|| unknown(id.as_str()))
}

/// Whoever is being made from it, or goes back to it, still reads it.
pub(super) fn refuse_needed(
    connection: &Connection,
    name: &Name,
    id: &ShelfSnapshotId,
) -> Result<(), CatalogError> {
    let sql =
        "SELECT EXISTS (SELECT 1 FROM shelves WHERE goes_to = ?1 OR (origin = ?1 AND state = 'making'))";
    let needed: bool = connection.prepare_cached(sql)?.query_row([id.as_str()], |row| row.get(0))?;
    if needed { Err(CatalogError::ShelfBusy { name: name.clone() }) } else { Ok(()) }
}

fn find(
    connection: &Connection,
    tenant: &TenantId,
    id: &ShelfSnapshotId,
) -> Result<Option<ShelfSnapshotRow>, CatalogError> {
    let sql = "SELECT * FROM shelf_snapshots WHERE id = ? AND tenant = ?";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
}

fn unknown(what: &str) -> CatalogError {
    CatalogError::Unknown { kind: "volume snapshot", id: what.to_owned() }
}

fn decode(row: &Row<'_>) -> Result<ShelfSnapshotRow, CatalogError> {
    let snapshot = ShelfSnapshot {
        id: row.parsed("id")?,
        shelf: row.parsed("shelf")?,
        name: row.parsed_if_any("name")?,
        created_ms: row.count("created_ms")?,
    };
    Ok(ShelfSnapshotRow { tenant: row.parsed("tenant")?, snapshot, ready: row.count("ready")? != 0 })
}
