//! Working memory through the API.

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::World;

#[tokio::test]
async fn a_key_is_set_read_listed_and_deleted_with_its_history() {
    let world = World::new().await;
    world.sandbox("web").await;
    for (key, value) in [("plan/a", json!({"steps": [1, null]})), ("plan/b", json!(null)), ("x", json!("y"))]
    {
        let item = world.put(&format!("/v1/memory/web/kv/{key}"), json!({"value": value}), 200).await;
        assert_eq!((&item["key"], &item["value"]), (&json!(key), &value));
        assert_eq!(world.fetch(&format!("/v1/memory/web/kv/{key}")).await, item);
    }
    let listed = world.fetch("/v1/memory/web/kv?prefix=plan/").await;
    let keys: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|item| &item["key"]).collect();
    assert_eq!(keys, ["plan/a", "plan/b"]);
    let seq = world.fetch("/v1/memory/web").await["seq"].as_u64().unwrap();
    world.send("DELETE", "/v1/memory/web/kv/plan/a").await.expect(204);
    world.send("DELETE", "/v1/memory/web/kv/plan/a").await.expect(204);
    world.send("GET", "/v1/memory/web/kv/plan/a").await.refused(404, "not_found");
    world.fetch(&format!("/v1/memory/web/kv/plan/a?as_of={seq}")).await;
    let history = world.fetch("/v1/memory/web/kv-history/plan/a").await;
    assert_eq!(history.as_array().unwrap().len(), 2);
    world.send("GET", "/v1/memory/web/kv-history/nothing").await.refused(404, "not_found");
}

#[tokio::test]
async fn compare_and_set_reports_the_existing_version() {
    let world = World::new().await;
    world.sandbox("web").await;
    let path = "/v1/memory/web/kv/lock";
    let first = world.put(path, json!({"value": 1, "if_absent": true}), 200).await;
    let refused = world.send_json("PUT", path, json!({"value": 2, "if_absent": true}).to_string()).await;
    refused.refused(409, "conflict");
    let version = first["version"].as_u64().unwrap();
    let second = world.put(path, json!({"value": 2, "if_version": version}), 200).await;
    let refused = world.send_json("PUT", path, json!({"value": 3, "if_version": version}).to_string()).await;
    refused.refused(409, "conflict");
    let found = second["version"].as_u64().unwrap().to_string();
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains(&found));
    world.send("DELETE", &format!("{path}?if_version={version}")).await.refused(409, "conflict");
    assert_eq!(world.fetch(path).await["value"], 2);
    let both = json!({"value": 1, "if_absent": true, "if_version": 1}).to_string();
    world.send_json("PUT", path, both).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_batch_is_atomic_and_numbers_are_incremented() {
    let world = World::new().await;
    world.sandbox("web").await;
    let count = world.post("/v1/memory/web/kv-increment", json!({"key": "n"}), 200).await;
    assert_eq!(count["value"], 1);
    let count = world.post("/v1/memory/web/kv-increment", json!({"key": "n", "by": -3}), 200).await;
    assert_eq!(count["value"], -2);
    let ops = json!({"ops": [
        {"op": "set", "key": "a", "value": true},
        {"op": "increment", "key": "n", "by": 10},
        {"op": "delete", "key": "gone"},
        {"op": "check", "key": "b", "if_absent": true},
    ]});
    let done = world.post("/v1/memory/web/kv-batch", ops, 200).await;
    assert_eq!((&done["items"][0]["value"], &done["items"][1]["value"]), (&json!(true), &json!(8)));
    let undone = json!({"ops": [{"op": "set", "key": "a", "value": false}, {"op": "check", "key": "b", "if_version": 1}]});
    world.send_json("POST", "/v1/memory/web/kv-batch", undone.to_string()).await.refused(409, "conflict");
    assert_eq!(world.fetch("/v1/memory/web/kv/a").await["value"], true);
    let text = json!({"key": "a", "by": 1}).to_string();
    world.send_json("POST", "/v1/memory/web/kv-increment", text).await.refused(422, "unprocessable");
}

