//! Finds times in a query: `in May 2023`, `on 3 June`, `yesterday`, `last week`, `in 2022`.
//!
//! An entry fits a time if it happened then, and fits less if it happened soon after: people write about events after
//! they happened.

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Events of a day are often mentioned within ten days, those of a month within two weeks after it.
const TOLD_AFTER_DAY: i64 = 10;
const TOLD_AFTER_MONTH: i64 = 14;

/// How well an entry fits that happened soon after.
const TOLD_LATER: f32 = 0.6;

/// How well an entry fits a whole year: only a little, since most of a space may.
const YEAR_FITS: f32 = 0.2;

/// Times of one query.
const TIMES_MAX: usize = 4;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// A time in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// Days since 1970: the first, and one past the last; entries up to this many days later fit partly.
    Days {
        first: i64,
        end: i64,
        told_within: i64,
    },
    /// A day or month of any year.
    EachYear {
        month: u32,
        day: Option<u32>,
    },
    Year(i64),
}

impl Time {
    /// From 0 to 1.
    pub(super) fn fits(&self, at_ms: u64) -> f32 {
        let day = days(at_ms);
        match *self {
            Self::Days { first, end, told_within } => within(day, first, end, told_within),
            Self::Year(year) => {
                if civil(day).0 == year {
                    YEAR_FITS
                } else {
                    0.0
                }
            }
            Self::EachYear { month, day: wanted } => {
                let year = civil(day).0;
                [year, year - 1].iter().map(|year| span(*year, month, wanted).fits(at_ms)).fold(0.0, f32::max)
            }
        }
    }
}

fn within(day: i64, first: i64, end: i64, told_within: i64) -> f32 {
    if (first..end).contains(&day) {
        1.0
    } else if (end..end + told_within).contains(&day) {
        TOLD_LATER
    } else {
        0.0
    }
}

fn span(year: i64, month: u32, day: Option<u32>) -> Time {
    match day {
        // One day on either side, for time zones and imprecise dates.
        Some(day) => {
            let day = days_from_civil(year, month, day);
            Time::Days { first: day - 1, end: day + 2, told_within: TOLD_AFTER_DAY - 1 }
        }
        None => {
            let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            let (first, end) = (days_from_civil(year, month, 1), days_from_civil(next_year, next, 1));
            Time::Days { first, end, told_within: TOLD_AFTER_MONTH }
        }
    }
}

/// The times in a query. `words` are in lower case.
pub(super) fn times(words: &[String], now_ms: u64) -> Vec<Time> {
    let mut found = Vec::new();
    for at in 0..words.len() {
        let time = named(words, at).or_else(|| relative(words, at, days(now_ms)));
        if let Some(time) = time
            && found.len() < TIMES_MAX
        {
            found.push(time);
        }
    }
    if found.is_empty() {
        found.extend(words.iter().find_map(|word| year(word)).map(Time::Year));
    }
    found
}

/// A month by its name, with an adjacent day and year.
fn named(words: &[String], at: usize) -> Option<Time> {
    let word = words[at].as_str();
    let month = MONTHS
        .iter()
        .position(|month| *month == word || (word.len() == 3 && word != "may" && month.starts_with(word)))?;
    let month = u32::try_from(month).ok()? + 1;
    let before = |n: usize| at.checked_sub(n).map(|at| words[at].as_str());
    let after = |n: usize| words.get(at + n).map(String::as_str);
    let day_before =
        before(1).and_then(day_of).or_else(|| (before(1)? == "of").then(|| before(2).and_then(day_of))?);
    let day_after = after(1).and_then(day_of);
    let day = day_before.or(day_after);
    let year = after(if day_after.is_some() { 2 } else { 1 }).and_then(year);
    // `may` and `march` are also verbs: alone, they need a preceding word such as `in`.
    let is_verb = matches!(word, "may" | "march" | "mar") && day.is_none() && year.is_none();
    let led = matches!(
        before(1),
        Some(
            "in" | "of"
                | "during"
                | "by"
                | "since"
                | "until"
                | "early"
                | "late"
                | "mid"
                | "last"
                | "this"
                | "next"
        )
    );
    if is_verb && !led {
        return None;
    }
    match year {
        Some(year) => Some(span(year, month, day)),
        None => Some(Time::EachYear { month, day }),
    }
}

fn day_of(word: &str) -> Option<u32> {
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
    digits.parse().ok().filter(|day| (1..=31).contains(day) && digits.len() <= 2)
}

fn year(word: &str) -> Option<i64> {
    let year: i64 = (word.len() == 4).then(|| word.parse().ok())??;
    (1900..2100).contains(&year).then_some(year)
}

