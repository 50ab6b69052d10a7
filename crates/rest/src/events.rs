//! `GET /v1/events`: past events in order, and new ones on request.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use burrow_api::Event;
use burrow_catalog::EventRow;
use burrow_model::{SandboxId, TenantId};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use burrow_http::app::App;
use burrow_http::auth::Reader;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::Params;
use burrow_http::refusals::{Common, ObjectRefusals};
use burrow_http::stream::lines;

/// Events read from the catalog at once.
const BATCH: u32 = 500;

/// Filters for events.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventParams {
    /// Only events after this number; 0, all events that are kept, when absent.
    #[serde(default)]
    #[param(required = false)]
    since: u64,
    /// Continue with new events as they occur; false when absent.
    #[serde(default)]
    #[param(required = false)]
    follow: bool,
    /// Only events of this sandbox: its id, or (while it exists) a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    sandbox: Option<String>,
    /// End after this number of events.
    #[param(minimum = 1)]
    limit: Option<u64>,
}

#[utoipa::path(
    get, path = "/v1/events", tag = "daemon", params(EventParams),
    responses(
        (status = 200, description = "One `Event` per line, oldest first", body = Event,
         content_type = "application/x-ndjson"),
        Common, ObjectRefusals,
    ),
)]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    caller: Reader,
    Params(params): Params<EventParams>,
) -> Result<Response, ApiError> {
    if params.limit == Some(0) {
        return Err(ApiError::invalid("`limit` must be at least 1"));
    }
    let sandbox = match (&params.sandbox, caller.bound_to()) {
        (Some(text), _) => Some(caller.sandbox(&app, text).await?),
        (None, bound) => bound.cloned(),
    };
    let newest = app.engine.catalog().follow_events();
    let mut feed = Feed {
        tenant: caller.tenant().clone(),
        sandbox,
        since: params.since,
        follow: params.follow,
        left: params.limit.unwrap_or(u64::MAX),
        read: VecDeque::new(),
        newest,
        app,
    };
    // If the first read fails, the answer is an error with a status, not a stream.
    feed.fill().await?;
    Ok(lines(stream::unfold(feed, |mut feed| async move { feed.next().await.map(|event| (event, feed)) })))
}

struct Feed {
    app: Arc<App>,
    tenant: TenantId,
    sandbox: Option<SandboxId>,
    since: u64,
    follow: bool,
    left: u64,
    read: VecDeque<EventRow>,
    newest: watch::Receiver<u64>,
}

impl Feed {
    async fn next(&mut self) -> Option<Event> {
        if self.left == 0 {
            return None;
        }
        while self.read.is_empty() {
            match self.fill().await {
                Ok(0) if self.follow => {
                    // No new events: wait for some. The feed ends when the daemon shuts down.
                    self.app.draining.run_until_cancelled(self.newest.changed()).await?.ok()?;
                }
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    let detail = error.into_detail();
                    tracing::warn!(code = detail.code.as_str(), "could not continue to read events");
                    return None;
                }
            }
        }
        self.left -= 1;
        self.read.pop_front().map(convert::event)
    }

    /// Reads the next batch. Returns its size before events of other sandboxes were dropped.
    async fn fill(&mut self) -> Result<usize, ApiError> {
        self.newest.borrow_and_update();
        let rows = self.app.engine.events_since(&self.tenant, self.since, BATCH).await?;
        let count = rows.len();
        self.since = rows.last().map_or(self.since, |row| row.seq);
        let sandbox = self.sandbox.as_ref();
        self.read.extend(rows.into_iter().filter(|row| sandbox.is_none() || row.sandbox.as_ref() == sandbox));
        Ok(count)
    }
}
