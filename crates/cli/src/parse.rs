//! Parses arguments: durations, sizes, cores, pairs, modes, signals.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;

/// One of these words of the API.
pub(crate) fn one_of<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    words: impl IntoIterator<Item = impl Into<PossibleValue>>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(|word| api_word::<T>(&word))
}

/// A value of the API from its word in JSON.
pub(crate) fn api_word<T: DeserializeOwned>(word: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(word.into())
}

/// A word with its help.
pub(crate) fn word(word: &'static str, help: &'static str) -> PossibleValue {
    PossibleValue::new(word).help(help)
}

/// `30s`, `1h30m`, `500ms`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.trim().parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(text)
        .map_err(|_| format!("`{text}` is not a duration such as 30s, 5m or 1h30m"))
}

/// A duration of at least a second.
pub(crate) fn duration_from_second(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_secs(1) {
        return Err("it must be at least 1s".to_owned());
    }
    Ok(duration)
}

/// `never`, which the API writes as 0 seconds, or a duration of at least a second. In seconds.
pub(crate) fn seconds_or_never(text: &str) -> Result<u64, String> {
    if text.trim().eq_ignore_ascii_case("never") {
        return Ok(0);
    }
    match duration_from_second(text) {
        Ok(duration) => Ok(duration.as_secs()),
        Err(error) => Err(format!("{error}, or `never`")),
    }
}

/// A duration of at least a millisecond.
pub(crate) fn duration_positive(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_millis(1) {
        return Err("it must be at least 1ms".to_owned());
    }
    Ok(duration)
}

/// `512M`, `2G`, as MiB.
/// A number of bytes, such as `4G`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    burrow_model::parse_bytes(text).ok_or_else(|| format!("`{text}` is not a size such as 512M or 2G"))
}

pub(crate) fn mebibytes(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    if bytes < burrow_model::MIB {
        return Err(format!("`{text}` is less than 1M; write the unit, such as 512M or 2G"));
    }
    u32::try_from(bytes / burrow_model::MIB).map_err(|_| format!("`{text}` is too large"))
}

/// MiB per second, or `none`, which the API writes as 0.
pub(crate) fn rate(text: &str) -> Result<u32, String> {
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(0);
    }
    let max = burrow_model::Rates::MIB_PER_SECOND_MAX;
    match text.trim().parse() {
        Ok(rate) if rate <= max => Ok(rate),
        Ok(_) => Err(format!("`{text}` is more than {max} MiB per second: omit it for no limit")),
        Err(_) => Err(format!("`{text}` is not a whole number of MiB per second such as 50, or `none`")),
    }
}

/// `1.5` or `1500m` cores, as thousandths.
pub(crate) fn cpu_millis(text: &str) -> Result<u32, String> {
    let bad = || format!("`{text}` is not a number of cores such as 1.5 or 500m");
    let millis = match text.strip_suffix('m') {
        Some(millis) => millis.parse::<f64>().map_err(|_| bad())?,
        None => text.parse::<f64>().map_err(|_| bad())? * 1000.0,
    };
    if !(millis >= 1.0 && millis <= f64::from(u32::MAX)) {
        return Err(bad());
    }
    Ok(millis.round() as u32)
}

/// `KEY=VALUE`; a bare `KEY` takes its value from the environment.
pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => match std::env::var(text) {
            Ok(value) => (text.to_owned(), value),
            Err(_) => return Err(format!("`{text}` is not KEY=VALUE, and is not set in your environment")),
        },
    };
    burrow_model::check_env_name(&key, &value).map_err(|error| error.to_string())?;
    Ok((key, value))
}

/// `key=value`
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let label: burrow_model::Label =
        text.parse().map_err(|error: burrow_model::LabelError| error.to_string())?;
    Ok((label.key, label.value))
}

/// Labels to set and labels to remove, as the API takes them; a label that is in both is set.
pub(crate) fn label_changes(
    set: Vec<(String, String)>,
    removed: Vec<String>,
) -> BTreeMap<String, Option<String>> {
    let removed = removed.into_iter().map(|key| (key, None));
    removed.chain(set.into_iter().map(|(key, value)| (key, Some(value)))).collect()
}

