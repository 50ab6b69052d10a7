//! Stored secrets: their declarations in plain text, their values encrypted by the caller.
//!
//! Also the data of a lineage: the authority that its sandboxes trust, and the placeholders that they contain. Both are
//! removed when no sandbox and no snapshot of the lineage is left.

use burrow_model::{Name, SandboxId, SecretSpec, SpaceId, TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::connection::{Columns, integer, json};
use crate::limits::SECRETS_MAX;
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, former_secrets};

/// An authority without a sandbox may belong to a sandbox that is being created.
const UNUSED_AGE_MS: u64 = 3_600_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRow {
    pub tenant: TenantId,
    pub spec: SecretSpec,
    pub version: u64,
    /// The epoch of its placeholders: those of an earlier epoch are invalid.
    pub epoch: u64,
    /// The value, encrypted.
    pub sealed: String,
    pub sealed_by: String,
    pub created_ms: u64,
    pub changed_ms: u64,
}

/// A value that was encrypted for a certain version, which must be the next one.
#[derive(Clone, Debug)]
pub struct SealedValue {
    pub version: u64,
    pub sealed: String,
    pub sealed_by: String,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretStoreResult {
    Stored(Box<SecretRow>),
    /// Another change came first: the secret has this version now, and a value must be encrypted for the next one.
    Overtaken {
        version: u64,
    },
}

/// The authority of a lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityRow {
    pub lineage: SpaceId,
    pub tenant: TenantId,
    /// DER.
    pub certificate: Vec<u8>,
    pub sealed: String,
    pub sealed_by: String,
    pub created_ms: u64,
}

/// The placeholder of a secret in the sandboxes of a lineage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceholderRow {
    pub tenant: TenantId,
    pub secret: Name,
    pub lineage: SpaceId,
    pub epoch: u64,
    pub value: String,
    pub created_ms: u64,
}

impl Catalog {
    /// Declares a secret, or replaces its declaration and value.
    pub async fn put_secret(
        &self,
        tenant: &TenantId,
        spec: SecretSpec,
        value: SealedValue,
        now_ms: u64,
    ) -> Result<SecretStoreResult, CatalogError> {
        let tenant = tenant.clone();
        self.write(WriteMode::GROWTH, move |connection| {
            let before = find(connection, &tenant, &spec.name)?;
            let version = before.as_ref().map_or(0, |row| row.version);
            if value.version != version + 1 {
                return Ok(SecretStoreResult::Overtaken { version });
            }
            if before.is_none() {
                refuse_too_many(connection, &tenant)?;
            }
            if let Some(replaced) = &before {
                former_secrets::keep(connection, replaced, now_ms)?;
            }
            let same_shape = |row: &SecretRow| row.spec.placeholder == spec.placeholder;
            let epoch = before.as_ref().map_or(1, |row| row.epoch + u64::from(!same_shape(row)));
            let row = SecretRow {
                tenant: tenant.clone(),
                spec: spec.clone(),
                version: value.version,
                epoch,
                sealed: value.sealed.clone(),
                sealed_by: value.sealed_by.clone(),
                created_ms: before.map_or(now_ms, |row| row.created_ms),
                changed_ms: now_ms,
            };
            store(connection, &row)?;
            Ok(SecretStoreResult::Stored(Box::new(row)))
        })
        .await
    }

