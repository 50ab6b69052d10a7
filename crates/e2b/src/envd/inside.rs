//! An admitted request: its sandbox, the user it acts as, how long the client waits.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use burrow_engine::{EngineError, Guest};
use burrow_model::{SandboxId, TenantId};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;

use super::super::error::{Refusal, RpcError};
use super::marks;
use super::user::{User, home};
use burrow_gateway::e2b::reach::{self, CallEffect, gone};
use burrow_gateway::e2b::tokens;
use burrow_http::app::App;
use burrow_http::audit::Trace;
use burrow_http::auth::Executor;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::request_target::Addressee;

const ACCESS_TOKEN: &str = "x-access-token";

/// The user of commands and owner of files, by default.
pub(super) const DEFAULT_USER: &str = "user";

/// Interval of keepalives on a silent stream, by default; and the range that a client may choose.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(90);
const KEEPALIVE_SECONDS: std::ops::RangeInclusive<u64> = 1..=3600;

/// An admitted request.
#[derive(Clone, Debug)]
pub(super) struct EnvdRequest {
    pub(super) tenant: TenantId,
    pub(super) sandbox: SandboxId,
    /// The user that was given; see [`EnvdRequest::as_user`] if there is none.
    pub(super) user: Option<String>,
    /// How long the client waits.
    pub(super) timeout: Option<Duration>,
    pub(super) keepalive: Duration,
    pub(super) trace: Option<Trace>,
}

impl FromRequestParts<Arc<App>> for EnvdRequest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Response> {
        let refused = |error: ApiError| refusal(parts.uri.path(), error);
        let addressee = parts.extensions.get::<Addressee>().cloned().and_then(|Addressee(text)| text);
        let text = addressee.unwrap_or_default();
        let Ok(sandbox) = text.parse::<SandboxId>() else {
            // Clients get ids from the API, so malformed ids belong to no sandbox.
            return Err(gone(&text));
        };
        let token = parts.headers.get(ACCESS_TOKEN).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let by_token = match &token {
            Some(token) => tokens::opens_envd(app, &sandbox, token).await.map_err(refused)?,
            None => false,
        };
        let tenant = match by_token {
            true => app.engine.owner(&sandbox).ok_or_else(|| gone(&text))?,
            false => by_key(parts, app, &sandbox, token.is_some()).await.map_err(|why| match why {
                AccessError::Refused(error) => refusal(parts.uri.path(), error),
                AccessError::Gone => gone(&text),
            })?,
        };
        let trace = parts.extensions.get::<Trace>().cloned();
        if let Some(trace) = &trace {
            trace.asked_inside(&tenant, &sandbox, by_token);
        }
        let call = if parts.uri.path() == "/health" { CallEffect::Health } else { CallEffect::Use };
        if !reach::is_reached(app, &tenant, &sandbox, call).await {
            return Err(gone(&text));
        }
        let seconds = number(&parts.headers, "keepalive-ping-interval");
        let keepalive = seconds.filter(|seconds| KEEPALIVE_SECONDS.contains(seconds));
        let timeout = number(&parts.headers, "connect-timeout-ms").filter(|ms| *ms > 0);
        Ok(Self {
            tenant,
            sandbox,
            user: user(&parts.headers),
            timeout: timeout.map(Duration::from_millis),
            keepalive: keepalive.map_or(KEEPALIVE, Duration::from_secs),
            trace,
        })
    }
}

/// Why a key does not give access to a sandbox.
pub(crate) enum AccessError {
    Refused(ApiError),
    Gone,
}

pub(crate) async fn by_key(
    parts: &mut Parts,
    app: &Arc<App>,
    sandbox: &SandboxId,
    had_token: bool,
) -> Result<TenantId, AccessError> {
    let caller = match Executor::from_request_parts(parts, app).await {
        Ok(caller) => caller,
        Err(_) if had_token => {
            let message = "the access token is not valid for this sandbox";
            return Err(AccessError::Refused(ApiError::new(burrow_api::ErrorCode::Unauthorized, message)));
        }
        Err(error) => return Err(AccessError::Refused(error)),
    };
    let own = caller.sandbox(app, sandbox.as_str()).await.is_ok();
    match app.engine.owner(sandbox) {
        Some(tenant) if own && tenant == *caller.tenant() => Ok(tenant),
        Some(_) | None => Err(AccessError::Gone),
    }
}

/// In the format of the call.
fn refusal(path: &str, error: ApiError) -> Response {
    match path.starts_with("/process.") || path.starts_with("/filesystem.") {
        true => RpcError::from(error).into_response(),
        false => Refusal::from(error).into_response(),
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// `Authorization: Basic base64("name:")`.
fn user(headers: &HeaderMap) -> Option<String> {
    let (scheme, rest) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let bytes = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(rest.trim()).ok()).flatten()?;
    let text = String::from_utf8(bytes).ok()?;
    let name = text.split(':').next().unwrap_or_default();
    (!name.is_empty()).then(|| name.to_owned())
}

impl EnvdRequest {
    /// A guest that is awake and has the files by which programs recognise E2B.
    pub(super) async fn guest(&self, app: &App) -> Result<Guest, EngineError> {
        let guest = app.engine.guest(&self.tenant, &self.sandbox).await?;
        marks::put(app, &guest).await;
        Ok(guest)
    }

    /// For a file call, which has its user in another field.
    pub(super) fn named(mut self, user: Option<String>) -> Self {
        self.user = user.filter(|name| !name.is_empty()).or(self.user);
        self
    }

    /// The user to act as: the given one, else that of the sandbox, else the default, which an image may not have.
    pub(super) fn as_user(&self, guest: &Guest) -> Result<User, ApiError> {
        let own = guest.sandbox().spec.user.as_deref();
        let own = own.map(|user| user.split(':').next().unwrap_or_default().to_owned());
        match (&self.user, own) {
            (Some(name), _) => {
                convert::user("username", name).map(|()| User { name: name.clone(), named: true })
            }
            (None, Some(name)) => Ok(User { name, named: true }),
            (None, None) => Ok(User { name: DEFAULT_USER.to_owned(), named: false }),
        }
    }

    /// A path in envd's notation: relative paths are relative to the user's home directory.
    pub(super) async fn path(&self, guest: &Guest, user: &User, path: &str) -> Result<String, ApiError> {
        let below = match path {
            _ if path.starts_with('/') => return convert::check_path("path", path).map(|()| path.to_owned()),
            "" | "~" | "." => "",
            _ => path.strip_prefix("~/").or_else(|| path.strip_prefix("./")).unwrap_or(path),
        };
        let home = home(guest, &user.name).await?.unwrap_or_else(|| format!("/home/{}", user.name));
        let whole = format!("{}/{below}", home.trim_end_matches('/'));
        let whole =
            whole.strip_suffix('/').filter(|rest| !rest.is_empty()).map(str::to_owned).unwrap_or(whole);
        convert::check_path("path", &whole)?;
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_read_from_basic_authorization() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            user(&headers)
        };
        assert_eq!(of("Basic cm9vdDo=").as_deref(), Some("root"));
        assert_eq!(of("basic dXNlcjpwYXNz").as_deref(), Some("user"));
        for none in ["Basic Og==", "Basic !", "Bearer cm9vdDo=", "Basic"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
