//! Parses public keys.

use russh::keys::{Algorithm, HashAlg, PublicKey};

/// Longer than any key of the supported types, with its comment.
const LINE_BYTES_MAX: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPublicKey {
    #[error("this is a private key")]
    Private,
    #[error("not a public key in one line, like `ssh-ed25519 AAAA… comment`")]
    Shape,
    #[error("unsupported key type `{kind}`")]
    Kind { kind: String },
}

impl BadPublicKey {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Private => "use the file that ends in `.pub`, and keep the private key secret",
            Self::Shape => "use the content of a file like `~/.ssh/id_ed25519.pub`",
            Self::Kind { .. } => "`ssh-keygen -t ed25519` creates a supported key",
        }
    }
}

/// A public key that may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// `ssh-ed25519 AAAA…`, without its comment.
    pub key: String,
    /// `SHA256:…`.
    pub fingerprint: String,
    /// The text behind the key in its line, usually its owner.
    pub comment: String,
}

impl Login {
    /// Parses one line of a `.pub` file. A line with options in front of the key, as in `authorized_keys`, is refused, because the
    /// options would have no effect.
    pub fn parse(text: &str) -> Result<Self, BadPublicKey> {
        if text.contains("PRIVATE KEY") {
            return Err(BadPublicKey::Private);
        }
        let line = text.trim();
        if line.len() > LINE_BYTES_MAX || line.contains(['\n', '\r', '\0']) {
            return Err(BadPublicKey::Shape);
        }
        let kind = line.split_ascii_whitespace().next().unwrap_or_default();
        let mut key = match PublicKey::from_openssh(line) {
            Ok(key) => key,
            Err(_) if kind.starts_with("ssh-") && line.contains(" AAAA") => {
                return Err(BadPublicKey::Kind { kind: kind.to_owned() });
            }
            Err(_) => return Err(BadPublicKey::Shape),
        };
        let algorithm = key.algorithm();
        let supported = matches!(
            algorithm,
            Algorithm::Ed25519
                | Algorithm::Ecdsa { .. }
                | Algorithm::SkEd25519
                | Algorithm::SkEcdsaSha2NistP256
        );
        if !supported {
            return Err(BadPublicKey::Kind { kind: algorithm.to_string() });
        }
        let comment = key.comment().as_str_lossy().chars().filter(|c| !c.is_control()).take(100).collect();
        key.set_comment("");
        let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        let line = key.to_openssh().map_err(|_| BadPublicKey::Shape)?;
        Ok(Self { key: line.trim_end().to_owned(), fingerprint, comment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJSSPYWtpqWyvKa3MkTUudIN6Z6RPRoGTsp+N+4E9nQ5";

    #[test]
    fn a_public_key_line_is_parsed_with_its_comment() {
        let login = Login::parse(&format!("  {KEY} ada@example \n")).unwrap();
        assert_eq!(login.key, KEY);
        assert_eq!(login.comment, "ada@example");
        assert!(login.fingerprint.starts_with("SHA256:"), "{login:?}");
        assert_eq!(Login::parse(KEY).unwrap().fingerprint, login.fingerprint);
    }

    #[test]
    fn malformed_and_private_keys_are_refused() {
        for (text, expected) in [
            ("", BadPublicKey::Shape),
            ("hello", BadPublicKey::Shape),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\nx", BadPublicKey::Private),
            (&format!("{KEY}\n{KEY}"), BadPublicKey::Shape),
            (&format!("command=\"x\" {KEY}"), BadPublicKey::Shape),
            (&format!("{KEY} {}", "x".repeat(3000)), BadPublicKey::Shape),
            ("ssh-dss AAAAB3NzaC1kc3MAAACBAJ", BadPublicKey::Kind { kind: "ssh-dss".to_owned() }),
        ] {
            assert_eq!(Login::parse(text), Err(expected), "{text}");
        }
    }
}
