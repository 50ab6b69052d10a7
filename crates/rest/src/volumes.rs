//! Volumes that outlive sandboxes: create, list, inspect, snapshot, restore, remove.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{CreateVolume, CreateVolumeSnapshot, Page, RestoreVolume, Volume, VolumeSnapshot};
use burrow_model as model;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, Reader, UnboundExecutor, check_reference};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::pages::{PageParams, page_of_list};
use burrow_http::refusals::{Common, VolumeRefusals, WithBody};
use burrow_http::volumes::{find, make, take_away};

/// Names a volume.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct VolumePath {
    /// The volume's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    pub(super) volume: String,
}

impl VolumePath {
    pub(crate) async fn resolve(&self, app: &App, caller: &Caller) -> Result<model::Volume, ApiError> {
        find(app, caller, &self.volume).await
    }
}

#[utoipa::path(
    post, path = "/v1/volumes", tag = "volumes", request_body = CreateVolume,
    responses((status = 201, description = "Created", body = Volume), Common, VolumeRefusals, WithBody),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    body: JsonBody<CreateVolume>,
) -> Result<(StatusCode, Json<Volume>), ApiError> {
    let made = make(&app, &caller, body.value).await?;
    Ok((StatusCode::CREATED, Json(convert::volume(made, None, Vec::new()))))
}

#[utoipa::path(
    get, path = "/v1/volumes", tag = "volumes", params(PageParams),
    responses((status = 200, description = "Newest first", body = Page<Volume>), Common),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<Volume>>, ApiError> {
    let request = params.request()?;
    caller.unbound()?;
    let found = app.engine.volumes(caller.tenant(), request).await?;
    let mut items = Vec::with_capacity(found.rows.len());
    for row in found.rows {
        let users = app.engine.users_of_volume(&row.volume.id).await?;
        items.push(convert::volume(row.volume, None, users));
    }
    Ok(Json(Page { items, next_cursor: found.next_cursor }))
}

#[utoipa::path(
    get, path = "/v1/volumes/{volume}", tag = "volumes", params(VolumePath),
    responses((status = 200, description = "The volume, and the sandboxes that use it", body = Volume), Common, VolumeRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<VolumePath>,
) -> Result<Json<Volume>, ApiError> {
    let volume = path.resolve(&app, &caller).await?;
    let used_bytes = app.engine.volume_used(&volume.id).await?;
    let users = app.engine.users_of_volume(&volume.id).await?;
    Ok(Json(convert::volume(volume, used_bytes, users)))
}

/// How to remove a volume.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveParams {
    /// Remove its snapshots too. When false or absent, a volume with snapshots is not removed.
    #[serde(default)]
    #[param(required = false)]
    snapshots: bool,
}

#[utoipa::path(
    delete, path = "/v1/volumes/{volume}", tag = "volumes", params(VolumePath, RemoveParams),
    responses((status = 204, description = "Removed, with its contents"), Common, VolumeRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<VolumePath>,
    Params(params): Params<RemoveParams>,
) -> Result<StatusCode, ApiError> {
    let volume = path.resolve(&app, &caller).await?;
    take_away(&app, &caller, volume, params.snapshots).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/volumes/{volume}/snapshots", tag = "volumes", params(VolumePath),
    request_body = CreateVolumeSnapshot,
    responses((status = 201, description = "Taken", body = VolumeSnapshot), Common, VolumeRefusals, WithBody),
)]
pub(crate) async fn snapshot(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<VolumePath>,
    body: JsonBody<CreateVolumeSnapshot>,
) -> Result<(StatusCode, Json<VolumeSnapshot>), ApiError> {
    let name = body.value.name.as_deref().map(|text| convert::name("name", text)).transpose()?;
    let volume = path.resolve(&app, &caller).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let work = async move { Ok(engine.snapshot_volume(&tenant, &volume, name).await?) };
    let taken = app.run_to_completion(work).await?;
    Ok((StatusCode::CREATED, Json(convert::volume_snapshot(taken))))
}

#[utoipa::path(
    get, path = "/v1/volumes/{volume}/snapshots", tag = "volumes", params(VolumePath, PageParams),
    responses((status = 200, description = "Newest first", body = Page<VolumeSnapshot>), Common, VolumeRefusals),
)]
pub(crate) async fn snapshots(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<VolumePath>,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<VolumeSnapshot>>, ApiError> {
    let request = params.request()?;
    let volume = path.resolve(&app, &caller).await?;
    let all = app.engine.volume_snapshots(&volume.id).await?;
    let all = all.into_iter().map(convert::volume_snapshot).collect();
    Ok(Json(page_of_list(all, &request, |snapshot: &VolumeSnapshot| snapshot.id.as_str())?))
}

/// Names a snapshot of a volume.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct VolumeSnapshotPath {
    /// The volume's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    volume: String,
    /// The snapshot's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    snapshot: String,
}

async fn find_snapshot(
    app: &App,
    volume: &model::Volume,
    text: &str,
) -> Result<model::VolumeSnapshot, ApiError> {
    check_reference(text)?;
    Ok(app.engine.find_volume_snapshot(volume, text).await?)
}

#[utoipa::path(
    delete, path = "/v1/volumes/{volume}/snapshots/{snapshot}", tag = "volumes", params(VolumeSnapshotPath),
    responses((status = 204, description = "Removed"), Common, VolumeRefusals),
)]
pub(crate) async fn remove_snapshot(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<VolumeSnapshotPath>,
) -> Result<StatusCode, ApiError> {
    let volume = find(&app, &caller, &path.volume).await?;
    let snapshot = find_snapshot(&app, &volume, &path.snapshot).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.run_to_completion(async move { Ok(engine.delete_volume_snapshot(&tenant, &snapshot).await?) })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/volumes/{volume}/restore", tag = "volumes", params(VolumePath),
    request_body = RestoreVolume,
    responses((status = 200, description = "Restored to the snapshot", body = Volume), Common, VolumeRefusals, WithBody),
)]
pub(crate) async fn restore(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<VolumePath>,
    body: JsonBody<RestoreVolume>,
) -> Result<Json<Volume>, ApiError> {
    let volume = path.resolve(&app, &caller).await?;
    let snapshot = find_snapshot(&app, &volume, &body.value.snapshot).await?;
    let (engine, tenant, restored) = (app.engine.clone(), caller.tenant().clone(), volume.clone());
    app.run_to_completion(async move { Ok(engine.restore_volume(&tenant, &restored, &snapshot).await?) })
        .await?;
    let users = app.engine.users_of_volume(&volume.id).await?;
    Ok(Json(convert::volume(volume, None, users)))
}
