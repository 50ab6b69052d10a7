//! Times and sizes in readable form.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn now_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How old something is now.
pub(crate) fn age_now(then_ms: u64) -> String {
    age(then_ms, now_ms())
}

/// How long ago, in its largest unit: `42s`, `3m`, `5h`, `12d`.
pub(crate) fn age(then_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(then_ms) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `1.5 GiB`
pub(crate) fn bytes(count: u64) -> String {
    burrow_model::Bytes(count).to_string()
}

/// `2026-11-15T02:39:53Z`
pub(crate) fn timestamp(at_ms: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(at_ms);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// `12.3s`, from microseconds.
pub(crate) fn seconds(micros: u64) -> String {
    format!("{:.1}s", micros as f64 / 1e6)
}

/// `1 child`, `3 children`
pub(crate) fn count(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// The duration of a pause, from microseconds: `850 µs`, `12.3 ms`, `1.25 s`.
pub(crate) fn pause(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

/// A period: `90s` as `1m30s`, `15m`, `7d`. Never longer units, whose length varies.
pub(crate) fn period(seconds: u64) -> String {
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let shown: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if shown.is_empty() { "0s".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_its_largest_unit() {
        for (seconds, shown) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3_599, "59m"),
            (3_600, "1h"),
            (172_799, "47h"),
            (172_800, "2d"),
        ] {
            assert_eq!(age(1_000, 1_000 + seconds * 1_000), shown);
        }
        assert_eq!(age(5_000, 1_000), "0s", "a clock that runs behind is not a fault");
    }

    #[test]
    fn sizes_have_three_digits_or_fewer() {
        for (count, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536 << 20, "1.5 GiB"),
            (512 << 20, "512 MiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(bytes(count), shown);
        }
    }

    #[test]
    fn a_pause_has_a_suitable_unit() {
        for (micros, shown) in
            [(0, "0 µs"), (999, "999 µs"), (12_340, "12.3 ms"), (999_999, "1000.0 ms"), (1_250_000, "1.25 s")]
        {
            assert_eq!(pause(micros), shown);
        }
    }

    #[test]
    fn a_period_is_shown_as_it_is_written() {
        for shown in ["0s", "1s", "5m", "1m30s", "1h30m", "7d", "1d12h", "400d"] {
            let seconds = crate::parse::duration(shown).unwrap().as_secs();
            assert_eq!(period(seconds), shown);
        }
    }

    #[test]
    fn a_timestamp_is_in_utc() {
        assert_eq!(timestamp(1_794_710_393_000), "2026-11-15T02:39:53Z");
    }
}
