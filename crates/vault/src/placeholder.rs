//! Placeholders: random tokens that SDKs accept as keys, with a mark that identifies them as placeholders.

use burrow_model::{PLACEHOLDER_MARK, PlaceholderSpec};

use crate::VaultError;

/// With the mark, as long as common tokens, and far too long to guess.
const RANDOM_CHARS: usize = 36;

const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Creates a unique placeholder.
pub fn placeholder(spec: &PlaceholderSpec) -> Result<String, VaultError> {
    let mut text = format!("{}{PLACEHOLDER_MARK}", spec.prefix);
    let length = text.len() + RANDOM_CHARS;
    let mut drawn = [0; 2 * RANDOM_CHARS];
    while text.len() < length {
        getrandom::fill(&mut drawn).map_err(|_| VaultError::Random)?;
        let missing = length - text.len();
        // Bytes above the last multiple of 62 would make some characters more frequent than others.
        let fair = drawn.iter().filter(|byte| **byte < 248).take(missing);
        text.extend(fair.map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_has_the_declared_shape_and_is_unique() {
        let spec = PlaceholderSpec { env: "OPENAI_API_KEY".to_owned(), prefix: "sk-".to_owned() };
        let (one, two) = (placeholder(&spec).unwrap(), placeholder(&spec).unwrap());
        assert_ne!(one, two);
        let random = one.strip_prefix("sk-").unwrap().strip_prefix(PLACEHOLDER_MARK).unwrap();
        assert_eq!(random.len(), RANDOM_CHARS);
        assert!(random.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{one}");
    }
}
