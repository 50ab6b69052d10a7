//! `GET …/files/watch`: changes under a path as they happen, one per line.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use burrow_api::{WatchEvent, WatchEventKind};
use burrow_engine::Guest;
use burrow_guest::client::parse;
use burrow_guest::protocol::{Frame, Request, WatchFiles};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use utoipa::IntoParams;

use super::files::guest;
use super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::Reader;
use burrow_http::convert::{self, check_path};
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, GuestRefusals};
use burrow_http::stream::{GuestReader, GuestWriter, lines, next_frame};

/// What to watch.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchParams {
    /// Absolute path inside the sandbox.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
    /// Include subdirectories; false when absent.
    #[serde(default)]
    #[param(required = false)]
    recursive: bool,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/watch", tag = "files", params(SandboxPath, WatchParams),
    responses(
        (status = 200, description = "One `WatchEvent` per line; the first is `ready`", body = WatchEvent,
         content_type = "application/x-ndjson"),
        Common, GuestRefusals,
    ),
)]
pub(crate) async fn watch(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<WatchParams>,
) -> Result<Response, ApiError> {
    check_path("path", &params.path)?;
    let guest = guest(&app, &caller, &path).await?;
    let request = WatchFiles { path: params.path.clone(), recursive: params.recursive };
    let mut connection = guest.open(&Request::Watch(request)).await?;
    guest.reply::<()>(&mut connection).await?;
    let (reader, writer) = connection.split();
    let ready = WatchEvent { kind: WatchEventKind::Ready, path: params.path, from: None };
    let watch = Watch { app, guest, reader, _writer: writer };
    let events =
        stream::unfold(watch, |mut watch| async move { watch.next().await.map(|event| (event, watch)) });
    Ok(lines(stream::iter([ready]).chain(events)))
}

struct Watch {
    app: Arc<App>,
    guest: Guest,
    reader: GuestReader,
    /// Kept open: the guest would take its closing for a disconnected watcher.
    _writer: GuestWriter,
}

impl Watch {
    /// `None` when the watch ends because its sandbox stops or the daemon shuts down.
    async fn next(&mut self) -> Option<WatchEvent> {
        match next_frame(&self.app, &self.guest, &mut self.reader).await? {
            Ok(Some(Frame::Control(json))) => parse(&json).ok().map(convert::watch_event),
            Ok(Some(Frame::Bytes(_) | Frame::Stdout { .. } | Frame::Stderr { .. } | Frame::End) | None)
            | Err(_) => None,
        }
    }
}
