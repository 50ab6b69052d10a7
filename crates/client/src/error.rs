//! Errors between a program and the daemon, with hints.

use std::error::Error;
use std::io;

use burrow_api::{ErrorCode, ErrorDetail};
use burrow_dial::TlsSetupError;
use http::{Method, StatusCode};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("`{url}` is not an http or https address: {reason}")]
    BadUrl { url: String, reason: &'static str },
    #[error("the API key contains characters that are not allowed in a header")]
    BadKey,
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    #[error("could not reach the daemon at `{url}`")]
    Connect { url: String, source: Box<dyn Error + Send + Sync> },
    #[error("the connection broke during {method} `{path}`")]
    Broken { method: Method, path: String, source: Box<dyn Error + Send + Sync> },
    #[error("{}", .detail.message)]
    Server { status: StatusCode, detail: ErrorDetail },
    #[error("the response to {method} `{path}` is not from a Burrow daemon: {status}, `{text}`")]
    NotBurrow { method: Method, path: String, status: StatusCode, text: String },
    #[error("could not parse the response to {method} `{path}`")]
    Decode { method: Method, path: String, source: serde_json::Error },
    #[error("the response to {method} `{path}` is larger than {max} bytes")]
    AnswerTooLarge { method: Method, path: String, max: usize },
    #[error("could not encode the request to `{path}`")]
    Encode { path: String, source: serde_json::Error },
    #[error("the {what} for `{path}` contains characters that are not allowed in a header")]
    BadHeader { path: String, what: &'static str },
    #[error("could not access the local stream")]
    Local { source: io::Error },
    #[error(
        "lost the connection to exec `{exec}` of sandbox `{sandbox}` and could not reattach in {attempts} attempts"
    )]
    AttachLost { sandbox: String, exec: String, attempts: u32, source: Box<ClientError> },
    #[error("the stream of `{path}` broke")]
    Stream { path: String, source: Box<dyn Error + Send + Sync> },
    #[error("the stream of `{path}` ended before it was complete")]
    Truncated { path: String },
}

impl ClientError {
    /// An error that the daemon sent within a stream, as if it were the response.
    pub(crate) fn refused(detail: ErrorDetail) -> Self {
        let status = StatusCode::from_u16(detail.code.status()).expect("our codes have statuses in range");
        Self::Server { status, detail }
    }

    /// What the user can do about the error.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Server { detail, .. } => return detail.hint.clone().or_else(|| code_hint(detail.code)),
            Self::Connect { url, source } => return Some(connect_hint(url, &source.to_string())),
            Self::AttachLost { exec, source, .. } => {
                return source
                    .hint()
                    .or_else(|| Some(format!("when the daemon runs again: `burrow attach {exec}`")));
            }
            Self::BadUrl { .. } => "give the address as `http://host:7700` or `https://host:7700`",
            Self::BadKey => "a key has the form `e2b_` followed by 40 hexadecimal digits",
            Self::Tls(TlsSetupError::Protocol { .. }) => return None,
            Self::Tls(_) => "use a PEM file with the certificate of the CA",
            Self::NotBurrow { .. } => "check the address: another program seems to listen there",
            Self::Decode { .. } => {
                "the client and the daemon may have different versions: compare them with `burrow version`"
            }
            Self::Broken { source, .. } if source.to_string().contains("HTTP version") => {
                "if the daemon uses TLS, its address begins with `https://`"
            }
            Self::Broken { .. } | Self::Stream { .. } | Self::Truncated { .. } => {
                "if the daemon was restarted, try again; see the daemon's log"
            }
            Self::AnswerTooLarge { .. }
            | Self::Encode { .. }
            | Self::BadHeader { .. }
            | Self::Local { .. } => return None,
        };
        Some(text.to_owned())
    }

    /// The error code of the daemon, if the error is a response of the daemon.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Server { detail, .. } => Some(detail.code),
            Self::AttachLost { source, .. } => source.code(),
            Self::BadUrl { .. }
            | Self::BadKey
            | Self::Tls(_)
            | Self::Connect { .. }
            | Self::Broken { .. }
            | Self::NotBurrow { .. }
            | Self::Decode { .. }
            | Self::AnswerTooLarge { .. }
            | Self::Encode { .. }
            | Self::BadHeader { .. }
            | Self::Local { .. }
            | Self::Stream { .. }
            | Self::Truncated { .. } => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == Some(ErrorCode::NotFound)
    }

    /// The sandbox was put to sleep during a stream; its processes are kept, and the next use wakes it.
    pub fn is_asleep(&self) -> bool {
        self.code() == Some(ErrorCode::SandboxAsleep)
    }

    /// No program listens at the address.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect { .. })
    }

    /// A temporary fault between the client and the daemon, such as a dropped connection or a restart.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Broken { .. } | Self::Stream { .. } | Self::Truncated { .. } => true,
            Self::Server { detail, .. } => {
                matches!(detail.code, ErrorCode::Busy | ErrorCode::GuestUnreachable | ErrorCode::Internal)
            }
            // A proxy in front of a daemon that is restarting.
            Self::NotBurrow { status, .. } => matches!(status.as_u16(), 502..=504),
            Self::BadUrl { .. }
            | Self::BadKey
            | Self::Tls(_)
            | Self::Decode { .. }
            | Self::AnswerTooLarge { .. }
            | Self::Encode { .. }
            | Self::BadHeader { .. }
            | Self::Local { .. }
            | Self::AttachLost { .. } => false,
        }
    }
}

