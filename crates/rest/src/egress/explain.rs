//! `…/egress/explain`: what would happen to a connection and to a request on it, and which rule decides.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{EgressExplanation, EgressQuestion, EgressRequestExplained};
use burrow_catalog::SandboxRow;
use burrow_egress::{Decision, Denial, DetectedProtocol, Host, Target};
use burrow_engine::EgressInForce;
use burrow_model::network::{Method, RequestRule, RuleMode};
use burrow_model::{HostName, Name, NetworkMode, SecretSpec};

use super::super::sandboxes::SandboxPath;
use super::{policy, target};
use burrow_http::app::App;
use burrow_http::auth::Reader;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Segments};
use burrow_http::refusals::{Common, ObjectRefusals, WithBody};

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/egress/explain", tag = "egress", params(SandboxPath),
    request_body = EgressQuestion,
    responses(
        (status = 200, description = "What would happen; no name is resolved and no connection is made", body = EgressExplanation),
        Common, ObjectRefusals, WithBody,
    ),
)]
pub(crate) async fn explain(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<EgressQuestion>,
) -> Result<Json<EgressExplanation>, ApiError> {
    let target = target(&body.value.target)?;
    let method = body.value.method.as_deref().unwrap_or("GET");
    let method: Method =
        method.parse().map_err(|error| ApiError::invalid(format!("`method` is invalid: {error}")))?;
    let asked = HypotheticalRequest { method, path: path_of(&body.value.target)? };
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let row = app.engine.get(caller.tenant(), &id).await?;
    let in_force = app.engine.egress_in_force(&row);
    let answer = explained(&app, &row, &in_force, &target);
    let secrets = policy::secrets(&app, caller.tenant()).await?;
    let Some((decided, rule)) = request_explained(answer.clone(), &in_force, &target, &asked, &secrets)
    else {
        return Ok(Json(answer));
    };
    let left = match rule {
        Some(index) => policy::budget_left(&app, &row, index).await,
        None => None,
    };
    let request = decided.request.map(|request| EgressRequestExplained { left, ..request });
    Ok(Json(EgressExplanation { request, ..decided }))
}

/// The HTTP request in question.
struct HypotheticalRequest {
    method: Method,
    path: String,
}

/// The path of a target, in the normal form that rules match.
fn path_of(target: &str) -> Result<String, ApiError> {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |start| &rest[start..]);
    let path = path.split(['?', '#']).next().unwrap_or("/");
    burrow_egress::normal_path(path)
        .map_err(|error| ApiError::invalid(format!("`target` is invalid: {error}")))
}

/// What would happen to a connection, and why. Has no side effects.
pub(super) fn explained(
    app: &App,
    row: &SandboxRow,
    in_force: &EgressInForce,
    target: &Target,
) -> EgressExplanation {
    let destination = &target.destination;
    let mut decision = in_force.policy.decide(destination, target.protocol);
    // If the program connects to an address, that address is known without a look-up.
    if let (Decision::Allow { .. }, Host::Address(address)) = (&decision, &destination.host)
        && let Err(kind) = in_force.policy.admits(*address, destination.port)
    {
        let (host, address) = (destination.host.clone(), *address);
        decision = Decision::Deny { reason: Denial::Address { host, address, kind } };
    }
    let mode = in_force.policy.mode();
    let answer = EgressExplanation {
        host: destination.host.to_string(),
        port: destination.port,
        protocol: convert::protocol(target.protocol),
        allowed: matches!(decision, Decision::Allow { .. }),
        rule: None,
        set: None,
        mode: convert::network_mode(mode),
        because: String::new(),
        hint: None,
        request: None,
    };
    match decision {
        Decision::Allow { rule } => {
            let of = in_force.rules.iter().find(|(known, _)| known.to_string() == *rule);
            let set = of.and_then(|(_, set)| set.as_ref()).map(Name::to_string);
            let because = match (mode, &set) {
                (NetworkMode::Open, _) => {
                    "its mode is `open`, and it may reach any host with a public address".to_owned()
                }
                (NetworkMode::None | NetworkMode::Allowlist, Some(set)) => {
                    format!("the rule `{rule}` of the host set `{set}` allows it")
                }
                (NetworkMode::None | NetworkMode::Allowlist, None) => {
                    format!("its rule `{rule}` allows it")
                }
            };
            let rule = (mode == NetworkMode::Allowlist).then(|| rule.to_string());
            EgressExplanation { rule, set, because, ..answer }
        }
        Decision::Deny { reason } => {
            let set = app.engine.host_set_for(&destination.host.to_string(), Some(destination.port));
            let hint = hint(row, in_force, &reason, set);
            EgressExplanation { because: reason.to_string(), hint, ..answer }
        }
    }
}

