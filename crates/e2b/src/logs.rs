//! Logs in the format of E2B's clients. The log of a sandbox: when it was created and started, and the commands that
//! ran in it, without their output.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_catalog::{ExecRow, PAGE_LIMIT_MAX, PageRequest, SandboxRow};
use http::Uri;
use serde_json::{Value, json};

use super::body::E2bExtractor;
use super::error::Refusal;
use super::sandbox_path::Path;
use super::show::time;
use burrow_http::app::App;
use burrow_http::auth::{Caller, Reader};
use burrow_http::input::{Segments, pairs};

/// Default number of lines of one response.
pub(super) const LINES_AT_ONCE: usize = 100;
const LINES_MAX: usize = 10_000;

/// For older clients: every line is JSON.
pub(super) async fn lines(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    uri: Uri,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    let entries = LogQuery::of(&uri)?.select(entries(&app, &caller, &path).await?);
    let line = |entry: &Value| {
        let mut line = entry["fields"].clone();
        line["level"] = entry["level"].clone();
        line["message"] = entry["message"].clone();
        json!({ "timestamp": entry["timestamp"], "line": line.to_string() })
    };
    let lines: Vec<Value> = entries.iter().map(line).collect();
    Ok(Json(json!({ "logs": lines, "logEntries": entries })))
}

/// For newer clients.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    uri: Uri,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    let entries = entries(&app, &caller, &path).await?;
    Ok(Json(json!({ "logs": LogQuery::of(&uri)?.select(entries) })))
}

/// Oldest first; at most the latest thousand commands.
async fn entries(app: &App, caller: &Caller, path: &Path) -> Result<Vec<Value>, Refusal> {
    let row = path.row(app, caller).await?;
    let page = PageRequest { cursor: None, limit: PAGE_LIMIT_MAX };
    let execs = app.engine.catalog().list_execs(caller.tenant(), &row.id, page).await?;
    let mut entries = of_sandbox(&row);
    entries.extend(execs.rows.iter().flat_map(|exec| of_exec(&row, exec)));
    entries.sort_by(|a, b| a["timestamp"].as_str().cmp(&b["timestamp"].as_str()));
    Ok(entries)
}

fn entry(at_ms: u64, level: &str, message: &str, fields: Value) -> Value {
    json!({ "timestamp": time(at_ms), "level": level, "message": message, "fields": fields })
}

fn of_sandbox(row: &SandboxRow) -> Vec<Value> {
    let fields = json!({ "logger": "sandbox", "sandboxID": row.id });
    let mut entries = vec![entry(row.created_ms, "info", "Sandbox created", fields.clone())];
    entries.extend(row.started_ms.map(|at_ms| entry(at_ms, "info", "Sandbox started", fields)));
    entries
}

fn of_exec(row: &SandboxRow, exec: &ExecRow) -> Vec<Value> {
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

/// Selects lines of a log.
#[derive(Debug)]
pub(super) struct LogQuery {
    cursor_ms: Option<u64>,
    limit: usize,
    backward: bool,
}

impl LogQuery {
    /// Older clients call the time `start`, newer ones `cursor`.
    pub(super) fn of(uri: &Uri) -> Result<Self, Refusal> {
        let mut query = Self { cursor_ms: None, limit: LINES_AT_ONCE, backward: false };
        for (key, value) in pairs(uri)? {
            match key.as_str() {
                "start" | "cursor" => query.cursor_ms = value.parse().ok(),
                "limit" => query.limit = value.parse().unwrap_or(LINES_AT_ONCE).min(LINES_MAX),
                "direction" => query.backward = value == "backward",
                _ => {}
            }
        }
        Ok(query)
    }

    /// Timestamps are RFC 3339, so comparing them as text compares times.
    pub(super) fn select(&self, lines: Vec<Value>) -> Vec<Value> {
        let cursor = self.cursor_ms.map(time);
        let fits = |line: &Value| match (&cursor, line["timestamp"].as_str()) {
            (Some(cursor), Some(at)) if self.backward => at <= cursor.as_str(),
            (Some(cursor), Some(at)) => at >= cursor.as_str(),
            (_, _) => true,
        };
        let mut lines: Vec<Value> = lines.into_iter().filter(fits).collect();
        if self.backward {
            lines.reverse();
        }
        lines.truncate(self.limit);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_from_both_ends() {
        let lines: Vec<Value> = (0..5).map(|ms| json!({ "timestamp": time(ms), "message": ms })).collect();
        let ask = |query: &str| {
            let uri: Uri = format!("/x?{query}").parse().unwrap();
            let answer = LogQuery::of(&uri).unwrap().select(lines.clone());
            answer.iter().map(|line| line["message"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(ask(""), [0, 1, 2, 3, 4]);
        assert_eq!(ask("start=3"), [3, 4]);
        assert_eq!(ask("cursor=1&limit=2"), [1, 2]);
        assert_eq!(ask("cursor=3&limit=2&direction=backward"), [3, 2]);
    }
}