fn connect_hint(url: &str, cause: &str) -> String {
    if cause.contains("certificate") {
        return "trust its CA with --ca-file FILE (BURROW_CA_FILE), or use the host name of the certificate"
            .to_owned();
    }
    // The error of a TLS client that receives plain HTTP.
    if cause.contains("corrupt message") {
        return "if the daemon uses plain HTTP, its address begins with `http://`".to_owned();
    }
    let local = ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| url.contains(host));
    if local {
        "is the daemon running? try `burrow up`".to_owned()
    } else {
        "is the daemon running there, and is BURROW_URL right?".to_owned()
    }
}

/// Hints for codes whose remedy is on the client's side.
fn code_hint(code: ErrorCode) -> Option<String> {
    let text = match code {
        ErrorCode::Unauthorized => "set BURROW_API_KEY, or pass --key",
        ErrorCode::Forbidden => "use a key with a wider scope: `burrow key create NAME --scope admin`",
        ErrorCode::NoSuchRoute => {
            "the client and the daemon may have different versions: compare them with `burrow version`"
        }
        ErrorCode::SandboxAsleep => "the next use wakes the sandbox: `burrow attach SANDBOX`",
        ErrorCode::RestoreFailed => "boot it from its files instead: `burrow start --files-only SANDBOX`",
        ErrorCode::NotDumpable => {
            "end those processes first; for snapshots and forks, --files-only leaves out all processes"
        }
        ErrorCode::InvalidRequest
        | ErrorCode::NotFound
        | ErrorCode::MethodNotAllowed
        | ErrorCode::Conflict
        | ErrorCode::NotRunning
        | ErrorCode::ExecEnded
        | ErrorCode::IdempotencyMismatch
        | ErrorCode::IdempotencyInFlight
        | ErrorCode::TooLarge
        | ErrorCode::UnsupportedMediaType
        | ErrorCode::RangeNotSatisfiable
        | ErrorCode::Unprocessable
        | ErrorCode::NoSuchProgram
        | ErrorCode::CannotExecute
        | ErrorCode::TooMany
        | ErrorCode::Busy
        | ErrorCode::NoSpace
        | ErrorCode::GuestUnreachable
        | ErrorCode::PortClosed
        | ErrorCode::BadGateway
        | ErrorCode::GatewayTimeout
        | ErrorCode::SnapshotInUse
        | ErrorCode::Damaged
        | ErrorCode::Unsupported
        | ErrorCode::Internal => return None,
    };
    Some(text.to_owned())
}
