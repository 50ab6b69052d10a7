//! API keys. Secrets are stored as their hash, and looked up by it.
//!
//! Every request authenticates, so keys are also kept in RAM: loaded at open, changed on the writer's thread after each
//! commit and before its answer. So a revoked key is invalid when `revoke_key` returns, even if the caller has gone.

use std::fmt;
use std::str::FromStr;

use burrow_model::{KeyId, Scope, TenantId};
use data_encoding::HEXLOWER;
use rusqlite::{Connection, OptionalExtension, Row, params};
use sha2::{Digest, Sha256};

use crate::connection::{Columns, integer, word};
use crate::key_cache::{Hash, KeyCache, is_use_due};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, KeyRow, NewKey, Page, PageRequest};

/// 160 random bits.
const SECRET_BYTES: usize = 20;
const SECRET_PREFIX: &str = "e2b_";
/// Characters of a secret that are stored to distinguish keys: 16 of its 160 bits.
const SHOWN_CHARACTERS: usize = 8;

/// A key's secret: `e2b_` and 40 hexadecimal digits. Shown once, to the creator of the key.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySecret(String);

impl KeySecret {
    /// A new secret, from the kernel's random generator.
    pub fn generate() -> Self {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
        Self(format!("{SECRET_PREFIX}{}", HEXLOWER.encode(&bytes)))
    }

    /// The secret itself, to be given to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeySecret {
    type Err = CatalogError;

    fn from_str(text: &str) -> Result<Self, CatalogError> {
        let digits = text.strip_prefix(SECRET_PREFIX).ok_or(CatalogError::BadSecret)?;
        let good = digits.len() == 2 * SECRET_BYTES
            && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if good { Ok(Self(text.to_owned())) } else { Err(CatalogError::BadSecret) }
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Catalog {
    /// Creates a key with a new secret.
    pub async fn create_key(&self, new: NewKey) -> Result<(KeyRow, KeySecret), CatalogError> {
        let secret = KeySecret::generate();
        let row = self.create_key_with_secret(new, &secret).await?;
        Ok((row, secret))
    }

    /// Creates a key with an existing secret, so that its owner can store the secret before it is valid.
    pub async fn create_key_with_secret(
        &self,
        new: NewKey,
        secret: &KeySecret,
    ) -> Result<KeyRow, CatalogError> {
        let prefix = secret.expose()[..SHOWN_CHARACTERS].to_owned();
        let NewKey { tenant, name, scope, sandbox, forks, parent, created_ms, expires_ms } = new;
        let (id, revoked_ms, last_used_ms) = (KeyId::generate(), None, None);
        let row = KeyRow {
            id,
            tenant,
            name,
            scope,
            sandbox,
            forks,
            parent,
            created_ms,
            expires_ms,
            revoked_ms,
            last_used_ms,
            prefix,
        };
        let hash = hash(secret.expose());
        let cache = self.inner.keys.clone();
        let work = move |connection: &Connection| insert(connection, row.clone(), &hash);
        let after = move |row: &KeyRow| {
            cache.write().insert(hash, row.clone());
        };
        self.inner.writer.write_then(WriteMode::GROWTH, work, after).await
    }

    /// The key that a secret belongs to, if it is usable now. Answers from RAM.
    ///
    /// The timing of the lookup reveals at most the first bits of a hash, which reveal nothing about the secret.
    pub fn authenticate(&self, secret: &str, now_ms: u64) -> Option<KeyRow> {
        let hash = hash(secret);
        let found = self.inner.keys.read().get(&hash).filter(|row| row.is_usable(now_ms)).cloned()?;
        if is_use_due(&found, now_ms) && self.inner.keys.note_use(&hash, now_ms) {
            let id = found.id.clone();
            self.inner.writer.write_lazily(move |connection| {
                connection
                    .prepare_cached("UPDATE keys SET last_used_ms = ? WHERE id = ?")?
                    .execute(params![integer(now_ms), id.as_str()])?;
                Ok(())
            });
        }
        Some(found)
    }

    pub async fn key(&self, tenant: &TenantId, id: &KeyId) -> Result<Option<KeyRow>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| find(connection, &tenant, &id)).await
    }

    /// A page of a tenant's keys, newest first, revoked ones included.
    pub async fn list_keys(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Page<KeyRow>, CatalogError> {
        let tenant = tenant.clone();
        let rows_max = page.rows_max();
        let (at_ms, id) =
            page.after::<KeyId>()?.map_or((i64::MAX, String::new()), |(at, id)| (at, id.into()));
        self.read(move |connection| {
            let sql = "SELECT * FROM keys WHERE tenant = ? AND (created_ms, id) < (?, ?)
                       ORDER BY created_ms DESC, id DESC LIMIT ?";
            let limit = integer(rows_max as u64 + 1);
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement
                .query_and_then(params![tenant.as_str(), at_ms, id, limit], decode)?
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Page::cut(rows, rows_max, |row| (row.created_ms, row.id.as_str())))
        })
        .await
    }

