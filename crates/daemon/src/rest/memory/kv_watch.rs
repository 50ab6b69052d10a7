//! `GET …/kv-watch`: changes of working memory as they happen, one per line.
//!
//! A line that goes by nobody would tell a client that waits from one that was forgotten, so a heartbeat is sent where
//! nothing else is. Its number, like every other, is where a client goes on after a break without losing anything.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_api::memory::KvEvent;
use burrow_memory::MemoryError;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::super::error::ApiError;
use super::super::input::Params;
use super::super::refusals::{Common, Remembering};
use super::super::stream::{lines, shutting_down};
use super::super::{App, Segments};
use super::whose::{OfPath, ReadParams, Recaller};
use crate::convert;

/// Well below the minute after which proxies give up on a silent answer.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What to watch.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchParams {
    /// Only keys that begin with this.
    #[param(max_length = 512)]
    prefix: Option<String>,
    /// What came after this number of the log, then what comes; only what comes when absent.
    since: Option<u64>,
    /// An attached space by name or id; the one the sandbox remembers in when absent.
    #[param(max_length = 64)]
    space: Option<String>,
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/kv-watch", tag = "memory", params(OfPath, WatchParams),
    responses(
        (status = 200, description = "One `KvEvent` per line; the first is a heartbeat", body = KvEvent,
         content_type = "application/x-ndjson"),
        Common, Remembering,
    ),
)]
pub(crate) async fn watch(
    State(app): State<Arc<App>>,
    Recaller(caller): Recaller,
    Segments(path): Segments<OfPath>,
    Params(params): Params<WatchParams>,
) -> Result<Response, ApiError> {
    let read = ReadParams { as_of: None, space: params.space };
    let space = caller.reading(&app, &path.of, &read).await?;
    let seq = match params.since {
        Some(seq) => seq,
        None => space.view.stats().await?.seq,
    };
    let events = space.view.kv_watch(params.prefix.as_deref().unwrap_or_default(), Some(seq)).await?;
    let watch = Watch { app, events, seq, begun: false, ended: false };
    Ok(lines(stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    })))
}

struct Watch {
    app: Arc<App>,
    events: mpsc::Receiver<Result<burrow_memory::kv::KvEvent, MemoryError>>,
    /// The last that was told.
    seq: u64,
    begun: bool,
    ended: bool,
}

impl Watch {
    async fn next(&mut self) -> Option<KvEvent> {
        if self.ended {
            return None;
        }
        // At once, so that the client knows that nothing from here on is missed.
        if !std::mem::replace(&mut self.begun, true) {
            return Some(KvEvent::Heartbeat { seq: self.seq });
        }
        let next = self.app.draining.run_until_cancelled(tokio::time::timeout(HEARTBEAT, self.events.recv()));
        match next.await {
            Some(Ok(Some(Ok(event)))) => {
                self.seq = event.seq;
                Some(convert::kv_event(event))
            }
            Some(Err(_silence)) => Some(KvEvent::Heartbeat { seq: self.seq }),
            Some(Ok(Some(Err(error)))) => {
                self.ended = true;
                Some(KvEvent::Error { error: ApiError::from(error).into_detail() })
            }
            Some(Ok(None)) => {
                self.ended = true;
                let error = ApiError::new(ErrorCode::Busy, "the watch ended: its space was closed")
                    .hint("watch again from the last `seq` that was told");
                Some(KvEvent::Error { error: error.into_detail() })
            }
            None => {
                self.ended = true;
                Some(KvEvent::Error { error: shutting_down() })
            }
        }
    }
}
