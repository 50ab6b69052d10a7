//! Watches: a stream of changes, and for polling clients a queue of changes.
//!
//! A polled watch is one connection to a guest and a bounded queue. It is closed if the client stops polling.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use burrow_engine::Guest;
use burrow_guest::client::parse;
use burrow_guest::protocol::{FileEntry, FileKind, Frame, Request, WatchEvent, WatchEventKind, WatchFiles};
use burrow_model::SandboxId;
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::error::{RpcCode, RpcError};
use super::connect::{StreamCut, StreamedCall, UnaryCall, broken, cuttable, end, message};
use super::filesystem::look;
use super::inside::EnvdRequest;
use burrow_gateway::e2b::reach;
use burrow_http::app::{App, Part};
use burrow_http::stream::{GuestReader, GuestWriter, next_frame};

/// Maximum number of polled watches of one sandbox, and of all sandboxes.
const WATCHERS_PER_SANDBOX: usize = 64;
const WATCHERS_MAX: usize = 1024;

/// Maximum number of queued changes of one client.
const EVENTS_MAX: usize = 10_000;

/// A watch is closed if the client does not poll for this long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Delay for a change to arrive from inside.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// How often that is checked.
const LOOK_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
pub(super) struct WatchRequest {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(rename = "includeEntry", alias = "include_entry", default)]
    include_entry: bool,
    /// Sandboxes have no network mounts.
    #[serde(rename = "allowNetworkMounts", default)]
    _allow_network_mounts: bool,
}

/// An open watch.
struct Watch {
    app: Arc<App>,
    guest: Guest,
    reader: GuestReader,
    /// Kept open: a guest takes its closing for a disconnect of the watcher.
    _writer: GuestWriter,
    /// The watched path; events contain paths relative to it.
    path: String,
    include_entry: bool,
}

impl Watch {
    async fn open(app: &Arc<App>, inside: &EnvdRequest, request: &WatchRequest) -> Result<Self, RpcError> {
        let guest = inside.guest(app).await?;
        let path = inside.path(&guest, &inside.as_user(&guest)?, &request.path).await?;
        let found: FileEntry = guest.call(&Request::Stat { path: path.clone(), follow: true }).await?;
        check_directory(&path, found.kind)?;
        let watch = WatchFiles { path: path.clone(), recursive: request.recursive };
        let mut connection = guest.open(&Request::Watch(watch)).await?;
        guest.reply::<()>(&mut connection).await?;
        let (reader, writer) = connection.split();
        let include_entry = request.include_entry;
        Ok(Self { app: app.clone(), guest, reader, _writer: writer, path, include_entry })
    }

    /// The next change; `None` when there will be none, because the sandbox or the daemon stops. Cancel-safe.
    async fn next(&mut self) -> Option<Vec<Value>> {
        let frame = next_frame(&self.app, &self.guest, &mut self.reader).await?;
        match frame {
            Ok(Some(Frame::Control(json))) => parse(&json).ok().map(|event| self.events(event)),
            Ok(Some(Frame::Bytes(_) | Frame::Stdout { .. } | Frame::Stderr { .. } | Frame::End) | None)
            | Err(_) => None,
        }
    }

    /// E2B reports a rename as two events: a removed name, and a created name.
    fn events(&self, event: WatchEvent) -> Vec<Value> {
        let WatchEvent { kind, path, from } = event;
        let one = |kind: &str, path: &str| json!({ "name": below(&self.path, path), "type": kind });
        match kind {
            WatchEventKind::Created => vec![one("EVENT_TYPE_CREATE", &path)],
            WatchEventKind::Written => vec![one("EVENT_TYPE_WRITE", &path)],
            WatchEventKind::Removed => vec![one("EVENT_TYPE_REMOVE", &path)],
            WatchEventKind::Attributes => vec![one("EVENT_TYPE_CHMOD", &path)],
            WatchEventKind::Renamed => {
                let gone = from.map(|from| one("EVENT_TYPE_RENAME", &from));
                gone.into_iter().chain([one("EVENT_TYPE_CREATE", &path)]).collect()
            }
            // The watched directory itself: the client has to read it again.
            WatchEventKind::Overflow => vec![one("EVENT_TYPE_WRITE", &self.path)],
        }
    }

