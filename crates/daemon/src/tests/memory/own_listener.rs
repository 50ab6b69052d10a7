//! The sandbox's own listener: its own memory, without a key, and nothing else.

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::json;
use tower::ServiceExt as _;

use super::World;
use crate::tests::world::{Answer, read};
use burrow_rest::{own_listener_router, own_routes};

fn listener(world: &World, sandbox: &str) -> Router {
    let tenant = world.app.engine.catalog().default_tenant();
    own_listener_router(world.app.clone(), tenant, sandbox.parse().unwrap())
}

async fn ask(listener: &Router, method: &str, path: &str, body: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    read(listener.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()).await
}

#[tokio::test]
async fn a_sandbox_has_its_own_memory_without_a_key() {
    let world = World::new().await;
    let (web, other) = (world.sandbox("web").await, world.sandbox("other").await);
    world.note("other", "of the other").await;
    let inside = listener(&world, &web);
    ask(&inside, "POST", "/v1/memory/self/entries", "{\"text\": \"from inside\"}").await.expect(201);
    assert_eq!(world.texts("web", "").await, ["from inside"]);
    let found =
        ask(&inside, "POST", "/v1/memory/self/search", "{\"query\": \"inside other\"}").await.expect(200);
    assert_eq!(found.json()["hits"].as_array().unwrap().len(), 1);
    ask(&inside, "PUT", "/v1/memory/self/kv/a", "{\"value\": 1}").await.expect(200);
    assert_eq!(world.fetch("/v1/memory/web/kv/a").await["value"], 1);
    for of in ["web", "other", &web, &other, "sandbox:other", "space:other", "sandbox:self", "Self"] {
        ask(&inside, "GET", &format!("/v1/memory/{of}"), "").await.refused(404, "not_found");
    }
    // For a key, `self` is an ordinary name.
    world.send("GET", "/v1/memory/self").await.refused(404, "not_found");
}

#[tokio::test]
async fn the_memory_of_a_sandbox_counts_against_its_disk_limit() {
    let world = World::new().await;
    let body = r#"{"name": "small", "limits": {"disk_mib": 16}}"#;
    let small = world.send_json("POST", "/v1/sandboxes", body.to_owned()).await.expect(201).json();
    let inside = listener(&world, small["id"].as_str().unwrap());
    let put = async |name: &str, mib: usize| {
        let request = Request::put(format!("/v1/memory/self/artifacts/{name}"));
        let body = Body::from(vec![mib as u8; mib << 20]);
        read(inside.clone().oneshot(request.body(body).unwrap()).await.unwrap()).await
    };
    put("first", 10).await.expect(201);
    let refused = put("second", 8).await;
    refused.refused(507, "no_space");
    let error = refused.json()["error"].to_string();
    assert!(error.contains("16.0 MiB") && error.contains("burrow update SANDBOX --disk"), "{error}");
    put("third", 5).await.expect(201);
    put("fourth", 1).await.refused(507, "no_space");
    // A nearly full memory accepts small entries until it is full; then every addition is rejected, but forgetting is not.
    let text = "x".repeat(60_000);
    let mut refused = None;
    for n in 0..64 {
        let body = serde_json::json!({ "value": text }).to_string();
        let answer = ask(&inside, "PUT", &format!("/v1/memory/self/kv/key-{n}"), &body).await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    refused.expect("the limit was not reached").refused(507, "no_space");
    ask(&inside, "DELETE", "/v1/memory/self/kv/key-0", "").await.expect(204);
    ask(&inside, "DELETE", "/v1/memory/self/artifacts/first", "").await.expect(204);
}

/// The answer of a route to a sandbox whose memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FullMemoryAnswer {
    /// It adds.
    Refused,
    /// It only reads, forgets or deletes.
    Answered,
}

