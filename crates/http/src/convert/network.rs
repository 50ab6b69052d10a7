//! Converts network access: parses requests, and formats policies and log entries.

use burrow_api as api;
use burrow_api::policy::{Fault, RuleDocument, Step, check};
use burrow_catalog::{EgressKind, EgressRow, EgressVerdict};
use burrow_egress::{Counters, DetectedProtocol};
use burrow_engine::{DeniedTraffic, NetworkChange};
use burrow_model::network::{DENIED_MAX, RULES_MAX, RequestRule, SETS_MAX};
use burrow_model::{EgressRule, IpRange, Name, NetworkMode, NetworkPolicy};

use super::checks;
use crate::error::ApiError;

/// Absent fields are taken from the operator's default.
pub fn network_policy(
    request: api::NetworkRequest,
    default: &NetworkPolicy,
) -> Result<NetworkPolicy, ApiError> {
    let api::NetworkRequest { mode: asked, allow, sets, requests, deny } = request;
    let given = allow.as_ref().is_some_and(|rules| !rules.is_empty())
        || sets.as_ref().is_some_and(|sets| !sets.is_empty())
        || requests.as_ref().is_some_and(|rules| !rules.is_empty());
    let mode = match asked {
        Some(mode) => self::mode(mode),
        // A list of hosts means exactly these hosts.
        None if given => NetworkMode::Allowlist,
        None => default.mode,
    };
    if mode == NetworkMode::None {
        check_rules_have_a_mode(given)?;
        return Ok(NetworkPolicy { mode, ..NetworkPolicy::closed() });
    }
    let rules = allow.map(|texts| rules("network.allow", texts)).transpose()?;
    let sets = sets.map(|texts| names("network.sets", texts)).transpose()?;
    let requests = requests.map(|rules| request_rules("requests", &rules)).transpose()?;
    let deny = deny.map(|texts| blocks("network.deny", texts)).transpose()?;
    Ok(NetworkPolicy {
        mode,
        rules: rules.unwrap_or_else(|| default.rules.clone()),
        sets: sets.unwrap_or_else(|| default.sets.clone()),
        requests: requests.unwrap_or_else(|| default.requests.clone()),
        deny: deny.unwrap_or_else(|| default.deny.clone()),
        transforms: None,
    })
}

pub fn network_change(request: api::UpdateNetwork) -> Result<NetworkChange, ApiError> {
    let api::UpdateNetwork {
        mode,
        allow,
        sets,
        add,
        remove,
        add_sets,
        remove_sets,
        requests,
        add_requests,
        deny,
        add_deny,
        remove_deny,
    } = request;
    let given = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    if mode == Some(api::NetworkMode::None) {
        let about_requests =
            requests.as_ref().is_some_and(|rules| !rules.is_empty()) || !add_requests.is_empty();
        let listed = given(&allow) || given(&sets) || !add.is_empty() || !add_sets.is_empty();
        check_rules_have_a_mode(listed || about_requests)?;
    }
    Ok(NetworkChange {
        mode: mode.map(self::mode),
        rules: allow.map(|texts| rules("network.allow", texts)).transpose()?,
        sets: sets.map(|texts| names("network.sets", texts)).transpose()?,
        add: rules("network.add", add)?,
        remove: rules("network.remove", remove)?,
        add_sets: names("network.add_sets", add_sets)?,
        remove_sets: names("network.remove_sets", remove_sets)?,
        requests: requests.map(|rules| request_rules("requests", &rules)).transpose()?,
        add_requests: request_rules("add_requests", &add_requests)?,
        deny: deny.map(|texts| blocks("network.deny", texts)).transpose()?,
        add_deny: blocks("network.add_deny", add_deny)?,
        remove_deny: blocks("network.remove_deny", remove_deny)?,
        transforms: None,
    })
}

/// The places of the request rules of a network, in the body that contains it.
pub fn request_places(field: &str, count: usize) -> Vec<Vec<Step>> {
    let at = |index| [request_place(field), vec![Step::Index(index)]].concat();
    (0..count).map(at).collect()
}

