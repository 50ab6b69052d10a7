//! Forks, and snapshots, which are templates to E2B's clients.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_catalog::{PageRequest, SnapshotFilter};
use burrow_engine::{ForkOptions, SnapshotOptions};
use burrow_model::{Lifetime, Snapshot, SnapshotKind};
use http::{StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{By, Given, Unknown};
use super::error::Refusal;
use super::list::paged;
use super::sandboxes::Path;
use super::show::{self, Host};
use crate::convert;
use crate::metrics::Move;
use crate::rest::auth::{Executor, Reader, UnboundExecutor};
use crate::rest::input::pairs;
use crate::rest::{App, Segments};

const TIMEOUT_SECONDS: u64 = 300;

/// Snapshots of one page.
const LIMIT: u32 = 100;
const LIMIT_MAX: u32 = 1000;

#[derive(Debug, Deserialize)]
pub(super) struct Fork {
    timeout: Option<u64>,
    count: Option<usize>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// Each child or why there is none, in one list.
pub(super) async fn fork(
    State(app): State<Arc<App>>,
    By(caller): By<UnboundExecutor>,
    host: Host,
    By(Segments(path)): By<Segments<Path>>,
    body: Given<Fork>,
) -> Result<Response, Refusal> {
    body.value.unknown.refuse()?;
    let sandbox = path.resolve(&app, &caller).await?;
    let seconds = body.value.timeout.unwrap_or(TIMEOUT_SECONDS);
    let expires_ms = convert::expires("timeout", Some(seconds), app.engine.now_ms())?;
    let options = ForkOptions {
        count: body.value.count.unwrap_or(1),
        names: Vec::new(),
        files_only: false,
        labels: None,
        lifetime: Some(Lifetime::Persistent { expires_ms }),
    };
    let (began, engine, tenant) = (Instant::now(), app.engine.clone(), caller.tenant().clone());
    let forked = app.carry_out(async move { Ok(engine.fork(&tenant, &sandbox, options).await?) }).await?;
    app.metrics.moved(Move::Fork, began.elapsed());
    let mut results = Vec::with_capacity(forked.children.len());
    for child in forked.children {
        results.push(match child {
            Ok(row) => json!({ "sandbox": show::opened(&app, &host, &row).await? }),
            Err(error) => json!({ "error": Refusal::from(error).as_result() }),
        });
    }
    Ok((StatusCode::CREATED, Json(results)).into_response())
}

#[derive(Debug, Deserialize)]
pub(super) struct NewSnapshot {
    name: Option<String>,
    memory: Option<bool>,
    #[serde(flatten)]
    unknown: Unknown,
}

pub(super) async fn snapshot(
    State(app): State<Arc<App>>,
    By(caller): By<Executor>,
    By(Segments(path)): By<Segments<Path>>,
    body: Given<NewSnapshot>,
) -> Result<Response, Refusal> {
    body.value.unknown.refuse()?;
    let name = body.value.name.as_deref().filter(|name| !name.is_empty());
    let name = name.map(|text| convert::name("name", text.strip_suffix(":default").unwrap_or(text)));
    let options = SnapshotOptions {
        name: name.transpose()?,
        ..SnapshotOptions::automatic(SnapshotKind::Manual, body.value.memory == Some(false))
    };
    let sandbox = path.resolve(&app, &caller).await?;
    let (began, engine, tenant) = (Instant::now(), app.engine.clone(), caller.tenant().clone());
    let taken = app.carry_out(async move { Ok(engine.snapshot(&tenant, &sandbox, options).await?) }).await?;
    app.metrics.moved(Move::Snapshot, began.elapsed());
    Ok((StatusCode::CREATED, Json(shown(&taken))).into_response())
}

fn shown(snapshot: &Snapshot) -> Value {
    json!({
        "snapshotID": snapshot.id,
        "names": snapshot.name.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    By(caller): By<Reader>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let (mut filter, mut limit, mut cursor, mut name) = (SnapshotFilter::default(), LIMIT, None, None);
    filter.sandbox = caller.bound_to().cloned();
    for (key, value) in pairs(&uri)? {
        match key.as_str() {
            "sandboxID" => filter.sandbox = Some(caller.sandbox(&app, &value).await?),
            "nextToken" => cursor = Some(value).filter(|token| !token.is_empty()),
            "name" => name = Some(value),
            "limit" => {
                let asked = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                limit = asked
                    .ok_or_else(|| Refusal::invalid(format!("`limit` must be from 1 to {LIMIT_MAX}")))?;
            }
            _ => return Err(Refusal::absent(format!("Burrow does not know the filter `{key}`"))),
        }
    }
    let page = app.engine.snapshots(caller.tenant(), filter, PageRequest { cursor, limit }).await?;
    let named = |snapshot: &&Snapshot| {
        let own = snapshot.name.as_ref().map(ToString::to_string);
        name.as_ref().is_none_or(|name| own.as_deref() == Some(name.strip_suffix(":default").unwrap_or(name)))
    };
    let items: Vec<Value> = page.rows.iter().filter(named).map(shown).collect();
    Ok(paged(Json(items).into_response(), page.next_cursor))
}