fn hint(row: &SandboxRow, in_force: &EgressInForce, reason: &Denial, set: Option<&Name>) -> Option<String> {
    let sandbox = row.name.as_ref().map_or_else(|| row.id.to_string(), ToString::to_string);
    if let Some(rule) = reason.rule_needed() {
        let missing = in_force.missing.iter().map(Name::as_str).collect::<Vec<_>>().join("`, `");
        let lost = match missing.is_empty() {
            true => String::new(),
            false => format!(" (its host sets `{missing}` are no longer in the configuration)"),
        };
        let rule = set.map_or(rule, |set| format!("--set {set}"));
        return Some(format!("`burrow egress allow {sandbox} {rule}` allows it{lost}"));
    }
    if matches!(reason, Denial::NetworkOff) {
        return Some(format!("`burrow update {sandbox} --net allowlist` puts its rules into effect"));
    }
    reason.remedy()
}

/// What would happen to a request, if there are request rules for its host, and which rule decides. Has no side effects.
fn request_explained(
    answer: EgressExplanation,
    in_force: &EgressInForce,
    target: &Target,
    asked: &HypotheticalRequest,
    secrets: &HashMap<Name, SecretSpec>,
) -> Option<(EgressExplanation, Option<usize>)> {
    let (Host::Name(host), DetectedProtocol::Tls) = (&target.destination.host, target.protocol) else {
        return None;
    };
    let port = target.destination.port;
    let rules = &in_force.policy.directives()?.rules;
    let about: Vec<&RequestRule> = rules.iter().filter(|rule| rule.scope.covers_host(host, port)).collect();
    if about.is_empty() || !answer.allowed {
        return None;
    }
    let request = EgressRequestExplained {
        method: asked.method.to_string(),
        path: asked.path.clone(),
        decrypted: in_force.policy.intercepts(&target.destination),
        secret: None,
        slot: None,
        left: None,
        approval: false,
    };
    let covers = |rule: &RequestRule| rule.scope.covers(host, port, asked.method.as_str(), &asked.path);
    let Some(index) = rules.iter().position(covers) else {
        let because = format!("no rule about `{host}` covers `{} {}`", asked.method, asked.path);
        let listed: Vec<String> = about.iter().map(|rule| format!("`{rule}`")).collect();
        let hint = Some(format!("the rules for this host: {}", listed.join(", ")));
        let denied = EgressExplanation { allowed: false, because, hint, request: Some(request), ..answer };
        return Some((denied, None));
    };
    let rule = &rules[index];
    let text = rule.to_string();
    let answer = EgressExplanation { rule: Some(text.clone()), set: None, ..answer };
    let refused = rule.secret.as_ref().and_then(|name| withheld(name, secrets.get(name), host, port, asked));
    if let Some(because) = refused {
        let hint = Some("`burrow secret ls` shows all secrets and where they may be sent".to_owned());
        let denied = EgressExplanation { allowed: false, because, hint, request: Some(request), ..answer };
        return Some((denied, Some(index)));
    }
    let slot = rule.secret.as_ref().and_then(|name| secrets.get(name)).map(|spec| slot(&spec.slot));
    let mut because = format!("its rule `{text}` allows it");
    match rule.mode {
        RuleMode::Sni => because.push_str(" by host name, without decryption"),
        RuleMode::Intercept if rule.approve.is_some() => because.push_str(" after it has been approved"),
        RuleMode::Intercept => {}
    }
    let secret = rule.secret.as_ref().map(Name::to_string);
    let request = EgressRequestExplained { secret, slot, approval: rule.approve.is_some(), ..request };
    Some((EgressExplanation { because, request: Some(request), ..answer }, Some(index)))
}

/// Why a rule's secret would not be inserted into a request.
fn withheld(
    name: &Name,
    spec: Option<&SecretSpec>,
    host: &HostName,
    port: u16,
    asked: &HypotheticalRequest,
) -> Option<String> {
    let Some(spec) = spec else {
        return Some(format!("its rule needs the secret `{name}`, which does not exist"));
    };
    let covers = spec.allow.iter().any(|scope| scope.covers(host, port, asked.method.as_str(), &asked.path));
    let (method, path) = (&asked.method, &asked.path);
    (!covers).then(|| format!("the owner of `{name}` does not allow it in `{method} {path}`"))
}

fn slot(slot: &burrow_model::Slot) -> String {
    use burrow_model::Slot;
    match slot {
        Slot::Header { name, .. } => format!("header {}", name.as_str()),
        Slot::GrpcMetadata { name, .. } => format!("grpcMetadata {}", name.as_str()),
        Slot::Query { name } => format!("query {}", name.as_str()),
        Slot::Basic { user } => format!("basic {}", user.as_str()),
        Slot::ClientCert => "clientCert".to_owned(),
    }
}
