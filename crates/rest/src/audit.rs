//! The audit log: list, follow, checkpoint, proofs, export. For admins.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_api::{AuditCheckpoint, AuditConsistency, AuditEvent, AuditInclusion, Page};
use burrow_audit::note::Checkpoint;
use burrow_audit::{Entry, Filter, StoreError, export};
use burrow_catalog::CatalogError;
use burrow_model::TenantId;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use burrow_http::app::App;
use burrow_http::auth::Admin;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{NoParams, Params};
use burrow_http::refusals::{Common, ObjectRefusals};
use burrow_http::stream::lines;

/// Events read at once for a stream.
const BATCH: u32 = 500;

/// Events per piece of an export: a few hundred kilobytes.
const EXPORT_BATCH: u64 = 1000;

/// Filters for events. An event must match all that are given.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditParams {
    /// Only events of this sandbox: its id, or (while it exists) a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    sandbox: Option<String>,
    /// Only this action, or all actions with this first word: `egress`, `egress.inject`.
    #[param(max_length = 64)]
    action: Option<String>,
    /// Only events with this outcome: `allowed`, `denied`, `done`, `failed`.
    #[param(max_length = 16)]
    outcome: Option<String>,
    /// Only events caused by this key (its id or name), by `sandbox`, or by `daemon`.
    #[param(max_length = 512)]
    actor: Option<String>,
    /// Only events about the secret with this name.
    #[param(max_length = 512)]
    secret: Option<String>,
    /// Only events at or after this time, in milliseconds since the epoch.
    since_ms: Option<u64>,
    /// Only events before this time.
    until_ms: Option<u64>,
    /// `next_cursor` of the previous page.
    #[param(max_length = 256)]
    cursor: Option<String>,
    /// Maximum number of entries; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

impl AuditParams {
    async fn filter(&self, app: &App, caller: &Admin) -> Result<Filter, ApiError> {
        let sandbox = match &self.sandbox {
            Some(text) => Some(caller.sandbox(app, text).await?),
            None => None,
        };
        let outcome = self.outcome.as_deref().map(str::parse).transpose();
        let outcome =
            outcome.map_err(|error: burrow_audit::UnknownWord| ApiError::invalid(error.to_string()))?;
        Ok(Filter {
            sandbox,
            action: self.action.clone(),
            outcome,
            actor: self.actor.clone(),
            secret: self.secret.clone(),
            since_ms: self.since_ms,
            until_ms: self.until_ms,
        })
    }

    fn limit(&self) -> Result<u32, ApiError> {
        use burrow_api::defaults::{PAGE_LIMIT, PAGE_LIMIT_MAX};
        let limit = self.limit.unwrap_or(PAGE_LIMIT);
        if (1..=PAGE_LIMIT_MAX).contains(&limit) {
            return Ok(limit);
        }
        Err(ApiError::invalid(format!("`limit` must be from 1 to {PAGE_LIMIT_MAX}, not {limit}")))
    }
}

#[utoipa::path(
    get, path = "/v1/audit", tag = "audit", params(AuditParams),
    responses((status = 200, description = "Newest first", body = Page<AuditEvent>), Common, ObjectRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Admin,
    Params(params): Params<AuditParams>,
) -> Result<Json<Page<AuditEvent>>, ApiError> {
    let limit = params.limit()?;
    let before = params.cursor.as_deref().map(str::parse).transpose().map_err(|_| CatalogError::BadCursor)?;
    let filter = params.filter(&app, &caller).await?;
    let mut found = app.audit.store.newest(caller.tenant(), filter, before, limit + 1).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next_cursor = found.last().filter(|_| more).map(|entry| entry.index.to_string());
    Ok(Json(Page { items: found.into_iter().map(convert::audit_event).collect(), next_cursor }))
}

/// Filters for events to follow.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct FollowParams {
    /// Start at the event with this index; only new events when absent.
    from: Option<u64>,
    /// Only events of this sandbox: its id, or (while it exists) a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    sandbox: Option<String>,
    /// Only this action, or all actions with this first word.
    #[param(max_length = 64)]
    action: Option<String>,
    /// Only events with this outcome.
    #[param(max_length = 16)]
    outcome: Option<String>,
    /// End after this number of events.
    #[param(minimum = 1)]
    limit: Option<u64>,
}

#[utoipa::path(
    get, path = "/v1/audit/follow", tag = "audit", params(FollowParams),
    responses(
        (status = 200, description = "One `AuditEvent` per line, oldest first, as they happen", body = AuditEvent,
         content_type = "application/x-ndjson"),
        Common, ObjectRefusals,
    ),
)]
pub(crate) async fn follow(
    State(app): State<Arc<App>>,
    caller: Admin,
    Params(params): Params<FollowParams>,
) -> Result<Response, ApiError> {
    if params.limit == Some(0) {
        return Err(ApiError::invalid("`limit` must be at least 1"));
    }
    let FollowParams { from, sandbox, action, outcome, limit } = params;
    let params = AuditParams { sandbox, action, outcome, ..AuditParams::default() };
    let filter = params.filter(&app, &caller).await?;
    let tenant = caller.tenant().clone();
    let next = match from {
        Some(from) => from,
        None => app.audit.store.size(&tenant).await?,
    };
    let grown = app.audit.store.grown();
    let left = limit.unwrap_or(u64::MAX);
    let mut feed = Feed { app, tenant, filter, next, left, read: VecDeque::new(), grown };
    // If the first read fails, the answer is an error with a status, not a stream.
    feed.fill().await?;
    Ok(lines(stream::unfold(feed, |mut feed| async move { feed.next().await.map(|event| (event, feed)) })))
}

