//! Middleware around every route: a call that changes something leaves an event in the audit log, whatever its outcome.
//!
//! It surrounds all routes, so a new route is recorded without any code of its own. The caller and the target become known
//! while the request is processed ([`Trace`]). Of a request, the event contains method, path, status and duration; never a
//! body, a query, or a header.
//!
//! Not recorded: calls that only read (unless `audit.reads` is set), calls without a usable key (anyone could fill the log
//! with them; the daemon's own log has them), and requests of a sandbox to its own memory.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use burrow_audit::{Action, Event, Outcome, Text};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use serde::Deserialize;
use tokio::time::Instant;

use super::observe::RequestId;
use crate::app::App;
use crate::audit::Trace;
use crate::own_listener::OwnListener;

/// Responses to creates are smaller; a larger one is not inspected.
const INSPECTED_BYTES_MAX: u64 = 64 * 1024;

impl App {
    /// Records an event, and counts it.
    pub async fn audited(&self, event: Event) {
        self.audit.record_counted(event, self.engine.now_ms(), &self.metrics).await;
    }
}

pub async fn audited(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let Some(route) = matched.filter(|_| request.extensions().get::<OwnListener>().is_none()) else {
        return next.run(request).await;
    };
    let action = match crate::request_target::is_signed(&request) {
        true => Action::LinkUse,
        false => action(request.method(), route.as_str()),
    };
    if action == Action::ApiRead && !app.audit.config.reads {
        return next.run(request).await;
    }
    let trace = Trace::default();
    request.extensions_mut().insert(trace.clone());
    let mut pending = PendingEvent {
        action,
        trace,
        method: Text::new(request.method().as_str()),
        path: Text::path(request.uri().path()),
        request_id: request
            .extensions()
            .get()
            .map(|RequestId(id)| Text::new(id.to_str().unwrap_or_default())),
        began: Instant::now(),
        app: Some(app),
    };
    let response = next.run(request).await;
    let (response, made) = extract_created_id(response, action).await;
    let status = response.status();
    if let Some(app) = pending.app.take()
        && let Some(event) = pending.event(&app, Some(status), made)
    {
        app.audited(event).await;
    }
    response
}

/// What is recorded when the call ends, or when its client disconnects before that.
struct PendingEvent {
    action: Action,
    trace: Trace,
    method: Text,
    path: Text,
    request_id: Option<Text>,
    began: Instant,
    /// `None` once the event is recorded.
    app: Option<Arc<App>>,
}

impl PendingEvent {
    fn event(&self, app: &App, status: Option<StatusCode>, made: Option<String>) -> Option<Event> {
        let facts = self.trace.facts();
        // A WebSocket begins with 101.
        let succeeded = |status: StatusCode| status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS;
        let done = status.is_some_and(succeeded);
        let (action, ended) = match (self.action, facts.exec_began) {
            // Its start was recorded when it started.
            (Action::ExecStart, true) => (Action::ExecEnd, facts.exec_ended),
            (action, _) => (facts.action.unwrap_or(action), None),
        };
        if action == Action::ExecEnd && ended.is_none() && done {
            return None;
        }
        let outcome = match status {
            Some(status) if succeeded(status) => Outcome::Done,
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Outcome::Denied,
            Some(_) | None => Outcome::Failed,
        };
        let hung_up = || {
            status
                .is_none()
                .then(|| "the client disconnected; operations in progress are completed or undone".into())
        };
        let took = self.began.elapsed().as_millis();
        Some(Event {
            actor: facts.actor,
            sandbox: facts.sandbox,
            method: Some(self.method.clone()),
            path: Some(self.path.clone()),
            status: status.map(|status| status.as_u16()),
            duration_ms: u64::try_from(took).ok(),
            reason: ended.or_else(hung_up),
            secret: secret_of(self.path.as_str()),
            target: facts.target.or_else(|| made.map(Text::from)),
            request_id: self.request_id.clone(),
            ..Event::new(app.engine.now_ms(), facts.tenant?, action, outcome)
        })
    }
}

impl Drop for PendingEvent {
    fn drop(&mut self) {
        let Some(app) = self.app.take() else { return };
        if let Some(event) = self.event(&app, None, None) {
            let recording = app.clone();
            app.tasks.spawn(async move { recording.audited(event).await });
        }
    }
}

