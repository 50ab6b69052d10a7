//! `…/egress`: what a sandbox may reach, what it asked for, and why something is or is not let through.

pub(crate) mod approvals;
pub(crate) mod explain;
pub(crate) mod policy;

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::{
    EgressEntry, EgressQuestion, EgressRuleInForce, EgressStatus, EgressStep, EgressTrial, EgressVerdict,
    Exec, ExecState, Page,
};
use burrow_catalog::{EgressFilter, EgressRow};
use burrow_egress::Target;
use burrow_model::{Name, SandboxId, TenantId};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::auth::Reader;
use super::error::ApiError;
use super::input::{JsonBody, NoParams, Params};
use super::refusals::{ByGuest, Common, Named, WithBody};
use super::sandboxes::SandboxPath;
use super::stream::lines;
use super::{App, PageParams, Segments, page};
use crate::convert;
use explain::explained;

/// Entries read from the catalog at once.
const BATCH: u32 = 500;

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/egress", tag = "egress", params(SandboxPath),
    responses((status = 200, description = "What is in force, and what came of it", body = EgressStatus), Common, Named),
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
    // A process that is away has nothing to tell; what is in force is known all the same.
    let counters = app.engine.egress_counters(caller.tenant(), &id).await.unwrap_or_default();
    let rule = |(rule, set): (burrow_model::EgressRule, Option<Name>)| EgressRuleInForce {
        rule: rule.to_string(),
        set: set.map(String::from),
    };
    let requests = policy::standing(&app, &row).await?;
    Ok(Json(EgressStatus {
        network: convert::network(&row.spec.network),
        rules: in_force.rules.into_iter().map(rule).collect(),
        requests,
        missing_sets: in_force.missing.into_iter().map(String::from).collect(),
        counters: counters.map(convert::egress_counters),
    }))
}

/// Which part of the log.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogParams {
    /// Only what was not let through; false when absent.
    #[serde(default)]
    #[param(required = false)]
    denied: bool,
    /// Answer one entry per line, oldest first, and go on as they come; false when absent: a page, newest first.
    #[serde(default)]
    #[param(required = false)]
    follow: bool,
    /// Those after this number; 0, all that are kept, when absent.
    since: Option<u64>,
    /// `next_cursor` of the page before.
    #[param(max_length = 256)]
    cursor: Option<String>,
    /// Entries of a page at most; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/egress/log", tag = "egress", params(SandboxPath, LogParams),
    responses(
        (status = 200, description = "A page, newest first; with `follow` one `EgressEntry` per line, oldest first",
         content((Page<EgressEntry> = "application/json"), (EgressEntry = "application/x-ndjson"))),
        Common, Named,
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
    // The first read decides whether there is an answer at all.
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
                // Nothing new: wait until there is. The end of the daemon ends the feed, and so does the sandbox's.
                Ok(0) => {
                    self.app.draining.run_until_cancelled(self.newest.changed()).await?.ok()?;
                    self.app.engine.get(&self.tenant, &self.sandbox).await.ok()?;
                }
                Ok(_) => {}
                Err(error) => {
                    let detail = error.into_detail();
                    tracing::warn!(code = detail.code.as_str(), "could not read the egress log on");
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
        (status = 200, description = "What happened when the egress process tried", body = EgressTrial),
        Common, ByGuest, WithBody,
    ),
)]
pub(crate) async fn test(
    State(app): State<Arc<App>>,
    caller: super::auth::Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<EgressQuestion>,
) -> Result<Json<EgressTrial>, ApiError> {
    let target = target(&body.value.target)?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    // The trial goes through the doors of its network: one that sleeps is woken for it.
    let guest = app.engine.guest(caller.tenant(), &id).await?;
    let row = guest.sandbox();
    let trial = app.engine.egress_trial(caller.tenant(), &id, &target).await?;
    let hint = explained(row, &app.engine.egress_in_force(row), &target).hint;
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
    text.parse().map_err(|error| ApiError::invalid(format!("`target` does not fit: `{shown}`: {error}")))
}

/// An exec with what its sandbox was not let through to while it ran.
pub(super) async fn with_denials(app: &App, tenant: &TenantId, mut exec: Exec) -> Exec {
    let Ok(sandbox) = exec.sandbox_id.parse::<SandboxId>() else { return exec };
    let until = exec.ended_ms.unwrap_or_else(|| app.engine.now_ms());
    // What fails may have failed for want of a host, which the egress process may be about to tell; what went well is
    // not held up.
    let failed = exec.state == ExecState::Ended
        && exec.outcome.as_ref().is_some_and(|outcome| outcome.exit_code != Some(0));
    let denied = app.engine.denied_during(tenant, &sandbox, exec.started_ms, until, failed).await;
    exec.egress_denied = denied.into_iter().map(convert::denied).collect();
    exec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_people_write_it_or_refused_with_what_it_was() {
        assert_eq!(target("https://example.com/x").unwrap().destination.port, 443);
        let error = target("gopher://\u{1b}[2J").unwrap_err().into_detail();
        assert!(error.message.starts_with("`target` does not fit"), "{}", error.message);
        assert!(!error.message.contains('\u{1b}'));
    }
}
