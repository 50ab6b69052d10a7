//! Why a file is refused, or could not be written.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum PortableError {
    #[error("this is no export of a snapshot")]
    NotAnExport,
    #[error("this is an age-encrypted file, and no key to open it was given")]
    Encrypted,
    #[error("the file has format {found}, and this version reads formats up to {known}")]
    TooNew { found: u32, known: u32 },
    #[error("the file needs `{feature}`, which this version does not know")]
    UnknownFeature { feature: String },
    #[error("the file ends too early")]
    Truncated,
    #[error("the file is damaged: {what}")]
    Damaged { what: String },
    #[error("the file is refused: {reason}")]
    Refused { reason: String },
    #[error("the file is refused at `{path}`: {reason}")]
    Entry { path: String, reason: &'static str },
    #[error("the file has more than {limit} {unit}")]
    TooLarge { limit: u64, unit: &'static str },
    #[error("`{path}` cannot be exported: {reason}")]
    Unexportable { path: String, reason: &'static str },
    #[error("could not read the file")]
    Read { source: io::Error },
    #[error("could not write the file")]
    Write { source: io::Error },
    #[error("could not read `{path}`")]
    Content { path: String, source: io::Error },
    #[error("could not put `{path}` in place")]
    Place { path: String, source: io::Error },
    #[error("could not compress")]
    Compress { source: io::Error },
    #[error("could not start a thread")]
    Thread { source: io::Error },
    #[error("this is no key of an exporting host (expected `burrow-export+…`)")]
    KeyForm,
    #[error("could not {step} the key for exports at `{path}`")]
    KeyFile { step: &'static str, path: String, source: io::Error },
}

impl PortableError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotAnExport => Some("`burrow export SNAPSHOT FILE` makes one"),
            Self::Encrypted => Some("give `--identity FILE` or `--passphrase-file FILE`"),
            Self::TooNew { .. } | Self::UnknownFeature { .. } => {
                Some("it was made by a newer burrow: upgrade this one")
            }
            Self::Truncated | Self::Damaged { .. } => {
                Some("it was cut off or changed on its way: copy it again, or export it anew")
            }
            Self::Refused { .. } | Self::Entry { .. } => {
                Some("burrow makes no such file: do not trust where it comes from")
            }
            Self::TooLarge { .. } => {
                Some("the limit protects this host; `moving.*` in the configuration raises it")
            }
            Self::Unexportable { .. } => Some("remove or rename it, take a new snapshot, and export that"),
            Self::KeyForm => Some("`burrow export` prints the key of the host that made a file"),
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Content { .. }
            | Self::Place { .. }
            | Self::Compress { .. }
            | Self::Thread { .. }
            | Self::KeyFile { .. } => None,
        }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into() }
    }
}

/// Part of a stranger's name for a message: printable and short.
pub(crate) fn shown(name: &[u8]) -> String {
    const CHARACTERS_MAX: usize = 120;
    let text = String::from_utf8_lossy(name);
    let mut shown: String = text.chars().take(CHARACTERS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARACTERS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