    /// Revokes a key and those that end with it, at once. Does nothing if it is revoked already. The last key that can manage keys cannot be revoked.
    pub async fn revoke_key(
        &self,
        tenant: &TenantId,
        id: &KeyId,
        now_ms: u64,
    ) -> Result<KeyRow, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        let cache = self.inner.keys.clone();
        let work = move |connection: &Connection| revoke(connection, &tenant, &id, now_ms);
        self.inner.writer.write_then(WriteMode::UPKEEP, work, move |row: &KeyRow| cache.revoke(&row.id)).await
    }

    /// How many keys can manage a tenant's keys at `now_ms`: 0 before the first one is created.
    pub async fn usable_admin_keys(&self, tenant: &TenantId, now_ms: u64) -> Result<u64, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| usable_admins(connection, &tenant, now_ms)).await
    }
}

/// The keys of a catalog that is being opened.
pub(crate) fn cached(connection: &Connection) -> Result<KeyCache, CatalogError> {
    let mut statement = connection.prepare("SELECT * FROM keys WHERE revoked_ms IS NULL")?;
    let keys = statement.query_and_then((), |row| Ok::<_, CatalogError>((row.get("hash")?, decode(row)?)))?;
    Ok(KeyCache::new(keys.collect::<Result<_, _>>()?))
}

fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// How long a short-lived key is listed after its end.
const ENDED_KEPT_MS: u64 = 24 * 3600 * 1000;

/// The longest lifetime of a key that counts as short-lived. Clients create such keys for each connection.
const SHORT_LIVED_MS: u64 = 24 * 3600 * 1000;

/// Removes short-lived keys that ended long ago, so that their number is limited by the rate at which they are created.
fn prune(connection: &Connection, now_ms: u64) -> Result<(), CatalogError> {
    let sql = "DELETE FROM keys WHERE sandbox IS NOT NULL AND expires_ms - created_ms <= ?
               AND min(expires_ms, coalesce(revoked_ms, expires_ms)) <= ? AND id NOT IN (SELECT api_key FROM ssh_keys)
               AND id NOT IN (SELECT parent FROM keys WHERE parent IS NOT NULL)";
    let before = integer(now_ms.saturating_sub(ENDED_KEPT_MS));
    connection.prepare_cached(sql)?.execute(params![integer(SHORT_LIVED_MS), before])?;
    Ok(())
}

fn insert(connection: &Connection, mut row: KeyRow, hash: &Hash) -> Result<KeyRow, CatalogError> {
    prune(connection, row.created_ms)?;
    if let Some(parent) = &row.parent {
        let found = find(connection, &row.tenant, parent)?.filter(|found| found.is_usable(row.created_ms));
        let found = found.ok_or_else(|| CatalogError::Unknown { kind: "key", id: parent.to_string() })?;
        row.expires_ms = row.expires_ms.into_iter().chain(found.expires_ms).min();
    }
    connection
        .prepare_cached(
            "INSERT INTO keys (id, tenant, name, scope, sandbox, forks, parent, created_ms, expires_ms, prefix, hash)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            row.id.as_str(),
            row.tenant.as_str(),
            row.name,
            word(&row.scope, "scope")?,
            row.sandbox.as_ref().map(|id| id.as_str()),
            row.forks,
            row.parent.as_ref().map(|id| id.as_str()),
            integer(row.created_ms),
            row.expires_ms.map(integer),
            row.prefix,
            hash.as_slice(),
        ])?;
    Ok(row)
}

fn find(connection: &Connection, tenant: &TenantId, id: &KeyId) -> Result<Option<KeyRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM keys WHERE id = ? AND tenant = ?")?;
    statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
}

fn revoke(
    connection: &Connection,
    tenant: &TenantId,
    id: &KeyId,
    now_ms: u64,
) -> Result<KeyRow, CatalogError> {
    let unknown = || CatalogError::Unknown { kind: "key", id: id.to_string() };
    let mut row = find(connection, tenant, id)?.ok_or_else(unknown)?;
    if row.revoked_ms.is_some() {
        return Ok(row);
    }
    let counts = row.scope == Scope::Admin && row.sandbox.is_none() && row.is_usable(now_ms);
    if counts && usable_admins(connection, tenant, now_ms)? <= 1 {
        return Err(CatalogError::LastAdminKey);
    }
    connection
        .prepare_cached(
            "UPDATE keys SET revoked_ms = ?1 WHERE (id = ?2 OR parent = ?2) AND revoked_ms IS NULL",
        )?
        .execute(params![integer(now_ms), id.as_str()])?;
    row.revoked_ms = Some(now_ms);
    Ok(row)
}

fn usable_admins(connection: &Connection, tenant: &TenantId, now_ms: u64) -> Result<u64, CatalogError> {
    let sql = "SELECT count(*) AS count FROM keys WHERE tenant = ? AND scope = 'admin' AND sandbox IS NULL
               AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?)";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row(params![tenant.as_str(), integer(now_ms)], |row| Ok(row.count("count")))?
}

fn decode(row: &Row<'_>) -> Result<KeyRow, CatalogError> {
    Ok(KeyRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        name: row.text("name")?,
        scope: row.word("scope")?,
        sandbox: row.parsed_if_any("sandbox")?,
        forks: row.get("forks")?,
        parent: row.parsed_if_any("parent")?,
        created_ms: row.count("created_ms")?,
        expires_ms: row.count_if_any("expires_ms")?,
        revoked_ms: row.count_if_any("revoked_ms")?,
        last_used_ms: row.count_if_any("last_used_ms")?,
        prefix: row.text("prefix")?,
    })
}
