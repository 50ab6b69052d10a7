//! What execs record in memory automatically.

use serde_json::{Value, json};

use super::World;

async fn run(world: &World, argv: &[&str]) -> Value {
    world.post("/v1/sandboxes/web/execs", json!({"argv": argv, "wait": true}), 200).await
}

/// The entries of a query, once there are as many: they are written asynchronously.
async fn entries(world: &World, query: &str, count: usize) -> Vec<Value> {
    for _ in 0..2_000 {
        let listed = world.fetch(&format!("/v1/memory/web/entries{query}")).await;
        let items = listed["items"].as_array().unwrap();
        if items.len() >= count {
            return items.clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("never {count} entries of {query}");
}

async fn all_written(world: &World) {
    while !world.app.tasks.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_failure_is_recorded_and_its_repeats_are_counted() {
    let world = World::new().await;
    world.sandbox("web").await;
    run(&world, &["echo", "fine"]).await;
    let failed = run(&world, &["fail"]).await;
    assert_eq!(failed["exec"]["outcome"]["exit_code"], 1);
    let kept = entries(&world, "", 1).await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!((&kept[0]["kind"], kept[0]["count"].as_u64()), (&json!("error"), Some(1)));
    assert!(kept[0]["session"].as_str().unwrap().starts_with("web"));
    run(&world, &["fail"]).await;
    all_written(&world).await;
    let kept = entries(&world, "", 1).await;
    assert_eq!((kept.len(), kept[0]["count"].as_u64()), (1, Some(2)), "{kept:?}");
}

#[tokio::test]
async fn a_failure_is_returned_with_related_failures() {
    let world = World::new().await;
    world.sandbox("web").await;
    run(&world, &["fail"]).await;
    all_written(&world).await;
    // A long time later: failures of the last minutes are not repeated to the client.
    world.clock.advance(7 * 24 * 3_600_000);
    let again = run(&world, &["fail"]).await;
    let related = again["exec"]["related"].as_array().cloned().unwrap_or_default();
    assert_eq!(related.len(), 1, "{again}");
    assert!(related[0]["id"].as_str().unwrap().starts_with("mem"));
    assert!(!related[0]["why"].as_str().unwrap().is_empty());
    // A success has no related entries.
    assert!(run(&world, &["echo", "fine"]).await["exec"].get("related").is_none());
}

#[tokio::test]
async fn the_setting_decides_what_is_recorded() {
    let world = World::new().await;
    let body = json!({"name": "web", "memory": {"remember": "all"}});
    world.post("/v1/sandboxes", body, 201).await;
    run(&world, &["cat", "build.log", "deploy.log"]).await;
    run(&world, &["fail"]).await;
    all_written(&world).await;
    let kinds = entries(&world, "", 1).await;
    assert!(!kinds.is_empty());
    world.send_json("PATCH", "/v1/sandboxes/web", "{\"memory\": {\"remember\": \"off\"}}").await.expect(200);
    let before = entries(&world, "", 1).await.len();
    run(&world, &["fail"]).await;
    all_written(&world).await;
    assert_eq!(entries(&world, "", 1).await.len(), before);
}

#[tokio::test]
async fn an_exec_is_recorded_once_even_with_several_watchers() {
    let world = World::new().await;
    world.sandbox("web").await;
    let exec = world.post("/v1/sandboxes/web/execs", json!({"argv": ["fail"]}), 201).await;
    let path = format!("/v1/sandboxes/web/execs/{}", exec["id"].as_str().unwrap());
    for _ in 0..2 {
        world.fetch(&format!("{path}/wait")).await;
        world.send("GET", &format!("{path}/output?follow=true")).await.expect(200);
    }
    all_written(&world).await;
    let kept = entries(&world, "", 1).await;
    assert_eq!((kept.len(), kept[0]["count"].as_u64()), (1, Some(1)), "{kept:?}");
    assert!(kept[0]["text"].as_str().unwrap().contains("no such table"), "{kept:?}");
}

#[tokio::test]
async fn a_rolled_back_exec_is_recorded_on_the_restored_branch() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.note("web", "before").await;
    let body = json!({"argv": ["fail"], "wait": true, "rollback_on_failure": true});
    let run = world.post("/v1/sandboxes/web/execs", body, 200).await;
    assert_eq!(run["exec"]["rollback"]["state"], "done");
    all_written(&world).await;
    assert_eq!(entries(&world, "?kind=error", 1).await.len(), 1);
    assert_eq!(world.texts("web", "?kind=note").await, ["before"]);
}

#[tokio::test]
async fn a_detached_exec_is_recorded_when_it_ends() {
    let world = World::new().await;
    world.sandbox("web").await;
    let exec = world.post("/v1/sandboxes/web/execs", json!({"argv": ["fail"]}), 201).await;
    let kept = entries(&world, "?kind=error", 1).await;
    assert!(kept[0]["text"].as_str().unwrap().contains("no such table"), "{kept:?}");
    // A later request does not count it a second time.
    world.fetch(&format!("/v1/sandboxes/web/execs/{}/wait", exec["id"].as_str().unwrap())).await;
    all_written(&world).await;
    assert_eq!(entries(&world, "", 1).await[0]["count"], 1);
}

#[tokio::test]
async fn an_exec_that_ended_without_a_daemon_is_recorded_once_by_the_next() {
    let mut world = World::new().await;
    world.sandbox("web").await;
    let secret = json!({"argv": ["fail"], "env": {"API_TOKEN": "tr0ub4dor-and-3"}});
    for body in [json!({"argv": ["fail"]}), secret] {
        world.post("/v1/sandboxes/web/execs", body, 201).await;
    }
    // They have ended by now. The daemon ends before it has recorded them, because watchers are served first.
    world.restart().await;
    let kept = entries(&world, "?kind=error", 1).await;
    assert!(kept[0]["text"].as_str().unwrap().contains("no such table"), "{kept:?}");
    all_written(&world).await;
    // The engine stores what it has queued before it answers this.
    world.send("GET", "/v1/events").await.expect(200);
    assert_eq!(world.app.engine.catalog().unremembered_execs(9).await.unwrap(), []);
    world.restart().await;
    all_written(&world).await;
    let kept = entries(&world, "", 1).await;
    // The exec with a secret is not recorded: no process knows the secrets in its output any more.
    assert_eq!((kept.len(), &kept[0]["count"]), (1, &json!(1)), "{kept:?}");
}

#[tokio::test]
async fn changed_files_are_searched_in_the_users_home_by_default() {
    let world = World::new().await;
    world.sandbox("web").await;
    for path in ["/root/build/out.txt", "/root/.cache/junk", "/elsewhere"] {
        let request = world.request(&world.key, "PUT", &format!("/v1/sandboxes/web/files?path={path}"));
        world.raw(request.body("x".into()).unwrap()).await.expect(200);
    }
    run(&world, &["fail"]).await;
    let kept = entries(&world, "?kind=error", 1).await;
    assert_eq!(kept[0]["metadata"]["files"], json!(["/root/build/out.txt"]), "{kept:?}");
}

#[tokio::test]
async fn an_entry_without_a_session_joins_the_sandboxs_current_session() {
    let world = World::new().await;
    world.sandbox("web").await;
    run(&world, &["fail"]).await;
    let session = entries(&world, "?kind=error", 1).await[0]["session"].as_str().unwrap().to_owned();
    let entry = async |body: Value| -> Value {
        let added = world.post("/v1/memory/web/entries", body, 201).await;
        world.fetch(&format!("/v1/memory/web/entries/{}", added["entries"][0]["id"].as_str().unwrap())).await
    };
    assert_eq!(entry(json!({"text": "a note"})).await["session"], json!(session));
    assert_eq!(entry(json!({"text": "of mine", "session": "mine"})).await["session"], "mine");
    let long_ago = entry(json!({"text": "long ago", "at_ms": 1})).await;
    assert!(long_ago["session"].is_null(), "an entry with a time of its own joins no session: {long_ago}");
    // After a pause another session starts; a space has no current session.
    world.clock.advance(3_600_000);
    let later = entry(json!({"text": "much later"})).await;
    assert_ne!(later["session"], json!(session));
    assert!(later["session"].as_str().unwrap().starts_with("web "), "{later}");
    world.post("/v1/spaces", json!({"name": "ops"}), 201).await;
    world.post("/v1/memory/space:ops/entries", json!({"text": "in a space"}), 201).await;
    assert!(world.fetch("/v1/memory/space:ops/entries").await["items"][0]["session"].is_null());
}