/// `yesterday`, `last week`, `3 days ago`: relative to now.
fn relative(words: &[String], at: usize, today: i64) -> Option<Time> {
    let next = words.get(at + 1).map(String::as_str);
    let days = |first: i64, end: i64| Some(Time::Days { first, end, told_within: 1 });
    match (words[at].as_str(), next) {
        ("today", _) => days(today, today + 1),
        ("yesterday", _) => days(today - 1, today),
        ("last", Some("week")) => days(today - 13, today),
        ("this" | "past", Some("week")) => days(today - 7, today + 1),
        ("last", Some("month")) => days(today - 61, today - 14),
        ("this" | "past", Some("month")) => days(today - 31, today + 1),
        ("last", Some("year")) => Some(Time::Year(civil(today).0 - 1)),
        (count, Some(unit)) if words.get(at + 2).is_some_and(|word| word == "ago") => {
            let count = counted(count)?;
            let (length, slack) = match unit {
                "day" | "days" => (1, 0),
                "week" | "weeks" => (7, 3),
                "month" | "months" => (30, 10),
                _ => return None,
            };
            let day = today - count * length;
            days(day - slack, day + slack + 1)
        }
        _ => None,
    }
}

fn counted(word: &str) -> Option<i64> {
    let words = ["a", "two", "three", "four", "five", "six"];
    let named = words.iter().position(|known| *known == word).and_then(|n| i64::try_from(n + 1).ok());
    named.or_else(|| word.parse().ok().filter(|count| (1..1000).contains(count)))
}

fn days(at_ms: u64) -> i64 {
    i64::try_from(at_ms / DAY_MS).unwrap_or(i64::MAX)
}

/// Days since 1970 of a date of the Gregorian calendar; a day past the month's end belongs to the next month.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (i64::from(month) + if month > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year and month of a day since 1970.
fn civil(day: i64) -> (i64, u32) {
    let day = day.saturating_add(719_468);
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, u32::try_from(month).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 15 November 2026.
    const NOW: u64 = 1_794_700_800_000;

    fn at(year: i64, month: u32, day: u32) -> u64 {
        u64::try_from(days_from_civil(year, month, day)).unwrap() * DAY_MS + DAY_MS / 2
    }

    #[track_caller]
    fn check(question: &str, when: (i64, u32, u32), expected: f32) {
        let words: Vec<String> = question.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let fits =
            times(&words, NOW).iter().map(|time| time.fits(at(when.0, when.1, when.2))).fold(0.0, f32::max);
        assert!((fits - expected).abs() < 1e-6, "{question} {when:?}: {fits}");
    }

    #[test]
    fn the_calendar_is_right() {
        for (year, month, day, expected) in [(1970, 1, 1, 0), (2000, 3, 1, 11_017), (2026, 11, 15, 20_772)] {
            assert_eq!(days_from_civil(year, month, day), expected);
            assert_eq!(civil(expected), (year, month));
        }
        assert_eq!(days(NOW), 20_772);
    }

    #[test]
    fn named_times_fit_then_and_nearly_soon_after() {
        check("what broke in march 2024", (2024, 3, 15), 1.0);
        check("what broke in march 2024", (2024, 4, 5), 0.6);
        check("what broke in march 2024", (2023, 3, 15), 0.0);
        check("the deploy of 3 june 2023", (2023, 6, 3), 1.0);
        check("the deploy on june 3rd 2023", (2023, 6, 8), 0.6);
        check("the deploy on june 3rd 2023", (2023, 6, 30), 0.0);
        check("the 3rd of june", (2021, 6, 3), 1.0);
        check("in december", (2022, 12, 31), 1.0);
        check("in december", (2023, 1, 4), 0.6);
        check("what changed in 2022", (2022, 7, 1), 0.2);
        check("sep 2023", (2023, 9, 1), 1.0);
    }

    #[test]
    fn relative_times_are_from_now() {
        check("what did i do yesterday", (2026, 11, 14), 1.0);
        check("what did i do yesterday", (2026, 11, 10), 0.0);
        check("errors of last week", (2026, 11, 6), 1.0);
        check("two weeks ago", (2026, 11, 1), 1.0);
        check("3 days ago", (2026, 11, 12), 1.0);
        check("last year", (2025, 2, 1), 0.2);
    }

    #[test]
    fn verbs_are_no_months() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(times(&words("what may break"), NOW), []);
        assert_eq!(times(&words("we march on"), NOW), []);
        assert_eq!(times(&words("in may"), NOW).len(), 1);
        assert_eq!(times(&words("port 8080 and 99999999999999999999 days ago"), NOW), []);
    }
}
