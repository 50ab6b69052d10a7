//! Volumes: one row each, from the intent to create one until everything of it is removed.
//!
//! The state of a volume names the operation in progress, so a row is also the plan that the next start completes or undoes.
//! Conflicts (two writers, a removal and a use) are detected here, in the transaction that stores the later of the two.

mod mounts;
mod snapshots;

pub use mounts::VolumeUser;
pub(crate) use mounts::{follow_spec, insert_mounts};
pub use snapshots::VolumeSnapshotRow;

use burrow_model::{Name, SandboxId, TenantId, Volume, VolumeId, VolumeSnapshotId, VolumeState};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::connection::{Columns, integer, word};
use crate::id_prefix::prefixes;
use crate::limits::VOLUMES_MAX;
use crate::page_query::PageQuery;
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, Page, PageRequest};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRow {
    pub tenant: TenantId,
    pub volume: Volume,
    /// The snapshot that a volume in [`VolumeState::Restoring`] is restored to.
    pub goes_to: Option<VolumeSnapshotId>,
}

impl Catalog {
    /// Stores the intent to create a volume. The snapshot that it is created from cannot be removed until it exists.
    pub async fn insert_volume(&self, tenant: &TenantId, volume: Volume) -> Result<(), CatalogError> {
        let tenant = tenant.clone();
        self.write(WriteMode::GROWTH, move |connection| {
            refuse_too_many(connection, &tenant)?;
            if let Some(taken) = find_by_name(connection, &tenant, volume.name.as_str())? {
                return Err(CatalogError::VolumeNameTaken { existing: taken.volume.id });
            }
            if let Some(origin) = &volume.origin {
                snapshots::find_ready(connection, &tenant, origin)?;
            }
            insert(connection, &tenant, &volume)
        })
        .await
    }

    /// Records that the operation on a volume is complete.
    pub async fn settle_volume(&self, id: &VolumeId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| set_state(connection, &id, VolumeState::Ready, None))
            .await
    }

    /// Stores the intent to remove a volume that no sandbox mounts. Returns the snapshots that are removed with it.
    pub async fn begin_volume_removal(
        &self,
        tenant: &TenantId,
        id: &VolumeId,
        with_snapshots: bool,
    ) -> Result<Vec<VolumeSnapshotId>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let row = match find(connection, &tenant, &id)?.ok_or_else(|| unknown(id.as_str()))? {
                // An earlier removal did not complete: return what is left.
                row if row.volume.state == VolumeState::Removing => {
                    let left = snapshots::of_volume(connection, &id)?;
                    return Ok(left.into_iter().map(|snapshot| snapshot.snapshot.id).collect());
                }
                _ => find_at_rest(connection, &tenant, &id)?,
            };
            let by: Vec<SandboxId> =
                mounts::of_volume(connection, &id)?.into_iter().map(|user| user.sandbox).collect();
            if !by.is_empty() {
                return Err(CatalogError::VolumeInUse { name: row.volume.name, by });
            }
            let snapshots = snapshots::of_volume(connection, &id)?;
            if snapshots.iter().any(|snapshot| !snapshot.ready) {
                return Err(CatalogError::VolumeBusy { name: row.volume.name });
            }
            if !snapshots.is_empty() && !with_snapshots {
                return Err(CatalogError::VolumeHasSnapshots {
                    name: row.volume.name,
                    count: snapshots.len(),
                });
            }
            for snapshot in &snapshots {
                snapshots::refuse_needed(connection, &row.volume.name, &snapshot.snapshot.id)?;
            }
            set_state(connection, &id, VolumeState::Removing, None)?;
            Ok(snapshots.into_iter().map(|snapshot| snapshot.snapshot.id).collect())
        })
        .await
    }

    /// Removes the row of a volume and its snapshots, after their files. Does nothing if the volume does not exist.
    pub async fn delete_volume(&self, id: &VolumeId) -> Result<(), CatalogError> {
        let (id, tokens) = (id.clone(), self.inner.tokens.clone());
        let work = move |connection: &Connection| {
            connection.prepare_cached("DELETE FROM volumes WHERE id = ?")?.execute([id.as_str()])?;
            Ok(id.clone())
        };
        let after = move |id: &VolumeId| tokens.volumes.forget(id);
        self.inner.writer.write_then(WriteMode::UPKEEP, work, after).await.map(drop)
    }

    /// Stores the intent to restore a volume to one of its snapshots. Sandboxes that mount it must have no processes.
    pub async fn begin_volume_restore(
        &self,
        tenant: &TenantId,
        id: &VolumeId,
        snapshot: &VolumeSnapshotId,
    ) -> Result<(), CatalogError> {
        let (tenant, id, snapshot) = (tenant.clone(), id.clone(), snapshot.clone());
        self.write(WriteMode::GROWTH, move |connection| {
            let row = find_at_rest(connection, &tenant, &id)?;
            let found = snapshots::find_ready(connection, &tenant, &snapshot)?;
            if found.volume != id {
                return Err(CatalogError::Unknown { kind: "volume snapshot", id: snapshot.to_string() });
            }
            let by = mounts::up(connection, &id)?;
            if !by.is_empty() {
                return Err(CatalogError::VolumeInUse { name: row.volume.name, by });
            }
            set_state(connection, &id, VolumeState::Restoring, Some(&snapshot))
        })
        .await
    }

    pub async fn volume(&self, tenant: &TenantId, id: &VolumeId) -> Result<Option<VolumeRow>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| find(connection, &tenant, &id)).await
    }

    /// The tenant of a volume.
    pub async fn owner_of_volume(&self, id: &VolumeId) -> Result<Option<TenantId>, CatalogError> {
        let id = id.clone();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached("SELECT tenant FROM volumes WHERE id = ?")?;
            statement.query_row([id.as_str()], |row| Ok(row.parsed("tenant"))).optional()?.transpose()
        })
        .await
    }

    /// Finds a volume by id, by name, or by a prefix of its id, with or without `vol`.
    pub async fn resolve_volume(
        &self,
        tenant: &TenantId,
        text: &str,
    ) -> Result<Option<VolumeRow>, CatalogError> {
        let (tenant, text) = (tenant.clone(), text.to_owned());
        self.read(move |connection| {
            if let Ok(id) = text.parse::<VolumeId>()
                && let Some(row) = find(connection, &tenant, &id)?
            {
                return Ok(Some(row));
            }
            if let Some(row) = find_by_name(connection, &tenant, &text)? {
                return Ok(Some(row));
            }
            let mut candidates = Vec::new();
            for prefix in prefixes(&text, VolumeId::PREFIX) {
                candidates.extend(starting_with(connection, &tenant, &prefix)?);
            }
            // Several matches count as none, because a list shows longer prefixes.
            Ok(if candidates.len() == 1 { candidates.pop() } else { None })
        })
        .await
    }

    /// A page of a tenant's volumes, newest first.
    pub async fn list_volumes(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Page<VolumeRow>, CatalogError> {
        let query =
            PageQuery::of_page::<VolumeId>("SELECT * FROM volumes", tenant, &page)?.newest_first(&page);
        let rows_max = page.rows_max();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(&query.sql)?;
            let rows = statement.query_and_then(params_from_iter(query.values), decode)?;
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            Ok(Page::cut(rows, rows_max, |row| (row.volume.created_ms, row.volume.id.as_str())))
        })
        .await
    }

    /// Every volume of every tenant, oldest first: for recovery and backups.
    pub async fn all_volumes(&self) -> Result<Vec<VolumeRow>, CatalogError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT * FROM volumes ORDER BY created_ms, id")?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }
}

