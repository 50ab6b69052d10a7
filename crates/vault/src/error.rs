//! What can go wrong with secrets. No variant holds one.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("could not {step} the vault's key file `{}`", .path.display())]
    KeyFile { step: &'static str, path: PathBuf, source: io::Error },
    #[error("the vault's key file `{}` can be read by others: its mode is {mode:03o}", .path.display())]
    KeyFileOpen { path: PathBuf, mode: u32 },
    #[error("line {line} of the vault's key file `{}` is not 32 bytes in base64", .path.display())]
    KeyFileLine { path: PathBuf, line: usize },
    #[error("the vault's key file `{}` holds no key, or more than {}", .path.display(), crate::KEY_FILE_KEYS_MAX)]
    KeyFileCount { path: PathBuf },
    #[error("there is no key `{key}`, by which something was sealed")]
    UnknownKey { key: String },
    /// It was sealed as something else, by another key, or changed since.
    #[error("what was sealed as {label} does not open")]
    Forged { label: String },
    #[error("could not understand what was sealed as {label}")]
    Damaged { label: String },
    #[error("could not run `{} {verb}`", .program.display())]
    Command { program: PathBuf, verb: &'static str, source: io::Error },
    #[error("`{} {verb}` {problem}", .program.display())]
    CommandFailed { program: PathBuf, verb: &'static str, problem: &'static str },
    #[error("the system gives no random bytes")]
    Random,
    #[error("could not make a certificate authority")]
    Authority { source: rcgen::Error },
    #[error("a client certificate is a chain of certificates and one private key, in PEM")]
    ClientCertificate,
}

impl VaultError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::KeyFileOpen { .. } => Some("`chmod 600` it; if others may have read it, renew the key too"),
            Self::KeyFile { .. } | Self::KeyFileLine { .. } | Self::KeyFileCount { .. } => {
                Some("put the key file back from where you keep a copy of it")
            }
            Self::UnknownKey { .. } | Self::Forged { .. } => Some(
                "put back the key file that belongs to this catalog, or set the secret again; see docs/secrets.md",
            ),
            Self::Command { .. } | Self::CommandFailed { .. } => {
                Some("run the command of `secrets.sealer_command` by hand to see what it lacks")
            }
            Self::ClientCertificate => {
                Some("join the chain and the key into one file: `cat chain.pem key.pem`")
            }
            Self::Damaged { .. } | Self::Random | Self::Authority { .. } => None,
        }
    }
}
