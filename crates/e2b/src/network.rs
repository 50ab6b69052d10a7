//! Translates network settings between E2B's notation and ours.
//!
//! ```text
//!   allow_internet_access true, nothing denied       mode open
//!   allow_internet_access false, or 0.0.0.0/0 denied mode none; with `allowOut`, an allow-list of these; with `*`, mode open
//!   some addresses denied                            mode open without these; those in `allowOut` are exceptions
//!   neither                                          the operator's default
//! ```
//!
//! Private addresses, those of the host and the cloud's metadata are never allowed. Headers that are set on requests
//! (`rules`) are in [`super::transforms`].

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use burrow_catalog::SandboxRow;
use burrow_engine::{NetworkChange, UpdateOptions};
use burrow_model::network::{DENIED_MAX, HeaderTransform, PortRange, RULES_MAX, RuleProtocol};
use burrow_model::{EgressRule, HostPattern, IpRange, NetworkMode, NetworkPolicy};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{E2bExtractor, JsonInput, UnknownFields, asks};
use super::error::Refusal;
use super::sandbox_path::Path;
use super::transforms;
use super::transforms::Rules;
use burrow_gateway::e2b::reach::{self, PORT};
use burrow_http::app::App;
use burrow_http::auth::UnboundExecutor;
use burrow_http::convert;
use burrow_http::input::Segments;

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
    https_ports: Option<Vec<u16>>,
    rules: Option<Rules>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

impl NetworkConfig {
    fn refuse_absent(&self) -> Result<(), Refusal> {
        let given = |value: &Option<Value>| value.as_ref().is_some_and(asks);
        let absent = [
            ("dnsServers", given(&self.dns_servers), "Burrow's own gateway resolves names"),
            ("egressProxy", given(&self.proxy), "connections leave through Burrow's own gateway"),
        ];
        match absent.iter().find(|(_, given, _)| *given) {
            Some((field, _, instead)) => {
                Err(Refusal::absent(format!("Burrow does not support `network.{field}`: {instead}")))
            }
            None => self.unknown.refuse(),
        }
    }
}

impl NetworkConfig {
    /// The headers that are set on requests.
    pub(super) fn transforms(&self) -> Result<Vec<HeaderTransform>, Refusal> {
        self.rules.as_ref().map_or(Ok(Vec::new()), transforms::read)
    }

    /// The host name that servers inside see, instead of the one that was requested. `${PORT}` stands for the port.
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

impl NetworkConfig {
    /// The ports whose servers speak HTTPS.
    pub(super) fn https_ports(&self) -> Result<Vec<u16>, Refusal> {
        let ports = self.https_ports.clone().unwrap_or_default();
        if ports.len() > HTTPS_PORTS_MAX || ports.contains(&0) {
            let message =
                format!("`network.httpsPorts` must have at most {HTTPS_PORTS_MAX} ports, from 1 to 65535");
            return Err(Refusal::invalid(message));
        }
        Ok(ports)
    }
}

/// All of them are stored in one label.
const HTTPS_PORTS_MAX: usize = 32;

const HOST_CHARACTERS_MAX: usize = 253;

/// `None`: the operator's default.
pub(super) fn policy(
    internet: Option<bool>,
    config: Option<&NetworkConfig>,
) -> Result<Option<NetworkPolicy>, Refusal> {
    let nothing = NetworkConfig::default();
    let config = config.unwrap_or(&nothing);
    config.refuse_absent()?;
    let denied = denied(config.deny.as_deref().unwrap_or_default())?;
    let allowed = config.allow.as_deref().unwrap_or_default();
    let every_name = allowed.iter().any(|text| text == EVERY_NAME);
    let rules = rules(allowed)?;
    let is_all = |range: &IpRange| range.to_string() == ALL_TRAFFIC;
    if internet == Some(false) || denied.iter().any(is_all) {
        if every_name {
            // Any address may have a name, so this allows everything except what is also denied.
            let rules = rules.into_iter().filter(|rule| !is_name(&rule.host)).collect();
            let deny = denied.into_iter().filter(|range| !is_all(range)).collect();
            let mode = NetworkMode::Open;
            return Ok(Some(NetworkPolicy { mode, rules, deny, ..NetworkPolicy::closed() }));
        }
        let mode = if rules.is_empty() { NetworkMode::None } else { NetworkMode::Allowlist };
        return Ok(Some(NetworkPolicy { mode, rules, ..NetworkPolicy::closed() }));
    }
    // As in E2B: names are allowed only if everything else is denied.
    let named = rules.iter().map(|rule| &rule.host).find(|host| is_name(host)).map(ToString::to_string);
    if let Some(name) = named.or(every_name.then(|| EVERY_NAME.to_owned())) {
        return Err(Refusal::invalid(format!(
            "`allowOut` has the domain `{name}`: then `denyOut` must hold `{ALL_TRAFFIC}` to deny all other traffic"
        )));
    }
    if internet == Some(true) || !rules.is_empty() || !denied.is_empty() {
        let mode = NetworkMode::Open;
        return Ok(Some(NetworkPolicy { mode, rules, deny: denied, ..NetworkPolicy::closed() }));
    }
    Ok(None)
}

/// E2B's notation for all traffic. Here it includes IPv6.
const ALL_TRAFFIC: &str = "0.0.0.0/0";

/// Means every name, in `allowOut`.
const EVERY_NAME: &str = "*";

fn is_name(host: &HostPattern) -> bool {
    match host {
        HostPattern::Exact(_) | HostPattern::Suffix(_) => true,
        HostPattern::Address(_) | HostPattern::Block(_) => false,
    }
}

/// Each entry is an address or a block.
fn denied(denied: &[String]) -> Result<Vec<IpRange>, Refusal> {
    if denied.len() > DENIED_MAX {
        return Err(Refusal::invalid(format!("`denyOut` has more than {DENIED_MAX} entries")));
    }
    let block = |text: &String| {
        let shown: String = text.chars().take(64).collect();
        block(text).ok_or_else(|| {
            Refusal::invalid(format!("invalid `denyOut`: `{shown}` is neither an address nor a CIDR block"))
        })
    };
    denied.iter().map(block).collect()
}

/// An address, or a block given by any of its addresses, as in E2B.
fn block(text: &str) -> Option<IpRange> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) if prefix.bytes().all(|b| b.is_ascii_digit()) => {
            (address.parse::<IpAddr>().ok()?, prefix.parse().ok()?)
        }
        Some(_) => return None,
        None => {
            let address = text.parse::<IpAddr>().ok()?;
            (address, if address.is_ipv4() { 32 } else { 128 })
        }
    };
    IpRange::around(address, prefix)
}

