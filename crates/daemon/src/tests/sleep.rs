//! Sleep and wake through the API: which requests wake a sandbox, which do not, and which are rejected.

use burrow_model::{SandboxId, Scope};
use burrow_runtime::Obstacle;

use super::world::World;

#[tokio::test]
async fn a_sandbox_hibernates_and_wakes_with_its_ram() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    let machine: SandboxId = id.parse().unwrap();
    assert!(world.runtime.set_ram(&machine, "x", "1"));
    let asleep = world.send("POST", "/v1/sandboxes/web/hibernate").await.expect(200).json();
    assert_eq!(asleep["state"], "hibernated");
    assert_eq!(asleep["asleep_since_ms"], 1_000_000);
    assert!(world.runtime.machine(&machine).is_none(), "nothing of it is left in RAM");
    // Repeated: it is hibernated already.
    world.send("POST", "/v1/sandboxes/web/hibernate").await.expect(200);
    world.send("POST", "/v1/sandboxes/web/pause").await.expect(200);
    let awake = world.send("POST", "/v1/sandboxes/web/wake").await.expect(200).json();
    assert_eq!((&awake["state"], awake["asleep_since_ms"].is_null()), (&"running".into(), true));
    assert_eq!(world.runtime.ram(&machine, "x").as_deref(), Some("1"));
    world.send("POST", "/v1/sandboxes/web/wake").await.expect(200);
    for step in ["pause", "stop"] {
        world.send("POST", &format!("/v1/sandboxes/web/{step}")).await.expect(200);
        let awake = world.send("POST", "/v1/sandboxes/web/wake").await.expect(200).json();
        assert_eq!(awake["state"], "running", "{step}");
    }
    world.send("POST", "/v1/sandboxes/web/stop").await.expect(200);
    world.send("POST", "/v1/sandboxes/web/hibernate").await.refused(409, "not_running");
    world.send("POST", "/v1/sandboxes/web/wake?fast=1").await.refused(400, "invalid_request");
    for step in ["hibernate", "wake"] {
        world.send("POST", &format!("/v1/sandboxes/nobody/{step}")).await.refused(404, "not_found");
    }
}

#[tokio::test]
async fn every_use_of_a_hibernated_sandbox_wakes_it() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    world.network.serve_port(8080, Some(super::gateway::mirror().await));
    world.send("PUT", "/v1/sandboxes/web/files?path=/a").await.expect(200);
    let echo = "{\"argv\": [\"echo\", \"hi\"], \"wait\": true}";
    let asleep = async || {
        world.send("POST", "/v1/sandboxes/web/hibernate").await.expect(200);
    };
    asleep().await;
    world.send_json("POST", "/v1/sandboxes/web/execs", echo).await.expect(200);
    asleep().await;
    world.send("GET", "/v1/sandboxes/web/files?path=/a").await.expect(200);
    asleep().await;
    world.send("PUT", "/v1/sandboxes/web/files?path=/b").await.expect(200);
    asleep().await;
    world.send("GET", &format!("/p/{id}/8080/")).await.expect(200);
    asleep().await;
    world.send("GET", "/v1/sandboxes/web/files/watch?path=/").await.expect(200);
    asleep().await;
    world.send("POST", "/v1/sandboxes/web/resume").await.expect(200);
    asleep().await;
    world.send("POST", "/v1/sandboxes/web/start").await.expect(200);
    let woken = world.events_of(&id).await.into_iter().filter(|kind| kind == "sandbox.woken").count();
    assert_eq!(woken, 7);
}

#[tokio::test]
async fn requests_that_only_read_the_catalog_wake_no_sandbox() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    let echo = "{\"argv\": [\"echo\", \"hi\"], \"wait\": true}";
    let run = world.send_json("POST", "/v1/sandboxes/web/execs", echo).await.expect(200).json();
    let exec = run["exec"]["id"].as_str().unwrap();
    world.send("POST", "/v1/sandboxes/web/snapshots").await;
    world.send("POST", "/v1/sandboxes/web/hibernate").await.expect(200);
    for path in [
        "/v1/sandboxes".to_owned(),
        format!("/v1/sandboxes/{id}"),
        "/v1/sandboxes?state=hibernated".to_owned(),
        "/v1/sandboxes/web/execs".to_owned(),
        format!("/v1/sandboxes/web/execs/{exec}"),
        format!("/v1/execs/{exec}"),
        "/v1/sandboxes/web/ports".to_owned(),
        "/v1/sandboxes/web/services".to_owned(),
        "/v1/sandboxes/web/egress".to_owned(),
        "/v1/sandboxes/web/egress/log".to_owned(),
        "/v1/snapshots?sandbox=web".to_owned(),
        "/v1/tree".to_owned(),
        "/v1/gc".to_owned(),
        "/v1/host".to_owned(),
        "/metrics".to_owned(),
    ] {
        world.send("GET", &path).await.expect(200);
        assert_eq!(world.state_of("web").await, "hibernated", "{path}");
    }
    let listed = world.send("GET", "/v1/sandboxes?state=hibernated").await.expect(200).json();
    assert_eq!(listed["items"][0]["id"], id.as_str());
    let page = world.send("GET", "/metrics").await.expect(200);
    let page = String::from_utf8_lossy(&page.body).into_owned();
    assert!(page.contains("burrow_sandboxes{state=\"hibernated\"} 1"), "{page}");
    assert!(page.contains("burrow_operation_seconds_count{operation=\"hibernate\"} 1"), "{page}");
    // Changes that need no machine do not wake it either.
    world.send_json("PATCH", "/v1/sandboxes/web", "{\"labels\": {\"a\": \"b\"}}").await.expect(200);
    world.send("PUT", "/v1/sandboxes/web/ports/8080").await.expect(204);
    assert_eq!(world.state_of("web").await, "hibernated");
}

