//! Hostile bodies, ids and parameters.

use axum::body::Body;
use serde_json::{Value, json};

use super::World;

#[tokio::test]
async fn errors_about_sizes_name_the_limit() {
    let world = World::new().await;
    world.sandbox("web").await;
    let too_large = |answer: super::super::world::Answer| {
        answer.refused(413, "too_large");
        assert!(answer.json()["error"]["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{answer:?}");
    };
    let text = json!({"text": "x".repeat(65_537)}).to_string();
    too_large(world.send_json("POST", "/v1/memory/web/entries", text).await);
    let many: Vec<Value> = (0..1001).map(|_| json!({"text": "x"})).collect();
    too_large(world.send_json("POST", "/v1/memory/web/entries", json!({"entries": many}).to_string()).await);
    let metadata = json!({"text": "x", "metadata": {"a": "x".repeat(17_000)}}).to_string();
    too_large(world.send_json("POST", "/v1/memory/web/entries", metadata).await);
    let value = json!({"value": "x".repeat(262_145)}).to_string();
    too_large(world.send_json("PUT", "/v1/memory/web/kv/a", value).await);
    let ops: Vec<Value> = (0..257).map(|_| json!({"op": "delete", "key": "x"})).collect();
    too_large(world.send_json("POST", "/v1/memory/web/kv-batch", json!({"ops": ops}).to_string()).await);
    let query = json!({"query": "x".repeat(65_537)}).to_string();
    too_large(world.send_json("POST", "/v1/memory/web/search", query).await);
    let key = "k".repeat(513);
    too_large(world.send_json("PUT", &format!("/v1/memory/web/kv/{key}"), "{\"value\": 1}").await);
    let world = World::with("[memory]\nbody = \"64K\"\n").await;
    world.sandbox("web").await;
    let body = json!({"value": "x".repeat(70_000)}).to_string();
    too_large(world.send_json("PUT", "/v1/memory/web/kv/a", body).await);
    assert!(world.texts("web", "").await.is_empty());
}

#[tokio::test]
async fn invalid_requests_are_rejected_and_never_cause_internal_errors() {
    let world = World::new().await;
    world.sandbox("web").await;
    let bodies = [
        "",
        "null",
        "7",
        "[]",
        "{",
        "{\"text\": 7}",
        "{\"text\": \"\"}",
        "{\"text\": \"a\", \"kind\": \"No Such Kind\"}",
        "{\"text\": \"a\", \"importance\": -1}",
        "{\"text\": \"a\", \"importance\": 1e40}",
        "{\"text\": \"a\", \"supersedes\": [\"x\"]}",
        "{\"text\": \"a\", \"links\": [\"memaaaaaaaaaaaaaaaaaaaa\u{0}\"]}",
        "{\"entries\": {}}",
        "{\"entries\": [7]}",
        "{\"text\": \"a\", \"at_ms\": -1}",
        "{\"text\": \"a\", \"valid_from_ms\": 2, \"valid_to_ms\": 1}",
        "{\"query\": \"\\u0000\"}",
        "{\"query\": 3}",
        "{\"messages\": 3}",
        "{\"ops\": [{\"op\": \"explode\", \"key\": \"a\"}]}",
        "{\"value\": 1, \"x\": 2}",
    ];
    let routes = [
        ("POST", "entries"),
        ("POST", "search"),
        ("POST", "context"),
        ("POST", "recall"),
        ("POST", "turns"),
        ("POST", "forget"),
        ("POST", "erase"),
        ("POST", "merge"),
        ("POST", "consolidate"),
        ("PUT", "kv/a"),
        ("POST", "kv-batch"),
        ("POST", "kv-increment"),
        ("POST", "skills"),
        ("POST", "skills/search"),
        ("POST", "skills/promote"),
        ("POST", "skills/a/run"),
        ("POST", "skills/a/outcome"),
        ("POST", "import"),
    ];
    for (method, route) in routes {
        for body in bodies {
            let answer = world.send_json(method, &format!("/v1/memory/web/{route}"), body).await;
            assert!(!answer.status.is_server_error(), "{method} {route} {body}: {answer:?}");
        }
    }
    for body in &bodies[..14] {
        let answer = world.send_json("POST", "/v1/memory/web/entries", *body).await;
        assert!(answer.status.is_client_error(), "{body}: {answer:?}");
    }
    let request = world
        .request(&world.key, "POST", "/v1/memory/web/entries")
        .header("content-type", "application/json");
    let answer = world.raw(request.body(Body::from(&b"{\"text\": \"\xff\"}"[..])).unwrap()).await;
    answer.refused(400, "invalid_request");
    assert!(answer.json()["error"]["hint"].as_str().unwrap().contains("artifact"));
    let request = world.request(&world.key, "POST", "/v1/memory/web/entries");
    world
        .raw(request.body(Body::from("{\"text\": \"x\"}")).unwrap())
        .await
        .refused(415, "unsupported_media_type");
}

#[tokio::test]
async fn invalid_parameters_are_rejected() {
    let world = World::new().await;
    world.sandbox("web").await;
    for path in [
        "?limit=0",
        "?limit=1001",
        "?limit=x",
        "?cursor=!!",
        "?as_of=",
        "?as_of=%00",
        "?as_of=a%20b",
        "?nope=1",
        "?since_ms=-1",
        "?include_cold=maybe",
        "?space=%ff",
    ] {
        let answer = world.send("GET", &format!("/v1/memory/web/entries{path}")).await;
        assert!(matches!(answer.status.as_u16(), 400 | 422), "{path}: {answer:?}");
    }
    for of in ["%2e%2e", "WEB", "space:", "a%20b", "%00", "sandbox:web:x", &"a".repeat(64)] {
        let answer = world.send("GET", &format!("/v1/memory/{of}")).await;
        assert!(matches!(answer.status.as_u16(), 400 | 404), "{of}: {answer:?}");
    }
    for key in ["%00", "%ff"] {
        let answer = world.send_json("PUT", &format!("/v1/memory/web/kv/{key}"), "{\"value\": 1}").await;
        assert!(answer.status.is_client_error(), "{key}: {answer:?}");
    }
    // Every text can be a key.
    for key in ["a%2Fb", "..", "caf%C3%A9", "%1b%5b31m", "a%20b", "%25"] {
        let path = format!("/v1/memory/web/kv/x{key}");
        let set = world.send_json("PUT", &path, "{\"value\": 1}").await.expect(200).json();
        assert_eq!(world.fetch(&path).await["key"], set["key"], "{key}");
    }
}
