//! Parses arguments of the memory commands: times, points to read as of, metadata and conditions on it.

use std::time::UNIX_EPOCH;

use burrow_api::memory::{MetadataOperator, MetadataTest};
use serde_json::Value;

use crate::commands::prelude::*;

/// A smaller bare number is a position in the log: no log gets this long, and as a time it would be in 1973.
const TIME_MS_MIN: u64 = 100_000_000_000;

/// A moment in milliseconds: `2026-11-15T12:00:00Z`, `2026-11-15`, Unix milliseconds, or how long ago: `2h`.
pub(crate) fn moment(text: &str) -> Result<u64, String> {
    let bad = || {
        format!(
            "`{text}` is not a time such as 2026-11-15T12:00:00Z, 2026-11-15, or how long ago: 30m, 2h, 7d"
        )
    };
    let text = text.trim();
    if let Ok(number) = text.parse::<u64>() {
        return if number >= TIME_MS_MIN { Ok(number) } else { Err(bad()) };
    }
    written(text).or_else(|| ago(text)).ok_or_else(bad)
}

/// A point to read as of, in the format of the API: a number, a time, or the name or id of a snapshot.
pub(crate) fn as_of(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("give a number of the log, a time, how long ago, or a snapshot".to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    Ok(match written(text).or_else(|| ago(text)) {
        Some(at_ms) => precise(at_ms),
        None => text.to_owned(),
    })
}

/// As RFC 3339, to the millisecond.
fn precise(at_ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(at_ms)).to_string()
}

fn written(text: &str) -> Option<u64> {
    let is_date = text.len() == 10 && text.as_bytes()[4] == b'-';
    let whole = if is_date { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let at = humantime::parse_rfc3339_weak(&whole).ok()?;
    u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

fn ago(text: &str) -> Option<u64> {
    // A bare number is not a duration here: it could also be a number of the log.
    if !text.ends_with(|last: char| last.is_ascii_alphabetic()) {
        return None;
    }
    let period = parse::duration(text).ok()?;
    quantity::now_ms().checked_sub(u64::try_from(period.as_millis()).ok()?)
}

/// `KEY=VALUE`; a value that is valid JSON is parsed as JSON, anything else is text.
pub(crate) fn metadata(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), json_or_text(value))),
        _ => Err(format!("`{text}` is not KEY=VALUE")),
    }
}

/// `3`, `true`, `{"a":1}`, `"3"`; anything that is not JSON is text.
pub(crate) fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// `KEY=VALUE`, `KEY!=VALUE`, `KEY<VALUE`, `KEY>VALUE`, or `KEY` for "exists".
pub(crate) fn condition(text: &str) -> Result<MetadataTest, String> {
    let bad = || format!("`{text}` is not KEY=VALUE, KEY!=VALUE, KEY<VALUE, KEY>VALUE or KEY");
    let Some(at) = text.find(['=', '!', '<', '>']) else {
        return match text.trim().is_empty() {
            true => Err(bad()),
            false => {
                let (path, operator) = (text.to_owned(), MetadataOperator::Exists);
                Ok(MetadataTest { path, operator, value: Value::Null })
            }
        };
    };
    let (path, rest) = text.split_at(at);
    let (operator, value) = if let Some(value) = rest.strip_prefix("!=") {
        (MetadataOperator::Ne, value)
    } else if let Some(value) = rest.strip_prefix('=') {
        (MetadataOperator::Eq, value)
    } else if let Some(value) = rest.strip_prefix('<') {
        (MetadataOperator::Lt, value)
    } else if let Some(value) = rest.strip_prefix('>') {
        (MetadataOperator::Gt, value)
    } else {
        return Err(bad());
    };
    if path.is_empty() || value.is_empty() {
        return Err(bad());
    }
    Ok(MetadataTest { path: path.to_owned(), operator, value: json_or_text(value) })
}

/// A share between 0 and 1.
pub(crate) fn share(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is not a number from 0 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_moment_is_a_time_or_how_long_ago_it_was() {
        assert_eq!(moment("2026-11-15T02:39:53Z").unwrap(), 1_794_710_393_000);
        assert_eq!(moment("2026-11-15 02:39:53").unwrap(), 1_794_710_393_000);
        assert_eq!(moment("2026-11-15").unwrap(), 1_794_700_800_000);
        assert_eq!(moment("1794710393000").unwrap(), 1_794_710_393_000);
        let hour = quantity::now_ms() - moment("1h").unwrap();
        assert!((3_600_000..3_610_000).contains(&hour), "{hour}");
        for bad in ["", "soon", "12", "2026-13-01", "-1h"] {
            assert!(moment(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_point_is_a_number_a_time_or_a_snapshot() {
        assert_eq!(as_of("1200").unwrap(), "1200");
        assert_eq!(as_of("2026-11-15").unwrap(), "2026-11-15T00:00:00.000Z");
        assert!(as_of("2h").unwrap().ends_with('Z'));
        assert_eq!(as_of("before-upgrade").unwrap(), "before-upgrade");
        assert_eq!(as_of("snp7h3k2").unwrap(), "snp7h3k2");
        assert!(as_of(" ").is_err());
    }

    #[test]
    fn metadata_is_json_if_it_is_valid_json() {
        assert_eq!(metadata("n=3").unwrap(), ("n".to_owned(), json!(3)));
        assert_eq!(metadata("t=a=b").unwrap(), ("t".to_owned(), json!("a=b")));
        assert_eq!(metadata("q=\"3\"").unwrap(), ("q".to_owned(), json!("3")));
        assert!(metadata("x").is_err() && metadata("=x").is_err());
    }

    #[track_caller]
    fn check(text: &str, path: &str, operator: MetadataOperator, value: Value) {
        assert_eq!(condition(text).unwrap(), MetadataTest { path: path.to_owned(), operator, value });
    }

    #[test]
    fn conditions_compare_values_or_test_existence() {
        check("team=a", "team", MetadataOperator::Eq, json!("a"));
        check("team!=a", "team", MetadataOperator::Ne, json!("a"));
        check("run.cost<3.5", "run.cost", MetadataOperator::Lt, json!(3.5));
        check("n>10", "n", MetadataOperator::Gt, json!(10));
        check("ticket", "ticket", MetadataOperator::Exists, Value::Null);
        for bad in ["", "=a", "a=", "a!b", "<3"] {
            assert!(condition(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_share_is_between_zero_and_one() {
        assert!((share("0.25").unwrap() - 0.25).abs() < f32::EPSILON);
        for bad in ["-0.1", "1.1", "NaN", "much"] {
            assert!(share(bad).is_err(), "{bad:?}");
        }
    }
}
