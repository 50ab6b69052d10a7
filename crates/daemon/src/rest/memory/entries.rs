//! Episodic memory: add, list, get, update, forget, erase, history, sessions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::memory::{
    AddEntries, AddMemory, AddedEntries, EraseEntries, ErasedEntries, ForgetEntries, ForgottenEntries,
    MemoryEntry, MemorySession, MemoryVersion, NewEntry, UpdateEntry,
};
use burrow_api::{Page, defaults};
use burrow_engine::ScopedView;
use burrow_memory::Which;
use burrow_memory::remember::{self, SessionOf};
use burrow_model::MemoryId;
use http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::IntoParams;

use super::super::auth::UnboundExecutor;
use super::super::error::ApiError;
use super::super::input::{MemoryBody, Params, RawMemoryBody, parse};
use super::super::refusals::{Common, Remembering, WithBody};
use super::super::{App, Segments};
use super::whose::{OfPath, Principal, ReadParams, Recaller, Rememberer, WriteParams};
use super::{memory_page, page_request};
use crate::convert;

#[utoipa::path(
    post, path = "/v1/memory/{of}/entries", tag = "memory", params(OfPath, WriteParams), request_body = AddMemory,
    responses(
        (status = 201, description = "Remembered, and safe on disk", body = AddedEntries),
        (status = 200, description = "All of it was there already, by key", body = AddedEntries),
        Common, Remembering, WithBody,
    ),
)]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    Rememberer(caller): Rememberer,
    Segments(path): Segments<OfPath>,
    Params(params): Params<WriteParams>,
    RawMemoryBody(body): RawMemoryBody,
) -> Result<(StatusCode, Json<AddedEntries>), ApiError> {
    let new = several(&body)?;
    let space = caller.growing(&app, &path.of, &params).await?;
    let mut new = new.into_iter().map(convert::new_entry).collect::<Result<Vec<_>, _>>()?;
    join_session(&app, &caller, &path.of, &space, &mut new).await?;
    let added = space.view.add(new).await?;
    let fresh = added.iter().filter(|added| !added.existed).count();
    app.metrics.memory.added(fresh as u64);
    let status = if fresh > 0 { StatusCode::CREATED } else { StatusCode::OK };
    let entries = added.into_iter().map(convert::added_entry).collect();
    Ok((status, Json(AddedEntries { entries })))
}

/// What a sandbox remembers without naming a session is of the one it is in. What happened at another time is not.
async fn join_session(
    app: &App,
    caller: &Principal,
    of: &str,
    space: &ScopedView,
    new: &mut [burrow_memory::NewEntry],
) -> Result<(), ApiError> {
    let joins = |entry: &burrow_memory::NewEntry| entry.session.is_none() && entry.at_ms.is_none();
    if !new.iter().any(joins) {
        return Ok(());
    }
    let scope = caller.scope(app, of).await?;
    let Some(sandbox) = scope.sandbox else { return Ok(()) };
    let of = SessionOf { name: scope.label, since_ms: sandbox.started_ms };
    let session = remember::current_session(&space.view, &of, app.engine.now_ms()).await?;
    for entry in new.iter_mut().filter(|entry| joins(entry)) {
        entry.session = Some(session.clone());
    }
    Ok(())
}

/// One or several. Looked at first, so that what does not fit is refused by the shape that was meant.
fn several(body: &[u8]) -> Result<Vec<NewEntry>, ApiError> {
    #[derive(Deserialize)]
    struct Shape {
        entries: Option<IgnoredAny>,
    }
    let shape: Shape = parse(body)?;
    if shape.entries.is_none() {
        return Ok(vec![parse::<NewEntry>(body)?]);
    }
    let AddEntries { entries } = parse(body)?;
    match entries.len() {
        0 => Err(ApiError::invalid("`entries` is empty")),
        1..=defaults::MEMORY_BATCH_MAX => Ok(entries),
        more => {
            let message = format!("`entries` holds {more}, and may hold {}", defaults::MEMORY_BATCH_MAX);
            Err(ApiError::new(burrow_api::ErrorCode::TooLarge, message)
                .hint("add them in several requests, or import them as JSON Lines"))
        }
    }
}

