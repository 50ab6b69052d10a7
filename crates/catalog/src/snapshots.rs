//! Snapshots: one row each, from the intent to take one until everything of it is removed.
//!
//! ```text
//!  begin_snapshot ─► 'making' (only recovery sees it) ─► finish_snapshot ─► 'ready' ─► delete_snapshot
//! ```
//!
//! A snapshot outlives its sandbox, and sandboxes created from it outlive the snapshot. If a snapshot is deleted, its
//! children move to its parent, so a tree stays connected; for this reason the column `parent` counts, not the JSON.

mod backup;
mod lineage;
mod search;

use burrow_model::{
    CHANGES_MAX, Change, Changes, OperationId, SNAPSHOTS_MAX, SandboxId, Snapshot, SnapshotId, TenantId,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::connection::{Columns, integer, json, word};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, OperationRow, SnapshotRow, operations};

pub use lineage::{LINEAGE_MAX, SnapshotTotals};

/// The most snapshots that one call of `expired_snapshots` returns: the caller repeats the call.
const EXPIRED_MAX: u32 = 1000;

/// A snapshot as lists show it: without the paths of its changes, of which there are many.
const SELECT: &str = "SELECT id, tenant, state, parent, snapshot, NULL AS changes FROM snapshots";

/// A complete snapshot.
const SELECT_WHOLE: &str = "SELECT id, tenant, state, parent, snapshot, changes FROM snapshots";

impl Catalog {
    /// Stores the intent to take a snapshot and the operation for it, in one commit. `finish_snapshot` adds data that is not
    /// known yet, such as its changes. A parent that does not exist any more is left out.
    pub async fn begin_snapshot(
        &self,
        row: SnapshotRow,
        operation: OperationRow,
    ) -> Result<(), CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| {
            refuse_too_many(connection, &row.snapshot.sandbox)?;
            insert(connection, &row)?;
            operations::insert(connection, &operation)
        })
        .await
    }

    /// Makes a snapshot ready and ends the operation that took it. Id, sandbox, name, labels, parent and time keep their
    /// first values; everything else is replaced.
    pub async fn finish_snapshot(
        &self,
        snapshot: Snapshot,
        finish: Option<OperationId>,
    ) -> Result<(), CatalogError> {
        self.write(WriteMode::UPKEEP, move |connection| {
            let changed = connection
                .prepare_cached(
                    "UPDATE snapshots SET state = 'ready', kind = ?, image = ?, dump = ?, expires_ms = ?,
                         snapshot = ?, changes = ? WHERE id = ?",
                )?
                .execute(params![
                    word(&snapshot.kind, "kind")?,
                    snapshot.image.as_str(),
                    snapshot.dump.as_ref().map(|dump| dump.as_str()),
                    snapshot.expires_ms.map(integer),
                    json(&without_paths(&snapshot), "snapshot")?,
                    json(&listed(&snapshot.changes), "changes")?,
                    snapshot.id.as_str(),
                ])?;
            if changed == 0 {
                return Err(CatalogError::Unknown { kind: "snapshot", id: snapshot.id.to_string() });
            }
            finish.as_ref().map_or(Ok(()), |operation| operations::remove(connection, operation))
        })
        .await
    }

    /// Removes a snapshot, ready or not, and ends the operation that removed it. Its children move to its parent. For an
    /// unknown snapshot, only ends the operation, so that recovery may repeat it.
    pub async fn delete_snapshot(
        &self,
        id: &SnapshotId,
        finish: Option<OperationId>,
    ) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            remove(connection, &id)?;
            finish.as_ref().map_or(Ok(()), |operation| operations::remove(connection, operation))
        })
        .await
    }

    /// A complete ready snapshot, with the paths of its changes.
    pub async fn snapshot(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<Option<Snapshot>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| find(connection, &tenant, &id)).await
    }

    /// Every snapshot of every tenant, oldest first, including those not ready: for recovery. Without the paths of changes.
    pub async fn all_snapshots(&self) -> Result<Vec<SnapshotRow>, CatalogError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&format!("{SELECT} ORDER BY created_ms, id"))?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }

    /// Ready snapshots of one sandbox, newest first, without their paths: as many as one sandbox may have at most.
    pub async fn snapshots_of(&self, sandbox: &SandboxId) -> Result<Vec<Snapshot>, CatalogError> {
        let sandbox = sandbox.clone();
        self.read(move |connection| of_sandbox(connection, &sandbox, SNAPSHOTS_MAX as u64)).await
    }

    /// The newest ready snapshot of a sandbox, without its paths.
    pub async fn latest_snapshot_of(&self, sandbox: &SandboxId) -> Result<Option<Snapshot>, CatalogError> {
        let sandbox = sandbox.clone();
        self.read(move |connection| Ok(of_sandbox(connection, &sandbox, 1)?.pop())).await
    }

    /// Ready snapshots that have expired and that no rotation needs, longest overdue first, without the paths of changes, at
    /// most a thousand at once.
    pub async fn expired_snapshots(&self, now_ms: u64) -> Result<Vec<SnapshotRow>, CatalogError> {
        self.read(move |connection| {
            let sql = format!(
                "{SELECT} WHERE expires_ms <= ? AND state = 'ready' AND id NOT IN (
                     SELECT json_extract(spec, '$.rotate.snapshot') FROM sandboxes
                     WHERE json_extract(spec, '$.rotate.snapshot') IS NOT NULL)
                 ORDER BY expires_ms LIMIT ?"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            statement.query_and_then(params![integer(now_ms), EXPIRED_MAX], decode)?.collect()
        })
        .await
    }
}

