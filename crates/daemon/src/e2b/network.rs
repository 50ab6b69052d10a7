//! What a sandbox may reach, in E2B's words and in ours.
//!
//! ```text
//!   allow_internet_access true, nothing denied      mode open
//!   allow_internet_access false, or all denied      mode none; with `allowOut`, an allow-list of these
//!   neither                                         the operator's default
//! ```
//!
//! Private addresses, the host's and the cloud's metadata are never reached, whatever is allowed. Denying some addresses and
//! allowing the rest is nothing Burrow has, and refused.

use std::sync::Arc;

use axum::extract::State;
use burrow_engine::{NetworkChange, UpdateOptions};
use burrow_model::network::RULES_MAX;
use burrow_model::{EgressRule, HostPattern, NetworkMode, NetworkPolicy};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{By, Given, Unknown, asks};
use super::error::Refusal;
use super::sandboxes::Path;
use crate::convert;
use crate::rest::auth::UnboundExecutor;
use crate::rest::{App, Segments};

#[derive(Debug, Default, Deserialize)]
pub(super) struct NetworkConfig {
    #[serde(rename = "allowPublicTraffic")]
    pub(super) allow_public_traffic: Option<bool>,
    #[serde(rename = "allowOut")]
    allow: Option<Vec<String>>,
    #[serde(rename = "denyOut")]
    deny: Option<Vec<String>>,
    #[serde(alias = "allowInternetAccess")]
    allow_internet_access: Option<bool>,
    #[serde(rename = "dnsServers")]
    dns_servers: Option<Value>,
    #[serde(rename = "egressProxy")]
    proxy: Option<Value>,
    #[serde(rename = "maskRequestHost")]
    mask: Option<String>,
    #[serde(rename = "httpsPorts")]
    https_ports: Option<Value>,
    rules: Option<Value>,
    #[serde(flatten)]
    unknown: Unknown,
}

impl NetworkConfig {
    fn refuse_absent(&self) -> Result<(), Refusal> {
        let given = |value: &Option<Value>| value.as_ref().is_some_and(asks);
        let absent = [
            ("dnsServers", given(&self.dns_servers), "names are looked up by Burrow's own gateway"),
            ("egressProxy", given(&self.proxy), "connections leave through Burrow's own gateway"),
            ("httpsPorts", given(&self.https_ports), "servers inside are spoken to in plain HTTP"),
            (
                "rules",
                given(&self.rules),
                "request rules (`burrow egress`) put secrets into requests without the sandbox having them",
            ),
        ];
        match absent.iter().find(|(_, given, _)| *given) {
            Some((field, _, instead)) => {
                Err(Refusal::absent(format!("Burrow does not have `network.{field}`: {instead}")))
            }
            None => self.unknown.refuse(),
        }
    }
}

impl NetworkConfig {
    /// The host that servers inside see in place of the one they were asked by. `${PORT}` stands for the port.
    pub(super) fn mask(&self) -> Result<Option<String>, Refusal> {
        let Some(mask) = self.mask.as_deref().filter(|mask| !mask.is_empty()) else { return Ok(None) };
        let shown = mask.replace(PORT, "65535");
        if shown.len() > HOST_CHARACTERS_MAX
            || shown.parse::<http::uri::Authority>().is_err()
            || shown.contains('@')
        {
            let message =
                format!("`network.maskRequestHost` must be like `example.com` or `localhost:{PORT}`");
            return Err(Refusal::invalid(message));
        }
        Ok(Some(mask.to_owned()))
    }
}

/// What stands for a port in `maskRequestHost`.
pub(super) const PORT: &str = "${PORT}";

const HOST_CHARACTERS_MAX: usize = 253;

/// `None`: the operator's default.
pub(super) fn policy(
    internet: Option<bool>,
    config: Option<&NetworkConfig>,
) -> Result<Option<NetworkPolicy>, Refusal> {
    let nothing = NetworkConfig::default();
    let config = config.unwrap_or(&nothing);
    config.refuse_absent()?;
    let (mut all_denied, mut some_denied) = (internet == Some(false), None);
    for text in config.deny.iter().flatten() {
        match text.as_str() {
            "0.0.0.0/0" | "::/0" => all_denied = true,
            _ => some_denied = Some(text),
        }
    }
    if let Some(text) = some_denied.filter(|_| !all_denied) {
        let shown: String = text.chars().take(64).collect();
        return Err(Refusal::absent(format!(
            "Burrow denies everything or nothing: `{shown}` alone cannot be denied; deny `0.0.0.0/0` and list what is \
             allowed in `allowOut`"
        )));
    }
    let allowed = config.allow.as_deref().unwrap_or_default();
    if all_denied {
        let rules = rules(allowed)?;
        let mode = if rules.is_empty() { NetworkMode::None } else { NetworkMode::Allowlist };
        return Ok(Some(NetworkPolicy { mode, rules, ..NetworkPolicy::closed() }));
    }
    if internet == Some(true) || !allowed.is_empty() {
        // As E2B has it: what is not denied is allowed, listed or not.
        rules(allowed)?;
        return Ok(Some(NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() }));
    }
    Ok(None)
}

