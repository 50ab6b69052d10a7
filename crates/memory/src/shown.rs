//! Untrusted text in messages: limited and printable, so that a hostile name cannot fill a log or control a terminal.

/// Characters shown at most.
const SHOWN_MAX: usize = 80;

pub(crate) fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(SHOWN_MAX).flat_map(escaped).collect();
    if text.chars().count() > SHOWN_MAX {
        cut.push('…');
    }
    cut
}

/// Letters of any script are kept; characters that move a cursor or hide text are escaped.
fn escaped(character: char) -> impl Iterator<Item = char> {
    let plain = character.is_alphanumeric() || character.is_ascii_graphic() || character == ' ';
    let (shown, escaped) =
        if plain { (Some(character), None) } else { (None, Some(character.escape_unicode())) };
    shown.into_iter().chain(escaped.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_long_texts_cut() {
        assert_eq!(shown("naïve/キー 1"), "naïve/キー 1");
        assert_eq!(shown("a\u{1b}[31m\n\u{202e}"), "a\\u{1b}[31m\\u{a}\\u{202e}");
        assert!(shown(&"x".repeat(10_000)).chars().count() <= SHOWN_MAX + 1);
    }
}