    /// Adds the entry to each event, if the client requested it and it still exists.
    async fn completed(&self, mut events: Vec<Value>) -> Vec<Value> {
        for event in events.iter_mut().filter(|_| self.include_entry) {
            let name = event["name"].as_str().unwrap_or_default();
            let path = format!("{}/{name}", self.path.trim_end_matches('/'));
            if let Ok(entry) = look(&self.guest, path).await {
                event["entry"] = entry;
            }
        }
        events
    }
}

/// E2B watches directories only.
fn check_directory(path: &str, kind: FileKind) -> Result<(), RpcError> {
    match kind {
        FileKind::Directory => Ok(()),
        FileKind::File | FileKind::Symlink | FileKind::Other => {
            Err(RpcError::invalid(format!("path {path} is not a directory")))
        }
    }
}

fn below<'a>(watched: &str, path: &'a str) -> &'a str {
    path.strip_prefix(watched.trim_end_matches('/')).map_or(path, |rest| rest.trim_start_matches('/'))
}

/// A streamed watch.
struct StreamedWatch {
    watch: Watch,
    waiting: VecDeque<Value>,
    keepalive: Duration,
    deadline: Option<Instant>,
    over: bool,
}

pub(super) async fn watch(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    StreamedCall(request): StreamedCall<WatchRequest>,
) -> Response {
    let opened = async { Watch::open(&app, &inside, &request?).await };
    let watch = match opened.await {
        Ok(watch) => watch,
        Err(error) => return broken(&app, &inside.sandbox, &error).await,
    };
    let streamed_watch = StreamedWatch {
        watch,
        waiting: [json!({ "start": {} })].into(),
        keepalive: inside.keepalive,
        deadline: inside.timeout.map(|timeout| Instant::now() + timeout),
        over: false,
    };
    cuttable(stream::unfold(streamed_watch, |mut streamed| async move {
        let bytes = streamed.next().await?;
        Some((bytes, streamed))
    }))
}

impl StreamedWatch {
    async fn next(&mut self) -> Option<Result<Bytes, StreamCut>> {
        if self.over {
            return None;
        }
        if let Some(event) = self.waiting.pop_front() {
            return Some(Ok(message(&event)));
        }
        let deadline = self.deadline;
        let events = tokio::select! {
            events = self.watch.next() => events,
            () = tokio::time::sleep(self.keepalive) => return Some(Ok(message(&json!({ "keepalive": {} })))),
            () = async { tokio::time::sleep_until(deadline.expect("checked by the guard")).await }, if deadline.is_some() => {
                self.over = true;
                let error = RpcError::new(RpcCode::DeadlineExceeded, "the time limit of the watch was reached");
                return Some(Ok(end(Some(&error))));
            }
        };
        let Some(events) = events else {
            self.over = true;
            // When a stream is interrupted, clients ask whether the sandbox is running, and report that it was killed.
            return match reach::is_ended(&self.watch.app, &self.watch.guest.sandbox().id).await {
                true => Some(Err(StreamCut)),
                false => Some(Ok(end(None))),
            };
        };
        let events = self.watch.completed(events).await;
        self.waiting.extend(events.into_iter().map(|event| json!({ "filesystem": event })));
        self.waiting.pop_front().map(|event| Ok(message(&event)))
    }
}

/// The queues of polling clients.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<HashMap<String, WatchQueue>>);

#[derive(Debug)]
struct WatchQueue {
    sandbox: SandboxId,
    events: VecDeque<Value>,
    /// More changes arrived than the queue can hold.
    lost: bool,
    /// The watch itself has ended.
    ended: bool,
    asked: Instant,
    task: tokio::task::AbortHandle,
}

impl Drop for WatchQueue {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Part for Watchers {
    fn new(_: &App) -> Self {
        Self::default()
    }
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, WatchQueue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, id: &str, events: Vec<Value>) {
        if let Some(kept) = self.lock().get_mut(id) {
            let room = EVENTS_MAX.saturating_sub(kept.events.len());
            kept.lost |= events.len() > room;
            kept.events.extend(events.into_iter().take(room));
        }
    }

    fn check_room(&self, sandbox: &SandboxId) -> Result<(), RpcError> {
        let mut all = self.lock();
        // No task removes entries whose watch has ended.
        all.retain(|_, kept| kept.asked.elapsed() < FORGOTTEN_AFTER);
        let own = all.values().filter(|kept| kept.sandbox == *sandbox).count();
        if own >= WATCHERS_PER_SANDBOX || all.len() >= WATCHERS_MAX {
            return Err(RpcError::new(
                RpcCode::ResourceExhausted,
                "there are too many watchers; stop some of them",
            ));
        }
        Ok(())
    }

