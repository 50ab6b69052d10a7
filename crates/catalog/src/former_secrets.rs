//! Values of secrets that were replaced. Responses are scrubbed of them for a while: a host may still return one, and may
//! still accept it.
//!
//! The last [`FORMER_MAX`] of each secret are stored, encrypted, for [`FORMER_KEPT_MS`]. They are removed with their secret.

use burrow_model::{Name, TenantId};
use rusqlite::{Connection, Row, params};

use crate::connection::{Columns, integer};
use crate::secrets::SecretRow;
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, SealedValue};

/// How many former values of a secret are stored. Scrubbing takes longer with more of them.
pub const FORMER_MAX: usize = 3;

/// How long a former value is stored: providers accept a replaced key for a day at most.
pub const FORMER_KEPT_MS: u64 = 24 * 3_600_000;

/// A former value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerSecretRow {
    pub tenant: TenantId,
    pub secret: Name,
    /// The version of the secret that had this value.
    pub version: u64,
    /// The value, encrypted.
    pub sealed: String,
    pub sealed_by: String,
    pub replaced_ms: u64,
}

impl Catalog {
    /// The former values of a secret that have not expired, newest first.
    pub async fn former_secrets(
        &self,
        tenant: &TenantId,
        secret: &Name,
        now_ms: u64,
    ) -> Result<Vec<FormerSecretRow>, CatalogError> {
        let (tenant, secret) = (tenant.clone(), secret.clone());
        self.read(move |connection| {
            let sql = "SELECT * FROM former_secrets WHERE tenant = ? AND secret = ? AND replaced_ms > ?
                       ORDER BY version DESC";
            let mut statement = connection.prepare_cached(sql)?;
            let after = integer(now_ms.saturating_sub(FORMER_KEPT_MS));
            statement.query_and_then(params![tenant.as_str(), secret.as_str(), after], decode)?.collect()
        })
        .await
    }

    /// The former values of all tenants that were encrypted with another key than this one.
    pub async fn former_sealed_otherwise(&self, key: &str) -> Result<Vec<FormerSecretRow>, CatalogError> {
        let key = key.to_owned();
        self.read(move |connection| {
            let sql = "SELECT * FROM former_secrets WHERE sealed_by <> ?";
            connection.prepare_cached(sql)?.query_and_then([&key], decode)?.collect()
        })
        .await
    }

    /// Stores the same former value, encrypted with another key. Does nothing if it was removed in the meantime.
    pub async fn reseal_former_secret(
        &self,
        tenant: &TenantId,
        secret: &Name,
        value: SealedValue,
    ) -> Result<(), CatalogError> {
        let (tenant, secret) = (tenant.clone(), secret.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let sql = "UPDATE former_secrets SET sealed = ?, sealed_by = ?
                       WHERE tenant = ? AND secret = ? AND version = ?";
            connection.prepare_cached(sql)?.execute(params![
                value.sealed,
                value.sealed_by,
                tenant.as_str(),
                secret.as_str(),
                integer(value.version)
            ])?;
            Ok(())
        })
        .await
    }

    /// Removes expired former values, and returns the secrets that had one.
    pub async fn forget_former_secrets(&self, now_ms: u64) -> Result<Vec<(TenantId, Name)>, CatalogError> {
        self.write(WriteMode::UPKEEP, move |connection| {
            let sql = "DELETE FROM former_secrets WHERE replaced_ms <= ? RETURNING tenant, secret";
            let mut statement = connection.prepare_cached(sql)?;
            let before = integer(now_ms.saturating_sub(FORMER_KEPT_MS));
            let rows = statement
                .query_and_then([before], |row| Ok((row.parsed("tenant")?, row.parsed("secret")?)))?;
            let mut of = rows.collect::<Result<Vec<(TenantId, Name)>, CatalogError>>()?;
            of.sort();
            of.dedup();
            Ok(of)
        })
        .await
    }
}

/// Stores the value of `replaced` as a former one, and removes the oldest beyond [`FORMER_MAX`]. The private key of a client
/// certificate is sent to no host, so no host can return it.
pub(crate) fn keep(connection: &Connection, replaced: &SecretRow, now_ms: u64) -> Result<(), CatalogError> {
    if matches!(replaced.spec.slot, burrow_model::Slot::ClientCert) {
        return Ok(());
    }
    let (tenant, secret) = (replaced.tenant.as_str(), replaced.spec.name.as_str());
    let sql =
        "INSERT OR REPLACE INTO former_secrets (tenant, secret, version, sealed, sealed_by, replaced_ms)
               VALUES (?, ?, ?, ?, ?, ?)";
    connection.prepare_cached(sql)?.execute(params![
        tenant,
        secret,
        integer(replaced.version),
        replaced.sealed,
        replaced.sealed_by,
        integer(now_ms),
    ])?;
    let sql = "DELETE FROM former_secrets WHERE tenant = ?1 AND secret = ?2 AND version NOT IN (
                   SELECT version FROM former_secrets WHERE tenant = ?1 AND secret = ?2 ORDER BY version DESC LIMIT ?3)";
    connection.prepare_cached(sql)?.execute(params![tenant, secret, integer(FORMER_MAX as u64)])?;
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<FormerSecretRow, CatalogError> {
    Ok(FormerSecretRow {
        tenant: row.parsed("tenant")?,
        secret: row.parsed("secret")?,
        version: row.count("version")?,
        sealed: row.text("sealed")?,
        sealed_by: row.text("sealed_by")?,
        replaced_ms: row.count("replaced_ms")?,
    })
}
