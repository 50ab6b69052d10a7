//! Colours and line-drawing characters, for terminals that support them, unless the user disabled them.

use std::io::IsTerminal as _;

/// The meaning of a coloured word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Good,
    Asleep,
    Bad,
    Faint,
}

/// Whether a stream gets colours; `terminal` says whether it is a terminal.
pub(crate) fn colours(terminal: bool) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    terminal && !unwanted && !dumb
}

/// Whether standard output gets colours.
pub(crate) fn colours_on_stdout() -> bool {
    colours(std::io::stdout().is_terminal())
}

/// `text` in a colour; it must be escaped already.
pub(crate) fn paint(text: &str, colour: Colour) -> String {
    let code = match colour {
        Colour::Good => "32",
        Colour::Asleep => "36",
        Colour::Bad => "31",
        Colour::Faint => "2",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Whether the locale of the user is UTF-8.
pub(crate) fn is_utf8() -> bool {
    // The first of these that is set decides, as in setlocale(3).
    let values = ["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).unwrap_or_default());
    locale_is_utf8(&values)
}

fn locale_is_utf8(values: &[String]) -> bool {
    let Some(locale) = values.iter().find(|value| !value.is_empty()) else { return false };
    let codeset = locale.split_once('.').map_or("", |(_, rest)| rest);
    let codeset = codeset.split('@').next().unwrap_or_default();
    codeset.eq_ignore_ascii_case("utf-8") || codeset.eq_ignore_ascii_case("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
        for (values, utf8) in [
            (["", "", ""], false),
            (["", "", "C.UTF-8"], true),
            (["", "de_DE.utf8@euro", ""], true),
            (["C", "", "en_GB.UTF-8"], false),
            (["", "", "de_DE.ISO-8859-1"], false),
            (["", "", "POSIX"], false),
        ] {
            assert_eq!(locale_is_utf8(&values.map(str::to_owned)), utf8, "{values:?}");
        }
    }
}
