//! Why a file is refused, or could not be written.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum PortableError {
    #[error("the file is not an exported snapshot")]
    NotAnExport,
    #[error("the file is encrypted with age, and no key to decrypt it was given")]
    Encrypted,
    #[error("the file has format version {found}; this version of Burrow reads versions up to {known}")]
    TooNew { found: u32, known: u32 },
    #[error("the file requires the feature `{feature}`, which this version of Burrow does not support")]
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
    #[error("could not create `{path}`")]
    Place { path: String, source: io::Error },
    #[error("could not compress the data")]
    Compress { source: io::Error },
    #[error("could not start a thread")]
    Thread { source: io::Error },
    #[error("not the key of an exporting host: expected `burrow-export+…`")]
    KeyForm,
    #[error("could not {step} the key for exports at `{path}`")]
    KeyFile { step: &'static str, path: String, source: io::Error },
}

impl PortableError {
    /// How the user can resolve the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooNew { .. } | Self::UnknownFeature { .. } => {
                Some("it was created by a newer version of Burrow: upgrade this one")
            }
            Self::Truncated | Self::Damaged { .. } => {
                Some("it was truncated or changed in transit: copy it again, or export it again")
            }
            Self::Refused { .. } | Self::Entry { .. } => {
                Some("Burrow never writes such a file: do not trust its source")
            }
            Self::TooLarge { .. } => {
                Some("the limit protects this host; raise it with `moving.*` in the configuration")
            }
            Self::Unexportable { .. } => Some("remove or rename it, take a new snapshot, and export that"),
            Self::Read { .. }
            | Self::NotAnExport
            | Self::Encrypted
            | Self::KeyForm
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

/// Part of an untrusted name for a message: printable and short.
pub(crate) fn shown(name: &[u8]) -> String {
    const CHARACTERS_MAX: usize = 120;
    let text = String::from_utf8_lossy(name);
    let mut shown: String = text.chars().take(CHARACTERS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARACTERS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