/// Each entry is a name, or an address or a block on every port. `*` sets the mode instead of a rule.
fn rules(allowed: &[String]) -> Result<Vec<EgressRule>, Refusal> {
    if allowed.len() > RULES_MAX {
        return Err(Refusal::invalid(format!("`allowOut` has more than {RULES_MAX} entries")));
    }
    let rule = |text: &String| match block(text) {
        // A name is identified from the connection's first bytes; an address requires none.
        Some(range) => Ok(EgressRule {
            host: range.single().map_or(HostPattern::Block(range), HostPattern::Address),
            ports: PortRange::new(1, u16::MAX).into_iter().collect(),
            protocol: RuleProtocol::Tcp,
        }),
        None => text.parse::<EgressRule>().map_err(|error| {
            let shown: String = text.chars().take(64).collect();
            Refusal::invalid(format!("invalid `allowOut`: `{shown}`: {error}"))
        }),
    };
    allowed.iter().filter(|text| *text != EVERY_NAME).map(rule).collect()
}

/// A policy as a change that replaces everything.
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
        deny: Some(policy.deny),
        add_deny: Vec::new(),
        remove_deny: Vec::new(),
        transforms: Some(policy.transforms),
    }
}

pub(super) async fn replace(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<UnboundExecutor>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
    body: JsonInput<NetworkConfig>,
) -> Result<StatusCode, Refusal> {
    if let Some(trace) = caller.trace() {
        trace.is(burrow_audit::Action::PolicyChange);
    }
    let id = path.resolve(&app, &caller).await?;
    if body.value.allow_public_traffic.is_some() {
        return Err(Refusal::absent("`allowPublicTraffic` can only be set when a sandbox is created"));
    }
    if body.value.mask()?.is_some() {
        return Err(Refusal::absent("`maskRequestHost` can only be set when a sandbox is created"));
    }
    if !body.value.https_ports()?.is_empty() {
        return Err(Refusal::absent("`httpsPorts` can only be set when a sandbox is created"));
    }
    let policy = policy(body.value.allow_internet_access, Some(&body.value))?;
    // Absent fields are cleared, so an empty request denies nothing.
    let policy = policy.unwrap_or(NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() });
    let transforms = transforms::seal(&app, &caller, &body.value.transforms()?).await?;
    let policy = NetworkPolicy { transforms, ..policy };
    let update = UpdateOptions {
        network: Some(replacing(policy)),
        ..convert::update_options(burrow_api::UpdateSandbox::default())?
    };
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.carry_out(async move { Ok(engine.update(&tenant, &id, update).await?) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) fn shown(row: &SandboxRow) -> Value {
    let public = row.spec.lease.as_ref().is_some_and(|lease| lease.public);
    let mut shown = shown_policy(&row.spec.network, public);
    if let Some(mask) = reach::mask(row) {
        shown["maskRequestHost"] = mask.into();
    }
    let https_ports = reach::https_ports(row);
    if !https_ports.is_empty() {
        shown["httpsPorts"] = json!(https_ports);
    }
    shown
}

fn shown_policy(policy: &NetworkPolicy, public: bool) -> Value {
    let host = |rule: &EgressRule| rule.host.to_string().trim_matches(['[', ']']).to_owned();
    let rules: Vec<String> = policy.rules.iter().map(host).collect();
    let all = match policy.mode {
        NetworkMode::Open => None,
        NetworkMode::None | NetworkMode::Allowlist => Some(ALL_TRAFFIC.to_owned()),
    };
    let block = |range: &IpRange| range.single().map_or(range.to_string(), |address| address.to_string());
    let deny: Vec<String> = all.into_iter().chain(policy.deny.iter().map(block)).collect();
    json!({ "allowPublicTraffic": public, "allowOut": rules, "denyOut": deny })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(internet: Option<bool>, json: &str) -> Result<Option<NetworkPolicy>, Refusal> {
        policy(internet, Some(&serde_json::from_str(json).unwrap()))
    }

    #[test]
    fn network_settings_are_translated() {
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
        assert_eq!(mode(None, r#"{"allowOut": ["192.0.2.1"]}"#), Some((NetworkMode::Open, 1)));
    }

    #[test]
    fn a_star_allows_every_name_except_denied_addresses() {
        let json =
            r#"{"denyOut": ["0.0.0.0/0", "192.0.2.0/24"], "allowOut": ["*", "example.com", "192.0.2.1"]}"#;
        let policy = of(None, json).unwrap().unwrap();
        assert_eq!(policy.mode, NetworkMode::Open);
        let shown = shown_policy(&policy, false);
        assert_eq!(
            (&shown["denyOut"], &shown["allowOut"]),
            (&json!(["192.0.2.0/24"]), &json!(["192.0.2.1"]))
        );
        let open = of(Some(false), r#"{"allowOut": ["*"]}"#).unwrap().unwrap();
        assert_eq!((open.mode, open.rules.len(), open.deny.len()), (NetworkMode::Open, 0, 0));
    }

    #[test]
    fn addresses_and_blocks_survive_translation() {
        let json = r#"{"denyOut": ["192.0.2.7", "198.51.100.9/24", "2001:db8::/32"],
                       "allowOut": ["198.51.100.1", "192.0.2.0/30", "2001:db8::1"]}"#;
        let policy = of(None, json).unwrap().unwrap();
        assert_eq!(policy.mode, NetworkMode::Open);
        let rules: Vec<String> = policy.rules.iter().map(ToString::to_string).collect();
        let expected =
            ["tcp://198.51.100.1:1-65535", "tcp://192.0.2.0/30:1-65535", "tcp://[2001:db8::1]:1-65535"];
        assert_eq!(rules, expected);
        let shown = shown_policy(&policy, false);
        assert_eq!(shown["denyOut"], json!(["192.0.2.7", "198.51.100.0/24", "2001:db8::/32"]));
        assert_eq!(shown["allowOut"], json!(["198.51.100.1", "192.0.2.0/30", "2001:db8::1"]));
    }

    #[test]
    fn only_host_names_are_accepted_as_masked_hosts() {
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
    fn only_some_ports_can_be_declared_as_https() {
        let of = |ports: &str| {
            let config: NetworkConfig =
                serde_json::from_str(&format!(r#"{{"httpsPorts": {ports}}}"#)).unwrap();
            config.https_ports()
        };
        assert_eq!(of("[443, 8443]").unwrap(), [443, 8443]);
        assert!(of("null").unwrap().is_empty());
        assert!(of("[0]").is_err() && of(&format!("{:?}", [1; 33])).is_err());
    }

    #[test]
    fn unsupported_settings_are_rejected() {
        for bad in [
            r#"{"denyOut": ["example.com"]}"#,
            r#"{"denyOut": ["192.0.2.0/33"]}"#,
            r#"{"allowOut": ["example.com"]}"#,
            r#"{"denyOut": ["192.0.2.0/24"], "allowOut": ["*.example.com"]}"#,
            r#"{"allowOut": ["*"]}"#,
            r#"{"denyOut": ["192.0.2.0/24"], "allowOut": ["*"]}"#,
            r#"{"denyOut": ["0.0.0.0/0"], "allowOut": ["**"]}"#,
            r#"{"egressProxy": {"address": "x"}}"#,
            r#"{"dnsServers": ["192.0.2.53"]}"#,
            r#"{"newer": "x"}"#,
        ] {
            assert!(of(None, bad).is_err(), "{bad}");
        }
    }
}
