//! `…/egress/policy`: replaces the whole policy of a sandbox at once, and reports the state of its request rules.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::policy::{PolicyDocument, RuleDocument, Step, check};
use burrow_api::{BudgetLeft, EgressRequestRule, ErrorCode, Sandbox};
use burrow_catalog::SandboxRow;
use burrow_engine::{LimitsChange, NetworkChange, RatesChange, UpdateOptions};
use burrow_model::network::RequestRule;
use burrow_model::{Name, NetworkPolicy, SecretSpec, TenantId};

use super::super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::{Caller, UnboundExecutor};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Segments};
use burrow_http::refusals::{Common, SandboxRefusals, WithBody};

#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/egress/policy", tag = "egress", params(SandboxPath),
    request_body = PolicyDocument,
    responses(
        (status = 200, description = "The changed sandbox; connections that are no longer allowed were closed", body = Sandbox),
        Common, SandboxRefusals, WithBody,
    ),
)]
pub(crate) async fn replace(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<PolicyDocument>,
) -> Result<Json<Sandbox>, ApiError> {
    if !body.value.secrets.is_empty() {
        let error = ApiError::invalid(
            "the policy is invalid: `/secrets`: secrets cannot be declared in this request",
        );
        return Err(
            error.hint("set them with `PUT /v1/secrets/{name}`, or apply a file with `burrow egress apply`")
        );
    }
    let checked = check::document(&body.value).map_err(convert::fault)?;
    let Some(network) = checked.network else { return Err(ApiError::invalid("the policy is empty")) };
    admit(&app, &caller, &network.requests, &checked.places).await?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let row = app.engine.update(caller.tenant(), &id, replaced(network)).await?;
    Ok(Json(convert::sandbox(row)))
}

fn replaced(network: NetworkPolicy) -> UpdateOptions {
    let NetworkPolicy { mode, rules, sets, requests, deny, transforms: _ } = network;
    let network = NetworkChange {
        mode: Some(mode),
        rules: Some(rules),
        sets: Some(sets),
        add: Vec::new(),
        remove: Vec::new(),
        add_sets: Vec::new(),
        remove_sets: Vec::new(),
        requests: Some(requests),
        add_requests: Vec::new(),
        deny: Some(deny),
        add_deny: Vec::new(),
        remove_deny: Vec::new(),
        // They can only be set through E2B's API, so only it removes them.
        transforms: None,
    };
    UpdateOptions {
        name: None,
        limits: LimitsChange { ram_mib: None, cpu_millis: None, pids: None, disk_mib: None },
        rates: RatesChange::none(),
        labels: Default::default(),
        env: Default::default(),
        services: Default::default(),
        network: Some(network),
        sleep: None,
        snapshots: None,
        rotate: None,
        memory: None,
        lease: None,
        volumes: None,
    }
}

/// The same as [`admit`], for all request rules in a change.
pub(crate) async fn admit_change(app: &App, caller: &Caller, change: &NetworkChange) -> Result<(), ApiError> {
    let given = [("requests", change.requests.as_deref()), ("add_requests", Some(&change.add_requests))];
    for (field, rules) in given {
        let rules = rules.unwrap_or_default();
        let places = convert::request_places(field, rules.len());
        admit(app, caller, rules, &places).await?;
    }
    Ok(())
}

/// Rejects request rules that the caller may not set, or that exceed what the owners of the secrets allow.
pub(crate) async fn admit(
    app: &App,
    caller: &Caller,
    rules: &[RequestRule],
    places: &[Vec<Step>],
) -> Result<(), ApiError> {
    if rules.is_empty() {
        return Ok(());
    }
    // A bound key may be inside its sandbox: it must choose neither the secrets that are sent nor the approvals that are
    // required.
    caller.unbound()?;
    let secrets = secrets(app, caller.tenant()).await?;
    let ceiling = |name: &Name| secrets.get(name).map(|spec| spec.allow.clone());
    check::within(rules, places, &ceiling).map_err(|fault| {
        let error = ApiError::new(ErrorCode::Unprocessable, format!("the policy is invalid: {fault}"));
        match fault.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })
}

/// The tenant's secrets, as declared.
pub(super) async fn secrets(app: &App, tenant: &TenantId) -> Result<HashMap<Name, SecretSpec>, ApiError> {
    let rows = app.engine.catalog().secrets(tenant).await?;
    Ok(rows.into_iter().map(|row| (row.spec.name.clone(), row.spec)).collect())
}

/// The state of each request rule.
pub(super) async fn request_rules(app: &App, row: &SandboxRow) -> Result<Vec<EgressRequestRule>, ApiError> {
    let rules = &row.spec.network.requests;
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let secrets = secrets(app, &row.tenant).await?;
    let problems = app.engine.egress_problems(&row.id);
    let mut request_rules = Vec::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let written = RuleDocument::from(rule);
        request_rules.push(EgressRequestRule {
            text: rule.to_string(),
            problem: problem(rule, &secrets, &problems),
            budget: written.budget,
            left: match rule.budget {
                Some(_) => budget_left(app, row, index).await,
                None => None,
            },
            rule: written,
        });
    }
    Ok(request_rules)
}

fn problem(
    rule: &RequestRule,
    secrets: &HashMap<Name, SecretSpec>,
    problems: &HashMap<Name, String>,
) -> Option<String> {
    let name = rule.secret.as_ref()?;
    let Some(spec) = secrets.get(name) else { return Some(format!("there is no secret `{name}` any more")) };
    if !rule.scope.fits(&spec.allow) {
        return Some(format!("the rule exceeds what the owner of `{name}` allows"));
    }
    problems.get(name).cloned()
}

/// What is left of a rule's budget; `None` while its sandbox does not run, or while the egress process is down.
pub(super) async fn budget_left(app: &App, row: &SandboxRow, rule: usize) -> Option<BudgetLeft> {
    let rule = row.spec.network.requests.get(rule)?;
    let budget = rule.budget?;
    let text = rule.to_string();
    let found = app.engine.egress_budgets(&row.id).await.unwrap_or_default();
    let left = found.into_iter().find(|left| left.rule == text && left.budget == budget)?;
    let of = |max: Option<u64>, used: u64| max.map(|max| max.saturating_sub(used));
    Some(BudgetLeft {
        requests_this_minute: of(budget.requests_per_minute, left.requests_this_minute),
        requests_today: of(budget.requests_per_day, left.requests_today),
        bytes_out_today: of(budget.bytes_out_per_day, left.bytes_out_today),
    })
}
