//! `GET …/kv-watch`: changes of working memory as they happen, one per line.
//!
//! Without traffic, a client could not tell an idle stream from a dead one, so a heartbeat is sent when no other line is.
//! After an interruption, a client can continue from the number of any line, including a heartbeat, without losing
//! anything.
//!
//! A sandbox that is restored to a snapshot writes to another branch from then on. A watcher of the old branch would wait
//! forever, so it receives a `reset` and follows the new branch.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_api::memory::KvEvent;
use burrow_memory::MemoryError;
use burrow_model::MemoryRef;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use utoipa::IntoParams;

use super::access::{MemoryPath, MemoryReader, Principal, ReadParams};
use burrow_http::app::App;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, MemoryRefusals};
use burrow_http::stream::{lines, shutting_down};

/// Well below the minute after which proxies close an idle response.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How long to wait after an event on this host before checking whether this sandbox was restored: events that occur
/// together cause one check.
const RESTORE_CHECK_DELAY: Duration = Duration::from_millis(200);

/// What to watch.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchParams {
    /// Only keys with this prefix.
    #[param(max_length = 512)]
    prefix: Option<String>,
    /// The changes after this number of the log, then new ones; only new ones when absent.
    since: Option<u64>,
    /// The name or id of an attached space; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    space: Option<String>,
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/kv-watch", tag = "memory", params(MemoryPath, WatchParams),
    responses(
        (status = 200, description = "One `KvEvent` per line; the first is a heartbeat", body = KvEvent,
         content_type = "application/x-ndjson"),
        Common, MemoryRefusals,
    ),
)]
pub(crate) async fn watch(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WatchParams>,
) -> Result<Response, ApiError> {
    let read = ReadParams { as_of: None, space: params.space };
    let space = caller.reading(&app, &path.of, &read).await?;
    let seq = match params.since {
        Some(seq) => seq,
        None => space.view.stats().await?.seq,
    };
    let prefix = params.prefix.unwrap_or_default();
    let newest = app.engine.catalog().follow_events();
    let events = space.view.kv_watch(&prefix, Some(seq)).await?;
    let at = space.view.of().clone();
    let target = WatchTarget { caller, of: path.of, read, prefix };
    let watch = Watch {
        app,
        target,
        at,
        events,
        newest,
        restore_check: None,
        silence: pause(HEARTBEAT),
        seq,
        begun: false,
        ended: false,
    };
    Ok(lines(stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    })))
}

type Pause = Pin<Box<tokio::time::Sleep>>;

fn pause(length: Duration) -> Pause {
    Box::pin(tokio::time::sleep(length))
}

/// What is watched, as in the request.
struct WatchTarget {
    caller: Principal,
    of: String,
    read: ReadParams,
    prefix: String,
}

struct Watch {
    app: Arc<App>,
    target: WatchTarget,
    /// The branch that was last reported to the client.
    at: MemoryRef,
    events: mpsc::Receiver<Result<burrow_memory::kv::KvEvent, MemoryError>>,
    /// Changes with every event of a sandbox.
    newest: watch::Receiver<u64>,
    /// Set while a check for a restore is scheduled.
    restore_check: Option<Pause>,
    silence: Pause,
    /// The last number that was sent.
    seq: u64,
    begun: bool,
    ended: bool,
}

/// The reason why a wait ended.
enum WaitOutcome {
    Event(Option<Result<burrow_memory::kv::KvEvent, MemoryError>>),
    HostEvent,
    CheckRestore,
    Silence,
}

impl Watch {
    async fn next(&mut self) -> Option<KvEvent> {
        if self.ended {
            return None;
        }
        let event = self.next_event().await;
        self.silence = pause(HEARTBEAT);
        self.ended = matches!(event, KvEvent::Error { .. });
        Some(event)
    }

    async fn next_event(&mut self) -> KvEvent {
        // At once: from here on the client misses no change.
        if !std::mem::replace(&mut self.begun, true) {
            return KvEvent::Heartbeat { seq: self.seq };
        }
        loop {
            let draining = self.app.draining.clone();
            match draining.run_until_cancelled(self.wait()).await {
                Some(WaitOutcome::Event(Some(Ok(event)))) => {
                    self.seq = event.seq;
                    return convert::kv_event(event);
                }
                Some(WaitOutcome::Event(Some(Err(error)))) => return broken(error.into()),
                Some(WaitOutcome::Event(None)) => {
                    let error = ApiError::new(ErrorCode::Busy, "the watch ended: its space was closed");
                    return broken(error.hint("watch again from the last `seq` that was received"));
                }
                Some(WaitOutcome::HostEvent) => self.restore_check = Some(pause(RESTORE_CHECK_DELAY)),
                Some(WaitOutcome::CheckRestore) => {
                    self.restore_check = None;
                    match self.follow_restore().await {
                        Ok(false) => {}
                        Ok(true) => return KvEvent::Reset { seq: self.seq },
                        Err(error) => return broken(error),
                    }
                }
                Some(WaitOutcome::Silence) => return KvEvent::Heartbeat { seq: self.seq },
                None => return KvEvent::Error { error: shutting_down() },
            }
        }
    }

    async fn wait(&mut self) -> WaitOutcome {
        let restore_check = self.restore_check.is_some();
        let look = async {
            match self.restore_check.as_mut() {
                Some(pause) => pause.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.events.recv() => WaitOutcome::Event(event),
            Ok(()) = self.newest.changed(), if !restore_check => WaitOutcome::HostEvent,
            () = look => WaitOutcome::CheckRestore,
            () = &mut self.silence => WaitOutcome::Silence,
        }
    }

    /// Whether the watched memory is on another branch now. If so, follows it there.
    async fn follow_restore(&mut self) -> Result<bool, ApiError> {
        let WatchTarget { caller, of, read, prefix } = &self.target;
        let space = caller.reading(&self.app, of, read).await?;
        if *space.view.of() == self.at {
            return Ok(false);
        }
        self.seq = space.view.stats().await?.seq;
        self.events = space.view.kv_watch(prefix, Some(self.seq)).await?;
        self.at = space.view.of().clone();
        Ok(true)
    }
}

fn broken(error: ApiError) -> KvEvent {
    KvEvent::Error { error: error.into_detail() }
}
