//! Execs with a snapshot that is taken before them, and rollbacks of those that fail.

use burrow_model::SandboxId;
use serde_json::Value;

use super::world::World;

async fn run(world: &World, body: &str) -> Value {
    world.send_json("POST", "/v1/sandboxes/web/execs", body.to_owned()).await.expect(200).json()
}

async fn snapshots(world: &World) -> Vec<Value> {
    let list = world.send("GET", "/v1/snapshots").await.expect(200).json();
    list["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_snapshot_is_taken_before_an_exec_and_named() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    let ran = run(&world, "{\"argv\": [\"false\"], \"wait\": true, \"snapshot\": true}").await;
    let taken = snapshots(&world).await;
    assert_eq!(taken.len(), 1);
    assert_eq!((&taken[0]["kind"], &taken[0]["sandbox_id"]), (&"exec".into(), &id.as_str().into()));
    assert_eq!(taken[0]["description"], "before `false`");
    assert_eq!(ran["exec"]["snapshot"], taken[0]["id"]);
    assert!(ran["exec"].get("rollback").is_none(), "no rollback was requested");
    let started = "{\"argv\": [\"echo\"], \"snapshot\": true}";
    let started = world.send_json("POST", "/v1/sandboxes/web/execs", started).await.expect(201).json();
    assert_eq!(snapshots(&world).await.len(), 2);
    let exec = started["id"].as_str().unwrap();
    let shown = world.send("GET", &format!("/v1/execs/{exec}")).await.expect(200).json();
    assert_eq!((&shown["snapshot"], started["snapshot"].is_string()), (&started["snapshot"], true));
}

#[tokio::test]
async fn a_failed_exec_is_rolled_back_and_its_output_is_returned() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    let failed = "{\"argv\": [\"false\"], \"wait\": true, \"rollback_on_failure\": true}";
    let ran = run(&world, failed).await;
    assert_eq!((&ran["stdout"], &ran["exec"]["outcome"]["exit_code"]), (&"no\n".into(), &1.into()));
    assert_eq!(ran["exec"]["rollback"], serde_json::json!({"state": "done"}));
    assert!(ran["exec"].get("snapshot").is_none(), "{ran}");
    assert_eq!(snapshots(&world).await, Vec::<Value>::new());
    assert_eq!(world.state_of("web").await, "running");
    assert!(world.events_of(&id).await.contains(&"sandbox.restored".to_owned()));
    let kept = "{\"argv\": [\"false\"], \"wait\": true, \"rollback_on_failure\": true, \"snapshot\": true}";
    let ran = run(&world, kept).await;
    assert_eq!(ran["exec"]["rollback"]["state"], "done");
    let left = snapshots(&world).await;
    assert_eq!((left.len(), &left[0]["id"]), (1, &ran["exec"]["snapshot"]));
}

#[tokio::test]
async fn a_successful_exec_is_not_rolled_back() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    let good = "{\"argv\": [\"echo\", \"hi\"], \"wait\": true, \"rollback_on_failure\": true}";
    let ran = run(&world, good).await;
    assert_eq!(ran["exec"]["rollback"], serde_json::json!({"state": "unneeded"}));
    assert!(ran["exec"].get("snapshot").is_none());
    assert_eq!(snapshots(&world).await, Vec::<Value>::new());
    assert!(!world.events_of(&id).await.contains(&"sandbox.restored".to_owned()));
}

