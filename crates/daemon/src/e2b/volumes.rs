//! Volumes as E2B's clients know them: the control plane, and the files in them.
//!
//! ```text
//!   /volumes…                          by key: make, list, find, destroy
//!   /volumecontent/<volume>/dir|path|file   by the volume's own token, which the former hand out
//! ```
//!
//! A token is an HMAC of the volume's id, as a sandbox's is. To E2B any number of sandboxes may write to a volume; here one
//! does, and a second that asks for it is refused with words that say how to read: `NAME:ro` mounts it read-only.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use burrow_api::{CreateVolume, ErrorCode, MountVolume, VolumeMode};
use burrow_engine::OpenShelf;
use burrow_model::{Shelf, ShelfId, ShelfMount, ShelfState};
use burrow_volumes::shelf_files::{DEPTH_MAX, Ownership, ShelfEntry, ShelfEntryKind};
use http::StatusCode;
use http::header::AUTHORIZATION;
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{By, Given, Unknown};
use super::error::Refusal;
use super::{access, show};
use crate::audit::Trace;
use crate::convert;
use crate::rest::auth::{Caller, Executor, Reader, UnboundExecutor};
use crate::rest::error::ApiError;
use crate::rest::input::Params;
use crate::rest::routes::{Routes, get};
use crate::rest::volume_files::{download, off_thread, upload};
use crate::rest::{App, Segments, volumes};

/// Volumes that one list names; E2B's clients know no pages of them.
const LISTED_MAX: u32 = burrow_catalog::PAGE_LIMIT_MAX;

pub(super) fn routes() -> Routes<Arc<App>> {
    const CONTENT: &str = "/volumecontent/{volume}";
    let under = |rest: &str| format!("{CONTENT}/{rest}");
    Routes::new()
        .route("/volumes", get(list).post(create))
        .route("/volumes/{volume}", get(find).delete(destroy))
        .route(&under("dir"), get(entries).post(make_directory))
        .route(&under("path"), get(stat).patch(change).delete(remove))
        .route(&under("file"), get(read).put(write))
}

/// What a sandbox is to have: `{"name": …, "path": …}`, each.
#[derive(Debug, Deserialize)]
pub(super) struct Mount {
    name: String,
    path: String,
    #[serde(flatten)]
    unknown: Unknown,
}

/// What was asked for, found.
pub(super) async fn mounts(
    app: &App,
    caller: &Caller,
    asked: Vec<Mount>,
) -> Result<Vec<ShelfMount>, Refusal> {
    let mut wishes = Vec::with_capacity(asked.len());
    for mount in asked {
        mount.unknown.refuse()?;
        let (name, mode) = match mount.name.strip_suffix(":ro") {
            Some(name) => (name.to_owned(), VolumeMode::Ro),
            None => (mount.name, VolumeMode::Rw),
        };
        wishes.push(MountVolume { name, path: mount.path, mode });
    }
    let wishes = convert::mount_wishes(wishes)?;
    Ok(app.engine.find_mounts(caller.tenant(), wishes).await?)
}

/// As a sandbox's details show them.
pub(super) fn mounted(mounts: &[ShelfMount]) -> Value {
    mounts.iter().map(|mount| json!({ "name": mount.name, "path": mount.path })).collect()
}

#[derive(Debug, Deserialize)]
pub(super) struct NewVolume {
    name: String,
    #[serde(flatten)]
    unknown: Unknown,
}

async fn create(
    State(app): State<Arc<App>>,
    By(caller): By<UnboundExecutor>,
    body: Given<NewVolume>,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    body.value.unknown.refuse()?;
    let wish = CreateVolume { name: body.value.name, disk_mib: None, from_snapshot: None };
    let made = volumes::make(&app, &caller, wish).await?;
    Ok((StatusCode::CREATED, Json(with_token(&app, &made).await?)))
}

async fn list(State(app): State<Arc<App>>, By(caller): By<Reader>) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let page = burrow_catalog::PageRequest { cursor: None, limit: LISTED_MAX };
    let found = app.engine.shelves(caller.tenant(), page).await?;
    let there = found.rows.into_iter().filter(|row| row.shelf.state == ShelfState::Ready);
    let shown = there.map(|row| json!({ "volumeID": row.shelf.id, "name": row.shelf.name }));
    Ok(Json(shown.collect()))
}

/// Names a volume.
#[derive(Debug, Deserialize)]
struct Path {
    volume: String,
}

/// With the token that opens it, so only for those who may run programs.
async fn find(
    State(app): State<Arc<App>>,
    By(caller): By<Executor>,
    By(Segments(path)): By<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    let shelf = volumes::find(&app, &caller, &path.volume).await?;
    Ok(Json(with_token(&app, &shelf).await?))
}

