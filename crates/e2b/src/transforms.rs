//! `network.rules`: headers that are set on requests to some hosts, in the notation of E2B's clients.
//!
//! ```text
//!   {"api.example.com": [{"transform": {"headers": {"Authorization": "Bearer …"}}}]}
//! ```
//!
//! The rules of one host are merged in order, and the later value wins; rules of different hosts are never merged.
//! Values are returned only to keys that may set them.

use std::collections::BTreeMap;
use std::fmt;

use burrow_api::UpdateNetwork;
use burrow_catalog::SandboxRow;
use burrow_engine::{EngineError, NetworkChange};
use burrow_model::network::{
    HeaderTransform, SealedTransforms, TransformHeader, TransformName, check_transforms,
};
use burrow_model::{HostPattern, SecretBytes};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::body::UnknownFields;
use super::error::Refusal;
use burrow_http::app::App;
use burrow_http::auth::Caller;
use burrow_http::convert;

/// By host.
pub(super) type Rules = BTreeMap<String, Vec<Rule>>;

#[derive(Debug, Deserialize)]
pub(super) struct Rule {
    transform: Option<Transform>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

#[derive(Debug, Deserialize)]
struct Transform {
    headers: Option<BTreeMap<String, HeaderText>>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

/// The value of a header, usually a credential.
#[derive(Deserialize)]
#[serde(transparent)]
struct HeaderText(String);

impl fmt::Debug for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The placeholder for tokens that E2B's own proxy issues.
const IDENTITY: &str = "${e2b.";

/// Replaces a value for a key that may not set it.
const HIDDEN: &str = "***";

/// Validates the rules of a request.
pub(super) fn read(rules: &Rules) -> Result<Vec<HeaderTransform>, Refusal> {
    let transforms = rules.iter().map(|(host, rules)| of_host(host, rules)).collect::<Result<Vec<_>, _>>()?;
    check_transforms(&transforms).map_err(invalid)?;
    Ok(transforms)
}

fn of_host(host: &str, rules: &[Rule]) -> Result<HeaderTransform, Refusal> {
    let pattern = host.parse::<HostPattern>().map_err(|error| {
        let shown: String = host.chars().filter(|c| !c.is_control()).take(64).collect();
        Refusal::invalid(format!("invalid `network.rules`: `{shown}`: {error}"))
    })?;
    let mut headers: Vec<TransformHeader> = Vec::new();
    for rule in rules {
        rule.unknown.refuse()?;
        let Some(transform) = &rule.transform else { continue };
        transform.unknown.refuse()?;
        let of_rule = transform.headers.iter().flatten().map(header).collect::<Result<Vec<_>, _>>()?;
        // Header names are case-insensitive; two values for the same name in one rule are ambiguous.
        let host = pattern.clone();
        let of_rule = HeaderTransform { host, headers: of_rule };
        check_transforms(std::slice::from_ref(&of_rule)).map_err(invalid)?;
        headers.retain(|earlier| of_rule.headers.iter().all(|later| later.name != earlier.name));
        headers.extend(of_rule.headers);
    }
    Ok(HeaderTransform { host: pattern, headers })
}

fn header((name, value): (&String, &HeaderText)) -> Result<TransformHeader, Refusal> {
    let name = name.parse::<TransformName>().map_err(invalid)?;
    if value.0.contains(IDENTITY) {
        return Err(Refusal::absent(format!(
            "the value of the header `{name}` requests a workload identity token (`{IDENTITY}…}}`), which Burrow does not support; set \
             the value itself, or insert a secret with a request rule (`burrow secret`, `burrow egress`)"
        )));
    }
    Ok(TransformHeader { name, value: SecretBytes::new(value.0.as_bytes().to_vec()) })
}

fn invalid(error: impl fmt::Display) -> Refusal {
    Refusal::invalid(format!("invalid `network.rules`: {error}"))
}

/// Encrypts headers for a sandbox's policy.
pub(super) async fn seal(
    app: &App,
    caller: &Caller,
    transforms: &[HeaderTransform],
) -> Result<Option<SealedTransforms>, Refusal> {
    Ok(app.engine.seal_transforms(caller.tenant(), transforms).await?)
}

/// A change of these headers only.
pub(super) fn adding(transforms: SealedTransforms) -> Result<NetworkChange, Refusal> {
    let nothing = convert::network_change(UpdateNetwork::default())?;
    Ok(NetworkChange { transforms: Some(Some(transforms)), ..nothing })
}

/// The rules of a sandbox, one for each host; `None` if it has none. Keys that only read, or that are bound to the
/// sandbox and may therefore be inside it, do not receive the values.
pub(super) async fn shown(app: &App, caller: &Caller, row: &SandboxRow) -> Result<Option<Value>, Refusal> {
    let Some(sealed) = &row.spec.network.transforms else { return Ok(None) };
    let visible = caller.executes() && caller.unbound().is_ok();
    match app.engine.transforms(row).await {
        Ok(transforms) => {
            Ok(Some(transforms.iter().map(|transform| of_transform(transform, visible)).collect()))
        }
        // The rest of the sandbox can still be returned.
        Err(error @ EngineError::Vault(_)) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(sandbox = %row.id, error, "cannot decrypt the headers of a sandbox; showing its hosts only");
            Ok(Some(sealed.hosts.iter().map(|host| (host.to_string(), json!([]))).collect()))
        }
        Err(error) => Err(error.into()),
    }
}

fn of_transform(transform: &HeaderTransform, visible: bool) -> (String, Value) {
    let value = |header: &TransformHeader| {
        if visible { String::from_utf8_lossy(header.value.expose()).into_owned() } else { HIDDEN.to_owned() }
    };
    let headers: Map<String, Value> =
        transform.headers.iter().map(|header| (header.name.to_string(), value(header).into())).collect();
    let rules = if headers.is_empty() { json!([]) } else { json!([{ "transform": { "headers": headers } }]) };
    (transform.host.to_string(), rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Result<Value, Refusal> {
        let transforms = read(&serde_json::from_str(json).unwrap())?;
        Ok(transforms.iter().map(|transform| of_transform(transform, true)).collect())
    }

    #[test]
    fn rules_survive_parsing_and_formatting() {
        let json = r#"{"*.Example.com": [{"transform": {"headers": {"X-Team": "blue", "Authorization": "Bearer sk-1"}}}],
                       "plain.example.com": []}"#;
        let expected = json!({
            "*.example.com": [{ "transform": { "headers": { "X-Team": "blue", "Authorization": "Bearer sk-1" } } }],
            "plain.example.com": [],
        });
        assert_eq!(of(json).unwrap(), expected);
        assert_eq!(of("{}").unwrap(), json!({}));
    }

    #[test]
    fn the_rules_of_one_host_are_merged_and_the_later_value_wins() {
        let json = r#"{"a.example": [{"transform": {"headers": {"X-A": "1", "X-B": "1"}}}, {}, {"transform": {}},
                                     {"transform": {"headers": {"x-a": "2"}}}]}"#;
        let merged = json!({ "a.example": [{ "transform": { "headers": { "X-B": "1", "x-a": "2" } } }] });
        assert_eq!(of(json).unwrap(), merged);
    }

    #[test]
    fn errors_do_not_contain_values() {
        for bad in [
            r#"{"*": []}"#,
            r#"{"": []}"#,
            r#"{"192.0.2.1": []}"#,
            r#"{"192.0.2.0/24": []}"#,
            r#"{"a.example:8443": []}"#,
            r#"{"a.*.example": []}"#,
            r#"{"a.example": [], "A.example": []}"#,
            r#"{"a.example": [{"transform": {"headers": {"Host": "canary"}}}]}"#,
            r#"{"a.example": [{"transform": {"headers": {"X-HTTP-Method-Override": "canary"}}}]}"#,
            r#"{"a.example": [{"transform": {"headers": {"X-A": "canary\r\nX-B: 1"}}}]}"#,
            r#"{"a.example": [{"transform": {"headers": {"X-A": "canary", "x-a": "2"}}}]}"#,
            r#"{"a.example": [{"transform": {"headers": {"X-A": "canary ${e2b.identity.tokens.aws}"}}}]}"#,
            r#"{"a.example": [{"transform": {"query": {"a": "canary"}}}]}"#,
            r#"{"a.example": [{"newer": "canary"}]}"#,
        ] {
            let refused = format!("{:?}", of(bad).unwrap_err());
            assert!(!refused.contains("canary"), "{refused}");
        }
        let rules: Rules =
            serde_json::from_str(r#"{"a.example": [{"transform": {"headers": {"X-A": "canary"}}}]}"#)
                .unwrap();
        assert!(!format!("{rules:?}").contains("canary"));
    }

    #[test]
    fn hidden_values_are_not_returned() {
        let transforms = read(
            &serde_json::from_str(r#"{"a.example": [{"transform": {"headers": {"X-A": "canary"}}}]}"#)
                .unwrap(),
        )
        .unwrap();
        let (_, shown) = of_transform(&transforms[0], false);
        assert_eq!(shown, json!([{ "transform": { "headers": { "X-A": "***" } } }]));
    }
}