/// Which entries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// As it was then: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    as_of: Option<String>,
    /// An attached space by name or id; the one the sandbox remembers in when absent.
    #[param(max_length = 64)]
    space: Option<String>,
    /// Of this kind, or of one of these with commas between them.
    #[param(max_length = 1024)]
    kind: Option<String>,
    /// What their metadata must say: a list of tests as JSON, such as `[{"path":"team","value":"a"}]`.
    #[param(max_length = 8192)]
    metadata: Option<String>,
    #[param(max_length = 512)]
    session: Option<String>,
    #[param(max_length = 512)]
    source: Option<String>,
    #[param(max_length = 512)]
    user: Option<String>,
    #[param(max_length = 512)]
    agent: Option<String>,
    /// Happened at this time or later.
    since_ms: Option<u64>,
    /// Happened before this time.
    until_ms: Option<u64>,
    /// Those in the cold tier too; false when absent.
    #[serde(default)]
    #[param(required = false)]
    include_cold: bool,
    /// Those that others replaced too; false when absent.
    #[serde(default)]
    #[param(required = false)]
    include_superseded: bool,
    /// `next_cursor` of the page before.
    #[param(max_length = 1024)]
    cursor: Option<String>,
    /// Entries at most; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/entries", tag = "memory", params(OfPath, ListParams),
    responses((status = 200, description = "Newest first", body = Page<MemoryEntry>), Common, Remembering),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Recaller(caller): Recaller,
    Segments(path): Segments<OfPath>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<MemoryEntry>>, ApiError> {
    let request = page_request(params.cursor, params.limit)?;
    let kinds = params.kind.as_deref().unwrap_or_default();
    let filter = burrow_memory::Filter {
        kinds: kinds.split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
        metadata: convert::conditions(params.metadata.as_deref())?,
        since_ms: params.since_ms,
        until_ms: params.until_ms,
        session: params.session,
        source: params.source,
        user: params.user,
        agent: params.agent,
        ids: Vec::new(),
        include_cold: params.include_cold,
        include_superseded: params.include_superseded,
    };
    let read = ReadParams { as_of: params.as_of, space: params.space };
    let space = caller.reading(&app, &path.of, &read).await?;
    Ok(Json(memory_page(space.view.list(&filter, request).await?, convert::memory_entry)))
}

/// Names an entry.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct EntryPath {
    /// A sandbox or a space: its id, a unique beginning of its id, or its name. A sandbox first; `sandbox:NAME` and
    /// `space:NAME` say which.
    #[param(pattern = "^((sandbox|space):)?[a-z0-9-]{1,63}$")]
    of: String,
    /// The entry's id.
    #[param(pattern = "^mem[a-z0-9]{20}$")]
    entry: String,
}

impl EntryPath {
    /// What is no id names nothing that is there.
    fn id(&self) -> Result<MemoryId, ApiError> {
        convert::memory_id(&self.entry)
    }
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/entries/{entry}", tag = "memory", params(EntryPath, ReadParams),
    responses((status = 200, description = "The entry", body = MemoryEntry), Common, Remembering),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Recaller(caller): Recaller,
    Segments(path): Segments<EntryPath>,
    Params(params): Params<ReadParams>,
) -> Result<Json<MemoryEntry>, ApiError> {
    let space = caller.reading(&app, &path.of, &params).await?;
    Ok(Json(convert::memory_entry(space.view.get(&path.id()?).await?)))
}

#[utoipa::path(
    patch, path = "/v1/memory/{of}/entries/{entry}", tag = "memory", params(EntryPath, WriteParams),
    request_body = UpdateEntry,
    responses((status = 200, description = "Its new version", body = MemoryEntry), Common, Remembering, WithBody),
)]
pub(crate) async fn update(
    State(app): State<Arc<App>>,
    Rememberer(caller): Rememberer,
    Segments(path): Segments<EntryPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<UpdateEntry>,
) -> Result<Json<MemoryEntry>, ApiError> {
    let space = caller.growing(&app, &path.of, &params).await?;
    let id = path.id()?;
    let expect = body.if_version;
    let entry = space.view.update(&id, convert::entry_change(body)?, expect).await?;
    Ok(Json(convert::memory_entry(entry)))
}

