//! What can go wrong between a program and the daemon, with what to do about it.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use burrow_api::{ErrorCode, ErrorDetail};
use http::{Method, StatusCode};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("`{url}` is not an http or https address: {reason}")]
    BadUrl { url: String, reason: &'static str },
    #[error("the API key holds characters that no header can carry")]
    BadKey,
    #[error("could not read the certificates of `{}`", .path.display())]
    CaFile { path: PathBuf, source: rustls_pki_types::pem::Error },
    #[error("`{}` holds no certificate", .path.display())]
    CaEmpty { path: PathBuf },
    #[error("could not use a certificate of `{}`", .path.display())]
    CaCertificate { path: PathBuf, source: rustls::Error },
    #[error("could not set up TLS")]
    Tls { source: rustls::Error },
    #[error("could not reach the daemon at `{url}`")]
    Connect { url: String, source: Box<dyn Error + Send + Sync> },
    #[error("the connection broke during {method} `{path}`")]
    Broken { method: Method, path: String, source: Box<dyn Error + Send + Sync> },
    #[error("{}", .detail.message)]
    Server { status: StatusCode, detail: ErrorDetail },
    #[error("{method} `{path}` was answered with {status}, and not by a Burrow daemon: `{text}`")]
    NotBurrow { method: Method, path: String, status: StatusCode, text: String },
    #[error("could not understand the answer to {method} `{path}`")]
    Decode { method: Method, path: String, source: serde_json::Error },
    #[error("the answer to {method} `{path}` is larger than {max} bytes")]
    AnswerTooLarge { method: Method, path: String, max: usize },
    #[error("could not encode the request to `{path}`")]
    Encode { path: String, source: serde_json::Error },
    #[error("the {what} given for `{path}` holds characters that no header can carry")]
    BadHeader { path: String, what: &'static str },
    #[error("could not write to the local side")]
    Local { source: io::Error },
    #[error("lost exec `{exec}` of sandbox `{sandbox}` and could not attach again in {attempts} attempts")]
    AttachLost { sandbox: String, exec: String, attempts: u32, source: Box<ClientError> },
    #[error("the stream of `{path}` broke")]
    Stream { path: String, source: Box<dyn Error + Send + Sync> },
    #[error("the stream of `{path}` ended before it was complete")]
    Truncated { path: String },
}

impl ClientError {
    /// What the daemon said within a stream, as if it had been the answer.
    pub(crate) fn refused(detail: ErrorDetail) -> Self {
        let status = StatusCode::from_u16(detail.code.status()).expect("our codes have statuses in range");
        Self::Server { status, detail }
    }

    /// What to do about it, for people.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Server { detail, .. } => return detail.hint.clone().or_else(|| code_hint(detail.code)),
            Self::Connect { url, source } => return Some(connect_hint(url, &source.to_string())),
            Self::AttachLost { exec, source, .. } => {
                return source
                    .hint()
                    .or_else(|| Some(format!("when the daemon is back: `burrow attach {exec}`")));
            }
            Self::BadUrl { .. } => "give the address as `http://host:7700` or `https://host:7700`",
            Self::BadKey => "a key looks like `e2b_` and 40 hexadecimal digits",
            Self::CaFile { .. } | Self::CaEmpty { .. } | Self::CaCertificate { .. } => {
                "give a PEM file with the certificate of the CA"
            }
            Self::NotBurrow { .. } => "check the address: something else seems to listen there",
            Self::Decode { .. } => {
                "client and daemon may be of different versions: compare with `burrow version`"
            }
            Self::Broken { source, .. } if source.to_string().contains("HTTP version") => {
                "does the daemon speak TLS? then its address begins with `https://`"
            }
            Self::Broken { .. } | Self::Stream { .. } | Self::Truncated { .. } => {
                "if the daemon was restarted, try again; its log says more"
            }
            Self::Tls { .. }
            | Self::AnswerTooLarge { .. }
            | Self::Encode { .. }
            | Self::BadHeader { .. }
            | Self::Local { .. } => return None,
        };
        Some(text.to_owned())
    }

    /// The daemon's own code, when it was the daemon that refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Server { detail, .. } => Some(detail.code),
            Self::AttachLost { source, .. } => source.code(),
            Self::BadUrl { .. }
            | Self::BadKey
            | Self::CaFile { .. }
            | Self::CaEmpty { .. }
            | Self::CaCertificate { .. }
            | Self::Tls { .. }
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

    /// The sandbox was put to sleep under a stream; what ran in it is kept, and the next use wakes it.
    pub fn is_asleep(&self) -> bool {
        self.code() == Some(ErrorCode::SandboxAsleep)
    }

    /// Nobody answered at the address at all.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect { .. })
    }

    /// A fault of the path between us and the daemon, which may mend itself: a dropped connection, a restart.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Broken { .. } | Self::Stream { .. } | Self::Truncated { .. } => true,
            Self::Server { detail, .. } => {
                matches!(detail.code, ErrorCode::Busy | ErrorCode::GuestUnreachable | ErrorCode::Internal)
            }
            // A proxy in front of a daemon that restarts.
            Self::NotBurrow { status, .. } => matches!(status.as_u16(), 502..=504),
            Self::BadUrl { .. }
            | Self::BadKey
            | Self::CaFile { .. }
            | Self::CaEmpty { .. }
            | Self::CaCertificate { .. }
            | Self::Tls { .. }
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
        return "trust the CA that signed it with --ca-file FILE (BURROW_CA_FILE), or use the name it was made for".to_owned();
    }
    // What a TLS client makes of a plain answer.
    if cause.contains("corrupt message") {
        return "does the daemon speak plain HTTP? then its address begins with `http://`".to_owned();
    }
    let local = ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| url.contains(host));
    if local {
        "is the daemon running? try `burrow up`".to_owned()
    } else {
        "is the daemon running there, and is BURROW_URL right?".to_owned()
    }
}

/// For the few codes whose remedy is on the client's side.
fn code_hint(code: ErrorCode) -> Option<String> {
    let text = match code {
        ErrorCode::Unauthorized => "set BURROW_API_KEY, or pass --key",
        ErrorCode::Forbidden => "use a key with a wider scope: `burrow key create NAME --scope admin`",
        ErrorCode::NoSuchRoute => {
            "client and daemon may be of different versions: compare with `burrow version`"
        }
        ErrorCode::SandboxAsleep => "whoever uses the sandbox again wakes it: `burrow attach SANDBOX`",
        ErrorCode::RestoreFailed => "boot it from its files instead: `burrow start --files-only SANDBOX`",
        ErrorCode::NotDumpable => {
            "end those processes first; snapshots and forks can leave all processes out with --files-only"
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