#[tokio::test]
async fn many_concurrent_callers_wake_a_sandbox_once() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    world.send("POST", "/v1/sandboxes/web/hibernate").await.expect(200);
    let echo = "{\"argv\": [\"echo\", \"hi\"], \"wait\": true}";
    let callers = (0..20).map(|_| world.send_json("POST", "/v1/sandboxes/web/execs", echo));
    for answer in futures_util::future::join_all(callers).await {
        assert_eq!(answer.expect(200).json()["stdout"], "hi\n");
    }
    let woken = world.events_of(&id).await.into_iter().filter(|kind| kind == "sandbox.woken").count();
    assert_eq!(woken, 1);
}

#[tokio::test]
async fn processes_that_cannot_be_dumped_are_named_and_the_sandbox_continues() {
    let world = World::new().await;
    let id: SandboxId = world.sandbox("web").await.parse().unwrap();
    let obstacle = Obstacle {
        pid: 7,
        process: "redis".into(),
        reason: "has the device `/dev/fuse` open".into(),
        passes: false,
    };
    world.runtime.hinder(&id, vec![obstacle]);
    let body = |answer: &super::world::Answer| answer.json()["error"].clone();
    let hibernate = world.send("POST", "/v1/sandboxes/web/hibernate").await;
    hibernate.refused(409, "not_dumpable");
    let error = body(&hibernate);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`redis` (process 7) has the device `/dev/fuse` open"), "{message}");
    assert!(error["hint"].as_str().unwrap().contains("--files-only"), "{error}");
    world.send_json("POST", "/v1/sandboxes/web/snapshots", "{}").await.refused(409, "not_dumpable");
    world.send_json("POST", "/v1/sandboxes/web/fork", "{}").await.refused(409, "not_dumpable");
    let guarded = "{\"argv\": [\"echo\"], \"wait\": true, \"rollback_on_failure\": true}";
    world.send_json("POST", "/v1/sandboxes/web/execs", guarded).await.refused(409, "not_dumpable");
    assert_eq!(world.state_of("web").await, "running");
    assert_eq!(world.send("GET", "/v1/snapshots").await.expect(200).json()["items"], serde_json::json!([]));
    // Without processes, nothing prevents it.
    let files_only = "{\"files_only\": true}";
    world.send_json("POST", "/v1/sandboxes/web/snapshots", files_only).await.expect(201);
}

