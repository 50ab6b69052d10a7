//! Dates for users and models: the day in ISO form, and the age.

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// `2026-11-15 12:30` in UTC.
pub(crate) fn iso_minute(at_ms: u64) -> String {
    let (year, month, day) = civil(at_ms / DAY_MS);
    let minutes = at_ms % DAY_MS / 60_000;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minutes / 60, minutes % 60)
}

/// `2026-11-15T12:30:45Z`.
pub(crate) fn iso_second(at_ms: u64) -> String {
    let (year, month, day) = civil(at_ms / DAY_MS);
    let seconds = at_ms % DAY_MS / 1_000;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `2026-11-15`.
pub(crate) fn iso_day(at_ms: u64) -> String {
    let (year, month, day) = civil(at_ms / DAY_MS);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `3 h ago`, `yesterday`, `5 weeks ago`; `in 2 days` for the future.
pub(crate) fn relative(at_ms: u64, now_ms: u64) -> String {
    if at_ms > now_ms {
        let ahead = at_ms - now_ms;
        return if ahead < 60_000 { "just now".to_owned() } else { format!("in {}", span(ahead)) };
    }
    let ago = now_ms - at_ms;
    if ago < 60_000 {
        return "just now".to_owned();
    }
    // Days are counted by calendar date: an evening before midnight is `yesterday` the next morning.
    let days = now_ms / DAY_MS - at_ms / DAY_MS;
    if days == 1 && ago >= 12 * 60 * 60 * 1000 {
        "yesterday".to_owned()
    } else {
        format!("{} ago", span(ago))
    }
}

fn span(ms: u64) -> String {
    let plural = |n: u64, unit: &str| if n == 1 { format!("1 {unit}") } else { format!("{n} {unit}s") };
    match ms {
        0..3_600_000 => format!("{} min", ms / 60_000),
        3_600_000..DAY_MS => format!("{} h", ms / 3_600_000),
        _ => {
            let days = ms / DAY_MS;
            match days {
                0..14 => plural(days, "day"),
                14..61 => plural(days / 7, "week"),
                61..730 => plural(days / 30, "month"),
                _ => plural(days / 365, "year"),
            }
        }
    }
}

/// Year, month and day of a number of days since 1970, by the Gregorian calendar
/// (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_follow_the_calendar() {
        for (at_ms, expected) in [
            (0, "1970-01-01 00:00"),
            (951_782_400_000, "2000-02-29 00:00"),
            (1_794_745_845_000, "2026-11-15 12:30"),
            (4_107_542_399_000, "2100-02-28 23:59"),
            (4_107_542_400_000, "2100-03-01 00:00"),
        ] {
            assert_eq!(iso_minute(at_ms), expected);
        }
        assert_eq!(iso_second(1_794_745_845_000), "2026-11-15T12:30:45Z");
    }

    #[test]
    fn ages_have_one_unit() {
        let now = 1_794_745_845_000; // 12:30
        for (ago, expected) in [
            (0, "just now"),
            (5 * 60_000, "5 min ago"),
            (3 * 3_600_000, "3 h ago"),
            (20 * 3_600_000, "yesterday"),
            (30 * 3_600_000, "yesterday"),
            (3 * DAY_MS, "3 days ago"),
            (20 * DAY_MS, "2 weeks ago"),
            (400 * DAY_MS, "13 months ago"),
            (3 * 365 * DAY_MS, "3 years ago"),
        ] {
            assert_eq!(relative(now - ago, now), expected);
        }
        assert_eq!(relative(now + 2 * DAY_MS, now), "in 2 days");
    }
}
