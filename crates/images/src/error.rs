//! The errors of this crate, and hints on how to resolve them.

use std::io;
use std::path::PathBuf;

use burrow_dial::TlsSetupError;

use crate::{DiffId, Digest};

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("`{text}` is not an image reference: {reason}")]
    Reference { text: String, reason: &'static str },
    #[error("`{text}` is not a sha256 digest")]
    Digest { text: String },

    #[error("could not read the {document} of `{of}`")]
    Json { document: &'static str, of: String, source: serde_json::Error },
    #[error("the {document} of `{of}` is refused: {reason}")]
    Document { document: &'static str, of: String, reason: &'static str },
    #[error("`{of}` has a manifest of schema 1 (Docker before 1.10), which is not supported")]
    SchemaOne { of: String },
    #[error("`{of}` has the media type `{media_type}`, which is not an image")]
    MediaType { of: String, media_type: String },
    #[error("`{of}` has no variant for {wanted}; it has {offered}")]
    Platform { of: String, wanted: String, offered: String },
    #[error("`{what}` has the digest {found} instead of {expected}")]
    Mismatch { what: String, expected: Digest, found: Digest },
    #[error("`{what}` has {found} bytes instead of {expected}")]
    Size { what: String, expected: u64, found: u64 },
    #[error("`{what}` has more than {limit} {unit}")]
    TooLarge { what: String, limit: u64, unit: &'static str },

    #[error("could not reach `{host}`")]
    Connect { host: String, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    #[error("could not fetch `{url}`")]
    Transfer { url: String, source: io::Error },
    #[error("`{url}` answered {status}{message}")]
    Status { url: String, status: u16, message: String },
    #[error("`{reference}` does not exist in the registry")]
    NotFound { reference: String },
    #[error("the registry `{registry}` denies {who} access to `{repository}`")]
    Denied { registry: String, repository: String, who: String },
    #[error(
        "the registry `{registry}` requires a kind of authentication that is not supported: `{challenge}`"
    )]
    Challenge { registry: String, challenge: String },
    #[error("`{from}` redirects to `{to}`, which is refused: {reason}")]
    Redirect { from: String, to: String, reason: &'static str },
    #[error("could not parse the credentials in `{}`: {reason}", .path.display())]
    Credentials { path: PathBuf, reason: &'static str },

    #[error("`{}` is not an image: {reason}", .path.display())]
    NotAnImage { path: PathBuf, reason: &'static str },
    #[error("could not {step} `{what}`")]
    Io { step: &'static str, what: String, source: io::Error },

    #[error("the layer is refused at `{path}`: {reason}")]
    Entry { path: String, reason: &'static str },
    #[error("the layer is refused: {reason}")]
    Stream { reason: &'static str },
    #[error("the layer is refused at `{path}`: its owner id {id} is not below {limit}")]
    Owner { path: String, id: u64, limit: u32 },
    #[error("the layer has the digest {found} instead of {expected}")]
    DiffId { expected: DiffId, found: DiffId },
    #[error("could not write `{path}` of the image")]
    Place { path: String, source: io::Error },
    #[error("could not pack `{path}`")]
    Pack { path: String, source: io::Error },
    #[error("could not pack `{path}`: {reason}")]
    Unpackable { path: String, reason: &'static str },
    #[error("the operation was cancelled")]
    Cancelled,

    #[error("the build file is refused{}: {reason}", at_line(*.line))]
    Recipe { line: Option<usize>, reason: String },
    #[error("Dockerfile:{line}: {reason}")]
    Dockerfile { line: usize, reason: String },
}

impl ImageError {
    /// A hint on how to resolve the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Reference { .. } => Some(
                "write it like `python:3.12`, `registry.example.com/org/app:tag` or `host:5000/app@sha256:...`",
            ),
            Self::Digest { .. } => Some("a digest is `sha256:` and 64 hexadecimal digits in lower case"),
            Self::SchemaOne { .. } => {
                Some("push the image again with a current tool, or convert it with skopeo")
            }
            Self::MediaType { .. } => {
                Some("check the name: it may be a chart, a signature or another artifact")
            }
            Self::Platform { .. } => Some("build the image for this platform, or use another image"),
            Self::Mismatch { .. } | Self::Size { .. } | Self::DiffId { .. } => Some(
                "the copy is damaged or was modified in transit: fetch it again, or contact the publisher of the image",
            ),
            Self::TooLarge { .. } => Some("the limit protects this host; use a smaller image"),
            Self::Connect { .. } => Some(
                "check the registry's name and this host's network; plain HTTP must be allowed explicitly",
            ),
            Self::Tls(_) => Some("the file must contain certificates in PEM format"),
            Self::Transfer { .. } => Some("try again; complete layers are not fetched again"),
            Self::Status { .. } => Some("see the log of the registry"),
            Self::NotFound { .. } => {
                Some("check name and tag; some registries also answer this to unauthenticated clients")
            }
            Self::Denied { .. } => Some("provide a user name and password, or a token, for this registry"),
            Self::Challenge { .. } => Some("only Basic and Bearer authentication are supported"),
            Self::Redirect { .. } => Some("the registry is configured wrongly, or not trustworthy"),
            Self::Credentials { .. } => {
                Some("use a file that `docker login` wrote; credential helpers are not run")
            }
            Self::NotAnImage { .. } => {
                Some("use an OCI archive, the output of `docker save`, or a tar of a root file system")
            }
            Self::Entry { .. } | Self::Stream { .. } => {
                Some("ordinary tools do not create such archives: do not trust its source")
            }
            Self::Owner { .. } => Some("change the owner when building the image, as with `chown -R 0:0`"),
            Self::Recipe { .. } => Some("see the reference of build files in the documentation"),
            Self::Dockerfile { .. } => Some("the documentation of images lists the supported instructions"),
            Self::Unpackable { .. } => Some("remove or rename the file, then try again"),
            Self::Json { .. }
            | Self::Document { .. }
            | Self::Io { .. }
            | Self::Place { .. }
            | Self::Pack { .. }
            | Self::Cancelled => None,
        }
    }

    /// An argument for `map_err`.
    pub(crate) fn io<E: Into<io::Error>>(step: &'static str, what: impl ToString) -> impl FnOnce(E) -> Self {
        let what = what.to_string();
        move |source| Self::Io { step, what, source: source.into() }
    }
}

fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" at line {line}"))
}

/// Untrusted input for a message: control characters are escaped, and it is cut to a line.
pub(crate) fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 120;
    let mut shown: String = text.chars().take(CHARACTERS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARACTERS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
