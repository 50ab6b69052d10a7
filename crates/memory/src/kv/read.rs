//! Reads the values of keys.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use super::{KvItem, KvVersion, check_key};
use crate::newest::{Names, links, newest};
use crate::space::chain::{BranchNo, Chain};
use crate::space::load::{integer, unsigned};
use crate::{MemoryError, Page, PageRequest, View};

/// Most changes that the history of one key returns, newest first.
pub const KV_HISTORY_MAX: usize = 1000;

const KEYS: Names = Names {
    from: "SELECT key FROM kv WHERE key >= ?1 ORDER BY key LIMIT 1",
    after: "SELECT key FROM kv WHERE key > ?1 ORDER BY key LIMIT 1",
};

const COLUMNS: &str = "seq, key, value, at_ms, created_ms, expires_ms";

/// A change of a key in its stored form.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) seq: u64,
    pub(super) key: String,
    /// `None`: deleted.
    pub(super) value: Option<String>,
    at_ms: u64,
    created_ms: u64,
    pub(super) expires_ms: Option<u64>,
}

impl Change {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: unsigned(row, 0)?,
            key: row.get(1)?,
            value: row.get(2)?,
            at_ms: unsigned(row, 3)?,
            created_ms: unsigned(row, 4)?,
            expires_ms: row.get::<_, Option<i64>>(5)?.map(|_| unsigned(row, 5)).transpose()?,
        })
    }

    pub(super) fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }

    /// The bytes that count against the limit of a branch. An expired key counts until it is removed.
    pub(super) fn bytes(&self) -> u64 {
        self.value.as_ref().map_or(0, |value| (self.key.len() + value.len()) as u64)
    }

    /// The value of the key at a given time.
    pub(super) fn item(self, now_ms: u64) -> Result<Option<KvItem>, MemoryError> {
        if self.has_expired(now_ms) { Ok(None) } else { self.written() }
    }

    /// The stored value, even if it has expired.
    pub(super) fn written(self) -> Result<Option<KvItem>, MemoryError> {
        let Some(value) = self.value else { return Ok(None) };
        // It was stored as JSON, so a value that cannot be parsed was damaged on the disk.
        let value: Value = serde_json::from_str(&value).map_err(|error| MemoryError::DamagedRow {
            what: "key",
            id: self.key.clone(),
            why: error.to_string(),
        })?;
        Ok(Some(KvItem {
            key: self.key,
            value,
            version: self.seq,
            created_ms: self.created_ms,
            updated_ms: self.at_ms,
            expires_ms: self.expires_ms,
        }))
    }
}

/// The newest change of a key on these links.
pub(super) fn find(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    key: &str,
) -> rusqlite::Result<Option<Change>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM kv WHERE key = ?1 AND branch = ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    newest(links, |branch, bound| {
        let found = statement.query_row(params![key, branch, bound], Change::read).optional()?;
        Ok(found.map(|change| (change.seq, change)))
    })
}

/// The number of keys of a chain.
pub(crate) fn count(connection: &Connection, chain: &Chain, now_ms: u64) -> Result<u64, MemoryError> {
    let links = links(chain);
    let mut count = 0;
    KEYS.walk(connection, "", None, |key| {
        let change = find(connection, &links, key)?;
        count +=
            u64::from(change.is_some_and(|change| change.value.is_some() && !change.has_expired(now_ms)));
        Ok::<_, MemoryError>(true)
    })?;
    Ok(count)
}

/// What a chain uses of the limits.
pub(super) struct KvUsage {
    /// Includes expired keys, since they are stored until they are deleted.
    pub(super) keys: u64,
    pub(super) bytes: u64,
    /// Some of the keys that have expired.
    pub(super) expired: Vec<String>,
}

pub(super) fn held(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    now_ms: u64,
    expired_max: usize,
) -> Result<KvUsage, MemoryError> {
    let mut held = KvUsage { keys: 0, bytes: 0, expired: Vec::new() };
    KEYS.walk(connection, "", None, |key| {
        if let Some(change) = find(connection, links, key)?.filter(|change| change.value.is_some()) {
            held.keys += 1;
            held.bytes += change.bytes();
            if change.has_expired(now_ms) && held.expired.len() < expired_max {
                held.expired.push(key.to_owned());
            }
        }
        Ok::<_, MemoryError>(true)
    })?;
    Ok(held)
}

fn list(
    connection: &Connection,
    chain: &Chain,
    now_ms: u64,
    prefix: &str,
    page: &PageRequest,
) -> Result<Page<KvItem>, MemoryError> {
    let links = links(chain);
    let after = page.after()?;
    let mut rows = Vec::new();
    KEYS.walk(connection, prefix, after.as_deref(), |key| {
        if let Some(change) = find(connection, &links, key)? {
            rows.extend(change.item(now_ms)?);
        }
        Ok::<_, MemoryError>(rows.len() <= page.rows_max())
    })?;
    Ok(Page::cut(rows, page.rows_max(), |item| item.key.clone()))
}

fn history(connection: &Connection, chain: &Chain, key: &str) -> Result<Vec<KvVersion>, MemoryError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM kv WHERE key = ?1 AND branch = ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT ?4"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut versions = Vec::new();
    for (branch, bound) in links(chain) {
        let rest = KV_HISTORY_MAX - versions.len();
        let changes =
            statement.query_map(params![key, branch, integer(bound), integer(rest as u64)], Change::read)?;
        for change in changes {
            let change = change?;
            versions.push(KvVersion { version: change.seq, at_ms: change.at_ms, item: change.written()? });
        }
    }
    Ok(versions)
}

impl View {
    /// The value of a key.
    pub async fn kv_get(&self, key: &str) -> Result<Option<KvItem>, MemoryError> {
        check_key(key)?;
        let key = key.to_owned();
        self.read(move |reader| {
            let change = find(reader.connection(), &links(reader.chain()), &key)?;
            change.map_or(Ok(None), |change| change.item(reader.now_ms()))
        })
        .await
    }

    /// The keys that begin with a prefix, in the order of their bytes, and their values.
    pub async fn kv_list(&self, prefix: &str, page: PageRequest) -> Result<Page<KvItem>, MemoryError> {
        let prefix = prefix.to_owned();
        self.read(move |reader| list(reader.connection(), reader.chain(), reader.now_ms(), &prefix, &page))
            .await
    }

    /// Every change of a key that the branch sees, newest first: at most [`KV_HISTORY_MAX`].
    pub async fn kv_history(&self, key: &str) -> Result<Vec<KvVersion>, MemoryError> {
        check_key(key)?;
        let key = key.to_owned();
        self.read(move |reader| history(reader.connection(), reader.chain(), &key)).await
    }
}
