//! Volumes in the API of E2B's clients: the control plane, and the files in volumes.
//!
//! ```text
//!   /volumes…                               by key: create, list, find, delete
//!   /volumecontent/<volume>/dir|path|file   by the volume's own token, which the control plane returns
//! ```
//!
//! A token is an HMAC of the volume's id and generation, like that of a sandbox, and is revoked like it. In E2B any number of sandboxes may write to a volume;
//! in Burrow only one may, and for a second one the error explains how to mount it read-only: `NAME:ro`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use burrow_api::{CreateVolume, ErrorCode, MountVolume, VolumeMode};
use burrow_disks::volume_files::{DEPTH_MAX, Ownership, VolumeEntry, VolumeEntryKind};
use burrow_engine::OpenVolume;
use burrow_model::{Volume, VolumeId, VolumeMount, VolumeState};
use http::StatusCode;
use http::header::AUTHORIZATION;
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{E2bExtractor, JsonInput, UnknownFields};
use super::error::Refusal;
use super::show;
use burrow_gateway::e2b::tokens;
use burrow_http::app::App;
use burrow_http::audit::Trace;
use burrow_http::auth::{Caller, Executor, Reader, UnboundExecutor};
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::routes::{Routes, get};
use burrow_http::volume_content::{download, off_thread, upload};
use burrow_http::{convert, volumes};

/// Maximum number of volumes in a list; E2B's clients do not support pages of volumes.
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

/// A requested mount: `{"name": …, "path": …}`.
#[derive(Debug, Deserialize)]
pub(super) struct Mount {
    name: String,
    path: String,
    #[serde(flatten)]
    unknown: UnknownFields,
}

/// The requested mounts, with the volumes looked up.
pub(super) async fn mounts(
    app: &App,
    caller: &Caller,
    asked: Vec<Mount>,
) -> Result<Vec<VolumeMount>, Refusal> {
    let mut wishes = Vec::with_capacity(asked.len());
    for mount in asked {
        mount.unknown.refuse()?;
        let (name, mode) = match mount.name.strip_suffix(":ro") {
            Some(name) => (name.to_owned(), VolumeMode::Ro),
            None => (mount.name, VolumeMode::Rw),
        };
        wishes.push(MountVolume { name, path: mount.path, mode });
    }
    let wishes = convert::mount_requests(wishes)?;
    Ok(app.engine.find_mounts(caller.tenant(), wishes).await?)
}

/// In the format of a sandbox's details.
pub(super) fn mounted(mounts: &[VolumeMount]) -> Value {
    mounts.iter().map(|mount| json!({ "name": mount.name, "path": mount.path })).collect()
}

#[derive(Debug, Deserialize)]
pub(super) struct NewVolume {
    name: String,
    #[serde(flatten)]
    unknown: UnknownFields,
}

async fn create(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<UnboundExecutor>,
    body: JsonInput<NewVolume>,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    body.value.unknown.refuse()?;
    let wish = CreateVolume { name: body.value.name, disk_mib: None, from_snapshot: None };
    let made = volumes::make(&app, &caller, wish).await?;
    Ok((StatusCode::CREATED, Json(with_token(&app, &made).await?)))
}

async fn list(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let page = burrow_catalog::PageRequest { cursor: None, limit: LISTED_MAX };
    let found = app.engine.volumes(caller.tenant(), page).await?;
    let there = found.rows.into_iter().filter(|row| row.volume.state == VolumeState::Ready);
    let shown = there.map(|row| json!({ "volumeID": row.volume.id, "name": row.volume.name }));
    Ok(Json(shown.collect()))
}

/// The volume in a path.
#[derive(Debug, Deserialize)]
struct Path {
    volume: String,
}

/// Includes its token, so it requires a key that may run programs.
async fn find(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Executor>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    let volume = volumes::find(&app, &caller, &path.volume).await?;
    Ok(Json(with_token(&app, &volume).await?))
}

