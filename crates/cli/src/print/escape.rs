//! Escapes control characters in text from sandboxes.
//!
//! Names, file names, command lines and messages may contain control characters that move the cursor, change the
//! title, or make the terminal type for its user. They are shown as escapes here; only raw attach passes bytes
//! through.

use std::fmt::Write as _;

/// One line of text: every control character is shown as an escape.
pub(crate) fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        push(&mut shown, character);
    }
    shown
}

/// Whether a character can control a terminal, or change the order in which a line is displayed.
pub(super) fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Direction marks and overrides: they display `exe.txt` as `txt.exe`.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separators, and a byte order mark within text.
            | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

fn push(into: &mut String, character: char) {
    if !is_harmful(character) {
        into.push(character);
        return;
    }
    match character {
        '\n' => into.push_str("\\n"),
        '\r' => into.push_str("\\r"),
        '\t' => into.push_str("\\t"),
        _ if (character as u32) < 0x80 => {
            write!(into, "\\x{:02x}", character as u32).expect("writing to a string succeeds");
        }
        _ => write!(into, "\\u{{{:x}}}", character as u32).expect("writing to a string succeeds"),
    }
}

/// Escapes a stream of bytes: lines and tabs are kept, `\r\n` becomes a line end, and a character that is split between
/// two pieces is joined.
#[derive(Debug, Default)]
pub(crate) struct StreamEscaper {
    /// Up to three bytes of an unfinished character.
    partial: Vec<u8>,
    /// A carriage return whose next character is not known yet.
    carriage_return: bool,
}

/// A whole text, of several lines.
pub(crate) fn escape_lines(text: &[u8]) -> String {
    let mut escaper = StreamEscaper::default();
    escaper.feed(text) + &escaper.finish()
}

impl StreamEscaper {
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> String {
        let mut input = std::mem::take(&mut self.partial);
        input.extend_from_slice(bytes);
        let mut shown = String::with_capacity(input.len());
        let mut rest = input.as_slice();
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.push_text(&mut shown, text);
                    break;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.push_text(&mut shown, std::str::from_utf8(good).unwrap_or_default());
                    let Some(length) = error.error_len() else {
                        self.partial = bad.to_vec();
                        break;
                    };
                    self.end_carriage_return(&mut shown);
                    for byte in &bad[..length] {
                        write!(shown, "\\x{byte:02x}").expect("writing to a string succeeds");
                    }
                    rest = &bad[length..];
                }
            }
        }
        shown
    }

    /// The rest, at the end of the stream.
    pub(crate) fn finish(&mut self) -> String {
        let mut shown = String::new();
        self.end_carriage_return(&mut shown);
        for byte in std::mem::take(&mut self.partial) {
            write!(shown, "\\x{byte:02x}").expect("writing to a string succeeds");
        }
        shown
    }

    fn push_text(&mut self, into: &mut String, text: &str) {
        for character in text.chars() {
            match character {
                '\n' => {
                    self.carriage_return = false;
                    into.push('\n');
                }
                '\r' => {
                    self.end_carriage_return(into);
                    self.carriage_return = true;
                }
                _ => {
                    self.end_carriage_return(into);
                    if character == '\t' { into.push('\t') } else { push(into, character) }
                }
            }
        }
    }

    /// A lone carriage return would let later text overwrite earlier text.
    fn end_carriage_return(&mut self, into: &mut String) {
        if std::mem::take(&mut self.carriage_return) {
            into.push_str("\\r");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_escapes() {
        for (text, shown) in [
            ("plain ümläut 漢字", "plain ümläut 漢字"),
            ("\u{1b}]0;title\u{7}", "\\x1b]0;title\\x07"),
            ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
            ("del\u{7f}", "del\\x7f"),
            // The C1 control for CSI, which some terminals take as ESC [.
            ("\u{9b}31m", "\\u{9b}31m"),
            ("exe\u{202e}txt", "exe\\u{202e}txt"),
            ("a\u{2028}b", "a\\u{2028}b"),
        ] {
            assert_eq!(escape(text), shown);
        }
    }

    #[test]
    fn a_stream_is_escaped_the_same_however_it_is_split() {
        let input = "ein Tag\r\nkühl\u{1b}[2J\tund\rweg \u{9b}".as_bytes();
        let mut input = input.to_vec();
        input.extend_from_slice(b"\xff\xe6\xbc");
        let expected = "ein Tag\nkühl\\x1b[2J\tund\\rweg \\u{9b}\\xff\\xe6\\xbc";
        for cut in 0..input.len() {
            let mut escaper = StreamEscaper::default();
            let mut shown = escaper.feed(&input[..cut]);
            shown += &escaper.feed(&input[cut..]);
            shown += &escaper.finish();
            assert_eq!(shown, expected, "cut at {cut}");
        }
    }
}
