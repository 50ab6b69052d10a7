//! Implements E2B's in-sandbox agent (envd) from outside: processes, files, watches.
//!
//! ```text
//!   Front ─► (Addressee) ─► the same layers as every route ─► Inside: token ─► handler ─► guest
//! ```
//!
//! A request is admitted by the sandbox's own token (`X-Access-Token`), by a key with the scope `exec`, or, for one
//! file, by a signature. Without any of them, the error is the same for existing and unknown sandboxes; with one, the
//! error for a deleted sandbox says so.

mod connect;
mod entry;
mod files;
mod filesystem;
mod input;
mod marks;
mod multipart;
mod output;
mod process;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use burrow_engine::{EngineError, Guest};
use burrow_guest::protocol::{FileEntry, Frame, ReadFile, Request as GuestRequest};
use burrow_model::{SandboxId, TenantId};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::error::{Refusal, RpcCode, RpcError};
use burrow_gateway::e2b::reach::{self, Call, gone};
use burrow_gateway::e2b::tokens;
use burrow_http::app::App;
use burrow_http::audit::Trace;
use burrow_http::auth::Executor;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::request_target::Addressee;
use burrow_http::routes::{Routes, get, post};
pub(crate) use marks::Marks;
pub(super) use marks::mark;

const ACCESS_TOKEN: &str = "x-access-token";

/// The user of commands and owner of files, by default.
const DEFAULT_USER: &str = "user";

/// Interval of keepalives on a silent stream, by default; and the range that a client may choose.
const KEEPALIVE: Duration = Duration::from_secs(90);
const KEEPALIVE_SECONDS: std::ops::RangeInclusive<u64> = 1..=3600;

/// Maximum number of bytes of `/etc/passwd` that are read for a user's home directory.
const PASSWD_BYTES_MAX: u64 = 256 << 10;

pub fn router() -> Router<Arc<App>> {
    routes().into_router().fallback(no_such_call)
}

pub fn routes() -> Routes<Arc<App>> {
    let process = |call: &str| format!("/process.Process/{call}");
    let filesystem = |call: &str| format!("/filesystem.Filesystem/{call}");
    Routes::new()
        .route("/health", get(health))
        .route("/files", get(files::read).post(files::write))
        .route(&process("Start"), post(process::start))
        .route(&process("Connect"), post(process::connect))
        .route(&process("List"), post(process::list))
        .route(&process("Update"), post(process::update))
        .route(&process("SendSignal"), post(process::signal))
        .route(&process("SendInput"), post(input::send))
        .route(&process("StreamInput"), post(input::stream))
        .route(&process("CloseStdin"), post(input::close))
        .route(&filesystem("Stat"), post(filesystem::stat))
        .route(&filesystem("MakeDir"), post(filesystem::make_directory))
        .route(&filesystem("Move"), post(filesystem::rename))
        .route(&filesystem("ListDir"), post(filesystem::list))
        .route(&filesystem("Remove"), post(filesystem::remove))
        .route(&filesystem("WatchDir"), post(watch::watch))
        .route(&filesystem("CreateWatcher"), post(watch::create))
        .route(&filesystem("GetWatcherEvents"), post(watch::events))
        .route(&filesystem("RemoveWatcher"), post(watch::remove))
}

async fn no_such_call() -> RpcError {
    RpcError::new(RpcCode::Unimplemented, "Burrow does not support this call")
}

async fn health(_: Inside) -> StatusCode {
    StatusCode::NO_CONTENT
}

/// An admitted request.
#[derive(Clone, Debug)]
pub(super) struct Inside {
    tenant: TenantId,
    sandbox: SandboxId,
    /// The user that was given; see [`Inside::as_user`] if there is none.
    user: Option<String>,
    /// How long the client waits.
    timeout: Option<Duration>,
    keepalive: Duration,
    trace: Option<Trace>,
}

impl FromRequestParts<Arc<App>> for Inside {
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
                Closed::Refused(error) => refusal(parts.uri.path(), error),
                Closed::Gone => gone(&text),
            })?,
        };
        let trace = parts.extensions.get::<Trace>().cloned();
        if let Some(trace) = &trace {
            trace.asked_inside(&tenant, &sandbox, by_token);
        }
        let call = if parts.uri.path() == "/health" { Call::Health } else { Call::Use };
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
pub(super) enum Closed {
    Refused(ApiError),
    Gone,
}

