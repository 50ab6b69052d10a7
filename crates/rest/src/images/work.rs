//! Work on an image that outlives its request, and the stream of its progress.

use std::sync::Arc;

use axum::response::Response;
use burrow_api::BuildProgress;
use burrow_engine::{Engine, EngineError, ImageProgressSink};
use burrow_model::Image;
use futures_util::{StreamExt as _, stream};
use tokio::task::JoinHandle;

use super::progress::ProgressQueue;
use burrow_http::app::App;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::stream::{lines, shutting_down};

/// An image that is being created.
pub(super) struct Work {
    app: Arc<App>,
    queue: Arc<ProgressQueue>,
    task: JoinHandle<Result<Vec<Image>, EngineError>>,
    /// The last line, once the work has ended.
    end: Option<Result<BuildProgress, ApiError>>,
    ended: bool,
}

impl Work {
    /// The work does not belong to the request: it continues if the client disconnects, and stops only when the daemon
    /// does.
    pub(super) fn spawn<F>(app: &Arc<App>, work: impl FnOnce(Engine, ImageProgressSink) -> F) -> Self
    where
        F: Future<Output = Result<Vec<Image>, EngineError>> + Send + 'static,
    {
        let (queue, tell) = ProgressQueue::new();
        let work = work(app.engine.clone(), tell);
        let (engine, draining) = (app.engine.clone(), app.draining.clone());
        let task = app.tasks.spawn(async move {
            tokio::select! {
                done = work => done,
                // Dropped midway, it leaves what a crash would leave, which the next start removes.
                () = draining.cancelled() => {
                    engine.stop_image_work();
                    Err(EngineError::ShuttingDown)
                }
            }
        });
        Self { app: app.clone(), queue, task, end: None, ended: false }
    }

    /// Responds line by line. An error before the first line is a response with an error status, not a stream.
    pub(super) async fn answer(mut self) -> Result<Response, ApiError> {
        let first = self.next().await?;
        let rest = stream::unfold(self, |mut work| async move {
            if work.ended {
                return None;
            }
            let progress =
                work.next().await.unwrap_or_else(|error| BuildProgress::Error { error: error.into_detail() });
            Some((progress, work))
        });
        Ok(lines(stream::iter([first]).chain(rest)))
    }

    async fn next(&mut self) -> Result<BuildProgress, ApiError> {
        loop {
            if let Some(progress) = self.queue.next() {
                return Ok(progress);
            }
            if let Some(end) = self.end.take() {
                self.ended = true;
                return end;
            }
            tokio::select! {
                biased;
                done = &mut self.task => {
                    let done = done.map_err(|error| ApiError::internal("could not complete the image", error));
                    self.end = Some(done.and_then(|done| Ok(finished(done?))));
                }
                () = self.queue.changed() => {}
                () = self.app.draining.cancelled() => {
                    self.end = Some(Ok(BuildProgress::Error { error: shutting_down() }));
                }
            }
        }
    }
}

pub(super) fn finished(images: Vec<Image>) -> BuildProgress {
    let mut images = images.into_iter().map(convert::image);
    match images.next() {
        Some(first) => BuildProgress::Done { image: Box::new(first), more: images.collect() },
        None => BuildProgress::Error {
            error: ApiError::new(burrow_api::ErrorCode::Unprocessable, "the archive contains no image")
                .into_detail(),
        },
    }
}
