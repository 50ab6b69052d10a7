//! Text of others in messages: bounded and printable, so that a hostile name cannot fill a log or a terminal.

/// Characters shown at most.
const SHOWN_MAX: usize = 80;

pub(crate) fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(SHOWN_MAX).flat_map(escaped).collect();
    if text.chars().count() > SHOWN_MAX {
        cut.push('…');
    }
    cut
}

/// Letters of any script stay as they are; what moves a cursor or hides text does not.
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
    fn what_could_harm_a_terminal_is_escaped_and_what_is_long_is_cut() {
        assert_eq!(shown("naïve/キー 1"), "naïve/キー 1");
        assert_eq!(shown("a\u{1b}[31m\n\u{202e}"), "a\\u{1b}[31m\\u{a}\\u{202e}");
        assert!(shown(&"x".repeat(10_000)).chars().count() <= SHOWN_MAX + 1);
    }
}
