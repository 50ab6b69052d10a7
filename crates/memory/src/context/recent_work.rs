//! Describes the recent work: the last session, open work, recent failures.

use serde_json::json;

use super::ask::{ContextRequest, item};
use super::block::Section;
use crate::recall::LabelledView;
use crate::{Condition, Entry, Filter, MemoryError, Op, PageRequest};

/// Entries shown of the last session; the budget limits them further.
const SESSION_ENTRIES: u32 = 30;

const OPEN_ENTRIES: u32 = 20;

const FAILURES: u32 = 10;

/// Older failures are not shown.
const RECENT_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Kinds that are open work, until they are forgotten, superseded or marked as not open.
const OPEN_KINDS: &[&str] = &["task", "todo", "open", "goal"];

/// Kinds that can be marked as open. Not all kinds: messages and execs are too many to scan for a mark.
const MARKED_KINDS: &[&str] =
    &["error", "note", "decision", "observation", "plan", "issue", "question", "fact"];

pub(super) async fn sections(
    views: &[LabelledView],
    request: &ContextRequest,
) -> Result<Vec<Section>, MemoryError> {
    let mut session = Vec::new();
    let mut open = Vec::new();
    let mut failed = Vec::new();
    for labelled in views {
        let now_ms = labelled.view.now_ms();
        let space = (views.len() > 1).then_some(labelled.label.as_str());
        let shown =
            |entries: Vec<Entry>| entries.into_iter().map(move |entry| item(&entry, None, space, now_ms));
        session.extend(shown(last_session(labelled, request).await?));
        open.extend(shown(open_work(labelled, request).await?));
        failed.extend(shown(failures(labelled, request, now_ms).await?));
    }
    Ok(vec![
        // Each section takes a share of the remaining budget, so an empty one costs the others nothing.
        Section { title: Some("Open work"), items: open, share: 40 },
        Section { title: Some("Last session"), items: session, share: 75 },
        Section { title: Some("Recent failures"), items: failed, share: 100 },
    ])
}

/// The entries of the last session, newest first, preceded by its summary.
async fn last_session(labelled: &LabelledView, request: &ContextRequest) -> Result<Vec<Entry>, MemoryError> {
    let view = &labelled.view;
    let wanted = request.session.clone().or_else(|| request.filter.session.clone());
    let session = match wanted {
        Some(session) => Some(session),
        None => view.sessions(PageRequest::first(1)).await?.rows.pop().map(|session| session.session),
    };
    let filter = match session {
        Some(session) => Filter { session: Some(session), ..request.filter.clone() },
        // Without sessions, the newest entries.
        None => request.filter.clone(),
    };
    let mut entries = view.list(&filter, PageRequest::first(SESSION_ENTRIES)).await?.rows;
    entries.sort_by_key(|entry| (entry.kind != "summary", std::cmp::Reverse((entry.at_ms, entry.seq))));
    Ok(entries)
}

async fn open_work(labelled: &LabelledView, request: &ContextRequest) -> Result<Vec<Entry>, MemoryError> {
    let open = |op: Op, value: bool| Condition { path: "open".to_owned(), op, value: json!(value) };
    let kinds = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect::<Vec<_>>();
    let by_kind =
        Filter { kinds: kinds(OPEN_KINDS), metadata: vec![open(Op::Ne, false)], ..request.filter.clone() };
    let marked =
        Filter { kinds: kinds(MARKED_KINDS), metadata: vec![open(Op::Eq, true)], ..request.filter.clone() };
    let mut entries = labelled.view.list(&by_kind, PageRequest::first(OPEN_ENTRIES)).await?.rows;
    entries.extend(labelled.view.list(&marked, PageRequest::first(OPEN_ENTRIES)).await?.rows);
    // A task whose metadata says in some form that it is done is not open.
    entries.retain(|entry| !is_done(entry));
    entries.sort_by(|a, b| {
        let key = |entry: &Entry| (entry.importance, entry.at_ms);
        key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok(entries)
}

fn is_done(entry: &Entry) -> bool {
    let is_marked =
        entry.metadata.get("status").or_else(|| entry.metadata.get("state")).and_then(|value| value.as_str());
    let done = entry.metadata.get("done").and_then(serde_json::Value::as_bool) == Some(true);
    done || matches!(
        is_marked,
        Some("done" | "closed" | "completed" | "complete" | "cancelled" | "resolved" | "fixed")
    )
}

async fn failures(
    labelled: &LabelledView,
    request: &ContextRequest,
    now_ms: u64,
) -> Result<Vec<Entry>, MemoryError> {
    let filter = Filter {
        kinds: vec!["error".to_owned()],
        since_ms: Some(request.filter.since_ms.unwrap_or(0).max(now_ms.saturating_sub(RECENT_MS))),
        ..request.filter.clone()
    };
    Ok(labelled.view.list(&filter, PageRequest::first(FAILURES)).await?.rows)
}
