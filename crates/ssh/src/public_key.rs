//! Public keys as people give them, and the names that people log in by.

use russh::keys::{Algorithm, HashAlg, PublicKey};

/// Longer than any key of the kinds that are taken, with its comment.
const LINE_BYTES_MAX: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPublicKey {
    #[error("this is a private key")]
    Private,
    #[error("this is no public key of one line, like `ssh-ed25519 AAAA… comment`")]
    Shape,
    #[error("keys of the kind `{kind}` are not taken")]
    Kind { kind: String },
}

impl BadPublicKey {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Private => "give the file that ends in `.pub`, and keep this one to yourself",
            Self::Shape => "give the content of a file like `~/.ssh/id_ed25519.pub`",
            Self::Kind { .. } => "`ssh-keygen -t ed25519` makes one that is",
        }
    }
}

/// A key that may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// `ssh-ed25519 AAAA…`, without its comment.
    pub key: String,
    /// `SHA256:…`.
    pub fingerprint: String,
    /// What its line said behind the key; mostly whose it is.
    pub comment: String,
}

impl Login {
    /// From one line of a `.pub` file. Options in front of a key, as `authorized_keys` has them, are refused with it: they would
    /// not be obeyed.
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
        let taken = matches!(
            algorithm,
            Algorithm::Ed25519
                | Algorithm::Ecdsa { .. }
                | Algorithm::SkEd25519
                | Algorithm::SkEcdsaSha2NistP256
        );
        if !taken {
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
    fn a_line_of_a_public_key_is_read_with_its_comment() {
        let login = Login::parse(&format!("  {KEY} ada@example \n")).unwrap();
        assert_eq!(login.key, KEY);
        assert_eq!(login.comment, "ada@example");
        assert!(login.fingerprint.starts_with("SHA256:"), "{login:?}");
        assert_eq!(Login::parse(KEY).unwrap().fingerprint, login.fingerprint);
    }

    #[test]
    fn what_is_no_key_is_refused_and_a_private_one_with_a_warning() {
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
