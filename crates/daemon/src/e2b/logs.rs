//! The log of a sandbox: when it was created and started, and the commands that ran in it. Their output is not part of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_catalog::{ExecRow, PAGE_LIMIT_MAX, PageRequest, SandboxRow};
use http::Uri;
use serde_json::{Value, json};

use super::body::By;
use super::builds::LogQuestion;
use super::error::Refusal;
use super::sandboxes::Path;
use super::show::time;
use crate::rest::auth::{Caller, Reader};
use crate::rest::{App, Segments};

/// As older clients read it: every line is JSON.
pub(super) async fn lines(
    State(app): State<Arc<App>>,
    By(caller): By<Reader>,
    uri: Uri,
    By(Segments(path)): By<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    let entries = LogQuestion::of(&uri)?.answer(entries(&app, &caller, &path).await?);
    let line = |entry: &Value| {
        let mut line = entry["fields"].clone();
        line["level"] = entry["level"].clone();
        line["message"] = entry["message"].clone();
        json!({ "timestamp": entry["timestamp"], "line": line.to_string() })
    };
    let lines: Vec<Value> = entries.iter().map(line).collect();
    Ok(Json(json!({ "logs": lines, "logEntries": entries })))
}

/// As newer clients read it.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    By(caller): By<Reader>,
    uri: Uri,
    By(Segments(path)): By<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    let entries = entries(&app, &caller, &path).await?;
    Ok(Json(json!({ "logs": LogQuestion::of(&uri)?.answer(entries) })))
}

/// Oldest first; of the commands, the latest thousand.
async fn entries(app: &App, caller: &Caller, path: &Path) -> Result<Vec<Value>, Refusal> {
    let row = path.row(app, caller).await?;
    let page = PageRequest { cursor: None, limit: PAGE_LIMIT_MAX };
    let execs = app.engine.catalog().list_execs(caller.tenant(), &row.id, page).await?;
    let mut entries = life(&row);
    entries.extend(execs.rows.iter().flat_map(|exec| told(&row, exec)));
    entries.sort_by(|a, b| a["timestamp"].as_str().cmp(&b["timestamp"].as_str()));
    Ok(entries)
}

fn entry(at_ms: u64, level: &str, message: &str, fields: Value) -> Value {
    json!({ "timestamp": time(at_ms), "level": level, "message": message, "fields": fields })
}

fn life(row: &SandboxRow) -> Vec<Value> {
    let fields = json!({ "logger": "sandbox", "sandboxID": row.id });
    let mut entries = vec![entry(row.created_ms, "info", "Sandbox created", fields.clone())];
    entries.extend(row.started_ms.map(|at_ms| entry(at_ms, "info", "Sandbox started", fields)));
    entries
}

fn told(row: &SandboxRow, exec: &ExecRow) -> Vec<Value> {
    let command = exec.argv.join(" ");
    let mut fields = json!({ "logger": "process", "sandboxID": row.id, "exec": exec.id, "cmd": command });
    let mut entries = vec![entry(exec.started_ms, "info", "Process started", fields.clone())];
    if let (Some(at_ms), Some(outcome)) = (exec.ended_ms, &exec.outcome) {
        let failed = outcome["exit_code"] != 0;
        fields["exitCode"] = outcome["exit_code"].clone();
        entries.push(entry(at_ms, if failed { "warn" } else { "info" }, "Process ended", fields));
    }
    entries
}
