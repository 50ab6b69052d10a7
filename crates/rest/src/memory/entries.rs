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
use burrow_memory::EntrySelection;
use burrow_memory::remember::{self, SessionOwner};
use burrow_model::MemoryId;
use http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::IntoParams;

use super::access::{MemoryPath, MemoryReader, MemoryWriter, Principal, ReadParams, WriteParams};
use super::page::{memory_page, page_request};
use burrow_http::app::App;
use burrow_http::auth::UnboundExecutor;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{MemoryBody, Params, RawMemoryBody, Segments, parse};
use burrow_http::refusals::{Common, MemoryRefusals, WithBody};

#[utoipa::path(
    post, path = "/v1/memory/{of}/entries", tag = "memory", params(MemoryPath, WriteParams), request_body = AddMemory,
    responses(
        (status = 201, description = "Stored durably", body = AddedEntries),
        (status = 200, description = "All entries existed already, by key", body = AddedEntries),
        Common, MemoryRefusals, WithBody,
    ),
)]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<MemoryPath>,
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

/// An entry of a sandbox without a session joins the current session, unless it has a time of its own.
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
    let of = SessionOwner { name: scope.label, since_ms: sandbox.started_ms };
    let session = remember::current_session(&space.view, &of, app.engine.now_ms()).await?;
    for entry in new.iter_mut().filter(|entry| joins(entry)) {
        entry.session = Some(session.clone());
    }
    Ok(())
}

/// Parses one or several entries. Inspected first, so that errors refer to the form that the client meant.
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
            let message =
                format!("`entries` contains {more} entries; the limit is {}", defaults::MEMORY_BATCH_MAX);
            Err(ApiError::new(burrow_api::ErrorCode::TooLarge, message)
                .hint("add them in several requests, or import them as JSON Lines"))
        }
    }
}

/// Filters for entries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// The state at that time: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    as_of: Option<String>,
    /// The name or id of an attached space; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    space: Option<String>,
    /// Only entries of this kind, or of one of several kinds, separated by commas.
    #[param(max_length = 1024)]
    kind: Option<String>,
    /// Conditions on the metadata: a JSON list of tests, such as `[{"path":"team","value":"a"}]`.
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
    /// Only entries that happened at this time or later.
    since_ms: Option<u64>,
    /// Only entries that happened before this time.
    until_ms: Option<u64>,
    /// Include entries in the cold tier; false when absent.
    #[serde(default)]
    #[param(required = false)]
    include_cold: bool,
    /// Include entries that were superseded by others; false when absent.
    #[serde(default)]
    #[param(required = false)]
    include_superseded: bool,
    /// `next_cursor` of the previous page.
    #[param(max_length = 1024)]
    cursor: Option<String>,
    /// Maximum number of entries; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/entries", tag = "memory", params(MemoryPath, ListParams),
    responses((status = 200, description = "Newest first", body = Page<MemoryEntry>), Common, MemoryRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
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
    /// A sandbox or a space: its id, a unique prefix of its id, or its name. A sandbox takes precedence; use
    /// `sandbox:NAME` or `space:NAME` to be explicit.
    #[param(pattern = "^((sandbox|space):)?[a-z0-9-]{1,63}$")]
    of: String,
    /// The entry's id.
    #[param(pattern = "^mem[a-z0-9]{20}$")]
    entry: String,
}

impl EntryPath {
    /// A text that is not an id is treated like an unknown id.
    fn id(&self) -> Result<MemoryId, ApiError> {
        convert::memory_id(&self.entry)
    }
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/entries/{entry}", tag = "memory", params(EntryPath, ReadParams),
    responses((status = 200, description = "The entry", body = MemoryEntry), Common, MemoryRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<EntryPath>,
    Params(params): Params<ReadParams>,
) -> Result<Json<MemoryEntry>, ApiError> {
    let space = caller.reading(&app, &path.of, &params).await?;
    Ok(Json(convert::memory_entry(space.view.get(&path.id()?).await?)))
}

#[utoipa::path(
    patch, path = "/v1/memory/{of}/entries/{entry}", tag = "memory", params(EntryPath, WriteParams),
    request_body = UpdateEntry,
    responses((status = 200, description = "The entry's new version", body = MemoryEntry), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn update(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
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
    responses((status = 204, description = "Forgotten; the history is kept"), Common, MemoryRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<EntryPath>,
    Params(params): Params<WriteParams>,
) -> Result<StatusCode, ApiError> {
    let space = caller.writing(&app, &path.of, &params).await?;
    let id = path.id()?;
    // An unknown id, or one of another branch, is an error.
    space.view.get(&id).await?;
    space.view.forget(&EntrySelection::Ids(vec![id]), false).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/entries/{entry}/history", tag = "memory", params(EntryPath, ReadParams),
    responses((status = 200, description = "Oldest first", body = Vec<MemoryVersion>), Common, MemoryRefusals),
)]
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<EntryPath>,
    Params(params): Params<ReadParams>,
) -> Result<Json<Vec<MemoryVersion>>, ApiError> {
    let space = caller.reading(&app, &path.of, &params).await?;
    let versions = space.view.history(&path.id()?).await?;
    Ok(Json(versions.into_iter().map(convert::memory_version).collect()))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/forget", tag = "memory", params(MemoryPath, WriteParams), request_body = ForgetEntries,
    responses((status = 200, description = "The forgotten entries", body = ForgottenEntries), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn forget(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<MemoryPath>,
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
    post, path = "/v1/memory/{of}/erase", tag = "memory", params(MemoryPath, WriteParams), request_body = EraseEntries,
    responses((status = 200, description = "The erased entries", body = ErasedEntries), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn erase(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<EraseEntries>,
) -> Result<Json<ErasedEntries>, ApiError> {
    // Erasing also affects the branches of other sandboxes.
    let EraseEntries { ids, filter, older_than_seconds, dry_run } = body;
    let which = convert::which(ids, filter, older_than_seconds)?;
    let principal = Principal::Key(burrow_http::auth::Caller::clone(&caller));
    let space = principal.writing(&app, &path.of, &params).await?;
    let erased = app.run_to_completion(async move { Ok(space.view.erase(&which, dry_run).await?) }).await?;
    Ok(Json(convert::erased(erased, dry_run)))
}

/// Filters for sessions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionParams {
    /// The state at that time: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    as_of: Option<String>,
    /// The name or id of an attached space; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    space: Option<String>,
    /// `next_cursor` of the previous page.
    #[param(max_length = 1024)]
    cursor: Option<String>,
    /// Maximum number of sessions; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/sessions", tag = "memory", params(MemoryPath, SessionParams),
    responses((status = 200, description = "Most recently used first", body = Page<MemorySession>), Common, MemoryRefusals),
)]
pub(crate) async fn sessions(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
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
    fn errors_about_one_or_several_entries_refer_to_the_form_that_was_used() {
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
