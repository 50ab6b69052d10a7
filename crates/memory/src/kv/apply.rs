//! Changes keys. A batch is applied completely or not at all.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::read::{Change, find, held};
use super::{
    Amount, Expect, KV_BYTES_MAX, KV_KEYS_MAX, KV_VALUE_BYTES_MAX, KvItem, KvOp, check_batch, number,
    value_too_large,
};
use crate::newest::{links, newest};
use crate::shown::shown;
use crate::space::chain::BranchNo;
use crate::space::growth::Growth;
use crate::space::load::{integer, unsigned};
use crate::space::writer::{LogKind, Writer};
use crate::{MemoryError, View};

/// Expired keys that one write removes if the space is full.
const REAPED_MAX: usize = 1000;

/// A batch being applied.
struct Batch<'a, 'w> {
    writer: &'a mut Writer<'w>,
    links: Vec<(BranchNo, u64)>,
    /// The usage of the branch: keys and bytes, including expired keys until they are removed.
    keys: u64,
    bytes: u64,
}

impl View {
    /// Applies all operations in one transaction, in order, or none of them.
    ///
    /// Returns one item per operation: the item that was set, deleted or found.
    pub async fn kv_batch(&self, ops: Vec<KvOp>) -> Result<Vec<Option<KvItem>>, MemoryError> {
        check_batch(&ops)?;
        let frees = ops.iter().all(|op| matches!(op, KvOp::Delete { .. } | KvOp::Check { .. }));
        let growth = if frees { Growth::Frees } else { Growth::Adds };
        self.write_as(growth, 1, move |writer| apply(writer, &ops)).await
    }

    /// Sets one key.
    pub async fn kv_set(
        &self,
        key: &str,
        value: Value,
        ttl_ms: Option<u64>,
        expect: Expect,
    ) -> Result<KvItem, MemoryError> {
        let op = KvOp::Set { key: key.to_owned(), value, ttl_ms, expect };
        let mut items = self.kv_batch(vec![op]).await?;
        Ok(items.pop().flatten().expect("a set answers what it set"))
    }

    /// Deletes one key. Returns its previous item; `None` if it was absent.
    pub async fn kv_delete(&self, key: &str, expect: Expect) -> Result<Option<KvItem>, MemoryError> {
        let mut items = self.kv_batch(vec![KvOp::Delete { key: key.to_owned(), expect }]).await?;
        Ok(items.pop().flatten())
    }

    /// Adds to a number.
    pub async fn kv_increment(
        &self,
        key: &str,
        by: Amount,
        ttl_ms: Option<u64>,
    ) -> Result<KvItem, MemoryError> {
        let mut items = self.kv_batch(vec![KvOp::Increment { key: key.to_owned(), by, ttl_ms }]).await?;
        Ok(items.pop().flatten().expect("an increment answers what it set"))
    }
}

/// Applies operations in the caller's transaction.
pub(crate) fn apply(writer: &mut Writer<'_>, ops: &[KvOp]) -> Result<Vec<Option<KvItem>>, MemoryError> {
    let links = links(writer.chain());
    let (keys, bytes) = totals(writer, &links)?;
    let mut batch = Batch { writer, links, keys, bytes };
    ops.iter().map(|op| batch.one(op)).collect()
}

/// The usage of the branch, as recorded in the newest visible change.
fn totals(writer: &Writer<'_>, links: &[(BranchNo, u64)]) -> Result<(u64, u64), MemoryError> {
    let mut statement = writer.connection().prepare_cached(
        "SELECT seq, keys, bytes FROM kv WHERE branch = ?1 AND seq <= ?2 ORDER BY seq DESC LIMIT 1",
    )?;
    let found = newest(links, |branch, bound| {
        let row = statement.query_row(params![branch, bound], |row| {
            Ok((unsigned(row, 0)?, (unsigned(row, 1)?, unsigned(row, 2)?)))
        });
        row.optional()
    })?;
    Ok(found.unwrap_or((0, 0)))
}