#[tokio::test]
async fn an_exec_that_does_not_start_leaves_no_snapshot() {
    let world = World::new().await;
    world.sandbox("web").await;
    let nope = "{\"argv\": [\"nope\"], \"wait\": true, \"snapshot\": true}";
    world.send_json("POST", "/v1/sandboxes/web/execs", nope).await.refused(422, "cannot_execute");
    assert_eq!(snapshots(&world).await, Vec::<Value>::new());
    let off = "{\"sleep\": {\"start_on_use\": false}}";
    world.send_json("PATCH", "/v1/sandboxes/web", off).await.expect(200);
    world.send("POST", "/v1/sandboxes/web/stop").await.expect(200);
    let echo = "{\"argv\": [\"echo\"], \"wait\": true, \"snapshot\": true}";
    world.send_json("POST", "/v1/sandboxes/web/execs", echo).await.refused(409, "not_running");
    assert_eq!(snapshots(&world).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_streamed_exec_is_rolled_back_once_its_output_was_read() {
    let world = World::new().await;
    let id: SandboxId = world.sandbox("web").await.parse().unwrap();
    world.runtime.set_ram(&id, "x", "before");
    world.disks.write(&id, "/file", "before").unwrap();
    let late = "{\"argv\": [\"late\"], \"hold\": true, \"rollback_on_failure\": true, \"snapshot\": true}";
    let started = world.send_json("POST", "/v1/sandboxes/web/execs", late).await.expect(201).json();
    assert_eq!(started["rollback"]["state"], "pending");
    // The effect of the command.
    world.runtime.set_ram(&id, "x", "after");
    world.disks.write(&id, "/file", "after").unwrap();
    let exec = started["id"].as_str().unwrap();
    let stream =
        world.send("GET", &format!("/v1/sandboxes/web/execs/{exec}/output?follow=true")).await.expect(200);
    let lines: Vec<Value> = String::from_utf8_lossy(&stream.body)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!((&lines[0]["kind"], &lines[0]["text"]), (&"output".into(), &"so far\n".into()));
    let last = &lines.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["exec"]["rollback"]["state"]),
        (&"exit".into(), &"done".into()),
        "{last}"
    );
    assert_eq!(last["exec"]["snapshot"], started["snapshot"]);
    assert_eq!(world.runtime.ram(&id, "x").as_deref(), Some("before"));
    assert_eq!(world.disks.read(&id, "/file").as_deref(), Some("before"));
    let kinds: Vec<Value> = snapshots(&world).await.iter().map(|one| one["kind"].clone()).collect();
    assert_eq!(kinds, ["exec"], "its effects are gone");
}

#[tokio::test]
async fn the_output_of_an_exec_that_ends_before_it_is_read_is_not_lost() {
    let world = World::new().await;
    world.sandbox("web").await;
    let failed = "{\"argv\": [\"false\"], \"hold\": true, \"rollback_on_failure\": true}";
    let started = world.send_json("POST", "/v1/sandboxes/web/execs", failed).await.expect(201).json();
    let exec = started["id"].as_str().unwrap();
    let stream = world.send("GET", &format!("/v1/sandboxes/web/execs/{exec}/output?follow=true")).await;
    let text = String::from_utf8_lossy(&stream.expect(200).body).into_owned();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["text"], "no\n");
    assert_eq!(lines[1]["exec"]["rollback"]["state"], "done", "{text}");
}

#[tokio::test]
async fn a_streamed_exec_without_readers_is_rolled_back_too() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    let failed = "{\"argv\": [\"false\"], \"hold\": true, \"rollback_on_failure\": true}";
    let started = world.send_json("POST", "/v1/sandboxes/web/execs", failed).await.expect(201).json();
    let path = format!("/v1/sandboxes/web/execs/{}", started["id"].as_str().unwrap());
    let mut looks = 0;
    loop {
        let answer = world.send("GET", &path).await;
        // The row of an exec is written asynchronously.
        if answer.status == 200 && answer.json()["rollback"]["state"] != "pending" {
            assert_eq!(answer.json()["rollback"]["state"], "done");
            break;
        }
        looks += 1;
        assert!(looks < 10_000, "{answer:?}");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert!(world.events_of(&id).await.contains(&"sandbox.restored".to_owned()));
}

#[tokio::test]
async fn a_failed_rollback_is_reported() {
    let world = World::new().await;
    world.sandbox("web").await;
    let late = "{\"argv\": [\"late\"], \"hold\": true, \"rollback_on_failure\": true}";
    let started = world.send_json("POST", "/v1/sandboxes/web/execs", late).await.expect(201).json();
    let snapshot = started["snapshot"].as_str().unwrap();
    world.send("DELETE", &format!("/v1/snapshots/{snapshot}")).await.expect(204);
    let path = format!("/v1/sandboxes/web/execs/{}", started["id"].as_str().unwrap());
    let stream = world.send("GET", &format!("{path}/output?follow=true")).await.expect(200);
    let last = String::from_utf8_lossy(&stream.body).lines().last().unwrap().to_owned();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["exec"]["rollback"]["state"], "failed", "{last}");
    assert_eq!(last["exec"]["rollback"]["error"]["code"], "not_found", "{last}");
    assert_eq!(world.state_of("web").await, "running");
}