/// The action of a route; `api.read` for calls that only read. Exports and backups change nothing either, but all of the
/// data leaves the host with them, and attaching and connecting give access to a sandbox. Those are recorded.
fn action(method: &Method, route: &str) -> Action {
    let last = route.rsplit('/').next().unwrap_or_default();
    match (method.as_str(), route) {
        ("GET" | "HEAD", "/v1/backup") => Action::BackupRead,
        ("GET" | "HEAD", "/v1/images/{image}/export") => Action::ImageExport,
        ("GET" | "HEAD", "/v1/sandboxes/{sandbox}/ports/{port}/connect") => Action::PortConnect,
        ("GET" | "HEAD", "/v1/sandboxes/{sandbox}/execs/{exec}/attach") => Action::ExecAttach,
        ("POST", "/process.Process/Connect") => Action::ExecAttach,
        ("POST", "/v1/sandboxes/{sandbox}/execs/{exec}/stdin") => Action::ExecInput,
        ("POST", "/process.Process/SendInput" | "/process.Process/StreamInput") => Action::ExecInput,
        ("POST", "/process.Process/CloseStdin") => Action::ExecInput,
        ("GET" | "HEAD" | "OPTIONS", route) if route != "/v1/snapshots/{snapshot}/export" => Action::ApiRead,
        ("POST", "/v1/keys" | "/v1/ssh/keys") => Action::KeyCreate,
        ("DELETE", "/v1/keys/{key}" | "/v1/ssh/keys/{key}") => Action::KeyDelete,
        ("POST", "/v1/sandboxes/{sandbox}/revoke-tokens" | "/v1/volumes/{volume}/revoke-tokens") => {
            Action::TokenRevoke
        }
        ("POST", "/v1/sandboxes" | "/sandboxes" | "/v2/sandboxes") => Action::SandboxCreate,
        ("DELETE", "/v1/sandboxes/{sandbox}" | "/sandboxes/{sandbox}") => Action::SandboxDelete,
        (
            "POST",
            "/v1/sandboxes/{sandbox}/fork"
            | "/v1/snapshots/{snapshot}/sandboxes"
            | "/sandboxes/{sandbox}/fork",
        ) => Action::SandboxFork,
        ("POST", "/v1/sandboxes/{sandbox}/merge") => Action::SandboxMerge,
        (
            "POST",
            "/v1/sandboxes/{sandbox}/snapshots" | "/v1/snapshots" | "/sandboxes/{sandbox}/snapshots",
        ) => Action::SnapshotCreate,
        ("POST", "/v1/sandboxes/{sandbox}/restore") => Action::SnapshotRestore,
        ("DELETE", "/v1/snapshots/{snapshot}") => Action::SnapshotDelete,
        ("POST", "/v1/sandboxes/{sandbox}/execs" | "/process.Process/Start") => Action::ExecStart,
        ("DELETE", route) if route.starts_with("/v1/secrets/") => Action::SecretDelete,
        ("POST", route) if route.starts_with("/v1/secrets/") && last == "rotate" => Action::SecretRotate,
        (_, route) if route.starts_with("/v1/secrets") => Action::SecretSet,
        // Actions of a model through it are separate calls, each of which is recorded.
        ("POST", "/mcp") => Action::ApiRead,
        // They are queries that are too long for a URL.
        ("POST", _) if matches!(last, "search" | "context" | "recall" | "explain" | "diff") => {
            Action::ApiRead
        }
        ("POST", route) if is_envd(route) && ENVD_READS.contains(&last) => Action::ApiRead,
        ("PUT", "/v1/sandboxes/{sandbox}/egress/policy" | "/sandboxes/{sandbox}/network") => {
            Action::PolicyChange
        }
        _ => Action::ApiCall,
    }
}

/// Calls of E2B's agent API that change nothing. All calls of that API are a POST.
const ENVD_READS: [&str; 6] = ["List", "Stat", "ListDir", "WatchDir", "CreateWatcher", "GetWatcherEvents"];

fn is_envd(route: &str) -> bool {
    route.starts_with("/process.Process/") || route.starts_with("/filesystem.Filesystem/")
}

