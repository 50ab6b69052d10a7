//! Signals by name and by number, with the numbers of Linux.

const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Real-time signals have numbers only.
const NUMBER_MAX: i32 = 64;

/// `TERM`, `SIGTERM`, `sigterm` or `15`.
pub fn parse_signal(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=NUMBER_MAX).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let index = NAMES.iter().position(|known| *known == name)?;
    i32::try_from(index + 1).ok()
}

/// `SIGTERM`; a signal without a name is shown as its number.
pub fn signal_name(number: i32) -> String {
    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    match index.and_then(|index| NAMES.get(index)) {
        Some(name) => format!("SIG{name}"),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_parsed_by_name_and_number() {
        for text in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse_signal(text), Some(15), "{text}");
        }
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(31), "SIGSYS");
        assert_eq!(signal_name(40), "40");
        for bad in ["", "0", "-1", "65", "SIG", "TERMINATE", "TERM\0"] {
            assert_eq!(parse_signal(bad), None, "{bad:?}");
        }
    }
}
