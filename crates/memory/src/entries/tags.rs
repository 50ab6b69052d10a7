//! A small Bloom filter of an entry's metadata, so that a filter reads only metadata that may match.
//!
//! A missing bit proves that the value is missing; a set bit proves nothing.

use serde_json::{Map, Value};

use super::filter::{Condition, Op};
use crate::space::checksum::hash;

/// Levels of nesting that are indexed; deeper values match every query.
const DEPTH_MAX: usize = 8;

pub(crate) fn of(metadata: &Map<String, Value>) -> u64 {
    let mut bits = 0;
    collect(metadata, "", 0, &mut bits);
    bits
}

/// The bits that metadata must have for the condition to hold; 0 if no bit is implied.
pub(crate) fn needed(condition: &Condition) -> u64 {
    match condition.op {
        Op::Ne | Op::In => 0,
        // A path with dots can be split in several ways, so only bits that all of them have in common are required.
        Op::Exists | Op::Lt | Op::Gt => of_path(&condition.path),
        Op::Eq => of_path(&condition.path) | scalar(&condition.path, &condition.value).unwrap_or(0),
    }
}

fn collect(metadata: &Map<String, Value>, above: &str, depth: usize, bits: &mut u64) {
    for (name, value) in metadata {
        let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        *bits |= of_path(&path);
        match value {
            Value::Object(inner) if depth < DEPTH_MAX => collect(inner, &path, depth + 1, bits),
            // Too deep to index: set all bits.
            Value::Object(_) => *bits = u64::MAX,
            Value::Array(values) => spread(values, &path, depth, bits),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                *bits |= scalar(&path, value).unwrap_or(0);
            }
        }
    }
}

/// A list matches by its elements, including those of nested lists.
fn spread(values: &[Value], path: &str, depth: usize, bits: &mut u64) {
    for value in values {
        match value {
            Value::Array(values) if depth < DEPTH_MAX => spread(values, path, depth + 1, bits),
            Value::Array(_) => *bits = u64::MAX,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                *bits |= scalar(path, value).unwrap_or(0);
            }
        }
    }
}

fn of_path(path: &str) -> u64 {
    1 << (hash(path.as_bytes()).cast_unsigned() & 63)
}

/// Numbers by their value, since `1` and `1.0` are equal; `None` for values that are not scalars.
fn scalar(path: &str, value: &Value) -> Option<u64> {
    let text = match value {
        Value::Null => "n".to_owned(),
        Value::Bool(value) => format!("b{value}"),
        Value::Number(number) => format!("d{}", number.as_f64().unwrap_or(0.0) + 0.0),
        Value::String(text) => format!("s{text}"),
        Value::Array(_) | Value::Object(_) => return None,
    };
    let hash = hash(format!("{path}\u{0}{text}").as_bytes()).cast_unsigned();
    Some(1 << (hash & 63) | 1 << (hash >> 6 & 63))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3i64..3).prop_map(Value::from),
            (-3i64..3).prop_map(|n| Value::from(n as f64)),
            "[ab.]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab.]{1,2}", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn tags_never_exclude_a_matching_entry(
            metadata in prop::collection::btree_map("[ab.]{1,2}", values(), 0..4),
            path in "[ab.]{1,4}",
            value in values(),
            op in prop_oneof![Just(Op::Eq), Just(Op::Ne), Just(Op::In), Just(Op::Exists), Just(Op::Lt), Just(Op::Gt)],
        ) {
            let metadata: Map<String, Value> = metadata.into_iter().collect();
            let condition = Condition { path, op, value };
            if condition.holds(&metadata) {
                let needed = needed(&condition);
                prop_assert_eq!(of(&metadata) & needed, needed);
            }
        }
    }

    #[test]
    fn missing_values_are_usually_detected() {
        let metadata = json!({"user": "ann", "n": 1});
        let bits = of(metadata.as_object().unwrap());
        let misses = (0..100).filter(|n| {
            let condition = Condition { path: "user".into(), op: Op::Eq, value: json!(format!("u{n}")) };
            let needed = needed(&condition);
            bits & needed != needed
        });
        assert!(misses.count() > 80);
    }
}