/// An entry is a name, an address or a block; all of them on every port.
fn rules(allowed: &[String]) -> Result<Vec<EgressRule>, Refusal> {
    if allowed.len() > RULES_MAX {
        return Err(Refusal::invalid(format!("`allowOut` has more than {RULES_MAX} entries")));
    }
    let rule = |text: &String| {
        let shown: String = text.chars().take(64).collect();
        let host = match text.split_once('/') {
            Some((address, "32" | "128")) => address,
            Some(_) => {
                let message = format!("Burrow allows names and single addresses, not blocks like `{shown}`");
                return Err(Refusal::absent(message));
            }
            None => text,
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let bad = |error: &dyn std::fmt::Display| {
            Refusal::invalid(format!("`allowOut` does not fit: `{shown}`: {error}"))
        };
        let plain: EgressRule = host.parse().map_err(|error| bad(&error))?;
        // A name is known by what is said on the wire; an address needs nothing to be said.
        match plain.host {
            HostPattern::Address(_) => format!("tcp://{host}:1-65535").parse().map_err(|error| bad(&error)),
            HostPattern::Exact(_) | HostPattern::Suffix(_) => Ok(plain),
        }
    };
    allowed.iter().map(rule).collect()
}

/// A policy as a change to it, whatever was there before.
pub(super) fn replacing(policy: NetworkPolicy) -> NetworkChange {
    NetworkChange {
        mode: Some(policy.mode),
        rules: Some(policy.rules),
        sets: Some(policy.sets),
        add: Vec::new(),
        remove: Vec::new(),
        add_sets: Vec::new(),
        remove_sets: Vec::new(),
        requests: Some(policy.requests),
        add_requests: Vec::new(),
    }
}

pub(super) async fn replace(
    State(app): State<Arc<App>>,
    By(caller): By<UnboundExecutor>,
    By(Segments(path)): By<Segments<Path>>,
    body: Given<NetworkConfig>,
) -> Result<StatusCode, Refusal> {
    if let Some(trace) = caller.trace() {
        trace.is(burrow_audit::Action::PolicyChange);
    }
    let id = path.resolve(&app, &caller).await?;
    if body.value.allow_public_traffic.is_some() {
        return Err(Refusal::absent("`allowPublicTraffic` is settled when a sandbox is created"));
    }
    if body.value.mask()?.is_some() {
        return Err(Refusal::absent("`maskRequestHost` is settled when a sandbox is created"));
    }
    let policy = policy(body.value.allow_internet_access, Some(&body.value))?;
    // What is left out is cleared, so nothing at all means nothing denied.
    let policy = policy.unwrap_or(NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() });
    let update = UpdateOptions {
        network: Some(replacing(policy)),
        ..convert::update_options(burrow_api::UpdateSandbox::default())?
    };
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.carry_out(async move { Ok(engine.update(&tenant, &id, update).await?) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) fn shown(policy: &NetworkPolicy, public: bool, mask: Option<&str>) -> Value {
    let rules: Vec<String> = policy.rules.iter().map(|rule| rule.host.to_string()).collect();
    let deny: &[&str] = match policy.mode {
        NetworkMode::Open => &[],
        NetworkMode::None | NetworkMode::Allowlist => &["0.0.0.0/0"],
    };
    let mut shown = json!({ "allowPublicTraffic": public, "allowOut": rules, "denyOut": deny });
    if let Some(mask) = mask {
        shown["maskRequestHost"] = mask.into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(internet: Option<bool>, json: &str) -> Result<Option<NetworkPolicy>, Refusal> {
        policy(internet, Some(&serde_json::from_str(json).unwrap()))
    }

    #[test]
    fn what_is_allowed_is_what_was_meant() {
        let mode = |internet, json: &str| {
            of(internet, json).unwrap().map(|policy| (policy.mode, policy.rules.len()))
        };
        assert_eq!(mode(None, "{}"), None, "the operator's default");
        assert_eq!(mode(Some(true), "{}"), Some((NetworkMode::Open, 0)));
        assert_eq!(mode(Some(false), "{}"), Some((NetworkMode::None, 0)));
        assert_eq!(mode(None, r#"{"denyOut": ["0.0.0.0/0"]}"#), Some((NetworkMode::None, 0)));
        let some =
            r#"{"denyOut": ["0.0.0.0/0"], "allowOut": ["*.example.com", "192.0.2.1/32", "2001:db8::1"]}"#;
        assert_eq!(mode(None, some), Some((NetworkMode::Allowlist, 3)));
        assert_eq!(mode(Some(false), r#"{"allowOut": ["example.com"]}"#), Some((NetworkMode::Allowlist, 1)));
        assert_eq!(mode(None, r#"{"allowOut": ["example.com"]}"#), Some((NetworkMode::Open, 0)));
    }

    #[test]
    fn a_masked_host_is_a_host() {
        let of = |mask: &str| {
            let config: NetworkConfig = serde_json::from_value(json!({ "maskRequestHost": mask })).unwrap();
            config.mask()
        };
        assert_eq!(of("localhost:${PORT}").unwrap().as_deref(), Some("localhost:${PORT}"));
        assert_eq!(of("app.example.com").unwrap().as_deref(), Some("app.example.com"));
        assert_eq!(of("").unwrap(), None);
        for bad in ["a b", "a\r\nx: y", "user@host", "a/b", &"a".repeat(300)] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in [
            r#"{"denyOut": ["192.0.2.0/24"]}"#,
            r#"{"denyOut": ["0.0.0.0/0"], "allowOut": ["192.0.2.0/24"]}"#,
            r#"{"denyOut": ["0.0.0.0/0"], "allowOut": ["*"]}"#,
            r#"{"egressProxy": {"address": "x"}}"#,
            r#"{"rules": {"a": []}}"#,
            r#"{"httpsPorts": [443]}"#,
            r#"{"dnsServers": ["192.0.2.53"]}"#,
            r#"{"newer": "x"}"#,
        ] {
            assert!(of(None, bad).is_err(), "{bad}");
        }
    }
}
