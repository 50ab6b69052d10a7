//! Search in memory, for users and for prompts; and the two calls around a turn of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::memory::{
    ContextBlock, ContextRequest, RecallRequest, SearchMemory, SearchResult, StoreTurn, StoredTurn,
};
use burrow_memory::remember::{self, Participants, SessionOwner};
use http::StatusCode;
use tokio::time::Instant;

use super::access::{AsOfParams, MemoryPath, MemoryReader, MemoryWriter, Principal, WriteParams};
use burrow_http::app::App;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{MemoryBody, Params, Segments};
use burrow_http::metrics::MemoryQuery;
use burrow_http::refusals::{Common, MemoryRefusals, WithBody};

#[utoipa::path(
    post, path = "/v1/memory/{of}/search", tag = "memory", params(MemoryPath, AsOfParams), request_body = SearchMemory,
    responses((status = 200, description = "Best first, each with the reasons for its rank", body = SearchResult), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn search(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<AsOfParams>,
    MemoryBody(body): MemoryBody<SearchMemory>,
) -> Result<Json<SearchResult>, ApiError> {
    let began = Instant::now();
    let query = convert::search(&body)?;
    let views = caller.searching(&app, &path.of, params.as_of.as_deref(), &body.spaces).await?;
    let found = burrow_memory::recall::search(&views, &query).await?;
    let result = convert::found(found);
    app.metrics.memory.asked(MemoryQuery::Search, began.elapsed(), &result.arms);
    Ok(Json(result))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/context", tag = "memory", params(MemoryPath, AsOfParams), request_body = ContextRequest,
    responses((status = 200, description = "A block of text for a prompt", body = ContextBlock), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn context(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<AsOfParams>,
    MemoryBody(body): MemoryBody<ContextRequest>,
) -> Result<Json<ContextBlock>, ApiError> {
    answer(&app, &caller, &path.of, params.as_of.as_deref(), body).await
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/recall", tag = "memory", params(MemoryPath, AsOfParams), request_body = RecallRequest,
    responses((status = 200, description = "A block of text to insert before the turn", body = ContextBlock), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn recall(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<AsOfParams>,
    MemoryBody(body): MemoryBody<RecallRequest>,
) -> Result<Json<ContextBlock>, ApiError> {
    let RecallRequest { messages, budget_tokens, session } = body;
    if messages.is_empty() {
        return Err(ApiError::invalid("`messages` is empty")
            .hint("`context` needs no messages: it returns what the sandbox was doing"));
    }
    let request = ContextRequest { messages, budget_tokens, session, ..ContextRequest::default() };
    answer(&app, &caller, &path.of, params.as_of.as_deref(), request).await
}

async fn answer(
    app: &App,
    caller: &Principal,
    of: &str,
    as_of: Option<&str>,
    body: ContextRequest,
) -> Result<Json<ContextBlock>, ApiError> {
    let began = Instant::now();
    let spaces = body.spaces.clone();
    let request = convert::context_request(body)?;
    let views = caller.searching(app, of, as_of, &spaces).await?;
    let context = burrow_memory::context::context(&views, &request).await?;
    let block = convert::context_block(context);
    app.metrics.memory.asked(MemoryQuery::Context, began.elapsed(), &block.arms);
    Ok(Json(block))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/turns", tag = "memory", params(MemoryPath, WriteParams), request_body = StoreTurn,
    responses((status = 201, description = "Stored", body = StoredTurn), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn turns(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<StoreTurn>,
) -> Result<(StatusCode, Json<StoredTurn>), ApiError> {
    if body.messages.is_empty() {
        return Err(ApiError::invalid("`messages` is empty"));
    }
    let StoreTurn { messages, session, user, agent } = body;
    let messages = convert::messages(messages)?;
    let scope = caller.scope(&app, &path.of).await?;
    let space = caller.growing(&app, &path.of, &params).await?;
    let session = match session {
        Some(session) => session,
        None => {
            let name = agent.clone().unwrap_or(scope.label);
            let of = SessionOwner { name, since_ms: scope.sandbox.and_then(|row| row.started_ms) };
            remember::current_session(&space.view, &of, app.engine.now_ms()).await?
        }
    };
    let stored = remember::turn(&space.view, &messages, &session, &Participants { user, agent }).await?;
    let stored = convert::stored_turn(stored);
    app.metrics.memory.added(stored.added);
    Ok((StatusCode::CREATED, Json(stored)))
}
