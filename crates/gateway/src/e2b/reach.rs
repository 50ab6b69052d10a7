//! Decides whether a client's call reaches a sandbox: the sandbox may be deleted, being deleted, or asleep until a
//! client connects.
//!
//! E2B's proxy responds for such a sandbox with 502 and its own body ([`gone`]), which clients report as "not running".

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use burrow_catalog::SandboxRow;
use burrow_model::{SandboxId, State as SandboxState, TenantId};
use http::StatusCode;
use serde_json::{Value, json};

use burrow_http::app::App;
use burrow_http::request_target::Addressee;

/// The label of a sandbox that only `connect` wakes. Its value is `false`.
const AUTO_RESUME: &str = "e2b/auto-resume";

/// The label of a sandbox whose servers see another host name than the requested one: `maskRequestHost`.
const MASK: &str = "e2b/mask-request-host";

/// The label with the ports whose servers speak HTTPS: `httpsPorts`.
const HTTPS_PORTS: &str = "e2b/https-ports";

/// An extension of the responses of this module: what a page for a browser shows instead of the body. E2B's proxy sends
/// a page with this title to browsers.
#[derive(Clone, Debug)]
pub struct RefusalPage {
    pub title: &'static str,
    pub message: String,
}

fn refusal(status: StatusCode, title: &'static str, body: Value) -> Response {
    let message = body["message"].as_str().unwrap_or_default().to_owned();
    let mut response = (status, Json(body)).into_response();
    response.extensions_mut().insert(RefusalPage { title, message });
    response
}

/// The response that clients interpret as "not running".
pub fn gone(sandbox: &str) -> Response {
    let shown: String = sandbox.chars().filter(char::is_ascii_alphanumeric).take(63).collect();
    let body = json!({ "sandboxId": shown, "message": "The sandbox was not found", "code": 502 });
    refusal(StatusCode::BAD_GATEWAY, "Sandbox Not Found", body)
}

/// The response of E2B's proxy for a port without a listening process.
pub fn port_closed(sandbox: &str, port: u16) -> Response {
    let message = "The sandbox is running but port is not open";
    let body = json!({ "sandboxId": sandbox, "message": message, "port": port, "code": 502 });
    refusal(StatusCode::BAD_GATEWAY, "Closed Port Error", body)
}

/// The response of E2B's proxy for a port that requires a token.
pub fn private(sandbox: &str, has_token: bool) -> Response {
    const HEADER: &str = "e2b-traffic-access-token";
    let what = match has_token {
        true => format!("Provided token in header '{HEADER}' is invalid"),
        false => format!("Token header '{HEADER}' is missing"),
    };
    let message = format!("Sandbox is secured with traffic access token. {what}");
    let body = json!({ "sandboxId": sandbox, "message": message, "code": 403 });
    refusal(StatusCode::FORBIDDEN, "Traffic Access Token Required", body)
}

/// Whether this is the id of a sandbox that an E2B client created or connected to.
pub async fn has_lease(app: &App, sandbox: &str) -> bool {
    let Ok(id) = sandbox.parse::<SandboxId>() else { return false };
    let Some(tenant) = app.engine.owner(&id) else { return false };
    app.engine.get(&tenant, &id).await.is_ok_and(|row| row.spec.lease.is_some())
}

/// Whether a new sandbox sleeps until a client connects: its client wants it paused at its timeout, and not woken by
/// use.
pub fn wants_connect(auto_pause: bool, auto_resume: Option<&Value>) -> bool {
    let enabled = auto_resume.is_some_and(|value| value == true || value["enabled"] == true);
    auto_pause && !enabled
}

/// Settings of a sandbox that are stored as labels.
#[derive(Clone, Debug, Default)]
pub struct LabelSettings {
    /// Only `connect` wakes it.
    pub wants_connect: bool,
    /// The host name that servers inside see.
    pub mask: Option<String>,
    /// The ports whose servers speak HTTPS.
    pub https_ports: Vec<u16>,
}

impl LabelSettings {
    pub fn labels(&self) -> BTreeMap<String, String> {
        let change = self.label_change().into_iter();
        change.filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The same as a change of labels, because a sandbox made from a snapshot inherits the labels of its parent.
    pub fn label_change(&self) -> BTreeMap<String, Option<String>> {
        let ports: Vec<String> = self.https_ports.iter().map(u16::to_string).collect();
        [
            (AUTO_RESUME.to_owned(), self.wants_connect.then(|| "false".to_owned())),
            (MASK.to_owned(), self.mask.clone()),
            (HTTPS_PORTS.to_owned(), (!ports.is_empty()).then(|| ports.join(","))),
        ]
        .into()
    }
}

/// The host name that servers inside see, in the client's notation.
pub fn mask(row: &SandboxRow) -> Option<&str> {
    label(row, MASK)
}

/// The ports whose servers speak HTTPS.
pub fn https_ports(row: &SandboxRow) -> Vec<u16> {
    label(row, HTTPS_PORTS).unwrap_or_default().split(',').filter_map(|port| port.parse().ok()).collect()
}

fn label<'a>(row: &'a SandboxRow, name: &str) -> Option<&'a str> {
    row.spec.lease.as_ref()?;
    row.spec.labels.get(name).map(String::as_str)
}

