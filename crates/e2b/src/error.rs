//! Errors in the formats of E2B's clients: `{"code": 404, "message": "…"}`, and Connect's `{"code": "not_found", …}`.
//!
//! Clients retry a request that fails with 429, 502, 503 or 504, and take 409 on a pause for "paused already".
//! Therefore permanent errors have another status here than in our own API.

use axum::Json;
use axum::response::{IntoResponse, Response};
use burrow_api::ErrorCode;
use burrow_catalog::CatalogError;
use burrow_engine::EngineError;
use http::StatusCode;
use serde_json::json;

use burrow_http::error::{ApiError, Cause};

/// An error of the control plane, and of envd's plain HTTP calls.
#[derive(Debug)]
pub(super) struct Refusal {
    status: u16,
    message: String,
    cause: Option<Cause>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status: status.as_u16(), message: message.into(), cause: None }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A feature that Burrow does not support.
    pub(super) fn absent(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, message)
    }

    pub(super) fn into_message(self) -> String {
        if let Some(cause) = &self.cause {
            tracing::warn!(%cause, message = self.message, "background work failed");
        }
        self.message
    }

    /// As one of several results.
    pub(super) fn as_result(&self) -> serde_json::Value {
        json!({ "code": self.status, "message": self.message })
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let (code, message, cause) = error.into_words();
        Self { status: status(code), message, cause }
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<CatalogError> for Refusal {
    fn from(error: CatalogError) -> Self {
        ApiError::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response =
            (status, Json(json!({ "code": self.status, "message": self.message }))).into_response();
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        response
    }
}

fn status(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::Unprocessable | ErrorCode::NoSuchProgram | ErrorCode::CannotExecute => 400,
        ErrorCode::TooMany
        | ErrorCode::NotDumpable
        | ErrorCode::NotRunning
        | ErrorCode::IdempotencyMismatch => 422,
        ErrorCode::Unsupported => 501,
        ErrorCode::GuestUnreachable
        | ErrorCode::GatewayTimeout
        | ErrorCode::PortClosed
        | ErrorCode::BadGateway
        | ErrorCode::RestoreFailed
        | ErrorCode::SandboxAsleep
        | ErrorCode::Damaged => 500,
        ErrorCode::InvalidRequest
        | ErrorCode::Unauthorized
        | ErrorCode::Forbidden
        | ErrorCode::NotFound
        | ErrorCode::NoSuchRoute
        | ErrorCode::MethodNotAllowed
        | ErrorCode::Conflict
        | ErrorCode::ExecEnded
        | ErrorCode::IdempotencyInFlight
        | ErrorCode::TooLarge
        | ErrorCode::UnsupportedMediaType
        | ErrorCode::RangeNotSatisfiable
        | ErrorCode::Busy
        | ErrorCode::NoSpace
        | ErrorCode::SnapshotInUse
        | ErrorCode::Internal => code.status(),
    }
}

/// Connect's error codes, each with its status in a response that is not a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RpcCode {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    Unauthenticated,
    ResourceExhausted,
    FailedPrecondition,
    DeadlineExceeded,
    Unimplemented,
    Unavailable,
    Internal,
}

impl RpcCode {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::Unauthenticated => "unauthenticated",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Unimplemented => "unimplemented",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// An error of a call to envd.
#[derive(Debug)]
pub(super) struct RpcError {
    pub(super) code: RpcCode,
    pub(super) message: String,
    cause: Option<Cause>,
}

impl RpcError {
    pub(super) fn new(code: RpcCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), cause: None }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(RpcCode::InvalidArgument, message)
    }

    /// For streams, which end with it.
    pub(super) fn as_end(&self) -> serde_json::Value {
        if let Some(cause) = &self.cause {
            tracing::warn!(code = self.code.as_str(), %cause, "a stream ended with an error");
        }
        json!({ "error": { "code": self.code.as_str(), "message": self.message } })
    }
}

impl From<ApiError> for RpcError {
    fn from(error: ApiError) -> Self {
        let (code, message, cause) = error.into_words();
        Self { code: rpc_code(code), message, cause }
    }
}

impl From<EngineError> for RpcError {
    fn from(error: EngineError) -> Self {
        ApiError::from(error).into()
    }
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.code.as_str(), "message": self.message });
        let mut response = (self.code.status(), Json(body)).into_response();
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        response
    }
}

fn rpc_code(code: ErrorCode) -> RpcCode {
    match code {
        ErrorCode::InvalidRequest
        | ErrorCode::UnsupportedMediaType
        | ErrorCode::RangeNotSatisfiable
        | ErrorCode::Unprocessable
        | ErrorCode::NoSuchProgram
        | ErrorCode::CannotExecute
        | ErrorCode::TooLarge => RpcCode::InvalidArgument,
        ErrorCode::Unauthorized => RpcCode::Unauthenticated,
        ErrorCode::Forbidden => RpcCode::PermissionDenied,
        ErrorCode::NotFound | ErrorCode::ExecEnded => RpcCode::NotFound,
        ErrorCode::NoSuchRoute | ErrorCode::MethodNotAllowed | ErrorCode::Unsupported => {
            RpcCode::Unimplemented
        }
        ErrorCode::Conflict => RpcCode::AlreadyExists,
        ErrorCode::TooMany | ErrorCode::NoSpace => RpcCode::ResourceExhausted,
        ErrorCode::NotRunning
        | ErrorCode::NotDumpable
        | ErrorCode::SnapshotInUse
        | ErrorCode::IdempotencyMismatch
        | ErrorCode::IdempotencyInFlight => RpcCode::FailedPrecondition,
        ErrorCode::Busy
        | ErrorCode::GuestUnreachable
        | ErrorCode::PortClosed
        | ErrorCode::BadGateway
        | ErrorCode::GatewayTimeout
        | ErrorCode::SandboxAsleep => RpcCode::Unavailable,
        ErrorCode::RestoreFailed | ErrorCode::Damaged | ErrorCode::Internal => RpcCode::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permanent_errors_are_not_retried() {
        for code in [
            ErrorCode::TooMany,
            ErrorCode::GuestUnreachable,
            ErrorCode::RestoreFailed,
            ErrorCode::Damaged,
            ErrorCode::Unsupported,
            ErrorCode::NoSpace,
            ErrorCode::Internal,
        ] {
            assert!(![429, 502, 503, 504].contains(&status(code)), "{}", code.as_str());
        }
        assert_eq!(status(ErrorCode::Busy), 429, "this one is temporary");
    }

    #[test]
    fn only_pausing_a_paused_sandbox_is_a_conflict() {
        for code in [ErrorCode::NotDumpable, ErrorCode::NotRunning, ErrorCode::Unsupported] {
            assert_ne!(status(code), 409, "{}", code.as_str());
        }
    }

    #[test]
    fn hints_are_appended_to_messages() {
        let refusal = Refusal::from(ApiError::invalid("invalid `x`").hint("write `y`"));
        assert_eq!(refusal.as_result(), json!({ "code": 400, "message": "invalid `x` (write `y`)" }));
        let error = RpcError::from(ApiError::new(ErrorCode::NotFound, "no such file"));
        assert_eq!(error.as_end(), json!({ "error": { "code": "not_found", "message": "no such file" } }));
    }
}