async fn destroy(
    State(app): State<Arc<App>>,
    By(caller): By<Executor>,
    By(Segments(path)): By<Segments<Path>>,
) -> Result<StatusCode, Refusal> {
    let shelf = volumes::find(&app, &caller, &path.volume).await?;
    volumes::take_away(&app, &caller, shelf, false).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn with_token(app: &App, shelf: &Shelf) -> Result<Value, Refusal> {
    let token = access::volume_token(app, &shelf.id).await?;
    Ok(json!({ "volumeID": shelf.id, "name": shelf.name, "token": token }))
}

// === Content ===

/// The files of a volume, for whoever has its token.
struct Opened(OpenShelf);

impl FromRequestParts<Arc<App>> for Opened {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let Segments(path) = Segments::<Path>::from_request_parts(parts, app).await?;
        let closed = || {
            ApiError::new(ErrorCode::Unauthorized, "the token does not open this volume, or there was none")
        };
        let id: ShelfId = path.volume.parse().map_err(|_| closed())?;
        let given = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|given| given.split_once(' ')).map(|(_, token)| token.trim());
        if !access::opens_volume(app, &id, token.unwrap_or_default()).await? {
            return Err(closed().into());
        }
        // Whose token it is, its volume says; of one that is gone, nobody's.
        let tenant = app.engine.catalog().owner_of_shelf(&id).await?;
        let gone = || burrow_engine::EngineError::ShelfNotFound { what: id.to_string() };
        let tenant = tenant.ok_or_else(gone)?;
        if let Some(trace) = parts.extensions.get::<Trace>() {
            trace.asked_by_volume(&tenant, &id);
        }
        Ok(Self(app.engine.open_shelf(&tenant, &id).await?))
    }
}

#[derive(Debug, Deserialize)]
struct Place {
    path: String,
    depth: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
    force: Option<bool>,
}

impl Place {
    fn owner(&self) -> Ownership {
        Ownership { uid: self.uid, gid: self.gid, mode: self.mode }
    }
}

async fn entries(
    Opened(shelf): Opened,
    By(Params(place)): By<Params<Place>>,
) -> Result<Json<Value>, Refusal> {
    let depth = place.depth.unwrap_or(1).clamp(1, DEPTH_MAX);
    let found = off_thread(&shelf, move |shelf| shelf.files.list(&place.path, depth)).await?;
    Ok(Json(found.into_iter().map(shown).collect()))
}

async fn make_directory(
    Opened(shelf): Opened,
    By(Params(place)): By<Params<Place>>,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let (owner, parents) = (place.owner(), place.force.unwrap_or(false));
    let made =
        off_thread(&shelf, move |shelf| shelf.files.make_directory(&place.path, owner, parents)).await?;
    Ok((StatusCode::CREATED, Json(shown(made))))
}

async fn stat(Opened(shelf): Opened, By(Params(place)): By<Params<Place>>) -> Result<Json<Value>, Refusal> {
    Ok(Json(shown(off_thread(&shelf, move |shelf| shelf.files.stat(&place.path)).await?)))
}

#[derive(Debug, Deserialize)]
struct Change {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
    #[serde(flatten)]
    unknown: Unknown,
}

async fn change(
    Opened(shelf): Opened,
    By(Params(place)): By<Params<Place>>,
    body: Given<Change>,
) -> Result<Json<Value>, Refusal> {
    let Change { uid, gid, mode, unknown } = body.value;
    unknown.refuse()?;
    let owner = Ownership { uid, gid, mode };
    Ok(Json(shown(off_thread(&shelf, move |shelf| shelf.files.own(&place.path, owner)).await?)))
}

async fn remove(Opened(shelf): Opened, By(Params(place)): By<Params<Place>>) -> Result<StatusCode, Refusal> {
    off_thread(&shelf, move |shelf| shelf.files.remove(&place.path)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn read(Opened(shelf): Opened, By(Params(place)): By<Params<Place>>) -> Result<Response, Refusal> {
    Ok(download(shelf, place.path).await?)
}

/// What is there is replaced unless `force` is false; where it is true, directories above it are made where they are missing.
async fn write(
    Opened(shelf): Opened,
    By(Params(place)): By<Params<Place>>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let (owner, parents) = (place.owner(), place.force.unwrap_or(false));
    if place.force == Some(false) {
        let path = place.path.clone();
        if off_thread(&shelf, move |shelf| shelf.files.stat(&path)).await.is_ok() {
            return Err(Refusal::new(StatusCode::CONFLICT, format!("`{}` exists already", place.path)));
        }
    }
    let written = upload(shelf, place.path, owner, parents, body).await?;
    Ok((StatusCode::CREATED, Json(shown(written))))
}

fn shown(entry: ShelfEntry) -> Value {
    let kind = match entry.kind {
        ShelfEntryKind::File => "file",
        ShelfEntryKind::Directory => "directory",
        ShelfEntryKind::Link => "symlink",
        ShelfEntryKind::Other => "unknown",
    };
    let mut shown = json!({
        "name": entry.name,
        "type": kind,
        "path": entry.path,
        "size": entry.bytes,
        "mode": entry.mode,
        "uid": entry.uid,
        "gid": entry.gid,
        "atime": show::time(entry.accessed_ms),
        "mtime": show::time(entry.modified_ms),
        "ctime": show::time(entry.changed_ms),
    });
    if let Some(target) = entry.target {
        shown["target"] = target.into();
    }
    shown
}
