//! Who may do what, on every route of every surface, against one table.
//!
//! `table.txt` has one row or more for each route, and what the route answers to no key, a read key, an exec key and an exec key
//! that is bound to the sandbox. It also names the action that the audit log gets. A route that is served and not in the
//! table fails the test, and so does a row whose route is not served any more.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use burrow_audit::Filter;
use burrow_model::{SandboxId, Scope};
use http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::world::{World, read};
use crate::e2b;
use crate::rest::routes::Route;
use crate::rest::{api_routes, mcp, memory, memory_door_router};

const TABLE: &str = include_str!("table.txt");

/// What the gateway takes for a port of a sandbox. It has no routes: see `gateway::address`.
const GATEWAY: [&str; 2] = ["/p/{sandbox}/{port}/", "//{port}-{sandbox}.localhost/"];

/// Requests that are neither answered nor refused within this time were let in: they wait for something inside.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
struct Row {
    surface: &'static str,
    method: &'static str,
    path: &'static str,
    /// For no key, a read key, an exec key, and one that is bound to the sandbox: `ok`, or the status of the refusal.
    cells: [&'static str; 4],
    /// The action in the audit log when an exec key asks; `-` for none.
    audit: &'static str,
    body: Option<&'static str>,
}

fn table() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(row).collect()
}

fn row(line: &'static str) -> Row {
    let (columns, body) = match line.find(" {\"") {
        Some(place) => (&line[..place], Some(line[place..].trim())),
        None => (line, None),
    };
    let words: Vec<&'static str> = columns.split_whitespace().collect();
    let [surface, method, path, none, read, exec, bound, audit] = words[..] else {
        panic!("a row has eight columns and perhaps a body: {line}")
    };
    Row { surface, method, path, cells: [none, read, exec, bound], audit, body }
}

/// All that is served, by surface.
async fn served(world: &World) -> BTreeSet<(String, String, String)> {
    let mut served = BTreeSet::new();
    let mut add = |surface: &str, routes: &[Route]| {
        for Route { method, path } in routes {
            served.insert((surface.to_owned(), (*method).to_owned(), path.clone()));
        }
    };
    add("api", api_routes().served());
    add("mcp", mcp::routes().served());
    add("own", memory::own_routes().served());
    add("envd", e2b::envd::routes().served());
    add("code", e2b::interpreter::routes().served());
    for path in GATEWAY {
        served.insert(("gateway".to_owned(), "GET".to_owned(), path.to_owned()));
    }
    let tools = call(world, &world.key, "any", "tools/list", json!({})).await;
    for tool in tools["result"]["tools"].as_array().unwrap_or_else(|| panic!("{tools}")) {
        served.insert(("tool".to_owned(), "CALL".to_owned(), tool["name"].as_str().unwrap().to_owned()));
    }
    served
}

/// A message of MCP, and its answer.
async fn call(world: &World, key: &str, sandbox: &str, method: &str, params: Value) -> Value {
    let request = tool_request(world, key, sandbox, method, params);
    let answer = read(world.router.clone().oneshot(request).await.unwrap()).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let data =
        text.lines().filter_map(|line| line.strip_prefix("data:")).find(|data| data.contains("jsonrpc"));
    serde_json::from_str(data.unwrap_or(&text)).unwrap_or_else(|_| panic!("{answer:?}"))
}

fn tool_request(world: &World, key: &str, sandbox: &str, method: &str, params: Value) -> Request<Body> {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    world
        .request(key, "POST", &format!("/mcp?sandbox={sandbox}"))
        .header("host", "127.0.0.1:7700")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-06-18")
        .body(Body::from(message.to_string()))
        .unwrap()
}

#[tokio::test]
async fn every_route_is_in_the_table_and_every_row_is_served() {
    let served = served(&World::new().await).await;
    let listed: BTreeSet<_> = table()
        .into_iter()
        .map(|row| (row.surface.to_owned(), row.method.to_owned(), row.path.to_owned()))
        .collect();
    let missing: Vec<_> = served.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&served).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "rest/tests/access/table.txt lacks {missing:#?}\nand has rows for routes that are not served: {gone:#?}"
    );
}

/// What a row is tried on: made anew, since calls delete and change it.
struct Fixture {
    sandbox: String,
    snapshot: String,
    volume: String,
    space: String,
    /// A fork of the sandbox, to which the bound key is not bound.
    other: String,
}

