//! The errors of the vault. No variant contains a secret.

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
    #[error("the vault's key file `{}` holds no key, or more than {max}", .path.display())]
    KeyFileCount { path: PathBuf, max: usize },
    #[error("the key `{key}`, with which a secret was sealed, is not available")]
    UnknownKey { key: String },
    /// It was sealed under another label or with another key, or was modified.
    #[error("could not decrypt the value sealed as {label}")]
    Forged { label: String },
    #[error("could not parse the value sealed as {label}")]
    Damaged { label: String },
    #[error("could not run `{} {verb}`", .program.display())]
    Command { program: PathBuf, verb: &'static str, source: io::Error },
    #[error("`{} {verb}` {problem}", .program.display())]
    CommandFailed { program: PathBuf, verb: &'static str, problem: &'static str },
    #[error("the system provides no random bytes")]
    Random,
    #[error("could not create a certificate authority")]
    Authority { source: rcgen::Error },
    #[error("a client certificate consists of a certificate chain and one private key, in PEM")]
    ClientCertificate,
}

impl VaultError {
    /// A hint for the operator.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::KeyFileOpen { .. } => Some("`chmod 600` it; if others may have read it, renew the key too"),
            Self::KeyFile { .. } | Self::KeyFileLine { .. } | Self::KeyFileCount { .. } => {
                Some("restore the key file from your copy")
            }
            Self::UnknownKey { .. } | Self::Forged { .. } => Some(
                "restore the key file that belongs to this catalog, or set the secret again; see docs/secrets.md",
            ),
            Self::Command { .. } | Self::CommandFailed { .. } => {
                Some("run the command of `secrets.sealer_command` manually to find the cause")
            }
            Self::ClientCertificate => {
                Some("put the chain and the key into one file: `cat chain.pem key.pem`")
            }
            Self::Damaged { .. } | Self::Random | Self::Authority { .. } => None,
        }
    }
}
