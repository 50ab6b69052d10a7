//! Callers' texts in messages.

/// A caller's text, bounded and printable, for messages.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}