    /// Gives a secret a new value. [`CatalogError::Unknown`] when the tenant has no such secret.
    pub async fn rotate_secret(
        &self,
        tenant: &TenantId,
        name: &Name,
        value: SealedValue,
        now_ms: u64,
    ) -> Result<SecretStoreResult, CatalogError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let unknown = || CatalogError::Unknown { kind: "secret", id: name.to_string() };
            let before = find(connection, &tenant, &name)?.ok_or_else(unknown)?;
            if value.version != before.version + 1 {
                return Ok(SecretStoreResult::Overtaken { version: before.version });
            }
            former_secrets::keep(connection, &before, now_ms)?;
            let row = SecretRow {
                version: value.version,
                sealed: value.sealed.clone(),
                sealed_by: value.sealed_by.clone(),
                changed_ms: now_ms,
                ..before
            };
            store(connection, &row)?;
            Ok(SecretStoreResult::Stored(Box::new(row)))
        })
        .await
    }

    /// Stores the same value, encrypted with another key. Does nothing if the value has changed in the meantime.
    pub async fn reseal_secret(
        &self,
        tenant: &TenantId,
        name: &Name,
        value: SealedValue,
    ) -> Result<(), CatalogError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let sql =
                "UPDATE secrets SET sealed = ?, sealed_by = ? WHERE tenant = ? AND name = ? AND version = ?";
            connection.prepare_cached(sql)?.execute(params![
                value.sealed,
                value.sealed_by,
                tenant.as_str(),
                name.as_str(),
                integer(value.version)
            ])?;
            Ok(())
        })
        .await
    }

    pub async fn secret(&self, tenant: &TenantId, name: &Name) -> Result<Option<SecretRow>, CatalogError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.read(move |connection| find(connection, &tenant, &name)).await
    }

    /// All secrets of a tenant, sorted by name.
    pub async fn secrets(&self, tenant: &TenantId) -> Result<Vec<SecretRow>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = "SELECT * FROM secrets WHERE tenant = ? ORDER BY name";
            connection.prepare_cached(sql)?.query_and_then([tenant.as_str()], decode)?.collect()
        })
        .await
    }

    /// The secrets of all tenants that were encrypted with another key than this one.
    pub async fn sealed_otherwise(
        &self,
        key: &str,
    ) -> Result<(Vec<SecretRow>, Vec<AuthorityRow>), CatalogError> {
        let key = key.to_owned();
        self.read(move |connection| {
            let secrets = connection
                .prepare_cached("SELECT * FROM secrets WHERE sealed_by <> ?")?
                .query_and_then([&key], decode)?
                .collect::<Result<_, _>>()?;
            let authorities = connection
                .prepare_cached("SELECT * FROM authorities WHERE sealed_by <> ?")?
                .query_and_then([&key], decode_authority)?
                .collect::<Result<_, _>>()?;
            Ok((secrets, authorities))
        })
        .await
    }

    /// Returns whether the secret existed.
    pub async fn delete_secret(&self, tenant: &TenantId, name: &Name) -> Result<bool, CatalogError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let sql = "DELETE FROM secrets WHERE tenant = ? AND name = ?";
            Ok(connection.prepare_cached(sql)?.execute([tenant.as_str(), name.as_str()])? > 0)
        })
        .await
    }

    /// Each sandbox of a tenant whose rules name a secret, with that secret; oldest first.
    pub async fn users_of_secrets(
        &self,
        tenant: &TenantId,
    ) -> Result<Vec<(Name, SandboxId, Option<Name>)>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql =
                "SELECT DISTINCT json_extract(r.value, '$.secret') AS secret, s.id AS id, s.name AS name
                       FROM sandboxes s, json_each(s.spec, '$.network.requests') r
                       WHERE s.tenant = ? AND json_extract(r.value, '$.secret') IS NOT NULL
                       ORDER BY s.created_ms, s.id";
            connection
                .prepare_cached(sql)?
                .query_and_then([tenant.as_str()], |row| {
                    Ok((row.parsed("secret")?, row.parsed("id")?, row.parsed_if_any("name")?))
                })?
                .collect()
        })
        .await
    }

    /// The authority of a lineage, if it has one.
    pub async fn authority(
        &self,
        tenant: &TenantId,
        lineage: &SpaceId,
    ) -> Result<Option<AuthorityRow>, CatalogError> {
        let (tenant, lineage) = (tenant.clone(), lineage.clone());
        self.read(move |connection| find_authority(connection, &tenant, &lineage)).await
    }

    /// Stores a lineage's authority, unless it has one, and returns the one it has now.
    pub async fn keep_authority(&self, row: AuthorityRow) -> Result<AuthorityRow, CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| {
            connection
                .prepare_cached(
                    "INSERT OR IGNORE INTO authorities (lineage, tenant, certificate, sealed, sealed_by, created_ms)
                     VALUES (?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![
                    row.lineage.as_str(),
                    row.tenant.as_str(),
                    row.certificate,
                    row.sealed,
                    row.sealed_by,
                    integer(row.created_ms)
                ])?;
            let unknown = || CatalogError::Unknown { kind: "lineage", id: row.lineage.to_string() };
            find_authority(connection, &row.tenant, &row.lineage)?.ok_or_else(unknown)
        })
        .await
    }

    /// Stores the same key of an authority, encrypted with another key.
    pub async fn reseal_authority(
        &self,
        lineage: &SpaceId,
        sealed: String,
        sealed_by: String,
    ) -> Result<(), CatalogError> {
        let lineage = lineage.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            let sql = "UPDATE authorities SET sealed = ?, sealed_by = ? WHERE lineage = ?";
            connection.prepare_cached(sql)?.execute([&sealed, &sealed_by, lineage.as_str()])?;
            Ok(())
        })
        .await
    }

    /// Stores a placeholder, unless the lineage has one for this secret and epoch, and returns the one it has now. `None` if
    /// the secret was deleted in the meantime.
    pub async fn keep_placeholder(&self, row: PlaceholderRow) -> Result<Option<String>, CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| {
            // The secret may have been deleted; a row without one is refused.
            let sql = "INSERT OR IGNORE INTO placeholders (tenant, secret, lineage, epoch, value, created_ms)
                       SELECT ?1, ?2, ?3, ?4, ?5, ?6
                       WHERE EXISTS (SELECT 1 FROM secrets WHERE tenant = ?1 AND name = ?2)";
            connection.prepare_cached(sql)?.execute(params![
                row.tenant.as_str(),
                row.secret.as_str(),
                row.lineage.as_str(),
                integer(row.epoch),
                row.value,
                integer(row.created_ms)
            ])?;
            placeholder(connection, &row.tenant, &row.secret, &row.lineage, row.epoch)
        })
        .await
    }

    pub async fn placeholder(
        &self,
        tenant: &TenantId,
        secret: &Name,
        lineage: &SpaceId,
        epoch: u64,
    ) -> Result<Option<String>, CatalogError> {
        let (tenant, secret, lineage) = (tenant.clone(), secret.clone(), lineage.clone());
        self.read(move |connection| placeholder(connection, &tenant, &secret, &lineage, epoch)).await
    }

    /// Removes the data of lineages without sandboxes and snapshots.
    pub async fn forget_lineages(&self, now_ms: u64) -> Result<usize, CatalogError> {
        self.write(WriteMode::UPKEEP, move |connection| {
            let before_ms = integer(now_ms.saturating_sub(UNUSED_AGE_MS));
            let mut gone = 0;
            for table in ["authorities", "placeholders"] {
                let sql = format!(
                    "DELETE FROM {table} WHERE created_ms < ? AND lineage NOT IN (
                         SELECT coalesce(json_extract(memory, '$.space'), 'spc' || substr(id, 4)) FROM sandboxes
                         UNION SELECT coalesce(json_extract(snapshot, '$.memory.space'), 'spc' || substr(sandbox, 4))
                         FROM snapshots)"
                );
                gone += connection.prepare_cached(&sql)?.execute([before_ms])?;
            }
            Ok(gone)
        })
        .await
    }
}

