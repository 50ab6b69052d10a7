//! Tests the rights of each kind of key on every route of every interface against one table.
//!
//! `table.txt` has at least one row for each route, with the response to no key, a read key, an exec key, and an exec key
//! that is bound to the sandbox. It also names the action in the audit log. A served route that is missing in the table
//! fails the test, and so does a row whose route no longer exists.

mod ssh;

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use burrow_audit::Filter;
use burrow_model::{SandboxId, Scope};
use http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::world::{World, read};
use crate::mcp;
use crate::router::api_routes;
use burrow_e2b as e2b;
use burrow_http::routes::Route;
use burrow_rest::{own_listener_router, own_routes};

const TABLE: &str = include_str!("table.txt");

/// Addresses that the gateway takes for a port of a sandbox. The gateway has no routes: see `gateway::address`.
const GATEWAY: [&str; 2] = ["/p/{sandbox}/{port}/", "//{port}-{sandbox}.localhost/"];

/// A request without a response within this time was admitted: it waits for something inside.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
struct Row {
    surface: &'static str,
    method: &'static str,
    path: &'static str,
    /// For no key, a read key, an exec key, and one that is bound to the sandbox: `ok`, or the status of the refusal.
    cells: [&'static str; 4],
    /// The action in the audit log for a request with an exec key; `-` for none.
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

/// All served routes, by interface.
async fn served(world: &World) -> BTreeSet<(String, String, String)> {
    let mut served = BTreeSet::new();
    let mut add = |surface: &str, routes: &[Route]| {
        for Route { method, path } in routes {
            served.insert((surface.to_owned(), (*method).to_owned(), path.clone()));
        }
    };
    add("api", api_routes().served());
    add("mcp", mcp::routes().served());
    add("address", mcp::sandbox_routes().served());
    add("own", own_routes().served());
    add("envd", e2b::envd::routes().served());
    add("code", e2b::interpreter::routes().served());
    for path in GATEWAY {
        served.insert(("gateway".to_owned(), "GET".to_owned(), path.to_owned()));
    }
    for request in burrow_ssh::REQUESTS {
        served.insert(("ssh".to_owned(), "LOGIN".to_owned(), request.to_owned()));
    }
    let tools = call(world, &world.key, "any&image=python-interpreter", "tools/list", json!({})).await;
    for tool in tools["result"]["tools"].as_array().unwrap_or_else(|| panic!("{tools}")) {
        served.insert(("tool".to_owned(), "CALL".to_owned(), tool["name"].as_str().unwrap().to_owned()));
    }
    served
}

/// Sends a message of MCP, and returns the response.
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
        .request(key, "POST", &format!("/mcp?sandbox={sandbox}&tools=all"))
        .header("host", "127.0.0.1:7700")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-06-18")
        .body(Body::from(message.to_string()))
        .unwrap()
}

/// A token with the length of those of E2B's clients.
const ADDRESS_TOKEN: &str = "3b241101-e2bb-4255-8caf-4136c566a962";

/// A sandbox with an MCP address that accepts this token.
async fn with_address(world: &World) -> String {
    let body = json!({ "templateID": "mcp-gateway", "mcp": {} }).to_string();
    let made = world.send_json("POST", "/v2/sandboxes", body).await.expect(201).json();
    let sandbox = made["sandboxID"].as_str().unwrap().to_owned();
    let tenant = world.app.engine.catalog().default_tenant();
    let id: SandboxId = sandbox.parse().unwrap();
    e2b::mcp::accept(&world.app, &tenant, &id, ADDRESS_TOKEN).await.unwrap();
    sandbox
}

/// Sends a message to the MCP address of a sandbox.
async fn at_address(world: &World, sandbox: &str, token: &str, method: &str, params: Value) -> (u16, String) {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = Request::post("/mcp")
        .header("host", format!("50005-{sandbox}.localhost:7700"))
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-06-18")
        .body(Body::from(message.to_string()))
        .unwrap();
    let asked = tokio::time::timeout(PATIENCE, world.router.clone().oneshot(request));
    match asked.await {
        Ok(answer) => {
            let answer = read(answer.unwrap()).await;
            (answer.status.as_u16(), String::from_utf8_lossy(&answer.body).into_owned())
        }
        Err(_) => (200, String::new()),
    }
}

#[tokio::test]
async fn the_token_of_an_mcp_address_has_the_rights_of_a_key_bound_to_its_sandbox() {
    let world = World::new().await;
    let mut wrong = Vec::new();
    for row in table().iter().filter(|row| row.surface == "tool") {
        let fixture = Fixture::of(&world, row, "", with_address(&world).await).await;
        let arguments = fixture.fill(row.body.unwrap_or("{}"), &fixture.sandbox);
        let arguments: Value = serde_json::from_str(&arguments).unwrap();
        let params = json!({ "name": row.path, "arguments": arguments });
        let (_, before) = actions_after(&world, None).await;
        let (status, text) = at_address(&world, &fixture.sandbox, ADDRESS_TOKEN, "tools/call", params).await;
        let got = match text {
            _ if text.contains("[forbidden]") => "403".to_owned(),
            _ if text.contains("[not_found]") => verdict(404, row.cells[3]),
            _ => verdict(status, row.cells[3]),
        };
        let (actions, _) = actions_after(&world, before).await;
        let recorded = row.audit == "-" || row.cells[3] != "ok" || actions.contains(&row.audit);
        if got != row.cells[3] || !recorded {
            wrong.push(format!("{}: {got} and {actions:?}: {text}", row.path));
        }
        fixture.remove(&world).await;
    }
    assert!(wrong.is_empty(), "{} tools are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn an_mcp_address_accepts_only_the_token_of_its_sandbox() {
    let world = World::new().await;
    let (own, other) = (with_address(&world).await, with_address(&world).await);
    let tenant = world.app.engine.catalog().default_tenant();
    let foreign = "9f1c2a77-0d53-4f6e-8f21-5be3a1d0c4aa";
    e2b::mcp::accept(&world.app, &tenant, &other.parse().unwrap(), foreign).await.unwrap();
    let list = async |sandbox: &str, token: &str| {
        at_address(&world, sandbox, token, "tools/list", json!({})).await.0
    };
    assert_eq!((list(&own, ADDRESS_TOKEN).await, list(&other, foreign).await), (200, 200));
    let bound = world.new_key(Scope::Exec, Some(&own)).await;
    for wrong in ["", foreign, &world.key, &bound, &ADDRESS_TOKEN[1..], &"x".repeat(4096)] {
        assert_eq!(list(&own, wrong).await, 401, "{wrong}");
    }
    assert_eq!(list(&other, ADDRESS_TOKEN).await, 401, "the token that it had before");

    // A child has the label of its parent, and another id.
    let forked = world.send_json("POST", &format!("/v1/sandboxes/{own}/fork"), "{}").await.expect(201).json();
    let child = forked["children"][0]["id"].as_str().unwrap();
    assert_ne!(list(child, ADDRESS_TOKEN).await, 200);

    // Other paths and other sandboxes are ports like any other.
    let plain = world.sandbox("plain").await;
    assert_eq!(list(&plain, ADDRESS_TOKEN).await, 401);
    world.send_json("POST", &format!("/v1/sandboxes/{own}/revoke-tokens"), "{}").await;
    assert_eq!(list(&own, ADDRESS_TOKEN).await, 401, "revoked");
    let events = world.send("GET", "/v1/audit?limit=100").await.expect(200).json();
    assert!(!events.to_string().contains(ADDRESS_TOKEN));
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

/// The objects that a row is tested on. Created for each row, because calls delete and change them.
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
        let sandbox = match row.surface {
            "address" => with_address(world).await,
            _ => world.sandbox(&name).await,
        };
        Self::of(world, row, &name, sandbox).await
    }

    async fn of(world: &World, row: &Row, name: &str, sandbox: String) -> Self {
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

/// The status of the response to a row's call.
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
    let address = format!("50005-{}.localhost:7700", fixture.sandbox);
    let mut request = match path.strip_prefix("//") {
        None if row.surface == "address" => world.request(key, method, &path).header("host", address),
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
            own_listener_router(world.app.clone(), tenant, sandbox).oneshot(request).await.unwrap()
        }
        _ => world.router.clone().oneshot(request).await.unwrap(),
    };
    answer.status().as_u16()
}

/// The actions in the audit log after the event with this index.
async fn actions_after(world: &World, index: Option<u64>) -> (Vec<&'static str>, Option<u64>) {
    let tenant = world.app.engine.catalog().default_tenant();
    let newest = world.app.audit.store.newest(&tenant, Filter::default(), None, 16).await.unwrap();
    let last = newest.first().map(|entry| entry.index);
    let fresh = newest.into_iter().filter(|entry| Some(entry.index) > index);
    (fresh.map(|entry| entry.event.action.as_str()).collect(), last.max(index))
}

/// Translates a status into a cell of the table. A 404 counts only where the table expects one: most paths name an object
/// that does not exist.
fn verdict(status: u16, expected: &str) -> String {
    match status {
        401 | 403 => status.to_string(),
        404 if expected == "404" => "404".to_owned(),
        _ => "ok".to_owned(),
    }
}

#[tokio::test]
async fn rights_and_audit_actions_match_the_table() {
    let world = World::new().await;
    let read = world.new_key(Scope::Read, None).await;
    let exec = world.new_key(Scope::Exec, None).await;
    let mut wrong = Vec::new();
    // Requests over SSH have a separate test.
    for (number, row) in table().iter().filter(|row| row.surface != "ssh").enumerate() {
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

/// Whether a row is about one sandbox, by its path or by the way it is sent.
fn names_a_sandbox(row: &Row) -> bool {
    let by_path = ["{sandbox}", "{of}", "{snapshot}"].iter().any(|part| row.path.contains(part));
    match row.surface {
        "api" | "gateway" => by_path,
        "envd" | "code" => true,
        // Tools are calls of the API with the same key; the own listener and an address have no other sandbox.
        _ => false,
    }
}

#[tokio::test]
async fn a_key_bound_to_another_sandbox_succeeds_on_no_route() {
    let world = World::new().await;
    let elsewhere = world.sandbox("elsewhere").await;
    let foreign = world.new_key(Scope::Exec, Some(&elsewhere)).await;
    let mut wrong = Vec::new();
    let rows = table();
    // What needs no key is open to a foreign one, too.
    let rows: Vec<_> = rows.iter().filter(|row| names_a_sandbox(row) && row.cells[0] != "ok").collect();
    assert!(rows.len() > 100, "{}", rows.len());
    for (number, row) in rows.into_iter().enumerate() {
        let fixture = Fixture::new(&world, row, number, "foreign").await;
        let status = status(&world, row, &foreign, &fixture).await;
        if status < 400 {
            wrong.push(format!("{} {} {}: {status}", row.surface, row.method, row.path));
        }
        fixture.remove(&world).await;
    }
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// When a sandbox ends, in milliseconds since the epoch.
async fn end_of(world: &World, sandbox: &str) -> Option<u64> {
    let shown = world.send("GET", &format!("/v1/sandboxes/{sandbox}")).await.expect(200).json();
    shown["expires_ms"].as_u64()
}

#[tokio::test]
async fn a_bound_key_can_shorten_the_lifetime_but_not_extend_it() {
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
    // Connecting is allowed, and keeps the earlier end.
    assert_eq!(ask("connect", r#"{"timeout": 3600}"#).await, 200);
    assert_eq!(ask("connect", r#"{"timeout": 3600, "autoPause": true}"#).await, 200);
    assert_eq!(end_of(&world, &id).await, Some(end));
    // Time passes during sleep, and a connect starts no new lease.
    assert_eq!(ask("pause", "{}").await, 204);
    assert_eq!(end_of(&world, &id).await, Some(end));
    assert_eq!(ask("pause", "{}").await, 409);
    assert_eq!(ask("connect", r#"{"timeout": 3600}"#).await, 201);
    assert_eq!(end_of(&world, &id).await, Some(end));
    assert_eq!(ask("timeout", r#"{"timeout": 60}"#).await, 204);
    assert_eq!(end_of(&world, &id).await, Some(end - 540_000));

    // The action at the end does not change: this sandbox is deleted, although `autoPause` was requested.
    let shown = world.send("GET", &format!("/sandboxes/{id}")).await.expect(200).json();
    assert_eq!(shown["lifecycle"]["onTimeout"], "kill");
    // Its owner may do all of that.
    let body = r#"{"timeout": 3600}"#;
    world.send_json("POST", &format!("/sandboxes/{id}/timeout"), body).await.expect(204);
    assert_eq!(end_of(&world, &id).await, Some(end + 3_000_000));
}

/// Routes without a key that answer for any host name, and why.
const ANY_HOST: [(&str, &str, &str); 1] = [(
    "PUT",
    "/templates/uploads/{upload}",
    "the id in the path was given to a key, is random and for one upload; and the answer has no content",
)];

#[tokio::test]
async fn routes_without_a_key_answer_only_for_the_daemons_own_host_names() {
    let world = World::new().await;
    let table = table();
    for (method, path, reason) in ANY_HOST {
        let known = |row: &&Row| row.surface == "api" && row.method == method && row.path == path;
        assert!(
            table.iter().find(known).is_some_and(|row| row.cells[0] == "ok"),
            "{path} is served without a key"
        );
        assert!(!reason.is_empty());
    }
    let keyless: Vec<&Row> =
        table.iter().filter(|row| row.surface == "api" && row.cells[0] == "ok").collect();
    assert!(keyless.len() > ANY_HOST.len(), "some routes need no key");
    for row in keyless {
        let excepted = ANY_HOST.iter().any(|(method, path, _)| row.method == *method && row.path == *path);
        let fixture = Fixture::new(&world, row, 0, "host").await;
        let path = fixture.fill(row.path, &fixture.sandbox);
        let ask = async |host: &str| {
            let request =
                world.request("", row.method, &path).header("host", host).body(Body::empty()).unwrap();
            world.raw(request).await
        };
        for own in ["localhost", "127.0.0.1:7700", "[::1]:7700"] {
            let status = ask(own).await.status.as_u16();
            assert!(!matches!(status, 401 | 403), "{} {path} as {own}: {status}", row.method);
        }
        for foreign in
            ["evil.example", "evil.example:7700", "localhost.evil.example", "127.0.0.1.evil.example"]
        {
            let answer = ask(foreign).await;
            if excepted {
                assert!(!matches!(answer.status.as_u16(), 401 | 403), "{} {path}: {answer:?}", row.method);
            } else {
                answer.refused(403, "forbidden");
            }
        }
        fixture.remove(&world).await;
    }
}
