//! JSON for scripts and users: indented, with control characters escaped.

use std::fmt::Write as _;

use serde::Serialize;

use crate::failure::{Failure, Stop};
use crate::print;
use crate::print::escape::is_harmful;

/// Prints a value over several lines.
pub(crate) fn pretty<T: Serialize + ?Sized>(value: &T) -> Result<(), Stop> {
    print::line(harmless(&serde_json::to_string_pretty(value).map_err(encode)?))
}

/// Prints a value on one line, as one of a stream.
pub(crate) fn compact<T: Serialize + ?Sized>(value: &T) -> Result<(), Stop> {
    print::line(harmless(&serde_json::to_string(value).map_err(encode)?))
}

/// The word that stands for a value in JSON.
pub(crate) fn word(value: impl Serialize) -> String {
    let word = serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.to_owned()));
    word.unwrap_or_default()
}

fn encode(error: serde_json::Error) -> Stop {
    Failure::new("could not encode the answer as JSON").because(&error).into()
}

/// JSON does not escape DEL and the C1 control characters. Non-ASCII characters occur only in strings, where every
/// character may be written as an escape, so this does not change the parsed value.
fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        // Line ends separate the lines of indented JSON; those in strings are escaped already.
        if character != '\n' && is_harmful(character) {
            write!(shown, "\\u{:04x}", character as u32).expect("writing to a string succeeds");
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({ "name": "a\u{1b}[0m\u{9b}1m\u{202e}ü" });
        let text = harmless(&serde_json::to_string(&value).unwrap());
        assert_eq!(text, r#"{"name":"a\u001b[0m\u009b1m\u202eü"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
