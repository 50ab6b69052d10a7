//! What can go wrong with an image, and what to do about it.

use std::io;
use std::path::PathBuf;

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
    #[error("`{of}` is in the format of Docker before 1.10 (manifest schema 1)")]
    SchemaOne { of: String },
    #[error("`{of}` is of the kind `{media_type}`, which is no image")]
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
    #[error("could not use the certificates in `{}`: {reason}", .path.display())]
    Certificates { path: PathBuf, reason: String },
    #[error("could not set up TLS")]
    Tls { source: rustls::Error },
    #[error("could not fetch `{url}`")]
    Transfer { url: String, source: io::Error },
    #[error("`{url}` answered {status}{message}")]
    Status { url: String, status: u16, message: String },
    #[error("`{reference}` does not exist in the registry")]
    NotFound { reference: String },
    #[error("the registry `{registry}` does not let {who} read `{repository}`")]
    Denied { registry: String, repository: String, who: String },
    #[error(
        "the registry `{registry}` asks for a kind of authentication that is not supported: `{challenge}`"
    )]
    Challenge { registry: String, challenge: String },
    #[error("`{from}` points to `{to}`, which is refused: {reason}")]
    Redirect { from: String, to: String, reason: &'static str },
    #[error("could not understand the credentials in `{}`: {reason}", .path.display())]
    Credentials { path: PathBuf, reason: &'static str },

    #[error("`{}` is not an image: {reason}", .path.display())]
    NotAnImage { path: PathBuf, reason: &'static str },
    #[error("could not {step} `{what}`")]
    Io { step: &'static str, what: String, source: io::Error },

    #[error("the layer is refused at `{path}`: {reason}")]
    Entry { path: String, reason: &'static str },
    #[error("the layer is refused: {reason}")]
    Stream { reason: &'static str },
    #[error("the layer is refused at `{path}`: its owner {id} is not below {limit}")]
    Owner { path: String, id: u64, limit: u32 },
    #[error("the layer has the digest {found} instead of {expected}")]
    DiffId { expected: DiffId, found: DiffId },
    #[error("could not write `{path}` of the image")]
    Place { path: String, source: io::Error },
    #[error("could not pack `{path}`")]
    Pack { path: String, source: io::Error },
    #[error("could not pack `{path}`: {reason}")]
    Unpackable { path: String, reason: &'static str },
    #[error("the work was cancelled")]
    Cancelled,

    #[error("the build file is refused{}: {reason}", at_line(*.line))]
    Recipe { line: Option<usize>, reason: String },
}

impl ImageError {
    /// What whoever sees this can do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Reference { .. } => Some(
                "write it like `python:3.12`, `registry.example.com/org/app:tag` or `host:5000/app@sha256:...`",
            ),
            Self::Digest { .. } => Some("a digest is `sha256:` and 64 hexadecimal digits in lower case"),
            Self::SchemaOne { .. } => {
                Some("push the image again with a current tool, or convert it by skopeo")
            }
            Self::MediaType { .. } => {
                Some("check the name: this may be a chart, a signature or another artefact")
            }
            Self::Platform { .. } => Some("build the image for this platform, or name another one"),
            Self::Mismatch { .. } | Self::Size { .. } | Self::DiffId { .. } => {
                Some("the copy is damaged or was changed on its way: fetch it again, or ask who made it")
            }
            Self::TooLarge { .. } => Some("the limit protects this host; a smaller image is needed"),
            Self::Connect { .. } => {
                Some("check the registry's name and this host's network; plain HTTP must be asked for")
            }
            Self::Certificates { .. } | Self::Tls { .. } => {
                Some("the file must hold certificates in PEM form")
            }
            Self::Transfer { .. } => Some("try again; what was fetched before is checked, never trusted"),
            Self::Status { .. } => Some("the registry's own log says more"),
            Self::NotFound { .. } => Some("check name and tag; some registries say this to strangers, too"),
            Self::Denied { .. } => Some("give a user name and password or token for this registry"),
            Self::Challenge { .. } => Some("only Basic and Bearer authentication are supported"),
            Self::Redirect { .. } => Some("the registry is configured wrongly, or not to be trusted"),
            Self::Credentials { .. } => {
                Some("`docker login` writes such a file; credential helpers are not run")
            }
            Self::NotAnImage { .. } => Some(
                "an OCI archive, the output of `docker save`, or a tar of a root file system is expected",
            ),
            Self::Entry { .. } | Self::Stream { .. } => {
                Some("no ordinary tool makes such an archive: do not trust where it comes from")
            }
            Self::Owner { .. } => Some("change the owner when building the image, as with `chown -R 0:0`"),
            Self::Recipe { .. } => Some("the manual lists what a build file may contain"),
            Self::Unpackable { .. } => Some("remove or rename the file, then try again"),
            Self::Json { .. }
            | Self::Document { .. }
            | Self::Io { .. }
            | Self::Place { .. }
            | Self::Pack { .. }
            | Self::Cancelled => None,
        }
    }

    /// For `map_err`.
    pub(crate) fn io<E: Into<io::Error>>(step: &'static str, what: impl ToString) -> impl FnOnce(E) -> Self {
        let what = what.to_string();
        move |source| Self::Io { step, what, source: source.into() }
    }
}

fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" at line {line}"))
}

/// Input that goes into a message: control characters escaped, and not more of it than a line.
pub(crate) fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 120;
    let mut shown: String = text.chars().take(CHARACTERS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARACTERS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
