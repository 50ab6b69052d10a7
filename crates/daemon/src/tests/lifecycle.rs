//! Sandboxes, services, images and events through the API.

use super::world::World;

#[tokio::test]
async fn a_sandbox_passes_through_all_its_states() {
    let world = World::new().await;
    let body = "{\"name\": \"web\", \"labels\": {\"team\": \"a\"}, \"env\": {\"A\": \"1\"}}";
    let created = world.send_json("POST", "/v1/sandboxes", body).await.expect(201).json();
    assert_eq!((&created["state"], &created["name"]), (&"running".into(), &"web".into()));
    world.send_json("POST", "/v1/sandboxes", body).await.refused(409, "conflict");
    let again = "{\"name\": \"web\", \"if_not_exists\": true}";
    let existing = world.send_json("POST", "/v1/sandboxes", again).await.expect(200).json();
    assert_eq!(existing["id"], created["id"]);
    for (step, state) in
        [("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("start", "running")]
    {
        let now = world.send("POST", &format!("/v1/sandboxes/web/{step}")).await.expect(200).json();
        assert_eq!(now["state"], state, "{step}");
    }
    let update =
        "{\"name\": \"site\", \"labels\": {\"team\": null, \"tier\": \"b\"}, \"env\": {\"B\": \"2\"}}";
    let updated = world.send_json("PATCH", "/v1/sandboxes/web", update).await.expect(200).json();
    assert_eq!(updated["name"], "site");
    assert_eq!(updated["labels"], serde_json::json!({"tier": "b"}));
    assert_eq!(updated["env"], serde_json::json!({"A": "1", "B": "2"}));
    let prefix = &created["id"].as_str().unwrap()[..10];
    world.send("GET", &format!("/v1/sandboxes/{prefix}")).await.expect(200);
    world.send("DELETE", "/v1/sandboxes/site").await.expect(204);
    world.send("GET", "/v1/sandboxes/site").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_request_that_needs_a_guest_starts_a_stopped_sandbox_unless_its_policy_refuses() {
    let world = World::new().await;
    world.sandbox("web").await;
    let echo = "{\"argv\": [\"echo\"]}";
    world.send("POST", "/v1/sandboxes/web/stop?grace_ms=0").await.expect(200);
    world.send_json("POST", "/v1/sandboxes/web/execs", echo).await.expect(201);
    assert_eq!(world.state_of("web").await, "running");
    let off = "{\"sleep\": {\"start_on_use\": false}}";
    let shown = world.send_json("PATCH", "/v1/sandboxes/web", off).await.expect(200).json();
    assert_eq!(shown["sleep"]["start_on_use"], false);
    world.send("POST", "/v1/sandboxes/web/stop?grace_ms=0").await.expect(200);
    let answer = world.send_json("POST", "/v1/sandboxes/web/execs", echo).await;
    answer.refused(409, "not_running");
    assert!(answer.json()["error"]["hint"].as_str().unwrap().contains("burrow start"));
    world.send("GET", "/v1/sandboxes/web/files?path=/a").await.refused(409, "not_running");
}

#[tokio::test]
async fn lists_are_paged_and_filtered_by_label_and_state() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.clock.advance(1);
        let body = format!("{{\"name\": \"{name}\", \"labels\": {{\"of\": \"{name}\"}}}}");
        world.send_json("POST", "/v1/sandboxes", body).await.expect(201);
    }
    let first = world.send("GET", "/v1/sandboxes?limit=2").await.expect(200).json();
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    assert_eq!(first["items"][0]["name"], "c");
    let cursor = first["next_cursor"].as_str().unwrap();
    let last = world.send("GET", &format!("/v1/sandboxes?limit=2&cursor={cursor}")).await.expect(200).json();
    assert_eq!((&last["items"][0]["name"], last.get("next_cursor")), (&"a".into(), None));
    let labelled = world.send("GET", "/v1/sandboxes?label=of=b").await.expect(200).json();
    assert_eq!(labelled["items"].as_array().unwrap().len(), 1);
    let none = world.send("GET", "/v1/sandboxes?label=of=b&label=of=c").await.expect(200).json();
    assert_eq!(none["items"].as_array().unwrap().len(), 0);
    world.send("POST", "/v1/sandboxes/b/stop").await.expect(200);
    let stopped = world.send("GET", "/v1/sandboxes?state=stopped&state=failed").await.expect(200).json();
    assert_eq!(stopped["items"][0]["name"], "b");
}

#[tokio::test]
async fn events_are_listed_and_continued_from_a_number() {
    let world = World::new().await;
    world.sandbox("web").await;
    let other = world.sandbox("other").await;
    let all = world.send("GET", "/v1/events").await.expect(200);
    assert_eq!(all.headers["content-type"], "application/x-ndjson");
    let lines: Vec<serde_json::Value> =
        String::from_utf8_lossy(&all.body).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|event| event["kind"] == "sandbox.created"), "{lines:?}");
    let last = lines.last().unwrap()["seq"].as_u64().unwrap();
    assert!(world.send("GET", &format!("/v1/events?since={last}")).await.expect(200).body.is_empty());
    let one = world.send("GET", &format!("/v1/events?sandbox={other}&limit=1")).await.expect(200);
    let event: serde_json::Value = serde_json::from_slice(&one.body).unwrap();
    assert_eq!(event["sandbox_id"], other.as_str());
}