    /// Whether the client still polls; otherwise the entry is removed.
    fn is_wanted(&self, id: &str) -> bool {
        let mut all = self.lock();
        let wanted = all.get(id).is_some_and(|kept| kept.asked.elapsed() < FORGOTTEN_AFTER);
        if !wanted {
            all.remove(id);
        }
        wanted
    }
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<WatchRequest>,
) -> Result<Json<Value>, RpcError> {
    app.part::<Watchers>().check_room(&inside.sandbox)?;
    let watch = Watch::open(&app, &inside, &request).await?;
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel's random generator is available");
    let id = format!("{:032x}", u128::from_le_bytes(bytes));
    let (keeper, own) = (app.clone(), id.clone());
    // The entry is inserted before the task looks for it: the task waits for this lock.
    let mut all = app.part::<Watchers>().lock();
    let task = app.tasks.spawn(async move { keep(&keeper, &own, watch).await });
    let kept = WatchQueue {
        sandbox: inside.sandbox,
        events: VecDeque::new(),
        lost: false,
        ended: false,
        asked: Instant::now(),
        task: task.abort_handle(),
    };
    all.insert(id.clone(), kept);
    Ok(Json(json!({ "watcherId": id })))
}

async fn keep(app: &Arc<App>, id: &str, mut watch: Watch) {
    loop {
        tokio::select! {
            events = watch.next() => match events {
                Some(events) => {
                    let events = watch.completed(events).await;
                    app.part::<Watchers>().add(id, events);
                }
                None => break,
            },
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if !app.part::<Watchers>().is_wanted(id) {
            return;
        }
    }
    if let Some(kept) = app.part::<Watchers>().lock().get_mut(id) {
        kept.ended = true;
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WatcherRequest {
    #[serde(rename = "watcherId", alias = "watcher_id", default)]
    watcher: String,
}

pub(super) async fn events(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<WatcherRequest>,
) -> Result<Json<Value>, RpcError> {
    // A client that has just written a file polls at once, when the change has not arrived yet.
    tokio::time::sleep(ON_ITS_WAY).await;
    let mut all = app.part::<Watchers>().lock();
    // A watch of another sandbox gets the same error as an unknown one.
    let kept = all.get_mut(&request.watcher).filter(|kept| kept.sandbox == inside.sandbox);
    let kept = kept.ok_or_else(unknown)?;
    kept.asked = Instant::now();
    if std::mem::take(&mut kept.lost) {
        kept.events.clear();
        let message =
            format!("more than {EVENTS_MAX} changes occurred since the last poll: read the directory again");
        return Err(RpcError::new(RpcCode::ResourceExhausted, message));
    }
    if kept.ended && kept.events.is_empty() {
        let message = "the watch ended because the sandbox was put to sleep: watch again";
        return Err(RpcError::new(RpcCode::FailedPrecondition, message));
    }
    let events: Vec<Value> = kept.events.drain(..).collect();
    Ok(Json(json!({ "events": events })))
}

pub(super) async fn remove(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<WatcherRequest>,
) -> Result<Json<Value>, RpcError> {
    let mut all = app.part::<Watchers>().lock();
    let own = all.get(&request.watcher).is_some_and(|kept| kept.sandbox == inside.sandbox);
    match own {
        true => {
            all.remove(&request.watcher);
            Ok(Json(json!({})))
        }
        false => Err(unknown()),
    }
}

fn unknown() -> RpcError {
    RpcError::new(RpcCode::NotFound, "watcher not found, or removed because it was not polled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_paths_relative_to_the_watched_directory() {
        assert_eq!(below("/home/user", "/home/user/a/b"), "a/b");
        assert_eq!(below("/home/user/", "/home/user/a"), "a");
        assert_eq!(below("/", "/a"), "a");
        assert_eq!(below("/a", "/a"), "");
    }

    #[test]
    fn only_directories_can_be_watched() {
        assert!(check_directory("/a", FileKind::Directory).is_ok());
        let refused = check_directory("/a/b", FileKind::File).unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (RpcCode::InvalidArgument, "path /a/b is not a directory")
        );
    }
}
