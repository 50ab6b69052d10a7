//! `as_of`: parses a point in the past.

use std::time::{Duration, UNIX_EPOCH};

use burrow_http::auth::check_reference;
use burrow_http::error::ApiError;

/// Numbers from here on are times: no log becomes that long, and as a time it is in 1973.
const TIME_MS_MIN: u64 = 100_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Seq(u64),
    TimeMs(u64),
    /// Its name or id.
    Snapshot(String),
}

pub(super) fn moment(text: &str) -> Result<Moment, ApiError> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return match text.parse::<u64>() {
            Ok(number) if number >= TIME_MS_MIN => Ok(Moment::TimeMs(number)),
            Ok(number) => Ok(Moment::Seq(number)),
            Err(_) => Err(unreadable()),
        };
    }
    if let Some(time) = time(text) {
        return Ok(Moment::TimeMs(time));
    }
    if text.starts_with('-') || check_reference(text).is_err() {
        return Err(unreadable());
    }
    Ok(Moment::Snapshot(text.to_owned()))
}

fn unreadable() -> ApiError {
    ApiError::invalid("`as_of` is invalid").hint(
        "give a number of the log, a time such as `2026-02-03T04:05:06Z` or milliseconds since the Unix epoch, or a snapshot",
    )
}

/// RFC 3339, with `Z` or an offset.
fn time(text: &str) -> Option<u64> {
    let text = text.to_ascii_uppercase();
    // In a query, an unescaped `+` is decoded as a space.
    let offset_at = text.len().checked_sub(6).filter(|at| text.is_char_boundary(*at));
    let (naive, offset_minutes) = match offset_at.map(|at| text.split_at(at)) {
        Some((naive, offset)) if matches!(offset.as_bytes(), [b'+' | b'-' | b' ', _, _, b':', _, _]) => {
            let hours: i64 = offset[1..3].parse().ok().filter(|hours| (0..24).contains(hours))?;
            let minutes: i64 = offset[4..6].parse().ok().filter(|minutes| (0..60).contains(minutes))?;
            let sign = if offset.starts_with('-') { -1 } else { 1 };
            (format!("{naive}Z"), sign * (hours * 60 + minutes))
        }
        Some(_) | None => (text, 0),
    };
    let since = humantime::parse_rfc3339(&naive).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let shift = Duration::from_secs(offset_minutes.unsigned_abs() * 60);
    let since = if offset_minutes >= 0 { since.checked_sub(shift)? } else { since + shift };
    u64::try_from(since.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Moment) {
        assert_eq!(moment(text).unwrap_or_else(|_| panic!("{text}")), expected, "{text}");
    }

    #[test]
    fn a_moment_is_a_number_a_time_or_a_snapshot() {
        check("0", Moment::Seq(0));
        check("42", Moment::Seq(42));
        check("1767225600000", Moment::TimeMs(1_767_225_600_000));
        check("2026-01-01T00:00:00Z", Moment::TimeMs(1_767_225_600_000));
        check("2026-01-01t00:00:00.250z", Moment::TimeMs(1_767_225_600_250));
        check("2026-01-01T02:00:00+02:00", Moment::TimeMs(1_767_225_600_000));
        check("2026-01-01T02:00:00 02:00", Moment::TimeMs(1_767_225_600_000));
        check("2025-12-31T22:30:00-01:30", Moment::TimeMs(1_767_225_600_000));
        check("before-the-fall", Moment::Snapshot("before-the-fall".to_owned()));
        check("2026-01-01", Moment::Snapshot("2026-01-01".to_owned()));
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in ["", "-1", "1.5", "Robert'); --", "2026-13-01T00:00:00Z", "99999999999999999999999", "é"]
        {
            assert!(moment(text).is_err(), "{text}");
        }
    }
}
