//! Public keys for logging in over SSH. Each is bound to an API key and has its rights.

use burrow_model::{KeyId, SshKeyId, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::connection::{Columns, integer};
use crate::limits::{SSH_KEYS_MAX, SSH_KEYS_OF_KEY_MAX};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, KeyRow, Page, PageRequest};

/// The use of a key is recorded at most this often.
const LAST_USED_EVERY_MS: u64 = 60_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshKeyRow {
    pub id: SshKeyId,
    pub tenant: TenantId,
    /// The API key that it is bound to.
    pub api_key: KeyId,
    pub name: String,
    /// `ssh-ed25519 AAAA…`.
    pub public_key: String,
    /// `SHA256:…`.
    pub fingerprint: String,
    pub created_ms: u64,
    /// Written at most once a minute.
    pub last_used_ms: Option<u64>,
}

impl Catalog {
    /// Adds a key. An existing key is returned unchanged, if it is bound to the same API key. A key that is bound to an API key
    /// that was revoked or has expired (at `created_ms`) is replaced.
    pub async fn insert_ssh_key(&self, row: SshKeyRow) -> Result<SshKeyRow, CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| insert(connection, &row)).await
    }

    /// Adds a key and replaces one with the same fingerprint, whichever API key that one is bound to. For callers that have
    /// verified that the claimant has the private key.
    pub async fn take_over_ssh_key(&self, row: SshKeyRow) -> Result<SshKeyRow, CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| {
            connection
                .prepare_cached("DELETE FROM ssh_keys WHERE fingerprint = ?")?
                .execute([&row.fingerprint])?;
            insert(connection, &row)
        })
        .await
    }

    /// A page of a tenant's keys, newest first; with `of`, only those that are bound to that API key.
    pub async fn list_ssh_keys(
        &self,
        tenant: &TenantId,
        of: Option<KeyId>,
        page: PageRequest,
    ) -> Result<Page<SshKeyRow>, CatalogError> {
        let tenant = tenant.clone();
        let rows_max = page.rows_max();
        let (at_ms, id) =
            page.after::<SshKeyId>()?.map_or((i64::MAX, String::new()), |(at, id)| (at, id.into()));
        self.read(move |connection| {
            let sql = "SELECT * FROM ssh_keys WHERE tenant = ? AND (created_ms, id) < (?, ?)
                       AND (?4 IS NULL OR api_key = ?4) ORDER BY created_ms DESC, id DESC LIMIT ?5";
            let limit = integer(rows_max as u64 + 1);
            let mut statement = connection.prepare_cached(sql)?;
            let values = params![tenant.as_str(), at_ms, id, of.as_ref().map(KeyId::as_str), limit];
            let rows = statement.query_and_then(values, decode)?.collect::<Result<Vec<_>, _>>()?;
            Ok(Page::cut(rows, rows_max, |row| (row.created_ms, row.id.as_str())))
        })
        .await
    }

    pub async fn remove_ssh_key(&self, tenant: &TenantId, id: &SshKeyId) -> Result<(), CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let sql = "DELETE FROM ssh_keys WHERE id = ? AND tenant = ?";
            match connection.prepare_cached(sql)?.execute([id.as_str(), tenant.as_str()])? {
                0 => Err(CatalogError::Unknown { kind: "SSH key", id: id.to_string() }),
                _ => Ok(()),
            }
        })
        .await
    }

    /// The key with this fingerprint and its API key, if that one is usable now.
    pub async fn ssh_login(
        &self,
        fingerprint: &str,
        now_ms: u64,
    ) -> Result<Option<(SshKeyRow, KeyRow)>, CatalogError> {
        let fingerprint = fingerprint.to_owned();
        let found = self.read(move |connection| by_fingerprint(connection, &fingerprint)).await?;
        Ok(found.and_then(|row| {
            let key = self.usable_key(&row.api_key, now_ms)?;
            Some((row, key))
        }))
    }

    /// Records a login with this key.
    pub fn note_ssh_login(&self, fingerprint: &str, now_ms: u64) {
        let fingerprint = fingerprint.to_owned();
        self.inner.writer.write_lazily(move |connection| {
            let sql = "UPDATE ssh_keys SET last_used_ms = ?2
                       WHERE fingerprint = ?1 AND (last_used_ms IS NULL OR last_used_ms <= ?3)";
            let before = integer(now_ms.saturating_sub(LAST_USED_EVERY_MS));
            connection.prepare_cached(sql)?.execute(params![fingerprint, integer(now_ms), before])?;
            Ok(())
        });
    }
}

fn insert(connection: &Connection, row: &SshKeyRow) -> Result<SshKeyRow, CatalogError> {
    remove_dead(connection, row)?;
    if let Some(known) = by_fingerprint(connection, &row.fingerprint)? {
        // The owner of the existing key is not revealed, only that this one cannot be added.
        let same = known.tenant == row.tenant && known.api_key == row.api_key;
        return if same { Ok(known) } else { Err(CatalogError::SshKeyTaken) };
    }
    let count = |sql: &str, of: &str| -> Result<u64, CatalogError> {
        connection.prepare_cached(sql)?.query_row([of], |row| Ok(row.count("count")))?
    };
    let of_tenant = "SELECT count(*) AS count FROM ssh_keys WHERE tenant = ?";
    if count(of_tenant, row.tenant.as_str())? >= SSH_KEYS_MAX {
        return Err(CatalogError::TooManySshKeys);
    }
    let of_key = "SELECT count(*) AS count FROM ssh_keys WHERE api_key = ?";
    if count(of_key, row.api_key.as_str())? >= SSH_KEYS_OF_KEY_MAX {
        return Err(CatalogError::TooManySshKeysOfKey);
    }
    connection
        .prepare_cached(
            "INSERT INTO ssh_keys (id, tenant, api_key, name, public_key, fingerprint, created_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            row.id.as_str(),
            row.tenant.as_str(),
            row.api_key.as_str(),
            row.name,
            row.public_key,
            row.fingerprint,
            integer(row.created_ms),
        ])?;
    Ok(row.clone())
}

/// Removes invalid keys that conflict with `row`: those of revoked and expired API keys, of the same tenant or with
/// the same fingerprint.
fn remove_dead(connection: &Connection, row: &SshKeyRow) -> Result<(), CatalogError> {
    let sql = "DELETE FROM ssh_keys WHERE (tenant = ?1 OR fingerprint = ?2) AND api_key IN
               (SELECT id FROM keys WHERE revoked_ms IS NOT NULL OR expires_ms <= ?3)";
    let values = params![row.tenant.as_str(), row.fingerprint, integer(row.created_ms)];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

fn by_fingerprint(connection: &Connection, fingerprint: &str) -> Result<Option<SshKeyRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM ssh_keys WHERE fingerprint = ?")?;
    statement.query_row([fingerprint], |row| Ok(decode(row))).optional()?.transpose()
}

fn decode(row: &Row<'_>) -> Result<SshKeyRow, CatalogError> {
    Ok(SshKeyRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        api_key: row.parsed("api_key")?,
        name: row.text("name")?,
        public_key: row.text("public_key")?,
        fingerprint: row.text("fingerprint")?,
        created_ms: row.count("created_ms")?,
        last_used_ms: row.count_if_any("last_used_ms")?,
    })
}
