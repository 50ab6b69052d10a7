//! `GET …/kv-watch`: changes of working memory as they happen, one per line.
//!
//! A line that goes by nobody would tell a client that waits from one that was forgotten, so a heartbeat is sent where
//! nothing else is. Its number, like every other, is where a client goes on after a break without losing anything.
//!
//! A sandbox that goes back to a snapshot remembers on another branch from then on. A watcher of the old one would wait
//! for ever for what nobody writes; so it is told, and led to the new one.

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

use super::super::error::ApiError;
use super::super::input::Params;
use super::super::refusals::{Common, Remembering};
use super::super::stream::{lines, shutting_down};
use super::super::{App, Segments};
use super::whose::{OfPath, Principal, ReadParams, Recaller};
use crate::convert;

/// Well below the minute after which proxies give up on a silent answer.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// From when something happened on this host until it is looked whether it was a restore: what happens together is
/// looked at once.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

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
    let prefix = params.prefix.unwrap_or_default();
    let newest = app.engine.catalog().follow_events();
    let events = space.view.kv_watch(&prefix, Some(seq)).await?;
    let at = space.view.of().clone();
    let whose = Whose { caller, of: path.of, read, prefix };
    let watch = Watch {
        app,
        whose,
        at,
        events,
        newest,
        looking: None,
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

/// What is watched.
struct Whose {
    caller: Principal,
    of: String,
    read: ReadParams,
    prefix: String,
}

struct Watch {
    app: Arc<App>,
    whose: Whose,
    /// Where it is remembered, as far as was told.
    at: MemoryRef,
    events: mpsc::Receiver<Result<burrow_memory::kv::KvEvent, MemoryError>>,
    /// Moves whenever something happens to a sandbox.
    newest: watch::Receiver<u64>,
    /// Until it is looked whether that was a restore of this one.
    looking: Option<Pause>,
    silence: Pause,
    /// The last that was told.
    seq: u64,
    begun: bool,
    ended: bool,
}

/// What a wait ended with.
enum Waited {
    Event(Option<Result<burrow_memory::kv::KvEvent, MemoryError>>),
    Happened,
    Look,
    Silence,
}

impl Watch {
    async fn next(&mut self) -> Option<KvEvent> {
        if self.ended {
            return None;
        }
        let event = self.told().await;
        self.silence = pause(HEARTBEAT);
        self.ended = matches!(event, KvEvent::Error { .. });
        Some(event)
    }

    async fn told(&mut self) -> KvEvent {
        // At once, so that the client knows that nothing from here on is missed.
        if !std::mem::replace(&mut self.begun, true) {
            return KvEvent::Heartbeat { seq: self.seq };
        }
        loop {
            let draining = self.app.draining.clone();
            match draining.run_until_cancelled(self.wait()).await {
                Some(Waited::Event(Some(Ok(event)))) => {
                    self.seq = event.seq;
                    return convert::kv_event(event);
                }
                Some(Waited::Event(Some(Err(error)))) => return broken(error.into()),
                Some(Waited::Event(None)) => {
                    let error = ApiError::new(ErrorCode::Busy, "the watch ended: its space was closed");
                    return broken(error.hint("watch again from the last `seq` that was told"));
                }
                Some(Waited::Happened) => self.looking = Some(pause(LOOK_PAUSE)),
                Some(Waited::Look) => {
                    self.looking = None;
                    match self.moved().await {
                        Ok(false) => {}
                        Ok(true) => return KvEvent::Reset { seq: self.seq },
                        Err(error) => return broken(error),
                    }
                }
                Some(Waited::Silence) => return KvEvent::Heartbeat { seq: self.seq },
                None => return KvEvent::Error { error: shutting_down() },
            }
        }
    }

    async fn wait(&mut self) -> Waited {
        let looking = self.looking.is_some();
        let look = async {
            match self.looking.as_mut() {
                Some(pause) => pause.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.events.recv() => Waited::Event(event),
            Ok(()) = self.newest.changed(), if !looking => Waited::Happened,
            () = look => Waited::Look,
            () = &mut self.silence => Waited::Silence,
        }
    }

    /// Whether what is watched is elsewhere by now; it is followed there.
    async fn moved(&mut self) -> Result<bool, ApiError> {
        let Whose { caller, of, read, prefix } = &self.whose;
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