/// The settings of a client for the server on one port.
#[derive(Debug, Default)]
pub struct ServerSettings {
    /// The host name that the server sees; `None`: the requested one.
    pub host: Option<String>,
    /// Whether the server speaks HTTPS.
    pub https: bool,
}

pub async fn server_settings(app: &App, tenant: &TenantId, id: &SandboxId, port: u16) -> ServerSettings {
    let Ok(row) = app.engine.get(tenant, id).await else { return ServerSettings::default() };
    let host = mask(&row).map(|mask| mask.replace(PORT, &port.to_string()));
    ServerSettings { host, https: https_ports(&row).contains(&port) }
}

/// Whether only `connect` wakes it.
pub fn needs_connect(row: &SandboxRow) -> bool {
    row.spec.lease.is_some() && row.spec.labels.get(AUTO_RESUME).is_some_and(|value| value == "false")
}

/// The effect of a call on a sleeping sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// Asks whether it is running; wakes nothing.
    Health,
    /// A use, which wakes it unless its client has turned that off.
    Use,
}

/// Whether a sandbox that exists responds to a call.
pub async fn is_reached(app: &App, tenant: &TenantId, id: &SandboxId, call: CallEffect) -> bool {
    // Most calls are to running sandboxes, which are known without reading the catalog.
    if app.engine.running(tenant, id).is_some() {
        return true;
    }
    match app.engine.get(tenant, id).await {
        Ok(row) => answers(&row, call),
        Err(_) => false,
    }
}

/// Whether a sandbox sleeps, and must not be woken by a request to one of its ports.
pub async fn sleeps_until_connect(app: &App, tenant: &TenantId, id: &SandboxId) -> bool {
    if app.engine.running(tenant, id).is_some() {
        return false;
    }
    match app.engine.get(tenant, id).await {
        Ok(row) => needs_connect(&row) && state(&row) != "running",
        Err(_) => false,
    }
}

fn answers(row: &SandboxRow, call: CallEffect) -> bool {
    if row.state == SandboxState::Deleting {
        return false;
    }
    state(row) == "running" || (call == CallEffect::Use && !needs_connect(row))
}

/// Whether the sandbox of a running call is deleted, or being deleted.
pub async fn is_ended(app: &App, id: &SandboxId) -> bool {
    match app.engine.owner(id) {
        None => true,
        Some(tenant) => match app.engine.get(&tenant, id).await {
            Ok(row) => row.state == SandboxState::Deleting,
            Err(_) => true,
        },
    }
}

/// A layer: a call that fails because its sandbox was killed gets the response of E2B's proxy for a deleted sandbox.
pub async fn answer_for_gone(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let addressee = request.extensions().get::<Addressee>().cloned().and_then(|Addressee(text)| text);
    let response = next.run(request).await;
    // Clients that were not admitted learn nothing about what exists.
    let judged = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let failed = response.status().is_client_error() || response.status().is_server_error();
    let Some(text) = addressee.filter(|_| failed && !judged) else { return response };
    match text.parse::<SandboxId>() {
        Ok(id) if is_ended(&app, &id).await => gone(&text),
        Ok(_) | Err(_) => response,
    }
}

/// The placeholder for a port in `maskRequestHost`.
pub const PORT: &str = "${PORT}";

/// Whether it is running; E2B's clients do not distinguish the kinds of sleep, because the next connect ends all of
/// them.
pub fn state(row: &SandboxRow) -> &'static str {
    match row.state {
        SandboxState::Creating
        | SandboxState::Starting
        | SandboxState::Running
        | SandboxState::Waking
        | SandboxState::Restoring => "running",
        SandboxState::Paused
        | SandboxState::Hibernating
        | SandboxState::Hibernated
        | SandboxState::Stopping
        | SandboxState::Stopped
        | SandboxState::Deleting
        | SandboxState::Failed => "paused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_pause_without_auto_resume_requires_connect() {
        let off = json!({ "enabled": false });
        let on = json!({ "enabled": true });
        assert!(wants_connect(true, None) && wants_connect(true, Some(&off)));
        assert!(!wants_connect(true, Some(&on)) && !wants_connect(true, Some(&json!(true))));
        assert!(!wants_connect(false, None) && !wants_connect(false, Some(&off)));
    }

    #[test]
    fn settings_are_stored_as_labels() {
        assert!(LabelSettings::default().labels().is_empty());
        let settings =
            LabelSettings { wants_connect: true, mask: Some("x".to_owned()), https_ports: vec![443, 8443] };
        let labels = settings.labels();
        assert_eq!((labels[AUTO_RESUME].as_str(), labels[MASK].as_str()), ("false", "x"));
        assert_eq!(labels[HTTPS_PORTS], "443,8443");
        let change = LabelSettings::default().label_change();
        assert!(change.len() == 3 && change.values().all(Option::is_none), "those of its parent are removed");
    }

    #[tokio::test]
    async fn the_response_for_a_deleted_sandbox_is_that_of_e2b() {
        let response = gone("sbx1\"<>");
        assert_eq!(response.status(), 502);
        let body = axum::body::to_bytes(response.into_body(), 1024).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({ "sandboxId": "sbx1", "message": "The sandbox was not found", "code": 502 }));
    }
}