fn request_place(field: &str) -> Vec<Step> {
    ["network", field].map(|key| Step::Key(key.to_owned())).to_vec()
}

fn request_rules(field: &str, rules: &[RuleDocument]) -> Result<Vec<RequestRule>, ApiError> {
    check::rules(rules, &request_place(field)).map_err(fault)
}

/// An error for a fault of a policy document; it contains the place.
pub fn fault(fault: Fault) -> ApiError {
    let error = ApiError::invalid(format!("invalid policy: {fault}"));
    match fault.hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn check_rules_have_a_mode(given: bool) -> Result<(), ApiError> {
    if given {
        let message = "invalid `network`: rules and host sets allow nothing while the mode is `none`";
        return Err(ApiError::invalid(message).hint("set `network.mode` to `allowlist`, or leave it out"));
    }
    Ok(())
}

fn mode(mode: api::NetworkMode) -> NetworkMode {
    match mode {
        api::NetworkMode::None => NetworkMode::None,
        api::NetworkMode::Allowlist => NetworkMode::Allowlist,
        api::NetworkMode::Open => NetworkMode::Open,
    }
}

/// Without duplicates, in their order.
fn rules(field: &str, texts: Vec<String>) -> Result<Vec<EgressRule>, ApiError> {
    let parse = |text: &str| {
        text.parse::<EgressRule>().map_err(|error| {
            let shown: String = text.chars().take(80).collect();
            ApiError::invalid(format!("`{field}` contains `{shown}`: {error}"))
        })
    };
    distinct(field, texts, RULES_MAX, parse)
}

fn blocks(field: &str, texts: Vec<String>) -> Result<Vec<IpRange>, ApiError> {
    let parse = |text: &str| {
        text.parse::<IpRange>().map_err(|error| {
            let shown: String = text.chars().take(80).collect();
            ApiError::invalid(format!("`{field}` contains `{shown}`: {error}"))
        })
    };
    distinct(field, texts, DENIED_MAX, parse)
}

fn names(field: &str, texts: Vec<String>) -> Result<Vec<Name>, ApiError> {
    distinct(field, texts, SETS_MAX, |text| checks::name(field, text))
}

fn distinct<T: PartialEq>(
    field: &str,
    texts: Vec<String>,
    max: usize,
    parse: impl Fn(&str) -> Result<T, ApiError>,
) -> Result<Vec<T>, ApiError> {
    if texts.len() > max {
        return Err(ApiError::invalid(format!("`{field}` has more than {max} entries")));
    }
    let mut items = Vec::with_capacity(texts.len());
    for text in texts {
        let item = parse(&text)?;
        if !items.contains(&item) {
            items.push(item);
        }
    }
    Ok(items)
}

// === Responses ===

pub fn network(policy: &NetworkPolicy) -> api::Network {
    api::Network {
        mode: network_mode(policy.mode),
        allow: policy.rules.iter().map(ToString::to_string).collect(),
        sets: policy.sets.iter().map(ToString::to_string).collect(),
        requests: policy.requests.iter().map(RuleDocument::from).collect(),
        deny: policy.deny.iter().map(ToString::to_string).collect(),
    }
}

pub fn network_mode(mode: NetworkMode) -> api::NetworkMode {
    match mode {
        NetworkMode::None => api::NetworkMode::None,
        NetworkMode::Allowlist => api::NetworkMode::Allowlist,
        NetworkMode::Open => api::NetworkMode::Open,
    }
}

pub fn protocol(seen: DetectedProtocol) -> api::EgressKind {
    match seen {
        DetectedProtocol::Tls => api::EgressKind::Tls,
        DetectedProtocol::Http => api::EgressKind::Http,
        DetectedProtocol::Tcp => api::EgressKind::Tcp,
    }
}

pub fn denied(denied: DeniedTraffic) -> api::EgressDenied {
    let set = denied.set.map(String::from);
    api::EgressDenied { host: denied.host, port: denied.port, reason: denied.reason, set }
}

pub fn egress_counters(counters: Counters) -> api::EgressCounters {
    api::EgressCounters {
        allowed: counters.connections_allowed,
        denied: counters.connections_denied + counters.questions_denied,
        failed: counters.connections_failed,
        connections_open: counters.connections_open,
        sent_bytes: counters.bytes_out,
        received_bytes: counters.bytes_in,
        log_dropped: counters.log_dropped,
    }
}

pub fn egress_entry(row: EgressRow) -> api::EgressEntry {
    api::EgressEntry {
        seq: row.seq,
        at_ms: row.at_ms,
        kind: match row.kind {
            EgressKind::Dns => api::EgressKind::Dns,
            EgressKind::Tls => api::EgressKind::Tls,
            EgressKind::Http => api::EgressKind::Http,
            EgressKind::Tcp => api::EgressKind::Tcp,
        },
        verdict: match row.verdict {
            EgressVerdict::Allowed => api::EgressVerdict::Allowed,
            EgressVerdict::Denied => api::EgressVerdict::Denied,
            EgressVerdict::Failed => api::EgressVerdict::Failed,
            EgressVerdict::Closed => api::EgressVerdict::Closed,
        },
        host: row.host,
        port: row.port,
        rule: row.rule,
        reason: row.reason,
        address: row.address,
        sent_bytes: row.sent_bytes,
        received_bytes: row.received_bytes,
        duration_ms: row.duration_ms,
        times: row.times,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(json: &str, default: &NetworkPolicy) -> Result<NetworkPolicy, ApiError> {
        let request = serde_json::from_str(json).expect("the request is well-formed");
        network_policy(request, default)
    }

    fn open() -> NetworkPolicy {
        NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() }
    }

    #[test]
    fn absent_fields_take_the_operators_default_and_hosts_mean_an_allowlist() {
        let default =
            NetworkPolicy { rules: vec!["example.com".parse().unwrap()], ..NetworkPolicy::closed() };
        for (json, default, expected) in [
            ("{}", &default, ("allowlist", vec!["example.com"])),
            ("{}", &open(), ("open", vec![])),
            (r#"{"mode": "open"}"#, &default, ("open", vec!["example.com"])),
            (r#"{"allow": ["a.example"]}"#, &default, ("allowlist", vec!["a.example"])),
            (r#"{"allow": ["a.example", "A.example."]}"#, &open(), ("allowlist", vec!["a.example"])),
            (r#"{"allow": []}"#, &default, ("allowlist", vec![])),
            (r#"{"mode": "none"}"#, &default, ("none", vec![])),
        ] {
            let policy = network(&policy(json, default).unwrap());
            let expected = (expected.0, expected.1.iter().map(ToString::to_string).collect());
            assert_eq!((policy.mode.as_str(), policy.allow), expected, "{json}");
        }
    }

    #[track_caller]
    fn refused(json: &str, expected: &str) {
        let error = policy(json, &NetworkPolicy::closed()).expect_err(json).into_detail();
        assert!(error.message.contains(expected), "{}", error.message);
    }

    #[test]
    fn invalid_policies_are_rejected_with_their_field() {
        refused(r#"{"allow": ["*"]}"#, "`network.allow` contains `*`");
        refused(r#"{"allow": ["https://a.example/path"]}"#, "not a path");
        refused(r#"{"deny": ["example.com"]}"#, "`network.deny` contains `example.com`");
        refused(r#"{"sets": ["A b"]}"#, "`network.sets`");
        refused(r#"{"mode": "none", "allow": ["a.example"]}"#, "`none`");
        let many: Vec<String> = (0..=RULES_MAX).map(|number| format!("a{number}.example")).collect();
        refused(&serde_json::json!({ "allow": many }).to_string(), "more than 1000");
        let change = api::UpdateNetwork {
            mode: Some(api::NetworkMode::None),
            add: vec!["a.example".to_owned()],
            ..api::UpdateNetwork::default()
        };
        assert!(network_change(change).is_err());
    }
}