struct Feed {
    app: Arc<App>,
    tenant: TenantId,
    filter: Filter,
    next: u64,
    left: u64,
    read: VecDeque<Entry>,
    grown: watch::Receiver<u64>,
}

impl Feed {
    async fn next(&mut self) -> Option<AuditEvent> {
        if self.left == 0 {
            return None;
        }
        while self.read.is_empty() {
            let before = self.next;
            if let Err(error) = self.fill().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not continue to read the audit log"
                );
                return None;
            }
            if self.read.is_empty() && self.next == before {
                // No new events: wait for some. The feed ends when the daemon shuts down.
                self.app.draining.run_until_cancelled(self.grown.changed()).await?.ok()?;
            }
        }
        self.left -= 1;
        self.read.pop_front().map(convert::audit_event)
    }

    async fn fill(&mut self) -> Result<(), StoreError> {
        self.grown.borrow_and_update();
        let (found, next) =
            self.app.audit.store.since(&self.tenant, self.filter.clone(), self.next, BATCH).await?;
        self.next = next;
        self.read.extend(found);
        Ok(())
    }
}

#[utoipa::path(
    get, path = "/v1/audit/checkpoint", tag = "audit",
    responses((status = 200, description = "The newest checkpoint, signed", body = AuditCheckpoint), Common),
)]
pub(crate) async fn checkpoint(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
) -> Result<Json<AuditCheckpoint>, ApiError> {
    let note = app.audit.store.checkpoint(caller.tenant()).await?;
    let Checkpoint { size, root, .. } = Checkpoint::read(&note).map_err(StoreError::from)?;
    let public_key = app.audit.store.public_key().to_string();
    Ok(Json(AuditCheckpoint { size, root: root.hex(), note, public_key }))
}

/// The event, and the tree that proves it.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct InclusionParams {
    /// Index of the event.
    index: u64,
    /// Size of the tree, as in a checkpoint; all events when absent.
    size: Option<u64>,
}

#[utoipa::path(
    get, path = "/v1/audit/proof/inclusion", tag = "audit", params(InclusionParams),
    responses((status = 200, description = "The proof", body = AuditInclusion), Common, ObjectRefusals),
)]
pub(crate) async fn inclusion(
    State(app): State<Arc<App>>,
    caller: Admin,
    Params(params): Params<InclusionParams>,
) -> Result<Json<AuditInclusion>, ApiError> {
    let proof = app.audit.store.prove_inclusion(caller.tenant(), params.index, params.size).await?;
    Ok(Json(convert::audit_inclusion(&proof)))
}

/// The two trees to compare.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsistencyParams {
    /// Size of the older tree.
    from: u64,
    /// Size of the newer tree; all events when absent.
    to: Option<u64>,
}

#[utoipa::path(
    get, path = "/v1/audit/proof/consistency", tag = "audit", params(ConsistencyParams),
    responses((status = 200, description = "The proof", body = AuditConsistency), Common, ObjectRefusals),
)]
pub(crate) async fn consistency(
    State(app): State<Arc<App>>,
    caller: Admin,
    Params(params): Params<ConsistencyParams>,
) -> Result<Json<AuditConsistency>, ApiError> {
    let proof = app.audit.store.prove_consistency(caller.tenant(), params.from, params.to).await?;
    Ok(Json(convert::audit_consistency(&proof)))
}

#[utoipa::path(
    get, path = "/v1/audit/export", tag = "audit",
    responses(
        (status = 200, description = "The whole log, one JSON object per line: `index` with `event`, or with `hash` where \
            retention removed its contents; the signed `checkpoint` last. A body without it is incomplete.",
         body = String, content_type = "application/x-ndjson"),
        Common,
    ),
)]
pub(crate) async fn export(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
) -> Result<Response, ApiError> {
    let tenant = caller.tenant().clone();
    // The checkpoint first, then the events up to its size: later events belong to the next export.
    let note = app.audit.store.checkpoint(&tenant).await?;
    let size = Checkpoint::read(&note).map_err(StoreError::from)?.size;
    let pieces = stream::unfold(Some(0u64), move |next| {
        let (app, tenant, note) = (app.clone(), tenant.clone(), note.clone());
        async move {
            let from = next?;
            let mut piece = Vec::new();
            if from >= size {
                export::write_checkpoint(&note, &mut piece);
                return Some((Ok(Bytes::from(piece)), None));
            }
            let to = size.min(from + EXPORT_BATCH);
            match app.audit.store.outlines(&tenant, from, to).await {
                Ok(outlines) => {
                    outlines.iter().for_each(|outline| export::write_outline(outline, &mut piece));
                    Some((Ok(Bytes::from(piece)), Some(to)))
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "an export of the audit log was interrupted"
                    );
                    Some((Err(io::Error::other(error)), None))
                }
            }
        }
    });
    Ok(Response::builder()
        .header(CONTENT_TYPE, "application/x-ndjson")
        .header(CACHE_CONTROL, "no-store")
        .header(CONTENT_DISPOSITION, "attachment; filename=\"burrow-audit.jsonl\"")
        .body(Body::from_stream(pieces))
        .expect("the headers are constants"))
}
