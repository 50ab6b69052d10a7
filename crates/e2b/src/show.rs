//! Sandboxes in the format of E2B's clients.

use std::time::{Duration, UNIX_EPOCH};

use burrow_catalog::SandboxRow;
use burrow_model::{AtTimeout, NetworkMode, State};
use http::HeaderMap;
use http::request::Parts;
use serde_json::{Value, json};

use super::error::Refusal;
use burrow_gateway::e2b::reach::state;
use burrow_gateway::e2b::tokens;
use burrow_http::app::App;
use burrow_http::auth::Caller;

/// Clients compare this version before they use newer features. Features of that version that Burrow does not support
/// are rejected when they are requested.
pub(super) const ENVD_VERSION: &str = "0.6.4";

/// Clients require this field, but do not use it.
const CLIENT_ID: &str = "burrow";

/// The end of a sandbox without an end: the last date that all clients can represent.
const NEVER: &str = "9999-12-31T00:00:00Z";

/// The host name under which the client reached the daemon: `api.<domain>`, or a host's own name and port.
#[derive(Clone, Debug)]
pub(super) struct Host(Option<String>);

impl<S: Sync> axum::extract::FromRequestParts<S> for Host {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let authority = parts.uri.authority().map(|authority| authority.as_str().to_owned());
        Ok(Self(authority.or_else(|| of_header(&parts.headers))))
    }
}

fn of_header(headers: &HeaderMap) -> Option<String> {
    headers.get(http::header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned)
}

impl Host {
    /// The base URL for further requests of this client.
    pub(super) fn origin(&self, app: &App) -> String {
        let scheme = if app.config.gateway.https { "https" } else { "http" };
        format!("{scheme}://{}", self.0.as_deref().unwrap_or("localhost"))
    }

    /// The part after `<port>-<sandbox>.` in addresses of ports.
    fn domain(&self, app: &App) -> String {
        if let Some(domain) = &app.config.gateway.domain {
            return domain.clone();
        }
        let host = self.0.as_deref().unwrap_or_default();
        if let Some(domain) = host.strip_prefix("api.") {
            return domain.to_owned();
        }
        // If the daemon is reached by an IP address, addresses below `localhost` work for every port.
        match host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())) {
            Some((_, port)) => format!("localhost:{port}"),
            None => "localhost".to_owned(),
        }
    }
}

/// The response to a create or a connect.
pub(super) async fn opened(app: &App, host: &Host, row: &SandboxRow) -> Result<Value, Refusal> {
    Ok(json!({
        "templateID": template(row),
        "sandboxID": row.id,
        "clientID": CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": tokens::hand_out_envd_token(app, &row.id).await?,
        // Also if ports are public: that of the code interpreter is not.
        "trafficAccessToken": tokens::traffic_token(app, &row.id).await?,
        "domain": host.domain(app),
    }))
}

/// A sandbox in a list.
pub(super) fn listed(row: &SandboxRow) -> Value {
    let limits = &row.spec.limits;
    let lease = row.spec.lease.as_ref();
    json!({
        "templateID": template(row),
        "alias": template(row),
        "sandboxID": row.id,
        "clientID": CLIENT_ID,
        "startedAt": time(started_ms(row)),
        "endAt": end(row),
        "cpuCount": limits.cpu_millis.div_ceil(1000),
        "memoryMB": limits.ram_mib,
        "diskSizeMB": limits.disk_mib,
        "state": state(row),
        "envdVersion": ENVD_VERSION,
        "metadata": lease.map(|lease| &lease.metadata).cloned().unwrap_or_default(),
    })
}

/// The details of one sandbox. The token is included for clients that may run programs anyway.
pub(super) async fn detail(
    app: &App,
    host: &Host,
    caller: &Caller,
    row: &SandboxRow,
) -> Result<Value, Refusal> {
    let mut shown = listed(row);
    let lease = row.spec.lease.as_ref();
    let keeps = lease.is_some_and(|lease| lease.then != AtTimeout::Delete);
    let network = &row.spec.network;
    if caller.executes() {
        shown["envdAccessToken"] = tokens::hand_out_envd_token(app, &row.id).await?.into();
    }
    shown["domain"] = host.domain(app).into();
    shown["allowInternetAccess"] = match network.mode {
        NetworkMode::Open => true.into(),
        NetworkMode::None => false.into(),
        NetworkMode::Allowlist => Value::Null,
    };
    shown["network"] = super::network::shown(row);
    if let Some(rules) = super::transforms::shown(app, caller, row).await? {
        shown["network"]["rules"] = rules;
    }
    shown["lifecycle"] = json!({
        "onTimeout": if keeps { "pause" } else { "kill" },
        "autoResume": !burrow_gateway::e2b::reach::needs_connect(row),
    });
    shown["volumeMounts"] = super::volumes::mounted(&row.spec.volumes);
    if state(row) == "paused" {
        let kept = matches!(row.state, State::Paused | State::Hibernated | State::Hibernating);
        shown["pauseMode"] = if kept { "full" } else { "filesystem" }.into();
    }
    Ok(shown)
}

fn template(row: &SandboxRow) -> String {
    row.spec.image.to_string()
}

pub(super) fn started_ms(row: &SandboxRow) -> u64 {
    row.started_ms.unwrap_or(row.created_ms)
}

fn end(row: &SandboxRow) -> String {
    match row.spec.lifetime.expires_ms() {
        Some(expires_ms) => time(expires_ms),
        None if state(row) == "paused" => time(row.slept_ms.or(row.stopped_ms).unwrap_or(row.updated_ms)),
        None => NEVER.to_owned(),
    }
}

/// In the format of RFC 3339.
pub(super) fn time(ms: u64) -> String {
    // The year 9999 is the last one that the format can represent.
    const LAST_MS: u64 = 253_370_764_800_000;
    let moment = UNIX_EPOCH + Duration::from_millis(ms.min(LAST_MS));
    humantime::format_rfc3339_millis(moment).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_format_of_clients() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_800_000_000_123), "2027-01-15T08:00:00.123Z");
        assert!(time(u64::MAX).starts_with("9999-"));
    }
}
