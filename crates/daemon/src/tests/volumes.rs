//! Volumes: one writer, no removal while in use, files without a sandbox, and the effects of forks and restores.

use axum::body::Body;
use burrow_model::{MountMode, Scope};
use serde_json::{Value, json};

use super::world::{Answer, World};

async fn volume(world: &World, name: &str) -> String {
    let body = json!({ "name": name }).to_string();
    let made = world.send_json("POST", "/v1/volumes", body).await.expect(201).json();
    made["id"].as_str().unwrap().to_owned()
}

async fn sandbox(world: &World, name: &str, volumes: Value) -> Answer {
    let body = json!({ "name": name, "volumes": volumes }).to_string();
    world.send_json("POST", "/v1/sandboxes", body).await
}

async fn put(world: &World, path: &str, content: &'static str) -> Answer {
    world.raw(world.request(&world.key, "PUT", path).body(Body::from(content)).unwrap()).await
}

/// The volumes of a machine, by mount path.
fn mounted(world: &World, id: &str) -> Vec<(String, MountMode)> {
    let machine = world.runtime.machine(&id.parse().unwrap()).unwrap();
    machine.mounts.iter().map(|mount| (mount.target.to_string(), mount.mode)).collect()
}

#[tokio::test]
async fn a_volume_is_created_listed_inspected_and_removed() {
    let world = World::new().await;
    let id = volume(&world, "data").await;
    for reference in ["data", id.as_str(), &id[..8]] {
        let found = world.send("GET", &format!("/v1/volumes/{reference}")).await.expect(200).json();
        assert_eq!((&found["id"], &found["name"]), (&json!(id), &json!("data")));
        assert_eq!((&found["used_bytes"], &found["used_by"]), (&json!(0), &json!([])));
    }
    let listed = world.send("GET", "/v1/volumes").await.expect(200).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    world.send_json("POST", "/v1/volumes", r#"{"name": "data"}"#).await.refused(409, "conflict");
    for (body, status, code) in [
        (r#"{"name": "Data"}"#, 400, "invalid_request"),
        (r#"{"name": "x", "disk_mib": 1}"#, 400, "invalid_request"),
        (r#"{"name": "x", "disk_mib": 4000000000}"#, 400, "invalid_request"),
        (r#"{"name": "x", "from_snapshot": "snpaaaaaaaaaaaaaaaaaaaa"}"#, 400, "invalid_request"),
        (r#"{"name": "x", "from_snapshot": "vsnaaaaaaaaaaaaaaaaaaaa"}"#, 404, "not_found"),
        (r#"{"name": "x", "more": 1}"#, 400, "invalid_request"),
    ] {
        world.send_json("POST", "/v1/volumes", body).await.refused(status, code);
    }
    world.send("DELETE", "/v1/volumes/data").await.expect(204);
    world.send("GET", "/v1/volumes/data").await.refused(404, "not_found");
    world.send("DELETE", "/v1/volumes/data").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_volume_has_one_writer_and_is_not_removed_while_in_use() {
    let world = World::new().await;
    volume(&world, "data").await;
    let rw = json!([{ "name": "data", "path": "/data" }]);
    let ro = json!([{ "name": "data", "path": "/srv/data", "mode": "ro" }]);
    let writer = sandbox(&world, "writer", rw.clone()).await.expect(201).json();
    assert_eq!(writer["volumes"][0]["mode"], "rw");
    let id = writer["id"].as_str().unwrap();
    assert_eq!(mounted(&world, id), [("/data".to_owned(), MountMode::Rw)]);
    let refused = sandbox(&world, "second", rw.clone()).await;
    refused.refused(409, "conflict");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains(id), "it names the writer");
    world.send("GET", "/v1/sandboxes/second").await.refused(404, "not_found");
    let reader = sandbox(&world, "reader", ro).await.expect(201).json();
    assert_eq!(mounted(&world, reader["id"].as_str().unwrap()), [("/srv/data".to_owned(), MountMode::Ro)]);

    let refused = world.send("DELETE", "/v1/volumes/data").await;
    refused.refused(409, "conflict");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains(id), "it names the user");
    let users = world.send("GET", "/v1/volumes/data").await.expect(200).json()["used_by"].clone();
    assert_eq!(users.as_array().unwrap().len(), 2);
    // Created at the same instant of the test's clock, they have no defined order.
    let of_writer = users.as_array().unwrap().iter().find(|user| user["name"] == "writer").unwrap();
    assert_eq!(of_writer["path"], "/data");

    // A stopped sandbox still has it, a deleted one does not.
    world.send_json("POST", "/v1/sandboxes/writer/stop", "{}").await.expect(200);
    sandbox(&world, "second", rw.clone()).await.refused(409, "conflict");
    world.send("DELETE", "/v1/sandboxes/writer").await.expect(204);
    sandbox(&world, "second", rw).await.expect(201);
    for name in ["second", "reader"] {
        world.send("DELETE", &format!("/v1/sandboxes/{name}")).await.expect(204);
    }
    world.send("DELETE", "/v1/volumes/data").await.expect(204);
}

#[tokio::test]
async fn invalid_volumes_are_rejected_before_anything_is_created() {
    let world = World::new().await;
    volume(&world, "data").await;
    volume(&world, "other").await;
    for (volumes, status) in [
        (json!([{ "name": "none", "path": "/data" }]), 404),
        (json!([{ "name": "data", "path": "data" }]), 400),
        (json!([{ "name": "data", "path": "/proc/x" }]), 400),
        (json!([{ "name": "data", "path": "/etc" }]), 400),
        (json!([{ "name": "data", "path": "/a/../b" }]), 400),
        (json!([{ "name": "data", "path": "/a", "mode": "wo" }]), 400),
        (json!([{ "name": "../data", "path": "/a" }]), 400),
        (json!([{ "name": "data", "path": "/a" }, { "name": "data", "path": "/b" }]), 400),
        (json!([{ "name": "data", "path": "/a" }, { "name": "other", "path": "/a/b" }]), 400),
    ] {
        let answer = sandbox(&world, "web", volumes.clone()).await;
        assert_eq!(answer.status.as_u16(), status, "{volumes}: {answer:?}");
    }
    world.send("GET", "/v1/sandboxes/web").await.refused(404, "not_found");
}

#[tokio::test]
async fn volumes_are_mounted_again_after_a_restore_and_children_only_read_them() {
    let world = World::new().await;
    volume(&world, "data").await;
    let rw = json!([{ "name": "data", "path": "/data" }]);
    let made = sandbox(&world, "web", rw).await.expect(201).json();
    let id = made["id"].as_str().unwrap();
    let own = [("/data".to_owned(), MountMode::Rw)];
    for (down, up) in [("hibernate", "wake"), ("stop", "start"), ("pause", "resume")] {
        world.send_json("POST", &format!("/v1/sandboxes/web/{down}"), "{}").await.expect(200);
        world.send_json("POST", &format!("/v1/sandboxes/web/{up}"), "{}").await.expect(200);
        assert_eq!(mounted(&world, id), own, "after {down} and {up}");
    }
    let read = [("/data".to_owned(), MountMode::Ro)];
    let forked = world.send_json("POST", "/v1/sandboxes/web/fork", "{}").await.expect(201).json();
    let child = forked["children"][0]["id"].as_str().unwrap();
    assert_eq!((mounted(&world, child), mounted(&world, id)), (read.to_vec(), own.to_vec()));
    assert_eq!(forked["children"][0]["volumes"][0]["mode"], "ro");

    let taken = world.send_json("POST", "/v1/sandboxes/web/snapshots", "{}").await.expect(201).json();
    let snapshot = taken["id"].as_str().unwrap();
    let body = json!({ "snapshot": snapshot }).to_string();
    world.send_json("POST", "/v1/sandboxes/web/restore", body).await.expect(200);
    assert_eq!(mounted(&world, id), own, "a restore keeps its present volumes");
    let path = format!("/v1/snapshots/{snapshot}/sandboxes");
    let copy = world.send_json("POST", &path, r#"{"name": "copy"}"#).await.expect(201).json();
    assert_eq!(mounted(&world, copy["id"].as_str().unwrap()), read);

    // Its processes need the volume; its files do not.
    for name in ["web", "copy", child] {
        world.send("DELETE", &format!("/v1/sandboxes/{name}")).await.expect(204);
    }
    world.send("DELETE", "/v1/volumes/data").await.expect(204);
    world.send_json("POST", &path, "{}").await.refused(409, "conflict");
    let copy = world.send_json("POST", &path, r#"{"files_only": true}"#).await.expect(201).json();
    assert_eq!(copy["volumes"], json!([]));
}

#[tokio::test]
async fn the_volumes_of_a_stopped_sandbox_can_be_changed_and_of_a_running_one_cannot() {
    let world = World::new().await;
    volume(&world, "data").await;
    volume(&world, "other").await;
    let made = sandbox(&world, "web", json!([{ "name": "data", "path": "/data" }])).await.expect(201).json();
    let id = made["id"].as_str().unwrap();
    let change = json!({ "volumes": [{ "name": "other", "path": "/o", "mode": "ro" }] }).to_string();
    world.send_json("PATCH", "/v1/sandboxes/web", change.clone()).await.refused(409, "conflict");
    let taken = world.send_json("POST", "/v1/sandboxes/web/snapshots", "{}").await.expect(201).json();
    world.send_json("POST", "/v1/sandboxes/web/stop", "{}").await.expect(200);
    let changed = world.send_json("PATCH", "/v1/sandboxes/web", change).await.expect(200).json();
    assert_eq!(changed["volumes"][0]["name"], "other");
    world.send("DELETE", "/v1/volumes/data").await.expect(204);
    world.send_json("POST", "/v1/sandboxes/web/start", "{}").await.expect(200);
    assert_eq!(mounted(&world, id), [("/o".to_owned(), MountMode::Ro)]);
    // The dumped processes know other mount paths.
    let back = json!({ "snapshot": taken["id"] }).to_string();
    world.send_json("POST", "/v1/sandboxes/web/restore", back).await.refused(409, "conflict");
    let back = json!({ "snapshot": taken["id"], "files_only": true }).to_string();
    world.send_json("POST", "/v1/sandboxes/web/restore", back).await.expect(200);
    world.send_json("POST", "/v1/sandboxes/web/stop", "{}").await.expect(200);
    world.send_json("PATCH", "/v1/sandboxes/web", r#"{"volumes": []}"#).await.expect(200);
    world.send("DELETE", "/v1/volumes/other").await.expect(204);
}

#[tokio::test]
async fn files_are_written_read_listed_and_removed_without_a_sandbox() {
    let world = World::new().await;
    volume(&world, "data").await;
    let file = "/v1/volumes/data/files?path=/notes/a.txt";
    put(&world, file, "one").await.refused(404, "not_found");
    let entry =
        put(&world, &format!("{file}&parents=true&mode=640&uid=1000"), "one").await.expect(200).json();
    assert_eq!((&entry["size"], &entry["mode"], &entry["uid"]), (&json!(3), &json!("0640"), &json!(1000)));
    let read = world.send("GET", file).await.expect(200);
    assert_eq!((&read.body[..], &read.headers["content-length"]), (&b"one"[..], &"3".parse().unwrap()));
    let listed = world.send("GET", "/v1/volumes/data/files/list?depth=2").await.expect(200).json();
    let paths: Vec<_> = listed["entries"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
    assert_eq!(paths, ["/notes", "/notes/a.txt"]);
    world.send("GET", "/v1/volumes/data/files?path=/notes").await.refused(422, "unprocessable");
    world.send("GET", "/v1/volumes/data/files?path=/../../etc/passwd").await.refused(400, "invalid_request");

    // A sandbox creates a symbolic link in the path.
    let id: burrow_model::VolumeId = {
        let found = world.send("GET", "/v1/volumes/data").await.expect(200).json();
        found["id"].as_str().unwrap().parse().unwrap()
    };
    let root = world.pool.path().join("volumes").join(id.as_str()).join("rootfs");
    std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
    for path in ["/out/passwd", "/out"] {
        world.send("GET", &format!("/v1/volumes/data/files?path={path}")).await.refused(422, "unprocessable");
    }
    put(&world, "/v1/volumes/data/files?path=/out/x", "x").await.refused(422, "unprocessable");
    world.send("DELETE", "/v1/volumes/data/files?path=/out").await.expect(204);
    assert!(std::path::Path::new("/etc").is_dir());
    world.send("DELETE", "/v1/volumes/data/files?path=/notes").await.expect(204);
    world.send("GET", file).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_volume_is_restored_to_a_snapshot_and_another_is_created_from_it() {
    let world = World::new().await;
    volume(&world, "data").await;
    volume(&world, "other").await;
    let file = "/v1/volumes/data/files?path=/a";
    put(&world, file, "first").await.expect(200);
    let path = "/v1/volumes/data/snapshots";
    let taken = world.send_json("POST", path, r#"{"name": "good"}"#).await.expect(201).json();
    world.send_json("POST", path, r#"{"name": "good"}"#).await.refused(409, "conflict");
    put(&world, file, "second").await.expect(200);
    let listed = world.send("GET", path).await.expect(200).json();
    assert_eq!((&listed["items"][0]["id"], listed["items"].as_array().unwrap().len()), (&taken["id"], 1));

    let restore = async |volume: &str, snapshot: &Value| {
        let body = json!({ "snapshot": snapshot }).to_string();
        world.send_json("POST", &format!("/v1/volumes/{volume}/restore"), body).await
    };
    let made =
        sandbox(&world, "web", json!([{ "name": "data", "path": "/d", "mode": "ro" }])).await.expect(201);
    restore("data", &json!("good")).await.refused(409, "conflict");
    let id = made.json()["id"].as_str().unwrap().to_owned();
    world.send_json("POST", &format!("/v1/sandboxes/{id}/stop"), "{}").await.expect(200);
    restore("data", &json!("none")).await.refused(404, "not_found");
    restore("other", &taken["id"]).await.refused(404, "not_found");
    restore("data", &json!("good")).await.expect(200);
    assert_eq!(&world.send("GET", file).await.expect(200).body[..], b"first");
    world.send_json("POST", &format!("/v1/sandboxes/{id}/start"), "{}").await.expect(200);

    let body = json!({ "name": "copy", "from_snapshot": taken["id"] }).to_string();
    let copy = world.send_json("POST", "/v1/volumes", body).await.expect(201).json();
    assert_eq!(copy["from_snapshot"], taken["id"]);
    let read = world.send("GET", "/v1/volumes/copy/files?path=/a").await.expect(200);
    assert_eq!(&read.body[..], b"first");

    world.send("DELETE", &format!("/v1/sandboxes/{id}")).await.expect(204);
    world.send("DELETE", "/v1/volumes/data").await.refused(409, "conflict");
    world.send("DELETE", &format!("{path}/good")).await.expect(204);
    world.send("DELETE", "/v1/volumes/data").await.expect(204);
    world.send_json("POST", "/v1/volumes/copy/snapshots", "{}").await.expect(201);
    world.send("DELETE", "/v1/volumes/copy?snapshots=true").await.expect(204);
}

#[tokio::test]
async fn keys_have_their_usual_rights_on_volumes() {
    let world = World::new().await;
    volume(&world, "data").await;
    let id = world.sandbox("web").await;
    let (read, exec) = (world.new_key(Scope::Read, None).await, world.new_key(Scope::Exec, None).await);
    world.send_as(&read, "GET", "/v1/volumes/data").await.expect(200);
    world.send_as(&read, "DELETE", "/v1/volumes/data").await.refused(403, "forbidden");
    world.send_json_as(&read, "POST", "/v1/volumes", r#"{"name": "x"}"#).await.refused(403, "forbidden");
    world.send_json_as(&exec, "POST", "/v1/volumes", r#"{"name": "x"}"#).await.expect(201);
    let bound = world.new_key(Scope::Exec, Some(&id)).await;
    world.send_as(&bound, "GET", "/v1/volumes").await.refused(403, "forbidden");
    world.send_as(&bound, "GET", "/v1/volumes/data").await.refused(404, "not_found");
    world.send_as(&bound, "GET", "/v1/volumes/data/files?path=/a").await.refused(404, "not_found");
    let change = r#"{"volumes": [{"name": "data", "path": "/data"}]}"#;
    world.send_json_as(&bound, "PATCH", "/v1/sandboxes/web", change).await.refused(403, "forbidden");
}

#[tokio::test]
async fn e2b_clients_can_use_volumes() {
    let world = World::new().await;
    let made = world.send_json("POST", "/volumes", r#"{"name": "data"}"#).await.expect(201).json();
    let (id, token) = (made["volumeID"].as_str().unwrap(), made["token"].as_str().unwrap());
    let listed = world.send("GET", "/volumes").await.expect(200).json();
    assert_eq!(listed, json!([{ "volumeID": id, "name": "data" }]));
    assert_eq!(world.send("GET", &format!("/volumes/{id}")).await.expect(200).json(), made);
    let other = world.send_json("POST", "/volumes", r#"{"name": "other"}"#).await.expect(201).json();

    let content = async |token: &str, method: &str, rest: &str, body: &'static str| {
        let request = http::Request::builder().method(method).uri(format!("/volumecontent/{id}/{rest}"));
        let request = request.header("authorization", format!("Bearer {token}"));
        world.raw(request.header("content-type", "application/json").body(Body::from(body)).unwrap()).await
    };
    for bad in ["", "nonsense", other["token"].as_str().unwrap(), &world.key] {
        assert_eq!(content(bad, "GET", "dir?path=/", "").await.status, 401, "{bad}");
    }
    content(token, "POST", "dir?path=/a/b", "").await.expect(404);
    content(token, "POST", "dir?path=/a/b&force=true&mode=448", "").await.expect(201);
    let written = content(token, "PUT", "file?path=/a/b/c.txt&uid=7", "hello").await.expect(201).json();
    assert_eq!((&written["size"], &written["uid"], &written["type"]), (&json!(5), &json!(7), &json!("file")));
    assert_eq!(&content(token, "GET", "file?path=/a/b/c.txt", "").await.expect(200).body[..], b"hello");
    let entries = content(token, "GET", "dir?path=/&depth=3", "").await.expect(200).json();
    assert_eq!(entries.as_array().unwrap().len(), 3);
    assert_eq!((&entries[1]["path"], &entries[1]["mode"]), (&json!("/a/b"), &json!(0o700)));
    let changed =
        content(token, "PATCH", "path?path=/a/b/c.txt", r#"{"mode": 384}"#).await.expect(200).json();
    assert_eq!(changed["mode"], json!(0o600));
    content(token, "DELETE", "path?path=/a", "").await.expect(204);
    content(token, "GET", "path?path=/a", "").await.expect(404);

    let body = json!({ "templateID": "base", "volumeMounts": [{ "name": "data", "path": "/data" }] });
    let box_ = world.send_json("POST", "/v2/sandboxes", body.to_string()).await.expect(201).json();
    let sandbox = box_["sandboxID"].as_str().unwrap();
    assert_eq!(mounted(&world, sandbox), [("/data".to_owned(), MountMode::Rw)]);
    let shown = world.send("GET", &format!("/sandboxes/{sandbox}")).await.expect(200).json();
    assert_eq!(shown["volumeMounts"], json!([{ "name": "data", "path": "/data" }]));
    assert_eq!(world.send_json("POST", "/v2/sandboxes", body.to_string()).await.status, 409);
    let body = json!({ "templateID": "base", "volumeMounts": [{ "name": "data:ro", "path": "/data" }] });
    let reader = world.send_json("POST", "/v2/sandboxes", body.to_string()).await.expect(201).json();
    let reader = reader["sandboxID"].as_str().unwrap();
    assert_eq!(mounted(&world, reader), [("/data".to_owned(), MountMode::Ro)]);
    assert_eq!(world.send("DELETE", &format!("/volumes/{id}")).await.status, 409);
    for sandbox in [sandbox, reader] {
        world.send("DELETE", &format!("/sandboxes/{sandbox}")).await.expect(204);
    }
    world.send("DELETE", &format!("/volumes/{id}")).await.expect(204);
    world.send("DELETE", &format!("/volumes/{id}")).await.expect(404);
    content(token, "GET", "path?path=/", "").await.expect(404);
}

#[tokio::test]
async fn revoked_tokens_of_a_volume_are_rejected_and_new_ones_accepted() {
    let world = World::new().await;
    let made = async |name: &str| {
        let body = json!({ "name": name }).to_string();
        let made = world.send_json("POST", "/volumes", body).await.expect(201).json();
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        (text("volumeID"), text("token"))
    };
    let ((id, token), (other, others)) = (made("data").await, made("other").await);
    let status = async |id: &str, token: &str| {
        let request = http::Request::get(format!("/volumecontent/{id}/dir?path=/"));
        let request = request.header("authorization", format!("Bearer {token}"));
        world.raw(request.body(Body::empty()).unwrap()).await.status.as_u16()
    };
    assert_eq!((status(&id, &token).await, status(&other, &others).await), (200, 200));
    world.send("POST", "/v1/volumes/data/revoke-tokens").await.expect(204);
    assert_eq!((status(&id, &token).await, status(&other, &others).await), (401, 200));
    let found = world.send("GET", &format!("/volumes/{id}")).await.expect(200).json();
    let next = found["token"].as_str().unwrap();
    assert_ne!(next, token);
    assert_eq!(status(&id, next).await, 200);
    world.send("POST", "/v1/volumes/none/revoke-tokens").await.refused(404, "not_found");
    let events = world.send("GET", "/v1/audit?action=token.revoke&outcome=done").await.expect(200).json();
    let items = events["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]["target"]), (1, &json!(id)), "{events}");
}