impl Fixture {
    async fn new(world: &World, row: &Row, number: usize, which: &str) -> Self {
        let name = format!("{which}{number}");
        let sandbox = world.sandbox(&name).await;
        let id = |answer: Value| answer["id"].as_str().unwrap().to_owned();
        let mut made = Self {
            sandbox,
            snapshot: String::new(),
            volume: String::new(),
            space: String::new(),
            other: String::new(),
        };
        if row.body.is_some_and(|body| body.contains("{other}")) {
            let path = format!("/v1/sandboxes/{}/fork", made.sandbox);
            let forked = world.send_json("POST", &path, "{}").await.expect(201).json();
            made.other = forked["children"][0]["id"].as_str().unwrap().to_owned();
        }
        if row.path.contains("{snapshot}") {
            let path = format!("/v1/sandboxes/{}/snapshots", made.sandbox);
            made.snapshot = id(world.send_json("POST", &path, "{}").await.expect(201).json());
        }
        if row.path.contains("{volume}") {
            let body = format!("{{\"name\": \"{name}\"}}");
            made.volume = id(world.send_json("POST", "/v1/volumes", body).await.expect(201).json());
        }
        if row.path.contains("{space}") {
            let body = format!("{{\"name\": \"{name}\"}}");
            made.space = id(world.send_json("POST", "/v1/spaces", body).await.expect(201).json());
        }
        made
    }

    fn fill(&self, text: &str, of: &str) -> String {
        let places = [
            ("{sandbox}", self.sandbox.as_str()),
            ("{of}", of),
            ("{other}", &self.other),
            ("{snapshot}", &self.snapshot),
            ("{volume}", &self.volume),
            ("{space}", &self.space),
            ("{port}", "8080"),
            ("{exec}", "exeaaaaaaaaaaaaaaaaaaaa"),
            ("{key}", "keyaaaa"),
            ("{secret}", "token"),
            ("{race}", "racaaaaaaaaaaaaaaaaaaaa"),
            ("{image}", "debian"),
            ("{tag}", "t"),
            ("{name}", "n"),
            ("{approval}", "1"),
            ("{entry}", "entaaaaaaaaaaaaaaaaaaaa"),
            ("{context}", "c"),
            ("{template}", "debian"),
            ("{build}", "b"),
            ("{hash}", "h"),
            ("{upload}", "u"),
            ("{*key}", "k"),
            ("{*name}", "n"),
            ("{*rest}", "r"),
        ];
        let filled = places.iter().fold(text.to_owned(), |text, (place, value)| text.replace(place, value));
        assert!(!filled.contains("{*"), "{text} has a variable part that this test does not know");
        filled
    }

    async fn remove(&self, world: &World) {
        world.send("DELETE", &format!("/v1/sandboxes/{}?snapshots=true", self.sandbox)).await;
    }
}

/// The status that a row's call is answered with.
async fn status(world: &World, row: &Row, key: &str, fixture: &Fixture) -> u16 {
    let asked = tokio::time::timeout(PATIENCE, ask(world, row, key, fixture));
    asked.await.unwrap_or(200)
}

async fn ask(world: &World, row: &Row, key: &str, fixture: &Fixture) -> u16 {
    if row.surface == "tool" {
        let arguments = fixture.fill(row.body.unwrap_or("{}"), &fixture.sandbox);
        let arguments: Value = serde_json::from_str(&arguments).unwrap();
        let params = json!({ "name": row.path, "arguments": arguments });
        let request = tool_request(world, key, &fixture.sandbox, "tools/call", params);
        let answer = read(world.router.clone().oneshot(request).await.unwrap()).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(!text.contains("missing field") && !text.contains("unknown field"), "{row:?}: {text}");
        return match text {
            _ if text.contains("[forbidden]") => 403,
            _ if text.contains("[not_found]") => 404,
            _ => answer.status.as_u16(),
        };
    }
    let of = if row.surface == "own" { "self" } else { &fixture.sandbox };
    let mut path = fixture.fill(row.path, of);
    if path.ends_with("/files") {
        path.push_str("?path=/x");
    }
    let method = if row.method == "ANY" { "GET" } else { row.method };
    let mut request = match path.strip_prefix("//") {
        Some(host) => world.request(key, method, "/").header("host", host.trim_end_matches('/')),
        None => world.request(key, method, &path).header("host", "127.0.0.1:7700"),
    };
    match row.surface {
        "envd" => request = request.header("e2b-sandbox-id", &fixture.sandbox),
        "code" => {
            request = request.header("e2b-sandbox-id", &fixture.sandbox).header("e2b-sandbox-port", "49999");
        }
        _ => {}
    }
    let body = match (method, row.body) {
        (_, Some(body)) => Body::from(fixture.fill(body, of)),
        ("POST" | "PUT" | "PATCH", None) => Body::from("{}"),
        _ => Body::empty(),
    };
    let request = request.header("content-type", "application/json").body(body).unwrap();
    let answer = match row.surface {
        "own" => {
            let tenant = world.app.engine.catalog().default_tenant();
            let sandbox: SandboxId = fixture.sandbox.parse().unwrap();
            memory_door_router(world.app.clone(), tenant, sandbox).oneshot(request).await.unwrap()
        }
        _ => world.router.clone().oneshot(request).await.unwrap(),
    };
    answer.status().as_u16()
}

