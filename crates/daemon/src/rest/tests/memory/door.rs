//! The sandbox's own door: its own memory, without a key, and nothing else.

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::json;
use tower::ServiceExt as _;

use super::World;
use crate::rest::memory::memory_door_router;
use crate::rest::tests::world::{Answer, read};

fn door(world: &World, sandbox: &str) -> Router {
    let tenant = world.app.engine.catalog().default_tenant();
    memory_door_router(world.app.clone(), tenant, sandbox.parse().unwrap())
}

async fn ask(door: &Router, method: &str, path: &str, body: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    read(door.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()).await
}

#[tokio::test]
async fn a_sandbox_has_its_own_memory_without_a_key() {
    let world = World::new().await;
    let (web, other) = (world.sandbox("web").await, world.sandbox("other").await);
    world.note("other", "of the other").await;
    let inside = door(&world, &web);
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
    // To a key `self` is a name like any other.
    world.send("GET", "/v1/memory/self").await.refused(404, "not_found");
}

#[tokio::test]
async fn what_a_sandbox_remembers_counts_against_its_disk_limit() {
    let world = World::new().await;
    let body = r#"{"name": "small", "limits": {"disk_mib": 16}}"#;
    let small = world.send_json("POST", "/v1/sandboxes", body.to_owned()).await.expect(201).json();
    let inside = door(&world, small["id"].as_str().unwrap());
    let put = async |name: &str, mib: usize| {
        let request = Request::put(format!("/v1/memory/self/artifacts/{name}"));
        let body = Body::from(vec![mib as u8; mib << 20]);
        read(inside.clone().oneshot(request.body(body).unwrap()).await.unwrap()).await
    };
    put("first", 10).await.expect(201);
    let refused = put("second", 8).await;
    refused.refused(507, "no_space");
    let error = refused.json()["error"].to_string();
    assert!(error.contains("16777216") && error.contains("burrow update SANDBOX --disk"), "{error}");
    put("third", 5).await.expect(201);
    put("fourth", 1).await.refused(507, "no_space");
    // What is nearly full takes small entries until it is full; then all that adds is refused, and forgetting is not.
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

#[tokio::test]
async fn nothing_but_its_own_memory_is_behind_the_door() {
    let world = World::new().await;
    let web = world.sandbox("web").await;
    let inside = door(&world, &web);
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
    // A key that is shown at the door opens nothing more.
    let request =
        Request::get("/v1/memory/other").header("x-api-key", &world.key).body(Body::empty()).unwrap();
    read(door(&world, &web).oneshot(request).await.unwrap()).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_door_leads_to_attached_spaces_as_far_as_they_were_given() {
    let world = World::new().await;
    let body = json!({"name": "web", "memory": {"attached": [
        {"space": "team"}, {"space": "pad", "access": "read-write"},
    ]}});
    let created = world.post("/v1/sandboxes", body, 201).await;
    world.note("team", "the team ships on fridays").await;
    let inside = door(&world, created["id"].as_str().unwrap());
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
async fn one_door_cannot_take_the_daemons_places() {
    let world = World::new().await;
    let web = world.sandbox("web").await;
    let inside = door(&world, &web);
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

/// Refused for now, and told when to come back.
#[track_caller]
fn told_to_wait(answer: &Answer) {
    answer.refused(429, "busy");
    let seconds: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{answer:?}");
}

#[tokio::test]
async fn a_sandbox_that_asks_too_often_is_told_to_wait_and_others_are_answered() {
    let world = World::new().await;
    let (web, other) = (world.sandbox("web").await, world.sandbox("other").await);
    let (inside, beside) = (door(&world, &web), door(&world, &other));
    // The clock stands still, so nothing fills up again meanwhile.
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
async fn a_sandbox_that_asks_too_much_at_once_is_told_to_wait_and_others_are_answered() {
    let world = World::new().await;
    let (web, other) = (world.sandbox("web").await, world.sandbox("other").await);
    let inside = door(&world, &web);
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
    ask(&door(&world, &other), "GET", "/v1/memory/self/kv", "").await.expect(200);
    world.fetch("/v1/memory/web").await;
    drop(held);
    ask(&inside, "GET", "/v1/memory/self/kv", "").await.expect(200);
}
