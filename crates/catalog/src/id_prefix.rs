//! Prefixes of ids, which users type in place of ids.

/// How many candidates an error about an ambiguous prefix lists: enough to see how the ids differ.
pub(crate) const CANDIDATES_MAX: usize = 5;

/// The shortest prefix of an id without its three letters: a shorter one is more likely a mistyped name.
const BARE_PREFIX_MIN: usize = 4;

/// The prefixes of ids of one kind that a text may stand for.
pub(crate) fn prefixes(text: &str, kind: &str) -> Vec<String> {
    // A text that cannot be a prefix of an id is not searched for; it would only cause a scan.
    if text.len() > 23 || !text.bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b)) {
        return Vec::new();
    }
    let mut prefixes = Vec::new();
    if text.len() > kind.len() && text.starts_with(kind) {
        prefixes.push(text.to_owned());
    }
    if text.len() >= BARE_PREFIX_MIN {
        prefixes.push(format!("{kind}{text}"));
    }
    prefixes
}
