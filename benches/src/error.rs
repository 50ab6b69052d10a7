//! Errors of the measurement.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use burrow_client::ClientError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("could not {step} `{what}`")]
    Io { step: &'static str, what: String, source: io::Error },
    #[error("could not {step} through the API")]
    Api { step: &'static str, source: ClientError },
    #[error("`{command}` ended with {status}: {message}")]
    Command { command: String, status: ExitStatus, message: String },
    #[error("the daemon {what}; the end of its log:\n{log}")]
    Daemon { what: String, log: String },
    #[error("the pool `{}` has no image: prepare it with `scripts/test-pool.sh up`", .pool.display())]
    NoImage { pool: PathBuf },
    #[error("the measured answer was wrong: {what}")]
    WrongAnswer { what: String },
    #[error("the owner or mode of `/dev/null` changed to {found}; it was put right again")]
    NullDevice { found: String },
    #[error("the thread that runs `crun` is gone")]
    PeerGone,
    #[error("left behind: {what}")]
    LeftBehind { what: String },
    #[error("could not encode the report")]
    Encode { source: serde_json::Error },
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// For `map_err`.
    pub(crate) fn io(step: &'static str, what: impl ToString) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Io { step, what, source }
    }

    /// For `map_err`.
    pub(crate) fn api(step: &'static str) -> impl FnOnce(ClientError) -> Self {
        move |source| Self::Api { step, source }
    }
}

/// The error with all its causes, on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let _ = write!(text, ": {next}");
        cause = next.source();
    }
    text
}
