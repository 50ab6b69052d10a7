//! Working memory: JSON values under keys.
//!
//! Every change of a key is a row of the space's log; its number is the key's *version*. So a branch has its own values
//! from where it left its parent, a read of the past finds what was there then, and "unless it changed" is one number.
//!
//! ```text
//!  set ─► row ─► row ─► tombstone ─► row …        the newest row a branch sees is what the key holds
//!                 └ expires_ms: from then on it is as absent as behind a tombstone, for every read and check
//! ```
//!
//! Each row also carries how many keys and bytes its branch held after it, so a limit is checked without counting.

mod apply;
pub(crate) mod carry;
mod number;
mod read;
#[cfg(test)]
mod tests;
mod watch;

use serde::Serialize;
use serde_json::Value;

use crate::MemoryError;
use crate::shown::shown;

pub(crate) use apply::apply;
pub use number::Amount;
pub use read::KV_HISTORY_MAX;
pub(crate) use read::count;
pub use watch::{KvChange, KvEvent};

/// Longest key. It is part of a URL.
pub const KV_KEY_BYTES_MAX: usize = 512;
/// Largest value, as JSON. What is larger belongs in an artifact.
pub const KV_VALUE_BYTES_MAX: usize = 256 << 10;
/// Most operations of one batch: it holds the space's writer while it is applied.
pub const KV_BATCH_MAX: usize = 256;
/// Largest batch, all values together.
pub const KV_BATCH_BYTES_MAX: usize = 8 << 20;
/// Most keys a branch may hold at a time.
pub const KV_KEYS_MAX: u64 = 100_000;
/// Most bytes a branch may hold in keys and values at a time. Working memory is looked at whole.
pub const KV_BYTES_MAX: u64 = 1 << 30;
/// Longest life that can be asked for; longer means for ever, which is what no time to live means.
pub const KV_TTL_MS_MAX: u64 = 100 * 366 * 24 * 3600 * 1000;
/// How deep a value may nest, as deep as the JSON parser at the edge goes.
pub const KV_DEPTH_MAX: usize = 127;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KvItem {
    pub key: String,
    pub value: Value,
    /// Number of the change that put it there.
    pub version: u64,
    /// When the key came to be, since it was last absent.
    pub created_ms: u64,
    pub updated_ms: u64,
    pub expires_ms: Option<u64>,
}

/// One change in the life of a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KvVersion {
    pub version: u64,
    pub at_ms: u64,
    /// `None`: it was deleted.
    pub item: Option<KvItem>,
}

/// What must be true of a key for a batch to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Any,
    Absent,
    Version(u64),
}

/// One operation of a batch. Later ones see what earlier ones did.
#[derive(Clone, Debug, PartialEq)]
pub enum KvOp {
    /// Without `ttl_ms` the key stays for ever, whatever it was before.
    Set { key: String, value: Value, ttl_ms: Option<u64>, expect: Expect },
    /// Deleting what is absent is no error.
    Delete { key: String, expect: Expect },
    /// An absent key counts from 0. Without `ttl_ms` the key keeps the life it had.
    Increment { key: String, by: Amount, ttl_ms: Option<u64> },
    /// Changes nothing; all operations fail where it does not hold.
    Check { key: String, expect: Expect },
}

impl KvOp {
    pub fn key(&self) -> &str {
        match self {
            Self::Set { key, .. }
            | Self::Delete { key, .. }
            | Self::Increment { key, .. }
            | Self::Check { key, .. } => key,
        }
    }

    fn ttl_ms(&self) -> Option<u64> {
        match self {
            Self::Set { ttl_ms, .. } | Self::Increment { ttl_ms, .. } => *ttl_ms,
            Self::Delete { .. } | Self::Check { .. } => None,
        }
    }
}

fn check_key(key: &str) -> Result<(), MemoryError> {
    if key.is_empty() {
        return Err(MemoryError::invalid("the key", "it is empty"));
    }
    if key.len() > KV_KEY_BYTES_MAX {
        return Err(MemoryError::too_large("the key", key.len(), KV_KEY_BYTES_MAX));
    }
    if key.contains('\0') {
        return Err(MemoryError::invalid("the key", "it contains a NUL character"));
    }
    Ok(())
}

/// What a batch can be refused for without looking at the space.
fn check_batch(ops: &[KvOp]) -> Result<(), MemoryError> {
    if ops.len() > KV_BATCH_MAX {
        return Err(MemoryError::too_many("operations", KV_BATCH_MAX));
    }
    let mut bytes = 0;
    for op in ops {
        check_key(op.key())?;
        if op.ttl_ms().is_some_and(|ttl_ms| ttl_ms == 0 || ttl_ms > KV_TTL_MS_MAX) {
            let why = format!("`{}` must live longer than not at all and at most 100 years", shown(op.key()));
            return Err(MemoryError::invalid("the time to live", why));
        }
        if let KvOp::Set { key, value, .. } = op {
            let length = value.to_string().len();
            if length > KV_VALUE_BYTES_MAX {
                return Err(value_too_large(key, length));
            }
            if depth(value) > KV_DEPTH_MAX {
                let why = format!("that of `{}` nests deeper than {KV_DEPTH_MAX}", shown(key));
                return Err(MemoryError::invalid("the value", why));
            }
            bytes += length;
        }
    }
    if bytes > KV_BATCH_BYTES_MAX {
        return Err(MemoryError::too_large("the values of the batch", bytes, KV_BATCH_BYTES_MAX));
    }
    Ok(())
}

fn value_too_large(key: &str, bytes: usize) -> MemoryError {
    MemoryError::ValueTooLarge { key: shown(key), bytes: bytes as u64, max: KV_VALUE_BYTES_MAX as u64 }
}

/// Recursion is bounded by what the parser at the edge lets through.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