#[tokio::test]
async fn invalid_rollback_options_are_rejected_before_anything_happens() {
    let world = World::new().await;
    world.sandbox("web").await;
    for (bad, word) in [
        ("{\"argv\": [\"echo\"], \"rollback_on_failure\": true}", "`wait` or `hold`"),
        (
            "{\"argv\": [\"echo\"], \"wait\": true, \"then_stop\": true, \"rollback_on_failure\": true}",
            "`then_stop`",
        ),
    ] {
        let answer = world.send_json("POST", "/v1/sandboxes/web/execs", bad).await;
        answer.refused(400, "invalid_request");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(word), "{answer:?}");
    }
    assert_eq!(snapshots(&world).await, Vec::<Value>::new());
}

#[tokio::test]
async fn an_exec_with_rollback_that_is_sent_twice_with_one_key_runs_once() {
    let world = World::new().await;
    world.sandbox("web").await;
    let body = "{\"argv\": [\"false\"], \"wait\": true, \"rollback_on_failure\": true, \"snapshot\": true}";
    let send = async || {
        let request = world
            .request(&world.key, "POST", "/v1/sandboxes/web/execs")
            .header("content-type", "application/json")
            .header("idempotency-key", "k1");
        world.raw(request.body(body.into()).unwrap()).await.expect(200).json()
    };
    let (first, second) = (send().await, send().await);
    assert_eq!(first, second);
    assert_eq!(snapshots(&world).await.len(), 1);
}

async fn promised(world: &World) -> usize {
    world.app.engine.catalog().promised_execs().await.unwrap().len()
}

#[tokio::test]
async fn a_promised_rollback_outlives_the_daemon() {
    let mut world = World::new().await;
    let id: SandboxId = world.sandbox("web").await.parse().unwrap();
    world.runtime.set_ram(&id, "x", "before");
    world.disks.write(&id, "/file", "before").unwrap();
    let late = "{\"argv\": [\"late\"], \"hold\": true, \"rollback_on_failure\": true}";
    let started = world.send_json("POST", "/v1/sandboxes/web/execs", late).await.expect(201).json();
    world.runtime.set_ram(&id, "x", "after");
    world.disks.write(&id, "/file", "after").unwrap();
    assert_eq!(promised(&world).await, 1);
    world.restart().await;
    // It still runs, and its end is awaited; it fails when its output is read.
    let path = format!("/v1/sandboxes/web/execs/{}", started["id"].as_str().unwrap());
    let shown = world.send("GET", &path).await.expect(200).json();
    assert_eq!(shown["rollback"]["state"], "pending", "{shown}");
    assert_eq!(shown["snapshot"], started["snapshot"], "{shown}");
    let stream = world.send("GET", &format!("{path}/output?follow=true")).await.expect(200);
    let last = String::from_utf8_lossy(&stream.body).lines().last().unwrap().to_owned();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["exec"]["rollback"]["state"], "done", "{last}");
    assert_eq!(world.runtime.ram(&id, "x").as_deref(), Some("before"));
    assert_eq!(world.disks.read(&id, "/file").as_deref(), Some("before"));
    assert_eq!((promised(&world).await, snapshots(&world).await.len()), (0, 0));
}

#[tokio::test]
async fn a_rollback_that_a_crash_interrupted_is_completed_once() {
    let mut world = World::new().await;
    let id: SandboxId = world.sandbox("web").await.parse().unwrap();
    let late = "{\"argv\": [\"late\"], \"hold\": true, \"rollback_on_failure\": true}";
    world.send_json("POST", "/v1/sandboxes/web/execs", late).await.expect(201);
    let catalog = world.app.engine.catalog();
    let open = catalog.promised_execs().await.unwrap().remove(0);
    let mut promise = open.command[burrow_catalog::PROMISE].clone();
    promise["undoing"] = open.generation.into();
    catalog.set_promise(&open.id, Some(promise.clone())).await.unwrap();
    let snapshot = promise["snapshot"].as_str().unwrap().parse().unwrap();
    world.app.engine.restore(&open.tenant, &id, &snapshot, false).await.unwrap();
    let generation = world.app.engine.get(&open.tenant, &id).await.unwrap().generation;
    // The daemon ends here, before it could record that the rollback is done.
    world.restart().await;
    let path = format!("/v1/sandboxes/web/execs/{}", open.id);
    for _ in 0..1_000 {
        if promised(&world).await == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(promised(&world).await, 0);
    let shown = world.send("GET", &path).await.expect(200).json();
    assert_eq!(shown["rollback"]["state"], "done", "{shown}");
    let after = world.app.engine.get(&open.tenant, &id).await.unwrap().generation;
    assert_eq!(after, generation, "it was restored already");
}
