//! Watches: a stream of changes, and for clients that come by to ask, changes kept for them.
//!
//! A kept watch is one connection to a guest and a bounded queue. Who does not ask for long is not watched for any more.

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
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::error::{RpcCode, RpcError};
use super::Inside;
use super::connect::{Framed, Unary, end, failed, message, streamed};
use super::filesystem::look;
use crate::rest::App;
use crate::rest::stream::{GuestReader, GuestWriter, next_frame};

/// Kept watches of one sandbox, and of all together.
const WATCHERS_PER_SANDBOX: usize = 64;
const WATCHERS_MAX: usize = 1024;

/// Changes kept for one client.
const EVENTS_MAX: usize = 10_000;

/// Nobody came to ask for this long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// For a change to come from inside.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
pub(super) struct WatchRequest {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(rename = "includeEntry", alias = "include_entry", default)]
    include_entry: bool,
    /// There are no such mounts in a sandbox.
    #[serde(rename = "allowNetworkMounts", default)]
    _allow_network_mounts: bool,
}

/// An open watch.
struct Watch {
    app: Arc<App>,
    guest: Guest,
    reader: GuestReader,
    /// Kept open: a guest takes its closing for the watcher's hanging up.
    _writer: GuestWriter,
    /// What is watched; events name what is below it.
    path: String,
    include_entry: bool,
}

impl Watch {
    async fn open(app: &Arc<App>, inside: &Inside, request: &WatchRequest) -> Result<Self, RpcError> {
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

    /// The next change; `None` when there will be none, since the sandbox or the daemon ends. Safe to give up waiting for.
    async fn next(&mut self) -> Option<Vec<Value>> {
        let frame = next_frame(&self.app, &self.guest, &mut self.reader).await?;
        match frame {
            Ok(Some(Frame::Control(json))) => parse(&json).ok().map(|event| self.told(event)),
            Ok(Some(Frame::Bytes(_) | Frame::Stdout { .. } | Frame::Stderr { .. } | Frame::End) | None)
            | Err(_) => None,
        }
    }

    /// A rename is two things to E2B: one name goes, another comes.
    fn told(&self, event: WatchEvent) -> Vec<Value> {
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
            // The watched directory itself: look again.
            WatchEventKind::Overflow => vec![one("EVENT_TYPE_WRITE", &self.path)],
        }
    }

    /// With what each is about, if the client wants that and it is still there.
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

/// A watch that is streamed.
struct Streamed {
    watch: Watch,
    waiting: VecDeque<Value>,
    keepalive: Duration,
    deadline: Option<Instant>,
    over: bool,
}

pub(super) async fn watch(
    State(app): State<Arc<App>>,
    inside: Inside,
    Framed(request): Framed<WatchRequest>,
) -> Response {
    let opened = async { Watch::open(&app, &inside, &request?).await };
    let watch = match opened.await {
        Ok(watch) => watch,
        Err(error) => return failed(&error),
    };
    let streamed_watch = Streamed {
        watch,
        waiting: [json!({ "start": {} })].into(),
        keepalive: inside.keepalive,
        deadline: inside.timeout.map(|timeout| Instant::now() + timeout),
        over: false,
    };
    streamed(stream::unfold(streamed_watch, |mut streamed| async move {
        let bytes = streamed.next().await?;
        Some((bytes, streamed))
    }))
}

impl Streamed {
    async fn next(&mut self) -> Option<bytes::Bytes> {
        if self.over {
            return None;
        }
        if let Some(event) = self.waiting.pop_front() {
            return Some(message(&event));
        }
        let deadline = self.deadline;
        let events = tokio::select! {
            events = self.watch.next() => events,
            () = tokio::time::sleep(self.keepalive) => return Some(message(&json!({ "keepalive": {} }))),
            () = async { tokio::time::sleep_until(deadline.expect("looked at before")).await }, if deadline.is_some() => {
                self.over = true;
                let error = RpcError::new(RpcCode::DeadlineExceeded, "the time to watch is up");
                return Some(end(Some(&error)));
            }
        };
        let Some(events) = events else {
            self.over = true;
            return Some(end(None));
        };
        let events = self.watch.completed(events).await;
        self.waiting.extend(events.into_iter().map(|event| json!({ "filesystem": event })));
        self.waiting.pop_front().map(|event| message(&event))
    }
}

/// What is kept for clients that come by to ask.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<HashMap<String, Kept>>);

#[derive(Debug)]
struct Kept {
    sandbox: SandboxId,
    events: VecDeque<Value>,
    /// More came than there was room for.
    lost: bool,
    /// The watch itself has ended.
    ended: bool,
    asked: Instant,
    task: tokio::task::AbortHandle,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
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
        // Those whose watch has ended have nobody else who would forget them.
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

    /// Whether somebody still asks; who does not is forgotten.
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
    inside: Inside,
    Unary(request): Unary<WatchRequest>,
) -> Result<Json<Value>, RpcError> {
    app.watchers.check_room(&inside.sandbox)?;
    let watch = Watch::open(&app, &inside, &request).await?;
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
    let id = format!("{:032x}", u128::from_le_bytes(bytes));
    let (keeper, own) = (app.clone(), id.clone());
    // The entry is there before the task looks for it: it waits for this lock.
    let mut all = app.watchers.lock();
    let task = app.tasks.spawn(async move { keep(&keeper, &own, watch).await });
    let kept = Kept {
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
                    app.watchers.add(id, events);
                }
                None => break,
            },
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if !app.watchers.is_wanted(id) {
            return;
        }
    }
    if let Some(kept) = app.watchers.lock().get_mut(id) {
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
    inside: Inside,
    Unary(request): Unary<WatcherRequest>,
) -> Result<Json<Value>, RpcError> {
    // A client that has just written a file asks for the change at once, which is still on its way from inside.
    tokio::time::sleep(ON_ITS_WAY).await;
    let mut all = app.watchers.lock();
    // Another sandbox's is as unknown as one that never was.
    let kept = all.get_mut(&request.watcher).filter(|kept| kept.sandbox == inside.sandbox);
    let kept = kept.ok_or_else(unknown)?;
    kept.asked = Instant::now();
    if std::mem::take(&mut kept.lost) {
        kept.events.clear();
        let message = format!(
            "more than {EVENTS_MAX} changes came since the last question: look at the directory again"
        );
        return Err(RpcError::new(RpcCode::ResourceExhausted, message));
    }
    if kept.ended && kept.events.is_empty() {
        let message = "the watch ended with the sandbox's sleep: watch again";
        return Err(RpcError::new(RpcCode::FailedPrecondition, message));
    }
    let events: Vec<Value> = kept.events.drain(..).collect();
    Ok(Json(json!({ "events": events })))
}

pub(super) async fn remove(
    State(app): State<Arc<App>>,
    inside: Inside,
    Unary(request): Unary<WatcherRequest>,
) -> Result<Json<Value>, RpcError> {
    let mut all = app.watchers.lock();
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
    RpcError::new(
        RpcCode::NotFound,
        "there is no such watcher, or it was forgotten because nobody asked for long",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named_by_what_is_below_the_watched_directory() {
        assert_eq!(below("/home/user", "/home/user/a/b"), "a/b");
        assert_eq!(below("/home/user/", "/home/user/a"), "a");
        assert_eq!(below("/", "/a"), "a");
        assert_eq!(below("/a", "/a"), "");
    }

    #[test]
    fn only_directories_are_watched() {
        assert!(check_directory("/a", FileKind::Directory).is_ok());
        let refused = check_directory("/a/b", FileKind::File).unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (RpcCode::InvalidArgument, "path /a/b is not a directory")
        );
    }
}