async fn destroy(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Executor>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<StatusCode, Refusal> {
    let volume = volumes::find(&app, &caller, &path.volume).await?;
    volumes::take_away(&app, &caller, volume, false).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn with_token(app: &App, volume: &Volume) -> Result<Value, Refusal> {
    let token = tokens::volume_token(app, &volume.id).await?;
    Ok(json!({ "volumeID": volume.id, "name": volume.name, "token": token }))
}

// === Content ===

/// The files of a volume, for a client with its token.
struct VolumeAccess(OpenVolume);

impl FromRequestParts<Arc<App>> for VolumeAccess {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let Segments(path) = Segments::<Path>::from_request_parts(parts, app).await?;
        let closed =
            || ApiError::new(ErrorCode::Unauthorized, "the token is missing or not valid for this volume");
        let id: VolumeId = path.volume.parse().map_err(|_| closed())?;
        let given = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|given| given.split_once(' ')).map(|(_, token)| token.trim());
        if !tokens::opens_volume(app, &id, token.unwrap_or_default()).await? {
            return Err(closed().into());
        }
        // The tenant is that of the volume; a deleted volume has none.
        let tenant = app.engine.catalog().owner_of_volume(&id).await?;
        let gone = || burrow_engine::EngineError::NotFound {
            kind: burrow_engine::ObjectKind::Volume,
            what: id.to_string(),
        };
        let tenant = tenant.ok_or_else(gone)?;
        if let Some(trace) = parts.extensions.get::<Trace>() {
            trace.asked_by_volume(&tenant, &id);
        }
        Ok(Self(app.engine.open_volume(&tenant, &id).await?))
    }
}

#[derive(Debug, Deserialize)]
struct PathQuery {
    path: String,
    depth: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
    force: Option<bool>,
}

impl PathQuery {
    fn owner(&self) -> Ownership {
        Ownership { uid: self.uid, gid: self.gid, mode: self.mode }
    }
}

async fn entries(
    VolumeAccess(volume): VolumeAccess,
    E2bExtractor(Params(place)): E2bExtractor<Params<PathQuery>>,
) -> Result<Json<Value>, Refusal> {
    let depth = place.depth.unwrap_or(1).clamp(1, DEPTH_MAX);
    let found = off_thread(&volume, move |volume| volume.files.list(&place.path, depth)).await?;
    Ok(Json(found.into_iter().map(shown).collect()))
}

async fn make_directory(
    VolumeAccess(volume): VolumeAccess,
    E2bExtractor(Params(place)): E2bExtractor<Params<PathQuery>>,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let (owner, parents) = (place.owner(), place.force.unwrap_or(false));
    let made =
        off_thread(&volume, move |volume| volume.files.make_directory(&place.path, owner, parents)).await?;
    Ok((StatusCode::CREATED, Json(shown(made))))
}

async fn stat(
    VolumeAccess(volume): VolumeAccess,
    E2bExtractor(Params(place)): E2bExtractor<Params<PathQuery>>,
) -> Result<Json<Value>, Refusal> {
    Ok(Json(shown(off_thread(&volume, move |volume| volume.files.stat(&place.path)).await?)))
}

#[derive(Debug, Deserialize)]
struct Change {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

async fn change(
    VolumeAccess(volume): VolumeAccess,
    E2bExtractor(Params(place)): E2bExtractor<Params<PathQuery>>,
    body: JsonInput<Change>,
) -> Result<Json<Value>, Refusal> {
    let Change { uid, gid, mode, unknown } = body.value;
    unknown.refuse()?;
    let owner = Ownership { uid, gid, mode };
    Ok(Json(shown(off_thread(&volume, move |volume| volume.files.own(&place.path, owner)).await?)))
}

async fn remove(
    VolumeAccess(volume): VolumeAccess,
    E2bExtractor(Params(place)): E2bExtractor<Params<PathQuery>>,
) -> Result<StatusCode, Refusal> {
    off_thread(&volume, move |volume| volume.files.remove(&place.path)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn read(
    VolumeAccess(volume): VolumeAccess,
    E2bExtractor(Params(place)): E2bExtractor<Params<PathQuery>>,
) -> Result<Response, Refusal> {
    Ok(download(volume, place.path).await?)
}

/// Replaces an existing file unless `force` is false; if it is true, missing parent directories are created.
async fn write(
    VolumeAccess(volume): VolumeAccess,
    E2bExtractor(Params(place)): E2bExtractor<Params<PathQuery>>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let (owner, parents) = (place.owner(), place.force.unwrap_or(false));
    if place.force == Some(false) {
        let path = place.path.clone();
        if off_thread(&volume, move |volume| volume.files.stat(&path)).await.is_ok() {
            return Err(Refusal::new(StatusCode::CONFLICT, format!("`{}` exists already", place.path)));
        }
    }
    let written = upload(volume, place.path, owner, parents, body).await?;
    Ok((StatusCode::CREATED, Json(shown(written))))
}

fn shown(entry: VolumeEntry) -> Value {
    let kind = match entry.kind {
        VolumeEntryKind::File => "file",
        VolumeEntryKind::Directory => "directory",
        VolumeEntryKind::Link => "symlink",
        VolumeEntryKind::Other => "unknown",
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