#[tokio::test]
async fn services_are_declared_listed_and_removed() {
    let world = World::new().await;
    world.sandbox("web").await;
    let body = "{\"command\": \"sleep 1\", \"restart\": \"never\"}";
    let set = world.send_json("PUT", "/v1/sandboxes/web/services/db", body).await.expect(200).json();
    assert_eq!((&set["name"], &set["restart"]), (&"db".into(), &"never".into()));
    let list = world.send("GET", "/v1/sandboxes/web/services").await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    world.send_json("PUT", "/v1/sandboxes/web/services/D%00", body).await.refused(400, "invalid_request");
    world.send_json("PUT", "/v1/sandboxes/web/services/db", "{}").await.refused(400, "invalid_request");
    world.send("POST", "/v1/sandboxes/web/services/none/restart").await.refused(404, "not_found");
    world.send("DELETE", "/v1/sandboxes/web/services/db").await.expect(204);
    world.send("DELETE", "/v1/sandboxes/web/services/db").await.refused(404, "not_found");
}

#[tokio::test]
async fn an_image_is_built_once_and_again_on_request() {
    let world = World::new().await;
    let lines = |body: &[u8]| -> Vec<serde_json::Value> {
        String::from_utf8_lossy(body).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let there = world.send_json("POST", "/v1/images", "{}").await.expect(200);
    assert_eq!(lines(&there.body).len(), 1);
    assert_eq!(lines(&there.body)[0]["kind"], "done");
    let built = world.send_json("POST", "/v1/images", "{\"name\": \"slim\"}").await.expect(200);
    assert_eq!(lines(&built.body).last().unwrap()["image"]["name"], "slim");
    world.send_json("POST", "/v1/images", "{\"rebuild\": true}").await.expect(200);
    world.send_json("POST", "/v1/images", "{\"name\": \"No Good\"}").await.refused(400, "invalid_request");
    let all = world.send("GET", "/v1/images").await.expect(200).json();
    let count = all["items"].as_array().unwrap().len();
    assert!(count >= 2, "{all}");
    let first = world.send("GET", "/v1/images?limit=1").await.expect(200).json();
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = world.send("GET", &format!("/v1/images?limit=1&cursor={cursor}")).await.expect(200).json();
    assert_ne!(first["items"][0]["id"], second["items"][0]["id"]);
    world.send("GET", "/v1/images?cursor=nope").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn the_host_and_the_configuration_are_shown() {
    let world = World::new().await;
    world.sandbox("web").await;
    let host = world.send("GET", "/v1/host").await.expect(200).json();
    assert_eq!((&host["sandboxes"], &host["sandboxes_running"]), (&1.into(), &1.into()));
    assert_eq!(host["drivers"][0]["name"], "sim");
    let config = world.send("GET", "/v1/config").await.expect(200).json();
    assert_eq!(config["defaults"]["driver"], "sim");
    let metrics = world.send("GET", "/metrics").await.expect(200);
    assert!(String::from_utf8_lossy(&metrics.body).contains("burrow_sandboxes{state=\"running\"} 1"));
    world.app.draining.cancel();
    let ready = world.send("GET", "/readyz").await.expect(503).json();
    assert_eq!(ready["ready"], false);
}

#[tokio::test]
async fn a_backup_contains_the_catalog_and_leaves_no_temporary_files() {
    let world = World::new().await;
    world.sandbox("web").await;
    let answer = world.send("GET", "/v1/backup").await.expect(200);
    let mut archive = tar::Archive::new(&answer.body[..]);
    let mut entries = archive.entries().unwrap();
    let mut first = entries.next().unwrap().unwrap();
    assert_eq!(first.path().unwrap().display().to_string(), "catalog.db");
    let mut begin = [0; 15];
    std::io::Read::read_exact(&mut first, &mut begin).unwrap();
    assert_eq!(&begin, b"SQLite format 3");
    let paths: Vec<_> = entries.map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
    let (audit, volumes): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.starts_with("audit/"));
    assert_eq!(audit, ["audit/audit.db", "audit/key"]);
    assert!(volumes.iter().all(|path| path.starts_with("volumes/")), "{volumes:?}");
    // Memory and the audit log have folders from the start, and secrets have a key, which no backup contains.
    let left = std::fs::read_dir(&world.app.config.state_dir).unwrap();
    let own = |name: &std::ffi::OsString| ["memory", "audit", "vault.key"].iter().any(|known| name == known);
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).filter(|name| !own(name)).collect();
    assert!(left.is_empty(), "{left:?}");
}