#[utoipa::path(
    delete, path = "/v1/memory/{of}/entries/{entry}", tag = "memory", params(EntryPath, WriteParams),
    responses((status = 204, description = "Forgotten: its history stays"), Common, Remembering),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Rememberer(caller): Rememberer,
    Segments(path): Segments<EntryPath>,
    Params(params): Params<WriteParams>,
) -> Result<StatusCode, ApiError> {
    let space = caller.writing(&app, &path.of, &params).await?;
    let id = path.id()?;
    // Of one that is not there, or foreign, the caller is told.
    space.view.get(&id).await?;
    space.view.forget(&Which::Ids(vec![id]), false).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/entries/{entry}/history", tag = "memory", params(EntryPath, ReadParams),
    responses((status = 200, description = "Oldest first", body = Vec<MemoryVersion>), Common, Remembering),
)]
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    Recaller(caller): Recaller,
    Segments(path): Segments<EntryPath>,
    Params(params): Params<ReadParams>,
) -> Result<Json<Vec<MemoryVersion>>, ApiError> {
    let space = caller.reading(&app, &path.of, &params).await?;
    let versions = space.view.history(&path.id()?).await?;
    Ok(Json(versions.into_iter().map(convert::memory_version).collect()))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/forget", tag = "memory", params(OfPath, WriteParams), request_body = ForgetEntries,
    responses((status = 200, description = "What was forgotten", body = ForgottenEntries), Common, Remembering, WithBody),
)]
pub(crate) async fn forget(
    State(app): State<Arc<App>>,
    Rememberer(caller): Rememberer,
    Segments(path): Segments<OfPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<ForgetEntries>,
) -> Result<Json<ForgottenEntries>, ApiError> {
    let ForgetEntries { ids, filter, older_than_seconds, dry_run } = body;
    let which = convert::which(ids, filter, older_than_seconds)?;
    let space = caller.writing(&app, &path.of, &params).await?;
    let forgotten = space.view.forget(&which, dry_run).await?;
    Ok(Json(convert::forgotten(forgotten, dry_run)))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/erase", tag = "memory", params(OfPath, WriteParams), request_body = EraseEntries,
    responses((status = 200, description = "What was erased", body = ErasedEntries), Common, Remembering, WithBody),
)]
pub(crate) async fn erase(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    Segments(path): Segments<OfPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<EraseEntries>,
) -> Result<Json<ErasedEntries>, ApiError> {
    // It reaches into the branches of other sandboxes.
    let EraseEntries { ids, filter, older_than_seconds, dry_run } = body;
    let which = convert::which(ids, filter, older_than_seconds)?;
    let principal = Principal::Key(super::super::auth::Caller::clone(&caller));
    let space = principal.writing(&app, &path.of, &params).await?;
    let erased = app.see_through(async move { Ok(space.view.erase(&which, dry_run).await?) }).await?;
    Ok(Json(convert::erased(erased, dry_run)))
}

/// Which sessions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionParams {
    /// As it was then: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    as_of: Option<String>,
    /// An attached space by name or id; the one the sandbox remembers in when absent.
    #[param(max_length = 64)]
    space: Option<String>,
    /// `next_cursor` of the page before.
    #[param(max_length = 1024)]
    cursor: Option<String>,
    /// Entries at most; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/sessions", tag = "memory", params(OfPath, SessionParams),
    responses((status = 200, description = "Last used first", body = Page<MemorySession>), Common, Remembering),
)]
pub(crate) async fn sessions(
    State(app): State<Arc<App>>,
    Recaller(caller): Recaller,
    Segments(path): Segments<OfPath>,
    Params(params): Params<SessionParams>,
) -> Result<Response, ApiError> {
    let request = page_request(params.cursor, params.limit)?;
    let read = ReadParams { as_of: params.as_of, space: params.space };
    let space = caller.reading(&app, &path.of, &read).await?;
    let found = space.view.sessions(request).await?;
    Ok(Json(memory_page(found, convert::memory_session)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_several_are_refused_by_their_own_shape() {
        assert_eq!(several(br#"{"text":"a"}"#).unwrap().len(), 1);
        assert_eq!(several(br#"{"entries":[{"text":"a"},{"text":"b"}]}"#).unwrap().len(), 2);
        for (body, expected) in [
            (r#"{"txt":"a"}"#, "txt"),
            (r#"{"entries":[{"text":"a"},{"txt":"b"}]}"#, "entries[1]"),
            (r#"{"entries":[]}"#, "empty"),
            (r#"{"entries":[], "text":"a"}"#, "unknown field"),
            ("[]", "the body"),
            ("7", "the body"),
        ] {
            let error = several(body.as_bytes()).expect_err(body).into_detail();
            assert!(error.message.contains(expected), "{body}: {}", error.message);
        }
    }
}
