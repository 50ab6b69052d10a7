//! Working memory: JSON values by key.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KvItem {
    pub key: String,
    /// Any JSON.
    pub value: Value,
    /// The position of this version in the log; give it as `if_version` to change only this version.
    pub version: u64,
    pub created_ms: u64,
    pub updated_ms: u64,
    /// When it expires.
    pub expires_ms: Option<u64>,
}

/// `PUT /v1/memory/{of}/kv/{key}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KvSet {
    /// Any JSON, 256 KiB at most.
    #[serde(deserialize_with = "given")]
    pub value: Value,
    /// Expires after this time; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_153_600_000_i64)]
    pub ttl_seconds: Option<u64>,
    /// Apply only if this is the current version; otherwise the conflict error contains the current version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<u64>,
    /// Apply only if the key does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_absent: bool,
}

/// A required field whose value may be `null`.
fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    Value::deserialize(from)
}

/// `POST /v1/memory/{of}/kv-increment`. A missing key counts as 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KvIncrement {
    #[schema(min_length = 1, max_length = 512)]
    pub key: String,
    /// 1 when absent. Integers stay integers.
    #[serde(default = "one")]
    #[schema(value_type = f64, default = 1)]
    pub by: serde_json::Number,
    /// Expires after this time; the expiry stays as it was when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_153_600_000_i64)]
    pub ttl_seconds: Option<u64>,
}

fn one() -> serde_json::Number {
    serde_json::Number::from(1)
}

/// `POST /v1/memory/{of}/kv-batch`: applied atomically.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KvBatch {
    #[schema(min_items = 1, max_items = 256)]
    pub ops: Vec<KvOperation>,
}

/// One step of a batch. If its `if_version` or `if_absent` does not hold, the whole batch is undone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum KvOperation {
    Set {
        key: String,
        value: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1, maximum = 3_153_600_000_i64)]
        ttl_seconds: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_version: Option<u64>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        if_absent: bool,
    },
    Delete {
        key: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_version: Option<u64>,
    },
    Increment {
        key: String,
        #[serde(default = "one")]
        #[schema(value_type = f64, default = 1)]
        by: serde_json::Number,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1, maximum = 3_153_600_000_i64)]
        ttl_seconds: Option<u64>,
    },
    /// Changes nothing; only its condition is checked.
    Check {
        key: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_version: Option<u64>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        if_absent: bool,
    },
}

/// Response to a batch: the item that each step left under its key, in order; `null` if the key no longer exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KvChanged {
    pub items: Vec<Option<KvItem>>,
}

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KvVersion {
    pub version: u64,
    pub at_ms: u64,
    /// Absent if the key was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<KvItem>,
}

/// One line of `GET /v1/memory/{of}/kv-watch`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum KvEvent {
    /// A key was set.
    Set { seq: u64, item: KvItem },
    /// A key was deleted.
    Deleted { seq: u64, key: String },
    /// A key expired. A client that resumes after an interruption may receive this event twice.
    Expired { seq: u64, key: String, at_ms: u64 },
    /// The sandbox now uses another branch or space, because it was restored to a snapshot or given another space.
    /// Every key may have changed: read them again. The events that follow are of the new branch.
    Reset { seq: u64 },
    /// Nothing happened for a while; the stream is alive. Resuming from `seq` loses nothing.
    Heartbeat { seq: u64 },
    /// The last line, when the stream was interrupted.
    Error { error: crate::ErrorDetail },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_a_value_and_absence_is_not() {
        assert_eq!(serde_json::from_str::<KvSet>(r#"{"value":null}"#).unwrap().value, Value::Null);
        assert!(serde_json::from_str::<KvSet>(r#"{"ttl_seconds":1}"#).is_err());
    }

    #[test]
    fn steps_of_a_batch_are_distinguished_by_op() {
        let batch: KvBatch = serde_json::from_str(
            r#"{"ops":[{"op":"set","key":"a","value":1},{"op":"increment","key":"b"},{"op":"check","key":"c","if_absent":true},{"op":"delete","key":"d"}]}"#,
        )
        .unwrap();
        assert_eq!(batch.ops.len(), 4);
        assert!(serde_json::from_str::<KvOperation>(r#"{"op":"set","key":"a","value":1,"tll":3}"#).is_err());
    }
}
