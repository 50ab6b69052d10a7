//! Images: what there is, and building the default one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use burrow_api::{BuildImage, BuildProgress, Image, Page};
use burrow_engine::{BuildStage, EngineError};
use futures_util::stream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::auth::{Admin, Reader};
use super::error::ApiError;
use super::input::{JsonBody, NoParams, Params};
use super::refusals::{Common, WithBody};
use super::stream::{lines, shutting_down};
use super::{App, PageParams, cut};
use crate::convert;

/// Stages under way from the builder to the one who tells them on.
const STAGES_QUEUED: usize = 16;

#[utoipa::path(
    get, path = "/v1/images", tag = "images", params(PageParams),
    responses((status = 200, description = "Newest first", body = Page<Image>), Common),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<Image>>, ApiError> {
    let request = params.request()?;
    let images = app.engine.images(caller.tenant()).await?;
    let images = images.into_iter().map(convert::image).collect();
    Ok(Json(cut(images, &request, |image| &image.id)?))
}

#[utoipa::path(
    post, path = "/v1/images", tag = "images", request_body = BuildImage,
    responses(
        (status = 200, description = "One `BuildProgress` per line; the last is `done` or `error`", body = BuildProgress,
         content_type = "application/x-ndjson"),
        (status = 409, description = "It is being built already", body = burrow_api::ErrorBody),
        Common, WithBody,
    ),
)]
pub(crate) async fn build(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
    body: JsonBody<BuildImage>,
) -> Result<Response, ApiError> {
    let name = body.value.name.unwrap_or_else(|| app.config.defaults.image.clone());
    let name = convert::name("name", &name)?;
    if !body.value.rebuild {
        match app.engine.find_image(caller.tenant(), name.as_str()).await {
            Ok(image) => {
                return Ok(lines(stream::iter([BuildProgress::Done { image: convert::image(image) }])));
            }
            Err(EngineError::ImageNotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (stages, queued) = mpsc::channel(STAGES_QUEUED);
    let latest = tell(&app, queued);
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    // Not the request's own work: whoever hangs up does not stop the build.
    let build = app.tasks.spawn(async move { engine.build_image(&tenant, name, stages).await });
    let mut build = Build { app, latest, build, ended: false };
    // A build that is refused at once is an error with a status, not a stream.
    let first = build.next().await?;
    let rest = stream::unfold(build, |mut build| async move {
        if build.ended {
            return None;
        }
        let progress =
            build.next().await.unwrap_or_else(|error| BuildProgress::Error { error: error.into_detail() });
        Some((progress, build))
    });
    Ok(lines(futures_util::StreamExt::chain(stream::iter([first]), rest)))
}

/// Keeps the newest stage only, so that a client that does not read does not stall the build.
fn tell(app: &App, mut queued: mpsc::Receiver<BuildStage>) -> watch::Receiver<Option<BuildStage>> {
    let (sender, latest) = watch::channel(None);
    app.tasks.spawn(async move {
        while let Some(stage) = queued.recv().await {
            sender.send_replace(Some(stage));
        }
    });
    latest
}

struct Build {
    app: Arc<App>,
    latest: watch::Receiver<Option<BuildStage>>,
    build: JoinHandle<Result<burrow_model::Image, EngineError>>,
    ended: bool,
}

impl Build {
    /// The next stage, or the end.
    async fn next(&mut self) -> Result<BuildProgress, ApiError> {
        tokio::select! {
            biased;
            Ok(()) = self.latest.changed() => {
                let stage = self.latest.borrow_and_update().clone();
                let stage = stage.unwrap_or(BuildStage { stage: String::new(), percent: None });
                Ok(BuildProgress::Stage { stage: stage.stage, percent: stage.percent })
            }
            built = &mut self.build => {
                self.ended = true;
                let built = built.map_err(|error| ApiError::internal("could not finish the build", error))?;
                Ok(BuildProgress::Done { image: convert::image(built?) })
            }
            () = self.app.draining.cancelled() => {
                self.ended = true;
                Ok(BuildProgress::Error { error: shutting_down() })
            }
        }
    }
}
