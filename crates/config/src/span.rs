//! Durations in the notation of the configuration.

const SECOND_MS: u64 = 1_000;

/// The units, and their length in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", SECOND_MS),
    ("m", 60 * SECOND_MS),
    ("h", 3_600 * SECOND_MS),
    ("d", 24 * 3_600 * SECOND_MS),
];

/// The word for "no time limit".
pub(super) const NEVER: &str = "never";

/// Milliseconds of `90s`, `5m`, `1h` or `7d`.
pub(super) fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, worth) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*worth)
}

/// In the largest unit that divides it.
pub(super) fn show(ms: u64) -> String {
    let fitting = UNITS.iter().rev().find(|(_, worth)| ms != 0 && ms.is_multiple_of(*worth));
    let (unit, worth) = fitting.copied().unwrap_or(("s", SECOND_MS));
    format!("{}{unit}", ms / worth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_survive_parsing_and_formatting() {
        for (text, ms) in
            [("500ms", 500), ("90s", 90_000), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000)]
        {
            assert_eq!((parse(text), show(ms).as_str()), (Some(ms), text));
        }
        for bad in ["", "5", "m", "5 m", "-1s", "1.5h", "1h30m", "18446744073709551615d", "never"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(show(0), "0s");
    }
}
