//! Which sandboxes have which volumes: kept in step with their specifications, commit by commit.

use std::collections::BTreeSet;

use burrow_model::{MountMode, MountPath, Name, SandboxId, SandboxSpec, ShelfId, ShelfMount, TenantId};
use rusqlite::{Connection, OptionalExtension, params};

use super::{find_at_rest, unknown};
use crate::connection::{Columns, word};
use crate::{Catalog, CatalogError};

/// A sandbox that has a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShelfUser {
    pub sandbox: SandboxId,
    pub name: Option<Name>,
    pub path: MountPath,
    pub mode: MountMode,
}

impl Catalog {
    /// Sandboxes that have a volume, in whatever state, oldest first.
    pub async fn users_of_shelf(&self, id: &ShelfId) -> Result<Vec<ShelfUser>, CatalogError> {
        let id = id.clone();
        self.read(move |connection| of_shelf(connection, &id)).await
    }
}

/// Gives a new sandbox the volumes of its specification, or refuses it.
pub(crate) fn insert_mounts(
    connection: &Connection,
    tenant: &TenantId,
    sandbox: &SandboxId,
    spec: &SandboxSpec,
) -> Result<(), CatalogError> {
    for mount in &spec.volumes {
        insert(connection, tenant, sandbox, mount)?;
    }
    Ok(())
}

/// The same for a specification that changed. Most changes leave volumes alone, and so does this then.
pub(crate) fn follow_spec(
    connection: &Connection,
    tenant: &TenantId,
    sandbox: &SandboxId,
    spec: &SandboxSpec,
) -> Result<(), CatalogError> {
    let sql = "SELECT shelf, path, mode FROM shelf_mounts WHERE sandbox = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let stored: BTreeSet<(String, String, String)> = statement
        .query_map([sandbox.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    let told = |mount: &ShelfMount| {
        (mount.shelf.to_string(), mount.path.to_string(), mount.mode.as_str().to_owned())
    };
    if stored == spec.volumes.iter().map(told).collect() {
        return Ok(());
    }
    connection.prepare_cached("DELETE FROM shelf_mounts WHERE sandbox = ?")?.execute([sandbox.as_str()])?;
    insert_mounts(connection, tenant, sandbox, spec)
}

fn insert(
    connection: &Connection,
    tenant: &TenantId,
    sandbox: &SandboxId,
    mount: &ShelfMount,
) -> Result<(), CatalogError> {
    let row = find_at_rest(connection, tenant, &mount.shelf).map_err(|error| {
        // By the name that people know it by.
        if matches!(error, CatalogError::Unknown { .. }) { unknown(mount.name.as_str()) } else { error }
    })?;
    if mount.mode == MountMode::Rw {
        let sql = "SELECT sandbox FROM shelf_mounts WHERE shelf = ? AND mode = 'rw'";
        let writer: Option<SandboxId> = connection
            .prepare_cached(sql)?
            .query_row([mount.shelf.as_str()], |row| Ok(row.parsed("sandbox")))
            .optional()?
            .transpose()?;
        if let Some(by) = writer {
            return Err(CatalogError::ShelfWritten { name: row.shelf.name, by });
        }
    }
    connection
        .prepare_cached(
            "INSERT INTO shelf_mounts (sandbox, shelf, path, mode, tenant) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![
            sandbox.as_str(),
            mount.shelf.as_str(),
            mount.path.as_str(),
            word(&mount.mode, "mode")?,
            tenant.as_str(),
        ])?;
    Ok(())
}

pub(super) fn of_shelf(connection: &Connection, id: &ShelfId) -> Result<Vec<ShelfUser>, CatalogError> {
    let sql =
        "SELECT m.sandbox, s.name, m.path, m.mode FROM shelf_mounts m JOIN sandboxes s ON s.id = m.sandbox
               WHERE m.shelf = ? ORDER BY s.created_ms, s.id";
    let mut statement = connection.prepare_cached(sql)?;
    let users = statement.query_and_then([id.as_str()], |row| {
        Ok(ShelfUser {
            sandbox: row.parsed("sandbox")?,
            name: row.parsed_if_any("name")?,
            path: row.parsed("path")?,
            mode: row.word("mode")?,
        })
    })?;
    users.collect()
}

/// Those that have processes, or are on their way to or from them.
pub(super) fn up(connection: &Connection, id: &ShelfId) -> Result<Vec<SandboxId>, CatalogError> {
    let sql = "SELECT m.sandbox FROM shelf_mounts m JOIN sandboxes s ON s.id = m.sandbox
               WHERE m.shelf = ? AND s.state NOT IN ('stopped', 'failed') ORDER BY s.created_ms, s.id";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_and_then([id.as_str()], |row| row.parsed("sandbox"))?.collect()
}

/// Takes volumes that are not there away from whoever has them, and forgets them: for a catalog from a backup.
pub(crate) fn forget_lost(connection: &Connection, kept: &BTreeSet<ShelfId>) -> Result<(), CatalogError> {
    let mut statement = connection.prepare("SELECT id FROM shelves")?;
    let all: Vec<ShelfId> =
        statement.query_and_then((), |row| row.parsed("id"))?.collect::<Result<_, CatalogError>>()?;
    for lost in all.iter().filter(|id| !kept.contains(id)) {
        let id = lost.as_str();
        connection.execute(
            "UPDATE sandboxes SET spec = json_set(spec, '$.volumes', json((
                 SELECT json_group_array(json(v.value)) FROM json_each(spec, '$.volumes') v
                 WHERE json_extract(v.value, '$.shelf') <> ?1)))
             WHERE id IN (SELECT sandbox FROM shelf_mounts WHERE shelf = ?1)",
            [id],
        )?;
        connection.execute("DELETE FROM shelf_mounts WHERE shelf = ?", [id])?;
        connection.execute("DELETE FROM shelves WHERE id = ?", [id])?;
    }
    Ok(())
}
