//! Working memory: JSON values under keys.
//!
//! Every change of a key is a row of the space's log; its sequence number is the key's *version*. So a branch has its own values
//! from the point where it was forked, a read of the past returns the values of that time, and a compare-and-set compares one number.
//!
//! ```text
//!  set ─► row ─► row ─► tombstone ─► row …        the newest row that a branch sees is the key's value
//!                 └ expires_ms: from then on, every read and check treats the key as deleted
//! ```
//!
//! Each row also records how many keys and bytes its branch had after it, so a limit is checked without counting.

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
/// Largest value, as JSON. Larger values belong in an artifact.
pub const KV_VALUE_BYTES_MAX: usize = 256 << 10;
/// Most operations of one batch: it holds the space's writer while it is applied.
pub const KV_BATCH_MAX: usize = 256;
/// Largest batch, all values together.
pub const KV_BATCH_BYTES_MAX: usize = 8 << 20;
/// Most keys a branch may have at a time.
pub const KV_KEYS_MAX: u64 = 100_000;
/// Most bytes of keys and values that a branch may have at a time. Working memory is read as a whole.
pub const KV_BYTES_MAX: u64 = 1 << 30;
/// Longest time to live; a longer one is refused. Without a time to live, a key never expires.
pub const KV_TTL_MS_MAX: u64 = 100 * 366 * 24 * 3600 * 1000;
/// Deepest nesting of a value, the same as the limit of the JSON parser of the API.
pub const KV_DEPTH_MAX: usize = 127;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KvItem {
    pub key: String,
    pub value: Value,
    /// The sequence number of the change that set it.
    pub version: u64,
    /// When the key was created, after it was last absent.
    pub created_ms: u64,
    pub updated_ms: u64,
    pub expires_ms: Option<u64>,
}

/// One change in the history of a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KvVersion {
    pub version: u64,
    pub at_ms: u64,
    /// `None`: it was deleted.
    pub item: Option<KvItem>,
}

/// A condition on a key that must hold for a batch to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Any,
    Absent,
    Version(u64),
}

/// One operation of a batch. Later operations see the effects of earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub enum KvOp {
    /// Without `ttl_ms` the key never expires, even if it had a time to live before.
    Set { key: String, value: Value, ttl_ms: Option<u64>, expect: Expect },
    /// Deleting an absent key is not an error.
    Delete { key: String, expect: Expect },
    /// An absent key counts from 0. Without `ttl_ms` the key keeps its time to live.
    Increment { key: String, by: Amount, ttl_ms: Option<u64> },
    /// Changes nothing; all operations fail if the condition does not hold.
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

/// Checks a batch as far as possible without the space.
fn check_batch(ops: &[KvOp]) -> Result<(), MemoryError> {
    if ops.len() > KV_BATCH_MAX {
        return Err(MemoryError::too_many("operations", KV_BATCH_MAX));
    }
    let mut bytes = 0;
    for op in ops {
        check_key(op.key())?;
        if op.ttl_ms().is_some_and(|ttl_ms| ttl_ms == 0 || ttl_ms > KV_TTL_MS_MAX) {
            let why = format!("that of `{}` must be greater than 0 and at most 100 years", shown(op.key()));
            return Err(MemoryError::invalid("the time to live", why));
        }
        if let KvOp::Set { key, value, .. } = op {
            let length = value.to_string().len();
            if length > KV_VALUE_BYTES_MAX {
                return Err(value_too_large(key, length));
            }
            if depth(value) > KV_DEPTH_MAX {
                let why = format!("that of `{}` is nested more than {KV_DEPTH_MAX} levels deep", shown(key));
                return Err(MemoryError::invalid("the value", why));
            }
            bytes += length;
        }
    }
    if bytes > KV_BATCH_BYTES_MAX {
        return Err(MemoryError::too_large("the batch", bytes, KV_BATCH_BYTES_MAX));
    }
    Ok(())
}

fn value_too_large(key: &str, bytes: usize) -> MemoryError {
    MemoryError::ValueTooLarge { key: shown(key), bytes: bytes as u64, max: KV_VALUE_BYTES_MAX as u64 }
}

/// The JSON parser of the API limits the recursion.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