/// What each writing or searching route of the own listener does when there is no space, and a valid body.
fn when_full(method: &str, path: &str, line: &str) -> (FullMemoryAnswer, String) {
    use FullMemoryAnswer::{Answered, Refused};
    let steps = json!([{"kind": "command", "run": "true"}]);
    let (answer, body) = match (method, path.strip_prefix("/v1/memory/{of}/").unwrap_or_default()) {
        ("POST", "entries") => (Refused, json!({"text": "x"})),
        ("PATCH", "entries/{entry}") => (Refused, json!({"text": "y"})),
        ("DELETE", "entries/{entry}" | "kv/{*key}" | "skills/{name}" | "artifacts/{*name}") => {
            (Answered, json!({}))
        }
        ("POST", "search" | "context" | "skills/search") => (Answered, json!({"query": "x"})),
        ("POST", "recall") => (Answered, json!({"messages": [{"role": "user", "content": "x"}]})),
        ("POST", "turns") => (Refused, json!({"messages": [{"role": "user", "content": "hello"}]})),
        ("POST", "forget") => (Answered, json!({"older_than_seconds": 1_000_000})),
        ("POST", "import") => return (Refused, line.to_owned()),
        ("PUT", "kv/{*key}") => (Refused, json!({"value": 1})),
        ("POST", "kv-batch") => (Refused, json!({"ops": [{"op": "set", "key": "b", "value": 1}]})),
        ("POST", "kv-increment") => (Refused, json!({"key": "n"})),
        ("POST", "skills") => (Refused, json!({"name": "greet", "description": "greets", "steps": steps})),
        ("POST", "skills/{name}/outcome") => (Refused, json!({"ok": true})),
        ("PUT", "artifacts/{*name}") => (Refused, json!("content")),
        (method, path) => panic!("what does {method} {path} do when the space is full?"),
    };
    (answer, body.to_string())
}

#[tokio::test]
async fn every_route_of_the_own_listener_that_adds_is_refused_when_the_space_is_full() {
    let world = World::new().await;
    let body = r#"{"name": "full", "limits": {"disk_mib": 64}}"#;
    let made = world.send_json("POST", "/v1/sandboxes", body.to_owned()).await.expect(201).json();
    let inside = listener(&world, made["id"].as_str().unwrap());
    let entry = world.note("full", "x").await;
    let exported = ask(&inside, "GET", "/v1/memory/self/export", "").await.expect(200);
    let exported = String::from_utf8(exported.body.to_vec()).unwrap();
    let line = exported.lines().nth(1).unwrap().to_owned();
    ask(&inside, "PUT", "/v1/memory/self/kv/a", "{\"value\": 1}").await.expect(200);
    let (_, skill) = when_full("POST", "/v1/memory/{of}/skills", "");
    ask(&inside, "POST", "/v1/memory/self/skills", &skill).await.expect(201);
    let request = Request::put("/v1/memory/self/artifacts/a").body(Body::from(vec![1; 20 << 20])).unwrap();
    read(inside.clone().oneshot(request).await.unwrap()).await.expect(201);
    // More is stored now than the sandbox may have.
    world.send_json("PATCH", "/v1/sandboxes/full", r#"{"limits": {"disk_mib": 16}}"#).await.expect(200);
    let served = own_routes();
    let mut writing: Vec<_> =
        served.served().iter().filter(|route| !matches!(route.method, "GET" | "HEAD")).collect();
    assert!(writing.len() > 15, "{writing:?}");
    // What is deleted must exist until the other routes were tried.
    writing.sort_by_key(|route| route.method == "DELETE");
    for route in writing {
        let (expected, body) = when_full(route.method, &route.path, &line);
        let path = route.path.replace("{of}", "self").replace("{entry}", &entry);
        let path =
            path.replace("skills/{name}", "skills/greet").replace("{*key}", "a").replace("{*name}", "a");
        let answer = ask(&inside, route.method, &path, &body).await;
        match expected {
            FullMemoryAnswer::Refused => answer.refused(507, "no_space"),
            FullMemoryAnswer::Answered => {
                assert!(answer.status.is_success(), "{} {path}: {answer:?}", route.method)
            }
        }
    }
}

#[tokio::test]
async fn an_import_ends_where_the_disk_limit_is_reached() {
    let world = World::new().await;
    let body = r#"{"name": "small", "limits": {"disk_mib": 16}}"#;
    let small = world.send_json("POST", "/v1/sandboxes", body.to_owned()).await.expect(201).json();
    let inside = listener(&world, small["id"].as_str().unwrap());
    world.sandbox("source").await;
    world.note("source", "x").await;
    let exported = world.send("GET", "/v1/memory/source/export").await.expect(200);
    let exported = String::from_utf8(exported.body.to_vec()).unwrap();
    let mut entry: serde_json::Value = serde_json::from_str(exported.lines().nth(1).unwrap()).unwrap();
    let mut lines = String::new();
    for n in 0..1100 {
        entry["id"] = json!(burrow_model::MemoryId::generate().to_string());
        entry["text"] = json!(format!("{n} {}", "x".repeat(60_000)));
        lines.push_str(&entry.to_string());
        lines.push('\n');
    }
    ask(&inside, "POST", "/v1/memory/self/import", &lines).await.refused(507, "no_space");
    let folder = burrow_http::memory::folder(&world.app.config);
    let sizes = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().metadata().unwrap());
    let stored: u64 = sizes.filter(|file| file.is_file()).map(|file| file.len()).sum();
    // Beside the limit: the journal of the batch that was refused, and the other sandbox's space.
    assert!(stored < 32 << 20, "{stored}");
    ask(&inside, "POST", "/v1/memory/self/search", "{\"query\": \"x\"}").await.expect(200);
}

