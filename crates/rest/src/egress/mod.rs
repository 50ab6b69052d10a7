//! `…/egress`: what a sandbox may reach, its log of connections, and why something is allowed or denied.

pub(crate) mod approvals;
pub(crate) mod explain;
pub(crate) mod policy;

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::{
    EgressEntry, EgressQuestion, EgressRuleInForce, EgressSet, EgressStatus, EgressStep, EgressTrial,
    EgressVerdict, Page,
};
use burrow_catalog::{EgressFilter, EgressRow};
use burrow_egress::Target;
use burrow_model::{EgressRule, Name, SandboxId, TenantId};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::Reader;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::pages::{PageParams, page};
use burrow_http::refusals::{Common, GuestRefusals, ObjectRefusals, WithBody};
use burrow_http::stream::lines;
use explain::explained;

/// Entries read from the catalog at once.
const BATCH: u32 = 500;

#[utoipa::path(
    get, path = "/v1/egress/sets", tag = "egress",
    responses((status = 200, description = "The host sets, by name, on one page", body = Page<EgressSet>), Common),
)]
pub(crate) async fn sets(State(app): State<Arc<App>>, _: Reader, _: NoParams) -> Json<Page<EgressSet>> {
    let set = |(name, rules): (&Name, &Vec<EgressRule>)| EgressSet {
        name: name.to_string(),
        rules: rules.iter().map(ToString::to_string).collect(),
    };
    Json(Page { items: app.engine.host_sets().iter().map(set).collect(), next_cursor: None })
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/egress", tag = "egress", params(SandboxPath),
    responses((status = 200, description = "The policy in force, and its counters", body = EgressStatus), Common, ObjectRefusals),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<EgressStatus>, ApiError> {
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let row = app.engine.get(caller.tenant(), &id).await?;
    let in_force = app.engine.egress_in_force(&row);
    // The counters are missing while the egress process is down; the policy in force is known anyway.
    let counters = app.engine.egress_counters(caller.tenant(), &id).await.unwrap_or_default();
    let rule = |(rule, set): (EgressRule, Option<Name>)| EgressRuleInForce {
        rule: rule.to_string(),
        set: set.map(String::from),
    };
    let requests = policy::request_rules(&app, &row).await?;
    Ok(Json(EgressStatus {
        network: convert::network(&row.spec.network),
        rules: in_force.rules.into_iter().map(rule).collect(),
        requests,
        missing_sets: in_force.missing.into_iter().map(String::from).collect(),
        counters: counters.map(convert::egress_counters),
    }))
}

/// Which part of the log, and in which form.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogParams {
    /// Only denied connections; false when absent.
    #[serde(default)]
    #[param(required = false)]
    denied: bool,
    /// `true`: one entry per line, oldest first, and new entries as they occur. `false`, the default: a page, newest first.
    #[serde(default)]
    #[param(required = false)]
    follow: bool,
    /// Only entries after this number; 0, all entries that are kept, when absent.
    since: Option<u64>,
    /// `next_cursor` of the previous page.
    #[param(max_length = 256)]
    cursor: Option<String>,
    /// Maximum number of entries of a page; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/egress/log", tag = "egress", params(SandboxPath, LogParams),
    responses(
        (status = 200, description = "A page, newest first; with `follow` one `EgressEntry` per line, oldest first",
         content((Page<EgressEntry> = "application/json"), (EgressEntry = "application/x-ndjson"))),
        Common, ObjectRefusals,
    ),
)]
pub(crate) async fn log(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<LogParams>,
) -> Result<Response, ApiError> {
    let LogParams { denied, follow, since, cursor, limit } = params;
    if follow && (cursor.is_some() || limit.is_some()) {
        return Err(ApiError::invalid("`cursor` and `limit` are for pages, not for `follow`"));
    }
    let request = PageParams { cursor, limit }.request()?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    app.engine.get(caller.tenant(), &id).await?;
    // Later pages, which have a cursor, contain only older entries.
    if request.cursor.is_none() {
        app.engine.settle_egress_log(&id).await;
    }
    let filter = if denied { EgressFilter::Denied } else { EgressFilter::All };
    if !follow {
        let mut found = app.engine.catalog().list_egress(caller.tenant(), &id, filter, request).await?;
        let newer = |row: &EgressRow| row.seq > since.unwrap_or(0);
        if !found.rows.iter().all(newer) {
            found.rows.retain(newer);
            found.next_cursor = None;
        }
        return Ok(Json(page(found, convert::egress_entry)).into_response());
    }
    let mut feed = Feed {
        newest: app.engine.catalog().follow_egress(),
        tenant: caller.tenant().clone(),
        sandbox: id,
        since: since.unwrap_or(0),
        denied,
        read: VecDeque::new(),
        app,
    };
    // If the first read fails, the answer is an error with a status, not a stream.
    feed.fill().await?;
    Ok(lines(stream::unfold(feed, |mut feed| async move { feed.next().await.map(|entry| (entry, feed)) })))
}