pub(super) async fn by_key(
    parts: &mut Parts,
    app: &Arc<App>,
    sandbox: &SandboxId,
    had_token: bool,
) -> Result<TenantId, Closed> {
    let caller = match Executor::from_request_parts(parts, app).await {
        Ok(caller) => caller,
        Err(_) if had_token => {
            let message = "the access token is not valid for this sandbox";
            return Err(Closed::Refused(ApiError::new(burrow_api::ErrorCode::Unauthorized, message)));
        }
        Err(error) => return Err(Closed::Refused(error)),
    };
    let own = caller.sandbox(app, sandbox.as_str()).await.is_ok();
    match app.engine.owner(sandbox) {
        Some(tenant) if own && tenant == *caller.tenant() => Ok(tenant),
        Some(_) | None => Err(Closed::Gone),
    }
}

/// The response to a streaming call that failed before its stream began. The status of [`connect::failed`] is 200,
/// which [`reach::answer_for_gone`] does not recognise as a failure.
async fn broken(app: &App, sandbox: &SandboxId, error: &RpcError) -> Response {
    match reach::is_ended(app, sandbox).await {
        true => gone(sandbox.as_str()),
        false => connect::failed(error),
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

impl Inside {
    /// A guest that is awake and has the files by which programs recognise E2B.
    async fn guest(&self, app: &App) -> Result<Guest, EngineError> {
        let guest = app.engine.reach(&self.tenant, &self.sandbox).await?;
        marks::put(app, &guest).await;
        Ok(guest)
    }

    /// For a file call, which has its user in another field.
    fn named(mut self, user: Option<String>) -> Self {
        self.user = user.filter(|name| !name.is_empty()).or(self.user);
        self
    }

    /// The user to act as: the given one, else that of the sandbox, else the default, which an image may not have.
    fn as_user(&self, guest: &Guest) -> Result<User, ApiError> {
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
    async fn path(&self, guest: &Guest, user: &User, path: &str) -> Result<String, ApiError> {
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

/// A user of the sandbox.
#[derive(Clone, Debug)]
struct User {
    name: String,
    /// Given by the client or the sandbox's template: then there is no alternative.
    named: bool,
}

/// The home directory according to `/etc/passwd`. An unknown user causes an error of the guest when it is used.
async fn home(guest: &Guest, user: &str) -> Result<Option<String>, ApiError> {
    if user == "root" {
        return Ok(Some("/root".to_owned()));
    }
    let path = "/etc/passwd".to_owned();
    let read = ReadFile { path, offset: 0, length: Some(PASSWD_BYTES_MAX) };
    let mut connection = guest.open(&GuestRequest::Read(read)).await?;
    let found = guest.reply::<FileEntry>(&mut connection).await;
    if found.is_err() {
        return Ok(None);
    }
    let (mut reader, _writer) = connection.split();
    let mut bytes = Vec::new();
    while let Some(Frame::Bytes(part)) = reader.next().await.map_err(|error| guest.error(error))? {
        bytes.extend_from_slice(&part);
        if bytes.len() as u64 > PASSWD_BYTES_MAX {
            break;
        }
    }
    Ok(home_in(&String::from_utf8_lossy(&bytes), user))
}

fn home_in(passwd: &str, user: &str) -> Option<String> {
    let own = |line: &&str| line.split(':').next() == Some(user);
    let home = passwd.lines().find(own)?.split(':').nth(5).filter(|home| home.starts_with('/'));
    Some(home.unwrap_or("/").to_owned())
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

    #[test]
    fn the_home_directory_is_read_from_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/data/home:/bin/bash\nodd:x:1\n";
        assert_eq!(home_in(passwd, "user").as_deref(), Some("/data/home"));
        assert_eq!(home_in(passwd, "odd").as_deref(), Some("/"));
        assert_eq!(home_in(passwd, "nobody"), None);
    }
}
