//! Races: started here, continued by the engine, followed by polling for changes.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use burrow_api::{MergeRace, MergeReport, Race, Races, StartRace};
use burrow_model::RaceId;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use burrow_http::app::App;
use burrow_http::auth::{Reader, UnboundExecutor};
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::refusals::{Common, ObjectRefusals, SandboxRefusals, WithBody};
use burrow_http::{convert, exec_trace};

/// The longest wait for a change; clients repeat the request to wait longer.
const WAIT_MS_MAX: u64 = 60_000;

/// Names a race.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct RacePath {
    /// The race's id.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    race: String,
}

impl RacePath {
    fn id(&self) -> Result<RaceId, ApiError> {
        let refused = |_| ApiError::new(burrow_api::ErrorCode::NotFound, "no such race");
        burrow_http::auth::check_reference(&self.race)?;
        self.race.parse().map_err(refused)
    }
}

/// When to respond.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitParams {
    /// Respond once the race's `version` is greater than this.
    after: Option<u64>,
    /// Wait at most this long for that; 0 when absent.
    #[param(maximum = 60_000)]
    wait_ms: Option<u64>,
}

#[utoipa::path(
    post, path = "/v1/races", tag = "merges", request_body = StartRace,
    responses((status = 201, description = "Started; it continues in the background", body = Race), Common, SandboxRefusals, WithBody),
)]
pub(crate) async fn start(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    body: JsonBody<StartRace>,
) -> Result<(StatusCode, Json<Race>), ApiError> {
    let spec = convert::race_spec(&body.value)?;
    let parent = caller.sandbox(&app, &body.value.parent).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let actor = exec_trace::actor(caller.trace());
    let started = async move { Ok(engine.start_race(&tenant, &parent, spec, actor).await?) };
    let race = app.run_to_completion(started).await?;
    Ok((StatusCode::CREATED, Json(convert::race(race))))
}

#[utoipa::path(
    get, path = "/v1/races", tag = "merges",
    responses((status = 200, description = "Newest first", body = Races), Common),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
) -> Result<Json<Races>, ApiError> {
    caller.unbound()?;
    let races = app.engine.races(caller.tenant()).await?;
    Ok(Json(Races { races: races.into_iter().map(convert::race).collect() }))
}

#[utoipa::path(
    get, path = "/v1/races/{race}", tag = "merges", params(RacePath, WaitParams),
    responses((status = 200, description = "The current state of the race", body = Race), Common, ObjectRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<RacePath>,
    Params(params): Params<WaitParams>,
) -> Result<Json<Race>, ApiError> {
    caller.unbound()?;
    let id = path.id()?;
    let wait_ms = params.wait_ms.unwrap_or(0);
    if wait_ms > WAIT_MS_MAX {
        return Err(ApiError::invalid(format!("`wait_ms` must be at most {WAIT_MS_MAX}, not {wait_ms}")));
    }
    let (after, bound) = (params.after.unwrap_or(0), Duration::from_millis(wait_ms));
    let race = tokio::select! {
        race = app.engine.race_after(caller.tenant(), &id, after, bound) => race?,
        // When the daemon shuts down, it responds at once; the next request reaches the next daemon.
        () = app.draining.cancelled() => app.engine.race(caller.tenant(), &id).await?,
    };
    Ok(Json(convert::race(race)))
}

#[utoipa::path(
    post, path = "/v1/races/{race}/merge", tag = "merges", params(RacePath), request_body = MergeRace,
    responses(
        (status = 200, description = "The changes that were merged, or would be; if there are conflicts, nothing was merged", body = MergeReport),
        Common, SandboxRefusals, WithBody,
    ),
)]
pub(crate) async fn merge(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<RacePath>,
    body: JsonBody<MergeRace>,
) -> Result<Json<MergeReport>, ApiError> {
    let id = path.id()?;
    let options = convert::merge_race_options(&body.value)?;
    let (engine, tenant, dry_run) = (app.engine.clone(), caller.tenant().clone(), options.dry_run);
    let merged = app.carry_out(async move { Ok(engine.merge_race(&tenant, &id, options).await?) }).await?;
    Ok(Json(convert::merged_sandbox(merged, dry_run)))
}

#[utoipa::path(
    delete, path = "/v1/races/{race}", tag = "merges", params(RacePath),
    responses(
        (status = 204, description = "Ended if it was running, and deleted with its attempts"),
        Common, SandboxRefusals,
    ),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<RacePath>,
) -> Result<StatusCode, ApiError> {
    let id = path.id()?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.carry_out(async move { Ok(engine.delete_race(&tenant, &id).await?) }).await?;
    Ok(StatusCode::NO_CONTENT)
}