fn secret_of(path: &str) -> Option<Text> {
    let name = path.strip_prefix("/v1/secrets/")?.split('/').next()?;
    Some(Text::new(name))
}

/// The ids that a response to a create contains.
#[derive(Deserialize)]
struct CreatedIds {
    id: Option<String>,
    key: Option<CreatedItem>,
    /// Of a fork.
    children: Option<Vec<CreatedItem>>,
}

#[derive(Deserialize)]
struct CreatedItem {
    id: String,
}

/// The id of the created object, from a response whose body is complete in memory.
async fn extract_created_id(response: Response, action: Action) -> (Response, Option<String>) {
    let makes = matches!(
        action,
        Action::KeyCreate | Action::SandboxCreate | Action::SandboxFork | Action::SnapshotCreate
    );
    let small = response.body().size_hint().exact().is_some_and(|size| size <= INSPECTED_BYTES_MAX);
    if !makes || !small || !response.status().is_success() {
        return (response, None);
    }
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(whole) => {
            let bytes = whole.to_bytes();
            let made = serde_json::from_slice::<CreatedIds>(&bytes).ok().and_then(first_id);
            (Response::from_parts(parts, Body::from(bytes)), made)
        }
        // A body that is complete in memory does not fail. If it did, the response would fail too.
        Err(error) => (
            Response::from_parts(
                parts,
                Body::from_stream(futures_util::stream::iter([Err::<bytes::Bytes, _>(error)])),
            ),
            None,
        ),
    }
}

fn first_id(made: CreatedIds) -> Option<String> {
    let many = || made.children.map(|all| all.into_iter().map(|one| one.id).collect::<Vec<_>>().join(" "));
    made.id.or(made.key.map(|key| key.id)).or_else(many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_call_has_its_action() {
        for (method, route, expected) in [
            ("GET", "/v1/keys", Action::ApiRead),
            ("POST", "/v1/keys", Action::KeyCreate),
            ("GET", "/v1/snapshots/{snapshot}", Action::ApiRead),
            ("GET", "/v1/snapshots/{snapshot}/export", Action::ApiCall),
            ("HEAD", "/v1/snapshots/{snapshot}/export", Action::ApiCall),
            ("POST", "/v1/snapshots", Action::SnapshotCreate),
            ("DELETE", "/v1/keys/{key}", Action::KeyDelete),
            ("POST", "/v1/sandboxes/{sandbox}/fork", Action::SandboxFork),
            ("POST", "/v1/sandboxes/{sandbox}/egress/explain", Action::ApiRead),
            ("POST", "/v1/sandboxes/{sandbox}/egress/test", Action::ApiCall),
            ("PUT", "/v1/sandboxes/{sandbox}/egress/policy", Action::PolicyChange),
            ("POST", "/v1/secrets/{secret}/rotate", Action::SecretRotate),
            ("PUT", "/v1/secrets/{secret}", Action::SecretSet),
            ("PUT", "/v1/sandboxes/{sandbox}/files", Action::ApiCall),
            ("POST", "/mcp", Action::ApiRead),
            ("PATCH", "/v1/whatever/comes", Action::ApiCall),
            ("POST", "/v2/sandboxes", Action::SandboxCreate),
            ("POST", "/process.Process/Start", Action::ExecStart),
            ("POST", "/process.Process/List", Action::ApiRead),
            ("POST", "/process.Process/Connect", Action::ExecAttach),
            ("GET", "/v1/backup", Action::BackupRead),
            ("GET", "/v1/images/{image}/export", Action::ImageExport),
            ("GET", "/v1/images/{image}", Action::ApiRead),
            ("POST", "/v1/sandboxes/{sandbox}/execs/{exec}/stdin", Action::ExecInput),
            ("GET", "/v1/sandboxes/{sandbox}/execs/{exec}/attach", Action::ExecAttach),
            ("GET", "/v1/sandboxes/{sandbox}/execs/{exec}/output", Action::ApiRead),
            ("GET", "/v1/sandboxes/{sandbox}/ports/{port}/connect", Action::PortConnect),
            ("POST", "/filesystem.Filesystem/Remove", Action::ApiCall),
            ("POST", "/files", Action::ApiCall),
        ] {
            assert_eq!(action(&method.parse().unwrap(), route), expected, "{method} {route}");
        }
    }
}