#[tokio::test]
async fn without_disk_space_nothing_is_added_to_memory() {
    let world = World::with("[memory]\ndisk_reserve = \"64T\"\n").await;
    let web = world.sandbox("web").await;
    let inside = listener(&world, &web);
    let served = own_routes();
    for route in served.served().iter().filter(|route| !matches!(route.method, "GET" | "HEAD" | "DELETE")) {
        let (expected, body) = when_full(route.method, &route.path, "{\"line\": \"header\"}");
        let path = route.path.replace("{of}", "self").replace("{entry}", "memaaaaaaaaaaaaaaaaaaaa");
        let path =
            path.replace("skills/{name}", "skills/greet").replace("{*key}", "a").replace("{*name}", "a");
        if expected == FullMemoryAnswer::Refused {
            ask(&inside, route.method, &path, &body).await.refused(507, "no_space");
        }
    }
}

#[tokio::test]
async fn only_its_own_memory_is_available_on_the_own_listener() {
    let world = World::new().await;
    let web = world.sandbox("web").await;
    let inside = listener(&world, &web);
    for (method, path) in [
        ("GET", "/v1/spaces"),
        ("POST", "/v1/spaces"),
        ("DELETE", "/v1/spaces/x"),
        ("POST", "/v1/memory/self/erase"),
        ("POST", "/v1/memory/self/check"),
        ("POST", "/v1/memory/self/rebuild"),
        ("POST", "/v1/memory/self/merge"),
        ("POST", "/v1/memory/self/consolidate"),
        ("POST", "/v1/memory/self/skills/a/run"),
        ("GET", "/v1/sandboxes"),
        ("GET", "/v1/keys"),
        ("GET", "/metrics"),
    ] {
        let answer = ask(&inside, method, path, "{}").await;
        assert!(matches!(answer.status.as_u16(), 404 | 405), "{method} {path}: {answer:?}");
    }
    // A key that is sent to the own listener gives no additional access.
    let request =
        Request::get("/v1/memory/other").header("x-api-key", &world.key).body(Body::empty()).unwrap();
    read(listener(&world, &web).oneshot(request).await.unwrap()).await.refused(404, "not_found");
}

