//! A filter for entries: all of its conditions must hold.

use burrow_model::MemoryId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::MemoryError;
use crate::limits::{CONDITIONS_MAX, IDS_MAX};

/// Empty lists and `None` mean no restriction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    pub kinds: Vec<String>,
    pub metadata: Vec<Condition>,
    /// Entries whose time is this or later.
    pub since_ms: Option<u64>,
    /// Entries whose time is before this.
    pub until_ms: Option<u64>,
    pub session: Option<String>,
    pub source: Option<String>,
    pub user: Option<String>,
    pub agent: Option<String>,
    pub ids: Vec<MemoryId>,
    pub include_cold: bool,
    pub include_superseded: bool,
}

impl Filter {
    /// All current entries: not cold, not superseded.
    pub fn all() -> Self {
        Self {
            kinds: Vec::new(),
            metadata: Vec::new(),
            since_ms: None,
            until_ms: None,
            session: None,
            source: None,
            user: None,
            agent: None,
            ids: Vec::new(),
            include_cold: false,
            include_superseded: false,
        }
    }

    /// All entries, including cold and superseded ones.
    pub fn everything() -> Self {
        Self { include_cold: true, include_superseded: true, ..Self::all() }
    }

    pub(crate) fn check(&self) -> Result<(), MemoryError> {
        if self.metadata.len() > CONDITIONS_MAX {
            let why = format!("it has {} conditions, the limit is {CONDITIONS_MAX}", self.metadata.len());
            return Err(MemoryError::invalid("the filter", why));
        }
        if self.ids.len() > IDS_MAX {
            let why = format!("it names {} ids, the limit is {IDS_MAX}", self.ids.len());
            return Err(MemoryError::invalid("the filter", why));
        }
        Ok(())
    }
}

/// One condition on metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// Field names separated by dots: `test.name`.
    pub path: String,
    pub op: Op,
    /// The value to compare with; a list for `in`; ignored for `exists`.
    pub value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    Eq,
    /// Also true if the field does not exist.
    Ne,
    In,
    Exists,
    Lt,
    Gt,
}

impl Condition {
    pub fn holds(&self, metadata: &Map<String, Value>) -> bool {
        let found = look_up(metadata, &self.path);
        match self.op {
            Op::Exists => found.is_some(),
            Op::Ne => found.is_none_or(|found| !same(found, &self.value)),
            Op::Eq => found.is_some_and(|found| same(found, &self.value)),
            Op::In => found.is_some_and(|found| {
                self.value.as_array().is_some_and(|values| values.iter().any(|value| same(found, value)))
            }),
            Op::Lt => found.is_some_and(|found| compare(found, &self.value).is_some_and(|o| o.is_lt())),
            Op::Gt => found.is_some_and(|found| compare(found, &self.value).is_some_and(|o| o.is_gt())),
        }
    }
}

/// A field whose own name contains the dots takes precedence over a nested field.
fn look_up<'a>(metadata: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(found) = metadata.get(path) {
        return Some(found);
    }
    let (first, rest) = path.split_once('.')?;
    look_up(metadata.get(first)?.as_object()?, rest)
}

/// A list equals each of its elements; numbers are equal by value, whether written `1` or `1.0`.
fn same(found: &Value, wanted: &Value) -> bool {
    if found == wanted {
        return true;
    }
    match (found, wanted) {
        (Value::Array(found), wanted) if !wanted.is_array() => found.iter().any(|found| same(found, wanted)),
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => false,
    }
}

fn compare(found: &Value, wanted: &Value) -> Option<std::cmp::Ordering> {
    match (found, wanted) {
        (Value::Number(a), Value::Number(b)) => a.as_f64()?.partial_cmp(&b.as_f64()?),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(metadata: Value, path: &str, op: Op, value: Value, expected: bool) {
        let condition = Condition { path: path.to_owned(), op, value };
        assert_eq!(condition.holds(metadata.as_object().unwrap()), expected, "{condition:?} on {metadata}");
    }

    #[test]
    fn a_condition_holds_by_path_and_value() {
        let metadata = json!({"a": {"b": 3}, "c.d": "x", "tags": ["red", "blue"], "n": 1.0, "nil": null});
        check(metadata.clone(), "a.b", Op::Eq, json!(3), true);
        check(metadata.clone(), "a.b", Op::Eq, json!(3.0), true);
        check(metadata.clone(), "a.b", Op::Lt, json!(4), true);
        check(metadata.clone(), "a.b", Op::Gt, json!(3), false);
        check(metadata.clone(), "a.b", Op::Gt, json!("2"), false);
        check(metadata.clone(), "c.d", Op::Eq, json!("x"), true);
        check(metadata.clone(), "tags", Op::Eq, json!("red"), true);
        check(metadata.clone(), "tags", Op::In, json!(["green", "blue"]), true);
        check(metadata.clone(), "tags", Op::Ne, json!("green"), true);
        check(metadata.clone(), "nowhere", Op::Ne, json!("green"), true);
        check(metadata.clone(), "nowhere", Op::Exists, json!(null), false);
        check(metadata.clone(), "nil", Op::Exists, json!(null), true);
        check(metadata.clone(), "a.b.c", Op::Exists, json!(null), false);
        check(metadata, "n", Op::In, json!(1), false);
    }
}