fn insert(connection: &Connection, tenant: &TenantId, volume: &Volume) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "INSERT INTO volumes (id, tenant, name, disk_mib, state, origin, created_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            volume.id.as_str(),
            tenant.as_str(),
            volume.name.as_str(),
            volume.disk_mib,
            word(&volume.state, "state")?,
            volume.origin.as_ref().map(VolumeSnapshotId::as_str),
            integer(volume.created_ms),
        ])?;
    Ok(())
}

fn set_state(
    connection: &Connection,
    id: &VolumeId,
    state: VolumeState,
    goes_to: Option<&VolumeSnapshotId>,
) -> Result<(), CatalogError> {
    let changed = connection
        .prepare_cached("UPDATE volumes SET state = ?, goes_to = ? WHERE id = ?")?
        .execute(params![word(&state, "state")?, goes_to.map(VolumeSnapshotId::as_str), id.as_str()])?;
    if changed == 0 { Err(unknown(id.as_str())) } else { Ok(()) }
}

fn find(
    connection: &Connection,
    tenant: &TenantId,
    id: &VolumeId,
) -> Result<Option<VolumeRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM volumes WHERE id = ? AND tenant = ?")?;
    statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
}

/// A volume without an operation in progress.
fn find_at_rest(
    connection: &Connection,
    tenant: &TenantId,
    id: &VolumeId,
) -> Result<VolumeRow, CatalogError> {
    let row = find(connection, tenant, id)?.ok_or_else(|| unknown(id.as_str()))?;
    match row.volume.state {
        VolumeState::Ready => Ok(row),
        VolumeState::Making | VolumeState::Restoring | VolumeState::Removing => {
            Err(CatalogError::VolumeBusy { name: row.volume.name })
        }
    }
}

fn find_by_name(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
) -> Result<Option<VolumeRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM volumes WHERE tenant = ? AND name = ?")?;
    statement.query_row([tenant.as_str(), name], |row| Ok(decode(row))).optional()?.transpose()
}

fn starting_with(
    connection: &Connection,
    tenant: &TenantId,
    prefix: &str,
) -> Result<Vec<VolumeRow>, CatalogError> {
    // `~` sorts after every character of an id.
    let sql = "SELECT * FROM volumes WHERE id >= ?1 AND id < ?1 || '~' AND tenant = ?2 ORDER BY id LIMIT 2";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_and_then([prefix, tenant.as_str()], decode)?.collect()
}

fn refuse_too_many(connection: &Connection, tenant: &TenantId) -> Result<(), CatalogError> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM volumes WHERE tenant = ?")?;
    let count: i64 = statement.query_row([tenant.as_str()], |row| row.get(0))?;
    if count >= integer(VOLUMES_MAX as u64) { Err(CatalogError::TooManyVolumes) } else { Ok(()) }
}

fn unknown(what: &str) -> CatalogError {
    CatalogError::Unknown { kind: "volume", id: what.to_owned() }
}

fn decode(row: &Row<'_>) -> Result<VolumeRow, CatalogError> {
    let volume = Volume {
        id: row.parsed("id")?,
        name: row.parsed::<Name>("name")?,
        disk_mib: u32::try_from(row.count("disk_mib")?).unwrap_or(u32::MAX),
        state: row.word("state")?,
        origin: row.parsed_if_any("origin")?,
        created_ms: row.count("created_ms")?,
    };
    Ok(VolumeRow { tenant: row.parsed("tenant")?, volume, goes_to: row.parsed_if_any("goes_to")? })
}
