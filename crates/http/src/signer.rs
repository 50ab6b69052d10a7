//! Signed links: which port may be opened until when, in a text that only this daemon can create.
//!
//! ```text
//!   sbx….8080.1767225600000.key….<HMAC-SHA256 of all before it, base64url>
//! ```
//!
//! Only the signature is secret. A link is bound to the key that requested it, and becomes invalid with that key.

use std::fmt::{self, Display};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use burrow_model::{KeyId, SandboxId};
use ring::hmac;

/// Separates these signatures from those for other purposes.
const PURPOSE: &[u8] = b"burrow port link v1\n";

/// Makes tokens recognisable anywhere.
pub const TOKEN_PREFIX: &str = "bst_";

/// Longer than the text of any link.
const TEXT_BYTES_MAX: usize = 256;

/// The contents of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub sandbox: SandboxId,
    pub port: u16,
    pub expires_ms: u64,
    /// The key that requested it.
    pub key: KeyId,
}

#[derive(Clone)]
pub struct Signer(hmac::Key);

impl Signer {
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub fn sign(&self, claim: &Claim) -> String {
        let Claim { sandbox, port, expires_ms, key } = claim;
        let words = format!("{sandbox}.{port}.{expires_ms}.{key}");
        let signature = hmac::sign(&self.0, &signed(&words));
        format!("{words}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The token for a sandbox or a volume and one purpose, valid as long as this secret and its generation.
    pub fn token(&self, purpose: &str, id: &impl Display, generation: u64) -> String {
        let words = match generation {
            // The format before generations existed, so that older tokens stay valid.
            0 => format!("{purpose}\n{id}"),
            _ => format!("{purpose}\n{id}\n{generation}"),
        };
        let signature = hmac::sign(&self.0, words.as_bytes());
        format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The contents of a text that we signed; the caller checks whether it is still valid.
    pub fn read(&self, text: &str) -> Option<Claim> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (words, signature) = text.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // Compares in constant time.
        hmac::verify(&self.0, &signed(words), &signature).ok()?;
        let mut words = words.split('.');
        let claim = Claim {
            sandbox: words.next()?.parse().ok()?,
            port: words.next()?.parse().ok()?,
            expires_ms: words.next()?.parse().ok()?,
            key: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(claim)
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(***)")
    }
}

fn signed(words: &str) -> Vec<u8> {
    [PURPOSE, words.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        Claim { sandbox: SandboxId::generate(), port: 8080, expires_ms: 17, key: KeyId::generate() }
    }

    #[test]
    fn a_link_survives_encoding_and_is_url_safe() {
        let (signer, claim) = (Signer::new(&[7; 32]), claim());
        let text = signer.sign(&claim);
        assert_eq!(signer.read(&text), Some(claim));
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)), "{text}");
        assert!(text.len() <= TEXT_BYTES_MAX);
    }

    #[test]
    fn modified_links_are_invalid() {
        let (signer, claim) = (Signer::new(&[7; 32]), claim());
        let text = signer.sign(&claim);
        assert_eq!(Signer::new(&[8; 32]).read(&text), None, "another daemon's");
        let longer = Claim { expires_ms: 171, ..claim.clone() };
        let swapped = text.replacen(".17.", ".171.", 1);
        assert_ne!(swapped, signer.sign(&longer));
        for bad in [
            swapped,
            text.replacen(".8080.", ".8081.", 1),
            text[..text.len() - 1].to_owned(),
            format!("{text}A"),
            format!("{text}="),
            text.replace('.', ""),
            String::new(),
            ".".repeat(300),
        ] {
            assert_eq!(signer.read(&bad), None, "{bad}");
        }
        // Changing any single character invalidates it.
        for index in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[index] = if bytes[index] == b'a' { b'b' } else { b'a' };
            assert_eq!(signer.read(std::str::from_utf8(&bytes).unwrap()), None, "{index}");
        }
    }
}
