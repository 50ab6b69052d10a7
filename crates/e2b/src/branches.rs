//! Forks, and snapshots, which E2B's clients use as templates.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_catalog::{PageRequest, SnapshotFilter};
use burrow_engine::{ForkOptions, SnapshotOptions};
use burrow_model::{Lifetime, Name, SandboxId, Snapshot, SnapshotId, SnapshotKind};
use http::{StatusCode, Uri};
use ring::digest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::body::{E2bExtractor, JsonInput, UnknownFields};
use super::error::Refusal;
use super::list::paged;
use super::sandbox_path::Path;
use super::show::Host;
use super::{envd, show};
use burrow_http::app::App;
use burrow_http::auth::{Executor, Reader, UnboundExecutor};
use burrow_http::convert;
use burrow_http::input::{Segments, pairs};
use burrow_http::metrics::ProcessOperation;

const TIMEOUT_SECONDS: u64 = 300;

/// Snapshots per page.
const LIMIT: u32 = 100;
const LIMIT_MAX: u32 = 1000;

#[derive(Debug, Deserialize)]
pub(super) struct Fork {
    timeout: Option<u64>,
    count: Option<usize>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

/// One item for each child: the child, or an error.
pub(super) async fn fork(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<UnboundExecutor>,
    host: Host,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
    body: JsonInput<Fork>,
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
    app.metrics.moved(ProcessOperation::Fork, began.elapsed());
    let mut results = Vec::with_capacity(forked.children.len());
    for child in forked.children {
        results.push(match child {
            Ok(row) => {
                envd::mark(&app, &row.tenant, &row.id).await;
                json!({ "sandbox": show::opened(&app, &host, &row).await? })
            }
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
    unknown: UnknownFields,
}

pub(super) async fn snapshot(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Executor>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
    body: JsonInput<NewSnapshot>,
) -> Result<Response, Refusal> {
    body.value.unknown.refuse()?;
    let name = body.value.name.as_deref().filter(|name| !name.is_empty());
    let name = name.map(|text| {
        stored_name(text).ok_or_else(|| {
            Refusal::invalid(
                "`name` must be lowercase letters, digits, `-` and `_`, with `:tag` after it or not",
            )
        })
    });
    let (name, labels) = name.transpose()?.unzip();
    let options = SnapshotOptions {
        name,
        labels: labels.unwrap_or_default(),
        ..SnapshotOptions::automatic(SnapshotKind::Manual, body.value.memory == Some(false))
    };
    let sandbox = path.resolve(&app, &caller).await?;
    let (began, engine, tenant) = (Instant::now(), app.engine.clone(), caller.tenant().clone());
    let taken = app.carry_out(async move { Ok(engine.snapshot(&tenant, &sandbox, options).await?) }).await?;
    app.metrics.moved(ProcessOperation::Snapshot, began.elapsed());
    Ok((StatusCode::CREATED, Json(shown(&taken))).into_response())
}

/// Label of a snapshot whose name in the client's notation is not a valid name in Burrow.
const NAME_LABEL: &str = "e2b.name";

/// Maximum length of E2B's names, and of their tags.
const NAME_CHARACTERS_MAX: usize = 128;

/// The name under which a snapshot is stored, for a name in the notation of E2B's clients. E2B's names may also contain
/// `_` and begin with a digit: such a name is stored as a label, and the stored name is derived from it. `None`: the
/// name is not valid in E2B either.
pub(super) fn stored_name(text: &str) -> Option<(Name, BTreeMap<String, String>)> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix(":default").unwrap_or(&text);
    if let Ok(name) = text.parse() {
        return Some((name, BTreeMap::new()));
    }
    let (bare, tag) = text.split_once(':').unwrap_or((text, "x"));
    let of_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    let good = !bare.is_empty()
        && !tag.is_empty()
        && bare.bytes().all(of_name)
        && tag.bytes().all(|b| of_name(b) || b == b'.')
        && text.len() <= NAME_CHARACTERS_MAX;
    if !good || text.parse::<SnapshotId>().is_ok() || text.parse::<SandboxId>().is_ok() {
        return None;
    }
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    let hash: String = hash.as_ref()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let plain: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let name = format!("e2b-{}-{hash}", plain.trim_matches('-')).parse().ok()?;
    Some((name, [(NAME_LABEL.to_owned(), text.to_owned())].into()))
}

/// The name of a snapshot in the notation of its client.
fn written_name(snapshot: &Snapshot) -> Option<String> {
    let written = snapshot.labels.get(NAME_LABEL).cloned();
    written.or_else(|| snapshot.name.as_ref().map(ToString::to_string))
}

fn shown(snapshot: &Snapshot) -> Value {
    json!({ "snapshotID": snapshot.id, "names": written_name(snapshot).into_iter().collect::<Vec<_>>() })
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
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
            _ => return Err(Refusal::absent(format!("Burrow does not support the filter `{key}`"))),
        }
    }
    let page = app.engine.snapshots(caller.tenant(), filter, PageRequest { cursor, limit }).await?;
    let named = |snapshot: &&Snapshot| {
        let wanted = name.as_deref().map(|name| stored_name(name).map(|(name, _)| name));
        wanted.is_none_or(|wanted| wanted.is_some() && wanted == snapshot.name)
    };
    let items: Vec<Value> = page.rows.iter().filter(named).map(shown).collect();
    Ok(paged(Json(items).into_response(), page.next_cursor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_names_allow_the_characters_of_e2b() {
        let (name, labels) = stored_name("plain-name").unwrap();
        assert_eq!((name.as_str(), labels.len()), ("plain-name", 0));
        for text in ["my_snap", "3d", "_x_", "-a", "My_Snap", "app:v1.2", &"a_".repeat(64)] {
            let (name, labels) = stored_name(text).unwrap();
            assert_eq!(labels[NAME_LABEL], text.to_ascii_lowercase());
            assert!(name.as_str().starts_with("e2b-"), "{name}");
        }
        let name = |text| stored_name(text).unwrap().0;
        assert_ne!(name("a_b"), name("a-b"));
        assert_ne!(name("a_b"), name("a__b"));
        assert_eq!(name("A_b:default"), name("a_b"));
        for bad in [
            "",
            "a b",
            "a/b",
            "a:",
            ":x",
            "a:b:c",
            "\u{e4}",
            &"a_".repeat(65),
            SnapshotId::generate().as_str(),
        ] {
            assert!(stored_name(bad).is_none(), "{bad}");
        }
    }
}