fn find(connection: &Connection, tenant: &TenantId, name: &Name) -> Result<Option<SecretRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM secrets WHERE tenant = ? AND name = ?")?;
    statement.query_row([tenant.as_str(), name.as_str()], |row| Ok(decode(row))).optional()?.transpose()
}

fn store(connection: &Connection, row: &SecretRow) -> Result<(), CatalogError> {
    // Not `REPLACE`: that would delete the row first, and its placeholders with it.
    let sql =
        "INSERT INTO secrets (tenant, name, version, epoch, spec, sealed, sealed_by, created_ms, changed_ms)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
               ON CONFLICT (tenant, name) DO UPDATE SET version = excluded.version, epoch = excluded.epoch,
               spec = excluded.spec, sealed = excluded.sealed, sealed_by = excluded.sealed_by,
               changed_ms = excluded.changed_ms";
    connection.prepare_cached(sql)?.execute(params![
        row.tenant.as_str(),
        row.spec.name.as_str(),
        integer(row.version),
        integer(row.epoch),
        json(&row.spec, "spec")?,
        row.sealed,
        row.sealed_by,
        integer(row.created_ms),
        integer(row.changed_ms),
    ])?;
    Ok(())
}

fn refuse_too_many(connection: &Connection, tenant: &TenantId) -> Result<(), CatalogError> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM secrets WHERE tenant = ?")?;
    let count: i64 = statement.query_row([tenant.as_str()], |row| row.get(0))?;
    if count >= integer(SECRETS_MAX as u64) { Err(CatalogError::TooManySecrets) } else { Ok(()) }
}

fn find_authority(
    connection: &Connection,
    tenant: &TenantId,
    lineage: &SpaceId,
) -> Result<Option<AuthorityRow>, CatalogError> {
    let sql = "SELECT * FROM authorities WHERE lineage = ? AND tenant = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement.query_row([lineage.as_str(), tenant.as_str()], |row| Ok(decode_authority(row)));
    row.optional()?.transpose()
}

fn placeholder(
    connection: &Connection,
    tenant: &TenantId,
    secret: &Name,
    lineage: &SpaceId,
    epoch: u64,
) -> Result<Option<String>, CatalogError> {
    let sql = "SELECT value FROM placeholders WHERE tenant = ? AND secret = ? AND lineage = ? AND epoch = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let key = params![tenant.as_str(), secret.as_str(), lineage.as_str(), integer(epoch)];
    Ok(statement.query_row(key, |row| row.get(0)).optional()?)
}

fn decode(row: &Row<'_>) -> Result<SecretRow, CatalogError> {
    Ok(SecretRow {
        tenant: row.parsed("tenant")?,
        spec: row.json("spec")?,
        version: row.count("version")?,
        epoch: row.count("epoch")?,
        sealed: row.text("sealed")?,
        sealed_by: row.text("sealed_by")?,
        created_ms: row.count("created_ms")?,
        changed_ms: row.count("changed_ms")?,
    })
}

fn decode_authority(row: &Row<'_>) -> Result<AuthorityRow, CatalogError> {
    Ok(AuthorityRow {
        lineage: row.parsed("lineage")?,
        tenant: row.parsed("tenant")?,
        certificate: row.get("certificate")?,
        sealed: row.text("sealed")?,
        sealed_by: row.text("sealed_by")?,
        created_ms: row.count("created_ms")?,
    })
}