struct Feed {
    app: Arc<App>,
    tenant: TenantId,
    sandbox: SandboxId,
    since: u64,
    denied: bool,
    read: VecDeque<EgressRow>,
    newest: watch::Receiver<u64>,
}

impl Feed {
    async fn next(&mut self) -> Option<EgressEntry> {
        loop {
            while let Some(row) = self.read.pop_front() {
                let entry = convert::egress_entry(row);
                if !self.denied || entry.verdict == EgressVerdict::Denied {
                    return Some(entry);
                }
            }
            match self.fill().await {
                // No new entries: wait for some. The feed ends when the daemon shuts down or the sandbox is deleted.
                Ok(0) => {
                    self.app.draining.run_until_cancelled(self.newest.changed()).await?.ok()?;
                    self.app.engine.get(&self.tenant, &self.sandbox).await.ok()?;
                }
                Ok(_) => {}
                Err(error) => {
                    let detail = error.into_detail();
                    tracing::warn!(code = detail.code.as_str(), "could not continue to read the egress log");
                    return None;
                }
            }
        }
    }

    async fn fill(&mut self) -> Result<usize, ApiError> {
        self.newest.borrow_and_update();
        let catalog = self.app.engine.catalog();
        let rows = catalog.egress_since(&self.tenant, &self.sandbox, self.since, BATCH).await?;
        self.since = rows.last().map_or(self.since, |row| row.seq);
        self.read.extend(rows);
        Ok(self.read.len())
    }
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/egress/test", tag = "egress", params(SandboxPath),
    request_body = EgressQuestion,
    responses(
        (status = 200, description = "The result of the attempt by the egress process", body = EgressTrial),
        Common, GuestRefusals, WithBody,
    ),
)]
pub(crate) async fn test(
    State(app): State<Arc<App>>,
    caller: burrow_http::auth::Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<EgressQuestion>,
) -> Result<Json<EgressTrial>, ApiError> {
    let target = target(&body.value.target)?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    // The trial uses the listeners of the sandbox's network, so a sleeping sandbox is woken for it.
    let guest = app.engine.guest(caller.tenant(), &id).await?;
    let row = guest.sandbox();
    let trial = app.engine.egress_trial(caller.tenant(), &id, &target).await?;
    let hint = explained(&app, row, &app.engine.egress_in_force(row), &target).hint;
    let step = |step: burrow_egress::Step| EgressStep {
        step: step.name,
        ok: step.ok,
        detail: step.detail,
        took_us: step.micros,
    };
    Ok(Json(EgressTrial {
        host: target.destination.host.to_string(),
        port: target.destination.port,
        reached: trial.reachable,
        steps: trial.steps.into_iter().map(step).collect(),
        hint: hint.filter(|_| !trial.reachable),
    }))
}

fn target(text: &str) -> Result<Target, ApiError> {
    let shown: String = text.chars().take(80).collect();
    text.parse().map_err(|error| ApiError::invalid(format!("`target` is invalid: `{shown}`: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_parsed_as_users_write_them_and_invalid_ones_are_quoted_in_the_error() {
        assert_eq!(target("https://example.com/x").unwrap().destination.port, 443);
        let error = target("gopher://\u{1b}[2J").unwrap_err().into_detail();
        assert!(error.message.starts_with("`target` is invalid"), "{}", error.message);
        assert!(!error.message.contains('\u{1b}'));
    }
}