#[tokio::test]
async fn a_damaged_dump_is_not_restored_and_the_sandbox_starts_from_its_files() {
    let world = World::new().await;
    let id: SandboxId = world.sandbox("web").await.parse().unwrap();
    world.runtime.set_ram(&id, "x", "1");
    world.disks.write(&id, "/kept", "yes").unwrap();
    world.send("POST", "/v1/sandboxes/web/hibernate").await.expect(200);
    let mut flipped = 0;
    for dump in std::fs::read_dir(world.pool.path().join("dumps")).unwrap() {
        for file in std::fs::read_dir(dump.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.file_name().is_some_and(|name| name == "ram.json") {
                let mut bytes = std::fs::read(&path).unwrap();
                bytes[0] ^= 1;
                std::fs::write(&path, bytes).unwrap();
                flipped += 1;
            }
        }
    }
    assert_eq!(flipped, 1);
    let wake = world.send("POST", "/v1/sandboxes/web/wake").await;
    wake.refused(422, "damaged");
    assert!(wake.json()["error"]["hint"].as_str().unwrap().contains("files"), "{wake:?}");
    let exec = "{\"argv\": [\"echo\"]}";
    world.send_json("POST", "/v1/sandboxes/web/execs", exec).await.refused(422, "damaged");
    assert_eq!(world.state_of("web").await, "hibernated");
    let started = world.send("POST", "/v1/sandboxes/web/start?files_only=true").await.expect(200).json();
    assert_eq!(started["state"], "running");
    assert_eq!(world.runtime.ram(&id, "x"), None);
    assert_eq!(world.disks.read(&id, "/kept").as_deref(), Some("yes"));
    world.send("POST", "/v1/sandboxes/web/start?files_only=maybe").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn sleep_policies_default_to_the_configuration_and_can_be_changed_partially() {
    let world = World::with("[sleep]\nhibernate_after = \"1h\"\n").await;
    let plain = world.send_json("POST", "/v1/sandboxes", "{}").await.expect(201).json();
    assert_eq!(plain["sleep"]["pause_after_seconds"], 300);
    assert_eq!(plain["sleep"]["hibernate_after_seconds"], 3600);
    assert!(plain["sleep"]["stop_after_seconds"].is_null());
    let own = "{\"name\": \"web\", \"sleep\": {\"pause_after_seconds\": 0, \"stop_after_seconds\": 86400},
        \"snapshot_policy\": {\"every_seconds\": 900}}";
    let own = world.send_json("POST", "/v1/sandboxes", own).await.expect(201).json();
    assert!(own["sleep"]["pause_after_seconds"].is_null());
    assert_eq!(own["sleep"]["stop_after_seconds"], 86_400);
    assert_eq!(
        own["snapshot_policy"],
        serde_json::json!({"every_seconds": 900, "keep": 10, "files_only": false})
    );
    let change =
        "{\"sleep\": {\"hibernate_after_seconds\": 60}, \"snapshot_policy\": {\"every_seconds\": 0}}";
    let changed = world.send_json("PATCH", "/v1/sandboxes/web", change).await.expect(200).json();
    assert_eq!(changed["sleep"]["hibernate_after_seconds"], 60);
    assert_eq!(changed["sleep"]["stop_after_seconds"], 86_400);
    assert!(changed["snapshot_policy"].is_null());
    for bad in [
        "{\"sleep\": {\"hibernate_after_seconds\": 100000}}",
        "{\"sleep\": {\"pause_after\": \"5m\"}}",
        "{\"snapshot_policy\": {\"every_seconds\": 1}}",
        "{\"snapshot_policy\": {\"every_seconds\": 60, \"keep\": 0}}",
        "{\"rotate\": {\"every_seconds\": 60}}",
        "{\"rotate\": {\"every_seconds\": 60, \"snapshot\": \"No Good\"}}",
    ] {
        world.send_json("PATCH", "/v1/sandboxes/web", bad).await.refused(400, "invalid_request");
    }
    let rotate = "{\"rotate\": {\"every_seconds\": 60, \"snapshot\": \"nobody\"}}";
    world.send_json("PATCH", "/v1/sandboxes/web", rotate).await.refused(404, "not_found");
    world.send_json("POST", "/v1/sandboxes", rotate).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_snapshot_used_for_rotation_cannot_be_removed() {
    let world = World::new().await;
    world.sandbox("web").await;
    let good = "{\"name\": \"good\", \"files_only\": true}";
    let good = world.send_json("POST", "/v1/sandboxes/web/snapshots", good).await.expect(201).json();
    let rotate = "{\"rotate\": {\"every_seconds\": 3600, \"snapshot\": \"good\"}}";
    let changed = world.send_json("PATCH", "/v1/sandboxes/web", rotate).await.expect(200).json();
    assert_eq!(changed["rotate"], serde_json::json!({"every_seconds": 3600, "snapshot": good["id"]}));
    let refused = world.send("DELETE", "/v1/snapshots/good").await;
    refused.refused(409, "snapshot_in_use");
    assert!(refused.json()["error"]["hint"].as_str().unwrap().contains("--rotate-every never"));
    let never = "{\"rotate\": {\"every_seconds\": 0}}";
    let changed = world.send_json("PATCH", "/v1/sandboxes/web", never).await.expect(200).json();
    assert!(changed["rotate"].is_null());
    world.send("DELETE", "/v1/snapshots/good").await.expect(204);
}

#[tokio::test]
async fn only_keys_that_may_use_a_sandbox_put_it_to_sleep() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    world.sandbox("other").await;
    let read = world.new_key(Scope::Read, None).await;
    let bound = world.new_key(Scope::Exec, Some(&id)).await;
    for step in ["hibernate", "wake"] {
        let path = format!("/v1/sandboxes/web/{step}");
        world.send_as("", "POST", &path).await.refused(401, "unauthorized");
        world.send_as(&read, "POST", &path).await.refused(403, "forbidden");
        world.send_as(&bound, "POST", &path).await.expect(200);
        world.send_as(&bound, "POST", &format!("/v1/sandboxes/other/{step}")).await.refused(404, "not_found");
    }
}