/// Actions that the audit log got after the event of this index.
async fn actions_after(world: &World, index: Option<u64>) -> (Vec<&'static str>, Option<u64>) {
    let tenant = world.app.engine.catalog().default_tenant();
    let newest = world.app.audit.store.newest(&tenant, Filter::default(), None, 16).await.unwrap();
    let last = newest.first().map(|entry| entry.index);
    let fresh = newest.into_iter().filter(|entry| Some(entry.index) > index);
    (fresh.map(|entry| entry.event.action.as_str()).collect(), last.max(index))
}

/// What an answer means to whoever asked. A 404 counts only where the table expects one: most paths name something that
/// does not exist.
fn verdict(status: u16, expected: &str) -> String {
    match status {
        401 | 403 => status.to_string(),
        404 if expected == "404" => "404".to_owned(),
        _ => "ok".to_owned(),
    }
}

#[tokio::test]
async fn each_key_may_do_what_the_table_says_and_the_log_gets_the_action() {
    let world = World::new().await;
    let read = world.new_key(Scope::Read, None).await;
    let exec = world.new_key(Scope::Exec, None).await;
    let mut wrong = Vec::new();
    for (number, row) in table().iter().enumerate() {
        let open = Fixture::new(&world, row, number, "open").await;
        let own = Fixture::new(&world, row, number, "own").await;
        let bound = world.new_key(Scope::Exec, Some(&own.sandbox)).await;
        let mut got = Vec::new();
        for (key, fixture, expected) in
            [("", &open, row.cells[0]), (&read, &open, row.cells[1]), (&bound, &own, row.cells[3])]
        {
            got.push(verdict(status(&world, row, key, fixture).await, expected));
        }
        let (_, before) = actions_after(&world, None).await;
        got.insert(2, verdict(status(&world, row, &exec, &open).await, row.cells[2]));
        let (actions, _) = actions_after(&world, before).await;
        let recorded = match row.audit {
            "-" => actions.first().copied().unwrap_or("-"),
            expected => actions.iter().copied().find(|action| *action == expected).unwrap_or("nothing"),
        };
        if got != row.cells || recorded != row.audit {
            let Row { surface, method, path, cells, audit, .. } = row;
            let all = actions.join(",");
            wrong.push(format!(
                "{surface} {method} {path}: {got:?} and {recorded} [{all}], where the table has {cells:?} and {audit}"
            ));
        }
        open.remove(&world).await;
        own.remove(&world).await;
    }
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// When a sandbox ends, in milliseconds since the epoch.
async fn end_of(world: &World, sandbox: &str) -> Option<u64> {
    let shown = world.send("GET", &format!("/v1/sandboxes/{sandbox}")).await.expect(200).json();
    shown["expires_ms"].as_u64()
}

#[tokio::test]
async fn a_bound_key_brings_the_end_nearer_and_never_puts_it_off() {
    let world = World::new().await;
    let body = json!({ "templateID": "debian", "timeout": 600 }).to_string();
    let made = world.send_json("POST", "/sandboxes", body).await.expect(201).json();
    let id = made["sandboxID"].as_str().unwrap().to_owned();
    let bound = world.new_key(Scope::Exec, Some(&id)).await;
    let end = end_of(&world, &id).await.unwrap();
    let ask = async |path: &str, body: &str| {
        let path = format!("/sandboxes/{id}/{path}");
        world.send_json_as(&bound, "POST", &path, body.to_owned()).await.status.as_u16()
    };

    assert_eq!(ask("timeout", r#"{"timeout": 3600}"#).await, 403);
    assert_eq!(ask("refreshes", r#"{"duration": 3600}"#).await, 403);
    assert_eq!(end_of(&world, &id).await, Some(end));
    // Connecting is refused nothing, and keeps the end that is earlier.
    assert_eq!(ask("connect", r#"{"timeout": 3600}"#).await, 200);
    assert_eq!(ask("connect", r#"{"timeout": 3600, "autoPause": true}"#).await, 200);
    assert_eq!(end_of(&world, &id).await, Some(end));
    // Asleep, the time goes on, and a connect begins no new lease.
    assert_eq!(ask("pause", "{}").await, 204);
    assert_eq!(end_of(&world, &id).await, Some(end));
    assert_eq!(ask("pause", "{}").await, 409);
    assert_eq!(ask("connect", r#"{"timeout": 3600}"#).await, 201);
    assert_eq!(end_of(&world, &id).await, Some(end));
    assert_eq!(ask("timeout", r#"{"timeout": 60}"#).await, 204);
    assert_eq!(end_of(&world, &id).await, Some(end - 540_000));

    // What follows the end stays what it was: this sandbox is deleted, although `autoPause` was asked for.
    let shown = world.send("GET", &format!("/sandboxes/{id}")).await.expect(200).json();
    assert_eq!(shown["lifecycle"]["onTimeout"], "kill");
    // Its owner may do all that.
    let body = r#"{"timeout": 3600}"#;
    world.send_json("POST", &format!("/sandboxes/{id}/timeout"), body).await.expect(204);
    assert_eq!(end_of(&world, &id).await, Some(end + 3_000_000));
}
