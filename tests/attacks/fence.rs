//! P-S9: a model whose tools are for one sandbox tries to reach others: by id, by a prefix of it, by name, by names with other
//! meanings, through snapshots, forks, differences, merges, skills, memory and lists. The control makes the same calls without
//! the fence.

use serde_json::{Value, json};

use crate::ground::{Ground, Sandbox};
use crate::harness::Daemon;
use crate::report::{Finding, RowFailure, ensure};
use crate::wire::plain;

/// What another sandbox has that a model could name.
struct Foreign {
    id: String,
    name: String,
    snapshot: String,
    /// A fork of it.
    fork: String,
    memory: String,
}

/// Sends one message of the protocol, and returns the response.
fn ask(daemon: &Daemon, query: &str, method: &str, params: &Value) -> Value {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let headers = [
        ("x-api-key", daemon.key()),
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json, text/event-stream".to_owned()),
        ("mcp-protocol-version", "2025-06-18".to_owned()),
    ];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let target = format!("/mcp?tools=all&{query}");
    let answer = plain(&daemon.url(), "POST", &target, &headers, message.to_string().as_bytes());
    let text = answer.text();
    let data =
        text.lines().filter_map(|line| line.strip_prefix("data:")).find(|data| data.contains("jsonrpc"));
    serde_json::from_str(data.unwrap_or(&text)).unwrap_or_else(|_| panic!("{text}"))
}

/// The text of a tool's answer, and whether the call failed.
fn call(daemon: &Daemon, query: &str, tool: &str, arguments: &Value) -> (String, bool) {
    let answer = ask(daemon, query, "tools/call", &json!({ "name": tool, "arguments": arguments }));
    let result = &answer["result"];
    (answer.to_string(), result["isError"] == true || result.is_null())
}

