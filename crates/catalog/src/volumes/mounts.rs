//! Which sandboxes mount which volumes: updated with their specifications, in the same commits.

use std::collections::BTreeSet;

use burrow_model::{MountMode, MountPath, Name, SandboxId, SandboxSpec, TenantId, VolumeId, VolumeMount};
use rusqlite::{Connection, OptionalExtension, params};

use super::{find_at_rest, unknown};
use crate::connection::{Columns, word};
use crate::{Catalog, CatalogError};

/// A sandbox that mounts a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUser {
    pub sandbox: SandboxId,
    pub name: Option<Name>,
    pub path: MountPath,
    pub mode: MountMode,
}

impl Catalog {
    /// Sandboxes that mount a volume, in any state, oldest first.
    pub async fn users_of_volume(&self, id: &VolumeId) -> Result<Vec<VolumeUser>, CatalogError> {
        let id = id.clone();
        self.read(move |connection| of_volume(connection, &id)).await
    }
}

/// Records the volumes of a new sandbox's specification, or refuses the sandbox.
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

/// The same for a changed specification. Does nothing if the volumes are unchanged, as in most changes.
pub(crate) fn follow_spec(
    connection: &Connection,
    tenant: &TenantId,
    sandbox: &SandboxId,
    spec: &SandboxSpec,
) -> Result<(), CatalogError> {
    let sql = "SELECT volume, path, mode FROM volume_mounts WHERE sandbox = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let stored: BTreeSet<(String, String, String)> = statement
        .query_map([sandbox.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    let key = |mount: &VolumeMount| {
        (mount.volume.to_string(), mount.path.to_string(), mount.mode.as_str().to_owned())
    };
    if stored == spec.volumes.iter().map(key).collect() {
        return Ok(());
    }
    connection.prepare_cached("DELETE FROM volume_mounts WHERE sandbox = ?")?.execute([sandbox.as_str()])?;
    insert_mounts(connection, tenant, sandbox, spec)
}

fn insert(
    connection: &Connection,
    tenant: &TenantId,
    sandbox: &SandboxId,
    mount: &VolumeMount,
) -> Result<(), CatalogError> {
    let row = find_at_rest(connection, tenant, &mount.volume).map_err(|error| {
        // The name, because users know the volume by it.
        if matches!(error, CatalogError::Unknown { .. }) { unknown(mount.name.as_str()) } else { error }
    })?;
    if mount.mode == MountMode::Rw {
        let sql = "SELECT sandbox FROM volume_mounts WHERE volume = ? AND mode = 'rw'";
        let writer: Option<SandboxId> = connection
            .prepare_cached(sql)?
            .query_row([mount.volume.as_str()], |row| Ok(row.parsed("sandbox")))
            .optional()?
            .transpose()?;
        if let Some(by) = writer {
            return Err(CatalogError::VolumeWritten { name: row.volume.name, by });
        }
    }
    connection
        .prepare_cached(
            "INSERT INTO volume_mounts (sandbox, volume, path, mode, tenant) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![
            sandbox.as_str(),
            mount.volume.as_str(),
            mount.path.as_str(),
            word(&mount.mode, "mode")?,
            tenant.as_str(),
        ])?;
    Ok(())
}

pub(super) fn of_volume(connection: &Connection, id: &VolumeId) -> Result<Vec<VolumeUser>, CatalogError> {
    let sql =
        "SELECT m.sandbox, s.name, m.path, m.mode FROM volume_mounts m JOIN sandboxes s ON s.id = m.sandbox
               WHERE m.volume = ? ORDER BY s.created_ms, s.id";
    let mut statement = connection.prepare_cached(sql)?;
    let users = statement.query_and_then([id.as_str()], |row| {
        Ok(VolumeUser {
            sandbox: row.parsed("sandbox")?,
            name: row.parsed_if_any("name")?,
            path: row.parsed("path")?,
            mode: row.word("mode")?,
        })
    })?;
    users.collect()
}

/// The sandboxes that have processes, or are being started, stopped, put to sleep or woken.
pub(super) fn up(connection: &Connection, id: &VolumeId) -> Result<Vec<SandboxId>, CatalogError> {
    let sql = "SELECT m.sandbox FROM volume_mounts m JOIN sandboxes s ON s.id = m.sandbox
               WHERE m.volume = ? AND s.state NOT IN ('stopped', 'failed') ORDER BY s.created_ms, s.id";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_and_then([id.as_str()], |row| row.parsed("sandbox"))?.collect()
}

/// Removes missing volumes and their mounts: for a catalog from a backup.
pub(crate) fn forget_lost(connection: &Connection, kept: &BTreeSet<VolumeId>) -> Result<(), CatalogError> {
    let mut statement = connection.prepare("SELECT id FROM volumes")?;
    let all: Vec<VolumeId> =
        statement.query_and_then((), |row| row.parsed("id"))?.collect::<Result<_, CatalogError>>()?;
    for lost in all.iter().filter(|id| !kept.contains(id)) {
        let id = lost.as_str();
        connection.execute(
            "UPDATE sandboxes SET spec = json_set(spec, '$.volumes', json((
                 SELECT json_group_array(json(v.value)) FROM json_each(spec, '$.volumes') v
                 WHERE json_extract(v.value, '$.volume') <> ?1)))
             WHERE id IN (SELECT sandbox FROM volume_mounts WHERE volume = ?1)",
            [id],
        )?;
        connection.execute("DELETE FROM volume_mounts WHERE volume = ?", [id])?;
        connection.execute("DELETE FROM volumes WHERE id = ?", [id])?;
    }
    Ok(())
}