#[tokio::test]
async fn a_key_expires() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.put("/v1/memory/web/kv/t", json!({"value": 1, "ttl_seconds": 60}), 200).await;
    world.fetch("/v1/memory/web/kv/t").await;
    world.clock.advance(60_001);
    world.send("GET", "/v1/memory/web/kv/t").await.refused(404, "not_found");
    let bad = json!({"value": 1, "ttl_seconds": u64::MAX}).to_string();
    world.send_json("PUT", "/v1/memory/web/kv/t", bad).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_watch_sends_past_and_new_changes_and_heartbeats() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.put("/v1/memory/web/kv/a/1", json!({"value": 1}), 200).await;
    let request = world.request(&world.key, "GET", "/v1/memory/web/kv-watch?prefix=a/&since=0");
    let response =
        world.router.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body().into_data_stream();
    let mut next =
        async || -> Value { serde_json::from_slice(&body.next().await.unwrap().unwrap()).unwrap() };
    assert_eq!(next().await["kind"], "heartbeat");
    assert_eq!(next().await["item"]["key"], "a/1");
    world.put("/v1/memory/web/kv/b", json!({"value": 1}), 200).await;
    world.put("/v1/memory/web/kv/a/2", json!({"value": 2}), 200).await;
    assert_eq!(next().await["item"]["key"], "a/2");
    world.send("DELETE", "/v1/memory/web/kv/a/1").await.expect(204);
    let deleted = next().await;
    assert_eq!((deleted["kind"].as_str(), deleted["key"].as_str()), (Some("deleted"), Some("a/1")));
    world.app.draining.cancel();
    assert_eq!(next().await["kind"], "error");
}

/// A watch of keys, read line by line.
struct KvWatchLines(axum::body::BodyDataStream);

impl KvWatchLines {
    async fn of(world: &World, query: &str) -> Self {
        let request = world.request(&world.key, "GET", &format!("/v1/memory/web/kv-watch{query}"));
        let request = request.body(axum::body::Body::empty()).unwrap();
        let response = world.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let mut watching = Self(response.into_body().into_data_stream());
        assert_eq!(watching.line().await["kind"], "heartbeat");
        watching
    }

    /// The next line that is not a heartbeat.
    async fn next(&mut self) -> Value {
        loop {
            let line = self.line().await;
            if line["kind"] != "heartbeat" {
                return line;
            }
        }
    }

    async fn line(&mut self) -> Value {
        let line = tokio::time::timeout(std::time::Duration::from_secs(60), self.0.next()).await;
        serde_json::from_slice(&line.expect("the watch sent nothing").unwrap().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn a_watch_reports_expired_keys() {
    let world = World::new().await;
    world.sandbox("web").await;
    let mut watching = KvWatchLines::of(&world, "?prefix=l").await;
    world.put("/v1/memory/web/kv/lock", json!({"value": 1, "ttl_seconds": 1}), 200).await;
    assert_eq!(watching.next().await["kind"], "set");
    world.clock.advance(1_500);
    let told = watching.next().await;
    assert_eq!((told["kind"].as_str(), told["key"].as_str()), (Some("expired"), Some("lock")), "{told}");
    assert!(told["at_ms"].as_u64().is_some());
}

#[tokio::test]
async fn a_watch_reports_a_restore_and_follows_the_new_branch() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.put("/v1/memory/web/kv/a", json!({"value": 1}), 200).await;
    let body = json!({"name": "one", "files_only": true});
    world.post("/v1/sandboxes/web/snapshots", body, 201).await;
    world.put("/v1/memory/web/kv/a", json!({"value": 2}), 200).await;
    let mut watching = KvWatchLines::of(&world, "").await;
    world.post("/v1/sandboxes/web/restore", json!({"snapshot": "one"}), 200).await;
    let told = watching.next().await;
    assert_eq!(told["kind"], "reset", "{told}");
    assert_eq!(world.fetch("/v1/memory/web/kv/a").await["value"], 1);
    world.put("/v1/memory/web/kv/a", json!({"value": 3}), 200).await;
    let told = watching.next().await;
    assert_eq!((told["kind"].as_str(), &told["item"]["value"]), (Some("set"), &json!(3)), "{told}");
    assert!(told["seq"].as_u64() > Some(2));
    // It also reports when there is nothing left to watch.
    world.send("DELETE", "/v1/sandboxes/web").await.expect(204);
    let told = watching.next().await;
    assert_eq!((told["kind"].as_str(), told["error"]["code"].as_str()), (Some("error"), Some("not_found")));
}
