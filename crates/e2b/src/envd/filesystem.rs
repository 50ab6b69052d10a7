//! Directories and their entries: stat, make, move, list, remove.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use burrow_engine::{EngineError, Guest};
use burrow_guest::protocol::{ErrorCode as GuestCode, FileEntry, FileKind, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::error::{RpcCode, RpcError};
use super::connect::UnaryCall;
use super::entry;
use super::inside::EnvdRequest;
use burrow_http::app::App;
use burrow_http::guest_listing as listing;

#[derive(Debug, Deserialize)]
pub(super) struct PathRequest {
    #[serde(default)]
    path: String,
}

/// Includes the target, if it is a link with an existing target.
pub(super) async fn look(guest: &Guest, path: String) -> Result<Value, RpcError> {
    let found: FileEntry = guest.call(&Request::Stat { path: path.clone(), follow: false }).await?;
    let target = match found.kind {
        FileKind::Symlink => guest.call::<FileEntry>(&Request::Stat { path, follow: true }).await.ok(),
        FileKind::File | FileKind::Directory | FileKind::Other => None,
    };
    Ok(entry::shown(&found, target.as_ref()))
}

pub(super) async fn stat(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<PathRequest>,
) -> Result<Json<Value>, RpcError> {
    let guest = inside.guest(&app).await?;
    let path = inside.path(&guest, &inside.as_user(&guest)?, &request.path).await?;
    Ok(Json(json!({ "entry": look(&guest, path).await? })))
}

pub(super) async fn make_directory(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<PathRequest>,
) -> Result<Json<Value>, RpcError> {
    let guest = inside.guest(&app).await?;
    let path = inside.path(&guest, &inside.as_user(&guest)?, &request.path).await?;
    // With `parents`, an existing directory is no error for the guest, but E2B's clients expect one.
    let there = guest.call::<FileEntry>(&Request::Stat { path: path.clone(), follow: true }).await;
    match there {
        Ok(found) if found.kind == FileKind::Directory => {
            return Err(RpcError::new(RpcCode::AlreadyExists, format!("`{path}` exists")));
        }
        Ok(_) => {
            let message = format!("`{path}` exists and is not a directory");
            return Err(RpcError::new(RpcCode::InvalidArgument, message));
        }
        Err(_) => {}
    }
    Ok(Json(json!({ "entry": entry::shown(&made(&guest, &inside, path).await?, None) })))
}

async fn made(guest: &Guest, inside: &EnvdRequest, path: String) -> Result<FileEntry, RpcError> {
    let user = inside.as_user(guest)?;
    let request = |user| Request::MakeDir { path: path.clone(), parents: true, mode: None, user };
    match guest.call(&request(Some(user.name.clone()))).await {
        Err(EngineError::Guest { source, .. }) if source.code == GuestCode::UnknownUser && !user.named => {
            Ok(guest.call(&request(None)).await?)
        }
        made => Ok(made?),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct MoveRequest {
    #[serde(default)]
    source: String,
    #[serde(default)]
    destination: String,
}

pub(super) async fn rename(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<MoveRequest>,
) -> Result<Json<Value>, RpcError> {
    let guest = inside.guest(&app).await?;
    let user = inside.as_user(&guest)?;
    let from = inside.path(&guest, &user, &request.source).await?;
    let to = inside.path(&guest, &user, &request.destination).await?;
    let moved = match guest.call::<FileEntry>(&Request::Move { from: from.clone(), to: to.clone() }).await {
        // Either path may be missing: only the source has to exist.
        Err(EngineError::Guest { source, .. }) if source.code == GuestCode::NotFound => {
            guest.call::<FileEntry>(&Request::Stat { path: from.clone(), follow: false }).await?;
            if let Some((parent, _)) = to.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
                made(&guest, &inside, parent.to_owned()).await?;
            }
            guest.call(&Request::Move { from, to }).await?
        }
        moved => moved?,
    };
    Ok(Json(json!({ "entry": entry::shown(&moved, None) })))
}

#[derive(Debug, Deserialize)]
pub(super) struct ListRequest {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: u32,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<ListRequest>,
) -> Result<Response, RpcError> {
    let depth = request.depth.max(1);
    if depth > listing::DEPTH_MAX {
        return Err(RpcError::invalid(format!("`depth` must be at most {}", listing::DEPTH_MAX)));
    }
    let guest = inside.guest(&app).await?;
    let path = inside.path(&guest, &inside.as_user(&guest)?, &request.path).await?;
    let shown = |found: FileEntry| entry::shown(&found, None);
    Ok(listing::listed(guest, path, depth, shown).await?)
}

/// A missing path counts as removed.
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<PathRequest>,
) -> Result<Json<Value>, RpcError> {
    let guest = inside.guest(&app).await?;
    let path = inside.path(&guest, &inside.as_user(&guest)?, &request.path).await?;
    match guest.call::<()>(&Request::Remove { path, recursive: true }).await {
        Err(EngineError::Guest { source, .. }) if source.code == GuestCode::NotFound => Ok(Json(json!({}))),
        removed => {
            removed?;
            Ok(Json(json!({})))
        }
    }
}