pub(crate) fn find(
    connection: &Connection,
    tenant: &TenantId,
    id: &SnapshotId,
) -> Result<Option<Snapshot>, CatalogError> {
    let sql = format!("{SELECT_WHOLE} WHERE id = ? AND tenant = ? AND state = 'ready'");
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row)));
    Ok(found.optional()?.transpose()?.map(|row| row.snapshot))
}

fn of_sandbox(
    connection: &Connection,
    sandbox: &SandboxId,
    rows_max: u64,
) -> Result<Vec<Snapshot>, CatalogError> {
    let sql =
        format!("{SELECT} WHERE sandbox = ? AND state = 'ready' ORDER BY created_ms DESC, id DESC LIMIT ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_and_then(params![sandbox.as_str(), integer(rows_max)], decode)?;
    rows.map(|row| row.map(|row| row.snapshot)).collect()
}

fn refuse_too_many(connection: &Connection, sandbox: &SandboxId) -> Result<(), CatalogError> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM snapshots WHERE sandbox = ?")?;
    let count: i64 = statement.query_row([sandbox.as_str()], |row| row.get(0))?;
    if count >= integer(SNAPSHOTS_MAX as u64) {
        return Err(CatalogError::TooManySnapshots { sandbox: sandbox.clone() });
    }
    Ok(())
}

fn insert(connection: &Connection, row: &SnapshotRow) -> Result<(), CatalogError> {
    let snapshot = &row.snapshot;
    if let Some(name) = &snapshot.name {
        refuse_taken(connection, &row.tenant, name.as_str())?;
    }
    connection
        .prepare_cached(
            "INSERT INTO snapshots (id, tenant, sandbox, name, state, kind, parent, image, dump, created_ms,
                 expires_ms, snapshot)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, (SELECT id FROM snapshots WHERE id = ?7 AND tenant = ?2), ?8, ?9, ?10,
                 ?11, ?12)",
        )?
        .execute(params![
            snapshot.id.as_str(),
            row.tenant.as_str(),
            snapshot.sandbox.as_str(),
            snapshot.name.as_ref().map(|name| name.as_str()),
            if row.ready { "ready" } else { "making" },
            word(&snapshot.kind, "kind")?,
            snapshot.parent.as_ref().map(|parent| parent.as_str()),
            snapshot.image.as_str(),
            snapshot.dump.as_ref().map(|dump| dump.as_str()),
            integer(snapshot.created_ms),
            snapshot.expires_ms.map(integer),
            json(&without_paths(snapshot), "snapshot")?,
        ])?;
    let sql = "INSERT INTO snapshot_labels (snapshot, key, value, tenant) VALUES (?, ?, ?, ?)";
    let mut statement = connection.prepare_cached(sql)?;
    for (key, value) in &snapshot.labels {
        statement.execute([snapshot.id.as_str(), key, value, row.tenant.as_str()])?;
    }
    Ok(())
}

fn refuse_taken(connection: &Connection, tenant: &TenantId, name: &str) -> Result<(), CatalogError> {
    let existing = connection
        .prepare_cached("SELECT id FROM snapshots WHERE tenant = ? AND name = ?")?
        .query_row([tenant.as_str(), name], |row| Ok(row.parsed("id")))
        .optional()?
        .transpose()?;
    existing.map_or(Ok(()), |existing| Err(CatalogError::SnapshotNameTaken { existing }))
}

fn remove(connection: &Connection, id: &SnapshotId) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "UPDATE snapshots SET parent = (SELECT gone.parent FROM snapshots AS gone WHERE gone.id = ?1)
             WHERE parent = ?1",
        )?
        .execute([id.as_str()])?;
    connection.prepare_cached("DELETE FROM snapshots WHERE id = ?")?.execute([id.as_str()])?;
    Ok(())
}

fn without_paths(snapshot: &Snapshot) -> Snapshot {
    let Changes { paths: _, total, more, since } = snapshot.changes.clone();
    Snapshot { changes: Changes { paths: Vec::new(), total, more, since }, ..snapshot.clone() }
}

/// The paths to store: the caller may pass more than a snapshot lists; `total` counts them all.
fn listed(changes: &Changes) -> &[Change] {
    &changes.paths[..changes.paths.len().min(CHANGES_MAX)]
}

fn decode(row: &Row<'_>) -> Result<SnapshotRow, CatalogError> {
    let mut snapshot: Snapshot = row.json("snapshot")?;
    snapshot.parent = row.parsed_if_any("parent")?;
    snapshot.changes.paths = row.json_if_any("changes")?.unwrap_or_default();
    Ok(SnapshotRow { tenant: row.parsed("tenant")?, snapshot, ready: row.text("state")? == "ready" })
}
