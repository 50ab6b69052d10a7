//! Errors as clients see them: a stable code, what failed, and what to do.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of every error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    pub code: ErrorCode,
    /// What failed, and on what.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Stable: codes are only added. Each has one HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The body, a query parameter or a header is invalid.
    InvalidRequest,
    /// No key, or one that is unknown, expired or revoked.
    Unauthorized,
    /// The key's scope does not permit this.
    Forbidden,
    /// The object does not exist, or belongs to another tenant.
    NotFound,
    /// The route does not exist.
    NoSuchRoute,
    MethodNotAllowed,
    /// The name is taken, a directory is not empty, or the file exists.
    Conflict,
    /// The sandbox is stopped, failed or being deleted.
    NotRunning,
    /// The exec has ended.
    ExecEnded,
    /// The same `Idempotency-Key` was used with another body.
    IdempotencyMismatch,
    /// A request with the same `Idempotency-Key` is still in progress.
    IdempotencyInFlight,
    /// A body, a path, a frame or a listing exceeds its limit.
    TooLarge,
    UnsupportedMediaType,
    /// The byte range is outside of the file.
    RangeNotSatisfiable,
    /// An unknown user, or a path of the wrong kind.
    Unprocessable,
    /// The program does not exist in the sandbox.
    NoSuchProgram,
    /// The program cannot be executed.
    CannotExecute,
    /// A limit of the sandbox is reached: execs, terminals, watches.
    TooMany,
    /// Too many requests at once.
    Busy,
    /// The disk, the quota or the pool is full.
    NoSpace,
    /// The guest agent does not respond.
    GuestUnreachable,
    /// No process listens on that port of the sandbox.
    PortClosed,
    /// The process that listens on that port closed the connection, or does not speak HTTP.
    BadGateway,
    /// The process that listens on that port took too long to respond.
    GatewayTimeout,
    /// Its processes cannot be dumped; the message names them and the reason.
    NotDumpable,
    /// The processes of a snapshot or a hibernated sandbox could not be restored. The stored data is unchanged.
    RestoreFailed,
    /// The sandbox was put to sleep while this stream was open. The next request wakes it.
    SandboxAsleep,
    /// The snapshot is in use.
    SnapshotInUse,
    /// The stored data is corrupt: it differs from what was written, and is not used.
    Damaged,
    /// This host or driver does not support it.
    Unsupported,
    /// An internal error; the daemon's log has details.
    Internal,
}

impl ErrorCode {
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound | Self::NoSuchRoute => 404,
            Self::MethodNotAllowed => 405,
            Self::Conflict
            | Self::NotRunning
            | Self::ExecEnded
            | Self::IdempotencyInFlight
            | Self::NotDumpable
            | Self::RestoreFailed
            | Self::SandboxAsleep
            | Self::SnapshotInUse => 409,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::RangeNotSatisfiable => 416,
            Self::Unprocessable
            | Self::NoSuchProgram
            | Self::CannotExecute
            | Self::IdempotencyMismatch
            | Self::Damaged
            | Self::Unsupported => 422,
            Self::TooMany | Self::Busy => 429,
            Self::NoSpace => 507,
            Self::GuestUnreachable | Self::GatewayTimeout => 504,
            Self::PortClosed | Self::BadGateway => 502,
            Self::Internal => 500,
        }
    }

    /// The name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::NoSuchRoute => "no_such_route",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Conflict => "conflict",
            Self::NotRunning => "not_running",
            Self::ExecEnded => "exec_ended",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::IdempotencyInFlight => "idempotency_in_flight",
            Self::TooLarge => "too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::RangeNotSatisfiable => "range_not_satisfiable",
            Self::Unprocessable => "unprocessable",
            Self::NoSuchProgram => "no_such_program",
            Self::CannotExecute => "cannot_execute",
            Self::TooMany => "too_many",
            Self::Busy => "busy",
            Self::NoSpace => "no_space",
            Self::GuestUnreachable => "guest_unreachable",
            Self::PortClosed => "port_closed",
            Self::BadGateway => "bad_gateway",
            Self::GatewayTimeout => "gateway_timeout",
            Self::NotDumpable => "not_dumpable",
            Self::RestoreFailed => "restore_failed",
            Self::SandboxAsleep => "sandbox_asleep",
            Self::SnapshotInUse => "snapshot_in_use",
            Self::Damaged => "damaged",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
        }
    }
}