#[tokio::test]
async fn attached_spaces_are_available_on_the_own_listener_with_their_access() {
    let world = World::new().await;
    let body = json!({"name": "web", "memory": {"attached": [
        {"space": "team"}, {"space": "pad", "access": "read-write"},
    ]}});
    let created = world.post("/v1/sandboxes", body, 201).await;
    world.note("team", "the team ships on fridays").await;
    let inside = listener(&world, created["id"].as_str().unwrap());
    let found = ask(&inside, "POST", "/v1/memory/self/search", "{\"query\": \"fridays\"}").await.expect(200);
    assert_eq!(found.json()["hits"][0]["space"], "team");
    let note = "{\"text\": \"x\"}";
    ask(&inside, "POST", "/v1/memory/self/entries?space=team", note).await.refused(403, "forbidden");
    ask(&inside, "POST", "/v1/memory/self/entries?space=pad", note).await.expect(201);
    ask(&inside, "POST", "/v1/memory/self/entries?space=other", note).await.refused(404, "not_found");
    world.send("DELETE", "/v1/sandboxes/web").await.expect(204);
    ask(&inside, "GET", "/v1/memory/self", "").await.refused(404, "not_found");
}

#[tokio::test]
async fn one_own_listener_cannot_use_up_the_daemons_slots() {
    let world = World::new().await;
    let web = world.sandbox("web").await;
    let inside = listener(&world, &web);
    let mut open = Vec::new();
    let refused = loop {
        let request = Request::get("/v1/memory/self/kv-watch").body(Body::empty()).unwrap();
        let response = inside.clone().oneshot(request).await.unwrap();
        if response.status() != 200 {
            break response.status();
        }
        open.push(response);
        assert!(open.len() < 1_000);
    };
    assert_eq!(refused, 429);
    world.send("GET", "/v1/memory/web").await.expect(200);
}

/// Rejected temporarily, with a time for the next attempt.
#[track_caller]
fn told_to_wait(answer: &Answer) {
    answer.refused(429, "busy");
    let seconds: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{answer:?}");
}

#[tokio::test]
async fn a_sandbox_that_sends_too_many_requests_must_wait_and_others_are_answered() {
    let world = World::new().await;
    let (web, other) = (world.sandbox("web").await, world.sandbox("other").await);
    let (inside, beside) = (listener(&world, &web), listener(&world, &other));
    // The clock does not advance, so the bucket does not fill up again in the meantime.
    let mut answered = 0;
    let refused = loop {
        let answer = ask(&inside, "GET", "/v1/memory/self/kv/none", "").await;
        if answer.status != 404 {
            break answer;
        }
        answered += 1;
        assert!(answered < 10_000, "never refused");
    };
    told_to_wait(&refused);
    ask(&beside, "GET", "/v1/memory/self/kv/none", "").await.refused(404, "not_found");
    world.fetch("/v1/memory/web").await;
    world.clock.advance(1_000);
    ask(&inside, "GET", "/v1/memory/self/kv/none", "").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_sandbox_with_too_many_concurrent_requests_must_wait_and_others_are_answered() {
    let world = World::new().await;
    let (web, other) = (world.sandbox("web").await, world.sandbox("other").await);
    let inside = listener(&world, &web);
    let watch = || Request::get("/v1/memory/self/kv-watch").body(Body::empty()).unwrap();
    let mut held = Vec::new();
    let refused = loop {
        let answer = inside.clone().oneshot(watch()).await.unwrap();
        if answer.status() != 200 {
            break read(answer).await;
        }
        held.push(answer);
        assert!(held.len() < 10_000, "never refused");
    };
    told_to_wait(&refused);
    ask(&listener(&world, &other), "GET", "/v1/memory/self/kv", "").await.expect(200);
    world.fetch("/v1/memory/web").await;
    drop(held);
    ask(&inside, "GET", "/v1/memory/self/kv", "").await.expect(200);
}
