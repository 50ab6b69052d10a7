//! Implements E2B's in-sandbox agent (envd) from outside: processes, files, watches.
//!
//! ```text
//!   Front ─► (Addressee) ─► the same layers as every route ─► Inside: token ─► handler ─► guest
//! ```
//!
//! A request is admitted by the sandbox's own token (`X-Access-Token`), by a key with the scope `exec`, or, for one
//! file, by a signature. Without any of them, the error is the same for existing and unknown sandboxes; with one, the
//! error for a deleted sandbox says so.

mod connect;
mod entry;
mod files;
mod filesystem;
mod input;
mod inside;
mod marks;
mod multipart;
mod output;
mod process;
mod user;
mod watch;

use std::sync::Arc;

use axum::Router;
use http::StatusCode;

use super::error::{RpcCode, RpcError};
use burrow_http::app::App;
use burrow_http::routes::{Routes, get, post};
use inside::EnvdRequest;
pub(super) use inside::{AccessError, by_key};
pub(crate) use marks::Marks;
pub(super) use marks::mark;

pub fn router() -> Router<Arc<App>> {
    routes().into_router().fallback(no_such_call)
}

pub fn routes() -> Routes<Arc<App>> {
    let process = |call: &str| format!("/process.Process/{call}");
    let filesystem = |call: &str| format!("/filesystem.Filesystem/{call}");
    Routes::new()
        .route("/health", get(health))
        .route("/files", get(files::read).post(files::write))
        .route(&process("Start"), post(process::start))
        .route(&process("Connect"), post(process::connect))
        .route(&process("List"), post(process::list))
        .route(&process("Update"), post(process::update))
        .route(&process("SendSignal"), post(process::signal))
        .route(&process("SendInput"), post(input::send))
        .route(&process("StreamInput"), post(input::stream))
        .route(&process("CloseStdin"), post(input::close))
        .route(&filesystem("Stat"), post(filesystem::stat))
        .route(&filesystem("MakeDir"), post(filesystem::make_directory))
        .route(&filesystem("Move"), post(filesystem::rename))
        .route(&filesystem("ListDir"), post(filesystem::list))
        .route(&filesystem("Remove"), post(filesystem::remove))
        .route(&filesystem("WatchDir"), post(watch::watch))
        .route(&filesystem("CreateWatcher"), post(watch::create))
        .route(&filesystem("GetWatcherEvents"), post(watch::events))
        .route(&filesystem("RemoveWatcher"), post(watch::remove))
}

async fn no_such_call() -> RpcError {
    RpcError::new(RpcCode::Unimplemented, "Burrow does not support this call")
}

async fn health(_: EnvdRequest) -> StatusCode {
    StatusCode::NO_CONTENT
}