/// An egress rule, in normal form.
pub(crate) fn rule(text: &str) -> Result<String, String> {
    let rule = text.parse::<burrow_model::EgressRule>().map_err(|error| error.to_string())?;
    Ok(rule.to_string())
}

/// Octal permission bits, in the format of the API.
pub(crate) fn mode(text: &str) -> Result<String, String> {
    let bad = || format!("`{text}` is not an octal mode such as 644 or 0755");
    let bits = u32::from_str_radix(text, 8).map_err(|_| bad())?;
    if bits > 0o7777 || text.starts_with('+') {
        return Err(bad());
    }
    Ok(format!("{bits:04o}"))
}

/// The signals of Linux from 1 on; `-` has no name here.
const SIGNALS: &str = "\
    HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM - \
    CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM - WINCH IO - SYS";

/// Number of `SIGTERM`, `TERM` or `15` on Linux.
pub(crate) fn signal_number(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse::<u8>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = (1..).zip(SIGNALS.split_whitespace()).find(|(_, known)| *known == name && name != "-");
    known.map(|(number, _)| number)
}

/// A signal in the format of the API.
pub(crate) fn signal(text: &str) -> Result<String, String> {
    match signal_number(text) {
        Some(_) => Ok(text.to_ascii_uppercase()),
        None => Err(format!("`{text}` is not a signal such as TERM, SIGKILL or 9")),
    }
}

/// For tests: the arguments of a command line.
#[cfg(test)]
pub(crate) fn arguments<A: clap::Args>(line: &str) -> A {
    let command = A::augment_args(clap::Command::new("x"));
    let words = std::iter::once("x").chain(line.split_whitespace());
    A::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        assert_eq!(duration("30").unwrap(), Duration::from_secs(30));
        assert_eq!(duration("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        for bad in ["", "-1s", "soon", "5 parsecs"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
        assert!(duration_from_second("10ms").is_err());
        assert_eq!(seconds_or_never("never"), Ok(0));
        assert_eq!(seconds_or_never("5m"), Ok(300));
        assert!(seconds_or_never("0s").unwrap_err().ends_with("or `never`"));
        assert!(duration_positive("0s").is_err());
    }

    #[test]
    fn bare_numbers_are_rejected_as_sizes() {
        assert_eq!(mebibytes("2G").unwrap(), 2048);
        assert_eq!(mebibytes("512M").unwrap(), 512);
        assert!(mebibytes("512").unwrap_err().contains("write the unit"));
        assert!(mebibytes("-1G").is_err());
    }

    #[test]
    fn rates_are_whole_mebibytes_or_none() {
        assert_eq!((rate("50"), rate("none"), rate("0"), rate("8192")), (Ok(50), Ok(0), Ok(0), Ok(8192)));
        for bad in ["", "50M", "1.5", "-1", "never"] {
            assert!(rate(bad).unwrap_err().contains("MiB per second such as"), "{bad:?}");
        }
        assert!(rate("8193").unwrap_err().contains("more than 8192"));
    }

    #[test]
    fn cores_become_thousandths() {
        assert_eq!(cpu_millis("1.5").unwrap(), 1500);
        assert_eq!(cpu_millis("500m").unwrap(), 500);
        for bad in ["0", "-1", "NaN", "inf", "two"] {
            assert!(cpu_millis(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn variables_and_labels_are_checked_before_they_are_sent() {
        assert_eq!(variable("A=b=c").unwrap(), ("A".to_owned(), "b=c".to_owned()));
        assert!(variable("1A=b").is_err());
        assert!(variable("BURROW_TEST_UNSET_VARIABLE").is_err());
        assert_eq!(label("team=a").unwrap(), ("team".to_owned(), "a".to_owned()));
        assert!(label("team").is_err());
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(mode("644").unwrap(), "0644");
        assert_eq!(mode("04755").unwrap(), "4755");
        for bad in ["", "rwx", "999", "77777", "-1", "+7"] {
            assert!(mode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn signals_have_names_and_numbers() {
        assert_eq!(signal_number("SIGKILL"), Some(9));
        assert_eq!(signal_number("term"), Some(15));
        assert_eq!(signal_number("15"), Some(15));
        assert_eq!(signal_number("0"), None);
        assert!(signal("NOPE").is_err());
    }
}