fn post(ground: &Ground, target: &str, body: &Value) -> Result<Value, RowFailure> {
    let answer = ground.post(target, body);
    ensure(answer.status < 300, || format!("{target}: {} {}", answer.status, answer.text()))?;
    Ok(answer.json())
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn furnish(ground: &Ground, id: &str) -> Result<Foreign, RowFailure> {
    let at = format!("/v1/sandboxes/{id}");
    let named = ground.ask("GET", at.as_bytes(), "", b"").json();
    let snapshot = post(ground, &format!("{at}/snapshots"), &json!({ "files_only": true }))?;
    let forked = post(ground, &format!("{at}/fork"), &json!({ "files_only": true }))?;
    let entries = json!({ "entries": [{ "text": "the foreign plan" }] });
    let added = post(ground, &format!("/v1/memory/{id}/entries"), &entries)?;
    let memory = added.pointer("/entries/0/id").or_else(|| added.pointer("/0/id"));
    Ok(Foreign {
        id: id.to_owned(),
        name: text_of(&named["name"]),
        snapshot: text_of(&snapshot["id"]),
        fork: text_of(&forked["children"][0]["id"]),
        memory: memory.map(text_of).unwrap_or_default(),
    })
}

/// Calls that succeed without a fence, and must not with it. The last one deletes the fork.
fn reaching(foreign: &Foreign) -> Vec<(&'static str, Value)> {
    let Foreign { id, name, snapshot, fork, .. } = foreign;
    let prefix = &id[..id.len() - 1];
    vec![
        ("sandbox_run", json!({ "command": "touch /tmp/reached", "sandbox": id })),
        ("sandbox_run", json!({ "command": "touch /tmp/reached", "sandbox": prefix })),
        ("sandbox_run", json!({ "command": "touch /tmp/reached", "sandbox": name })),
        ("sandbox_run", json!({ "command": "true", "sandbox": fork })),
        ("sandbox_process_start", json!({ "command": "true", "sandbox": name })),
        ("sandbox_process_list", json!({ "sandbox": id })),
        ("sandbox_ports", json!({ "sandbox": id })),
        ("sandbox_status", json!({ "sandbox": name })),
        ("sandbox_read_file", json!({ "path": "/etc/hostname", "sandbox": id })),
        ("sandbox_write_file", json!({ "path": "/tmp/reached", "text": "x", "sandbox": id })),
        ("sandbox_list_files", json!({ "path": "/", "sandbox": name })),
        ("sandbox_search_files", json!({ "pattern": "root", "path": "/etc/passwd", "sandbox": id })),
        ("sandbox_snapshot", json!({ "sandbox": id, "files_only": true })),
        ("sandbox_snapshot_list", json!({ "sandbox": id })),
        ("sandbox_diff", json!({ "from": id, "to": fork })),
        ("sandbox_diff", json!({ "from": snapshot, "to": fork })),
        ("sandbox_diff", json!({ "to": fork })),
        ("sandbox_diff", json!({ "from": format!("sandbox:{name}"), "to": format!("snapshot:{snapshot}") })),
        ("sandbox_fork", json!({ "sandbox": id, "ttl_seconds": 60 })),
        ("sandbox_merge", json!({ "from": fork, "into": id, "dry_run": true })),
        ("sandbox_hibernate", json!({ "sandbox": fork })),
        ("sandbox_delete_fork", json!({ "sandbox": fork })),
    ]
}

/// Calls that never succeed: with names that could have another meaning somewhere.
fn twisted(foreign: &Foreign) -> Vec<(&'static str, Value)> {
    let Foreign { id, name, .. } = foreign;
    let names = [
        format!("../{name}"),
        format!("self/../{name}"),
        format!("{name}/"),
        format!("%2e%2e%2f{name}"),
        format!("sandbox:{name}"),
        format!("{name}?all=true"),
        format!("{name}\n"),
        id.to_uppercase(),
        "sbx".to_owned(),
    ];
    names.into_iter().map(|named| ("sandbox_status", json!({ "sandbox": named }))).collect()
}

pub(crate) fn behind(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let (daemon, query) = (&ground.daemon, format!("sandbox={}", sandbox.id));
    let other = ground.sandbox(&[]);
    let foreign = furnish(ground, &other.id)?;
    let mut tried = 0;
    for (tool, arguments) in reaching(&foreign).into_iter().chain(twisted(&foreign)) {
        let (text, failed) = call(daemon, &query, tool, &arguments);
        sandbox.heard(text.as_bytes());
        let hidden = text.contains("[not_found]") || text.contains("[invalid_request]");
        ensure(failed && hidden, || format!("{tool} {arguments}: {text}"))?;
        tried += 1;
    }
    // Snapshots and memories of others, where the own sandbox is the only one that can be named.
    for (tool, arguments) in [
        ("sandbox_restore", json!({ "snapshot": foreign.snapshot })),
        ("memory_forget", json!({ "id": foreign.memory })),
    ] {
        let (text, failed) = call(daemon, &query, tool, &arguments);
        ensure(failed && text.contains("[not_found]"), || format!("{tool} {arguments}: {text}"))?;
        tried += 1;
    }
    for uri in [
        format!("burrow://snapshots/{}", foreign.snapshot),
        format!("burrow://memories/{}", foreign.memory),
        format!("burrow://snapshots/..%2f..%2fsandboxes%2f{}", foreign.id),
    ] {
        let text = ask(daemon, &query, "resources/read", &json!({ "uri": uri })).to_string();
        ensure(text.contains("\"error\"") && !text.contains("foreign plan"), || format!("{uri}: {text}"))?;
        tried += 1;
    }
    let listed = ask(daemon, &query, "resources/list", &json!({})).to_string();
    let (recalled, _) = call(daemon, &query, "memory_recall", &json!({ "query": "the foreign plan" }));
    ensure(
        !listed.contains(&foreign.snapshot) && !recalled.contains("foreign plan") && foreign.memory.len() > 3,
        || format!("{listed} {recalled}"),
    )?;
    let untouched = other.sh("test ! -e /tmp/reached");
    ensure(untouched.ok(), || "a file was written in the other sandbox".to_owned())?;
    // A key of a connection sees its own sandbox and no other, also without the protocol.
    let key = daemon.ok(&["key", "create", "fenced", "--sandbox", &sandbox.id, "--forks", "--ttl", "1h"]);
    let listed = plain(&daemon.url(), "GET", "/v1/sandboxes", &[("x-api-key", key.trim())], b"").json();
    let ids: Vec<&str> =
        listed["items"].as_array().unwrap().iter().filter_map(|it| it["id"].as_str()).collect();
    ensure(ids == [sandbox.id.as_str()], || format!("{ids:?}"))?;
    // The fence does not separate a sandbox from its forks.
    let (forked, failed) = call(daemon, &query, "sandbox_fork", &json!({ "ttl_seconds": 600 }));
    let fork = forked.split("sbx").nth(1).map(|rest| format!("sbx{}", &rest[..20]));
    ensure(!failed && fork.is_some(), || forked.clone())?;
    let fork = fork.unwrap_or_default();
    let (text, failed) = call(daemon, &query, "sandbox_run", &json!({ "command": "true", "sandbox": fork }));
    ensure(!failed, || format!("its own fork: {text}"))?;
    for id in [&fork, &foreign.fork] {
        daemon.ok(&["rm", "-f", id]);
    }
    Ok(format!("{tried} calls found nothing; the fork {fork} is reached"))
}

pub(crate) fn without(ground: &Ground) -> Finding {
    let (own, other) = (ground.sandbox(&[]), ground.sandbox(&[]));
    let foreign = furnish(ground, &other.id)?;
    let query = format!("sandbox={}&all=true", own.id);
    let calls = reaching(&foreign);
    for (tool, arguments) in &calls {
        let (text, failed) = call(&ground.daemon, &query, tool, arguments);
        ensure(!failed, || format!("{tool} {arguments}: {text}"))?;
    }
    let uri = format!("burrow://snapshots/{}", foreign.snapshot);
    let text = ask(&ground.daemon, &query, "resources/read", &json!({ "uri": uri })).to_string();
    ensure(text.contains(&foreign.snapshot) && !text.contains("\"error\""), || text.clone())?;
    ensure(other.sh("test -e /tmp/reached").ok(), || "nothing was written".to_owned())?;
    Ok(format!("without the fence, all {} calls reach it", calls.len()))
}