impl Batch<'_, '_> {
    fn one(&mut self, op: &KvOp) -> Result<Option<KvItem>, MemoryError> {
        let change = find(self.writer.connection(), &self.links, op.key())?;
        let now_ms = self.writer.now_ms();
        let current = change.clone().map_or(Ok(None), |change| change.item(now_ms))?;
        match op {
            KvOp::Set { key, value, ttl_ms, expect } => {
                meets(key, *expect, current.as_ref())?;
                let expires_ms = ttl_ms.map(|ttl_ms| now_ms.saturating_add(ttl_ms));
                self.set(key, value.clone(), expires_ms, change.as_ref(), current.as_ref()).map(Some)
            }
            KvOp::Delete { key, expect } => {
                meets(key, *expect, current.as_ref())?;
                if let Some(change) = change.filter(|change| change.value.is_some()) {
                    self.delete(key, &change)?;
                }
                Ok(current)
            }
            KvOp::Increment { key, by, ttl_ms } => {
                let sum = number::add(current.as_ref().map(|item| &item.value), *by).map_err(|why| {
                    MemoryError::invalid("the increment", format!("`{}`: {why}", shown(key)))
                })?;
                let kept = current.as_ref().and_then(|item| item.expires_ms);
                let expires_ms = ttl_ms.map(|ttl_ms| now_ms.saturating_add(ttl_ms)).or(kept);
                self.set(key, Value::Number(sum), expires_ms, change.as_ref(), current.as_ref()).map(Some)
            }
            KvOp::Check { key, expect } => {
                meets(key, *expect, current.as_ref())?;
                Ok(current)
            }
        }
    }

    fn set(
        &mut self,
        key: &str,
        value: Value,
        expires_ms: Option<u64>,
        change: Option<&Change>,
        current: Option<&KvItem>,
    ) -> Result<KvItem, MemoryError> {
        let text = value.to_string();
        if text.len() > KV_VALUE_BYTES_MAX {
            return Err(value_too_large(key, text.len()));
        }
        self.make_room(change, (key.len() + text.len()) as u64)?;
        let (seq, at_ms) = self.writer.next(LogKind::Kv)?;
        let created_ms = current.map_or(at_ms, |item| item.created_ms);
        self.insert(seq, key, Some(&text), at_ms, created_ms, expires_ms)?;
        Ok(KvItem { key: key.to_owned(), value, version: seq, created_ms, updated_ms: at_ms, expires_ms })
    }

    fn delete(&mut self, key: &str, change: &Change) -> Result<(), MemoryError> {
        self.keys = self.keys.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(change.bytes());
        let (seq, at_ms) = self.writer.next(LogKind::Kv)?;
        self.insert(seq, key, None, at_ms, at_ms, None)
    }

    fn insert(
        &self,
        seq: u64,
        key: &str,
        value: Option<&str>,
        at_ms: u64,
        created_ms: u64,
        expires_ms: Option<u64>,
    ) -> Result<(), MemoryError> {
        let mut statement = self.writer.connection().prepare_cached(
            "INSERT INTO kv (seq, branch, key, value, at_ms, created_ms, expires_ms, keys, bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let branch = self.writer.branch();
        statement.execute(params![
            integer(seq),
            branch,
            key,
            value,
            integer(at_ms),
            integer(created_ms),
            expires_ms.map(integer),
            integer(self.keys),
            integer(self.bytes),
        ])?;
        Ok(())
    }

    /// Counts the bytes of a set, and refuses it if there is not enough space even after removing expired keys.
    fn make_room(&mut self, replaced: Option<&Change>, bytes: u64) -> Result<(), MemoryError> {
        let new_key = u64::from(replaced.is_none_or(|change| change.value.is_none()));
        let freed = replaced.map_or(0, Change::bytes);
        let fits = |keys: u64, held: u64| {
            keys + new_key <= KV_KEYS_MAX && held.saturating_sub(freed) + bytes <= KV_BYTES_MAX
        };
        if !fits(self.keys, self.bytes) {
            self.reap()?;
        }
        if !fits(self.keys, self.bytes) {
            return Err(if self.keys + new_key > KV_KEYS_MAX {
                MemoryError::Full { what: "a key", max: KV_KEYS_MAX }
            } else {
                MemoryError::Full { what: "bytes of keys and values", max: KV_BYTES_MAX }
            });
        }
        self.keys += new_key;
        self.bytes = self.bytes.saturating_sub(freed) + bytes;
        Ok(())
    }

    /// Counts the usage again, and deletes expired keys. Readers treat expired keys as absent anyway.
    fn reap(&mut self) -> Result<(), MemoryError> {
        let held = held(self.writer.connection(), &self.links, self.writer.now_ms(), REAPED_MAX)?;
        (self.keys, self.bytes) = (held.keys, held.bytes);
        for key in held.expired {
            if let Some(change) = find(self.writer.connection(), &self.links, &key)? {
                self.delete(&key, &change)?;
            }
        }
        Ok(())
    }
}

fn meets(key: &str, expect: Expect, current: Option<&KvItem>) -> Result<(), MemoryError> {
    let found = current.map_or(0, |item| item.version);
    let expected = match expect {
        Expect::Any => return Ok(()),
        Expect::Absent => 0,
        Expect::Version(version) => version,
    };
    if expected == found {
        return Ok(());
    }
    Err(MemoryError::Conflict { what: "key", id: shown(key), expected, found })
}
