//! Keys that are bound to a sandbox with its forks, keys that other keys create, and keys that act on themselves.

use serde_json::{Value, json};

use super::world::World;

/// The secret of a new key.
async fn create_key(world: &World, by: &str, body: Value) -> String {
    let made = world.send_json_as(by, "POST", "/v1/keys", body.to_string()).await.expect(201).json();
    made["secret"].as_str().unwrap().to_owned()
}

async fn family_key(world: &World, sandbox: &str) -> String {
    let body =
        json!({ "name": "f", "scope": "exec", "sandbox": sandbox, "forks": true, "ttl_seconds": 3600 });
    create_key(world, &world.key, body).await
}

/// The id of a new fork.
async fn fork(world: &World, key: &str, of: &str, body: Value) -> String {
    let path = format!("/v1/sandboxes/{of}/fork");
    let forked = world.send_json_as(key, "POST", &path, body.to_string()).await.expect(201).json();
    forked["children"][0]["id"].as_str().unwrap().to_owned()
}

async fn listed(world: &World, key: &str) -> Vec<String> {
    let list = world.send_as(key, "GET", "/v1/sandboxes").await.expect(200).json();
    list["items"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_key_with_forks_reaches_its_sandbox_and_its_forks_and_nothing_else() {
    let world = World::new().await;
    let (own, other) = (world.sandbox("own").await, world.sandbox("other").await);
    let key = family_key(&world, &own).await;
    let first = fork(&world, &key, &own, json!({ "names": ["first"] })).await;
    let second = fork(&world, &key, &first, json!({})).await;
    let foreign = fork(&world, &world.key, &other, json!({ "names": ["foreign"] })).await;
    for found in [&own, &first, &second, &"own".to_owned(), &"first".to_owned(), &first[..22].to_owned()] {
        world.send_as(&key, "GET", &format!("/v1/sandboxes/{found}")).await.expect(200);
    }
    for hidden in [&other, &foreign, &"other".to_owned(), &"foreign".to_owned(), &other[..22].to_owned()] {
        world.send_as(&key, "GET", &format!("/v1/sandboxes/{hidden}")).await.refused(404, "not_found");
        world
            .send_json_as(&key, "POST", &format!("/v1/sandboxes/{hidden}/fork"), "{}")
            .await
            .refused(404, "not_found");
    }
    let mut expected = [own.clone(), first.clone(), second.clone()];
    let mut found = listed(&world, &key).await;
    expected.sort();
    found.sort();
    assert_eq!(found, expected);

    // Snapshots: of the family, and no others.
    let snapshot = async |of: &str| {
        let path = format!("/v1/sandboxes/{of}/snapshots");
        let taken = world.send_json("POST", &path, "{}").await.expect(201).json();
        taken["id"].as_str().unwrap().to_owned()
    };
    let (near, far) = (snapshot(&second).await, snapshot(&other).await);
    world.send_as(&key, "GET", &format!("/v1/snapshots/{near}")).await.expect(200);
    world.send_as(&key, "GET", &format!("/v1/snapshots/{far}")).await.refused(404, "not_found");

    // A sandbox that another request created from a snapshot is not a fork.
    let path = format!("/v1/snapshots/{near}/sandboxes");
    let copy = world.send_json("POST", &path, "{}").await.expect(201).json();
    let copy = copy["id"].as_str().unwrap();
    world.send_as(&key, "GET", &format!("/v1/sandboxes/{copy}")).await.refused(404, "not_found");

    // A key without forks stays within the one sandbox.
    let bound = world.new_key(burrow_model::Scope::Exec, Some(&own)).await;
    world.send_as(&bound, "GET", &format!("/v1/sandboxes/{first}")).await.refused(404, "not_found");
    world
        .send_json_as(&bound, "POST", &format!("/v1/sandboxes/{own}/fork"), "{}")
        .await
        .refused(403, "forbidden");
}

#[tokio::test]
async fn a_key_with_forks_changes_no_boundaries_of_its_sandbox_or_of_forks() {
    let world = World::new().await;
    let own = world.sandbox("own").await;
    let key = family_key(&world, &own).await;
    let fork_of = fork(&world, &key, &own, json!({})).await;
    for id in [&own, &fork_of] {
        let path = format!("/v1/sandboxes/{id}");
        for body in [
            r#"{"network":{"mode":"open"}}"#,
            r#"{"limits":{"ram_mib":128}}"#,
            r#"{"sleep":{}}"#,
            r#"{"labels":{"e2b/mcp":"true"}}"#,
        ] {
            world.send_json_as(&key, "PATCH", &path, body).await.refused(403, "forbidden");
        }
        let port = format!("{path}/ports/8080");
        world.send_json_as(&key, "PUT", &port, "{}").await.refused(403, "forbidden");
    }
    let labelled = json!({ "labels": { "e2b/mcp-token": "x" } }).to_string();
    let path = format!("/v1/sandboxes/{own}/fork");
    world.send_json_as(&key, "POST", &path, labelled).await.refused(403, "forbidden");
    for (method, path) in [("POST", "/v1/sandboxes"), ("POST", "/v1/keys"), ("GET", "/v1/keys")] {
        let body = match path {
            "/v1/keys" => {
                json!({ "name": "k", "scope": "read", "sandbox": own, "ttl_seconds": 60 }).to_string()
            }
            _ => "{}".to_owned(),
        };
        world.send_json_as(&key, method, path, body).await.refused(403, "forbidden");
    }
}

#[tokio::test]
async fn forks_by_a_bound_key_do_not_outlive_its_sandbox() {
    let world = World::new().await;
    let body = json!({ "name": "short", "ttl_seconds": 3600 }).to_string();
    let made = world.send_json("POST", "/v1/sandboxes", body).await.expect(201).json();
    let (id, end) = (made["id"].as_str().unwrap(), made["expires_ms"].as_u64().unwrap());
    let key = family_key(&world, id).await;
    for (body, at_end) in
        [(json!({}), true), (json!({ "ttl_seconds": 86400 }), true), (json!({ "ttl_seconds": 60 }), false)]
    {
        let child = fork(&world, &key, id, body).await;
        let child = world.send("GET", &format!("/v1/sandboxes/{child}")).await.expect(200).json();
        let expires = child["expires_ms"].as_u64().unwrap();
        assert!(if at_end { expires == end } else { expires < end }, "{expires} {end}");
    }
}

#[tokio::test]
async fn a_fork_that_was_forked_is_deleted_after_its_forks() {
    let world = World::new().await;
    let own = world.sandbox("own").await;
    let key = family_key(&world, &own).await;
    let first = fork(&world, &key, &own, json!({})).await;
    let second = fork(&world, &key, &first, json!({})).await;
    world.send_as(&key, "DELETE", &format!("/v1/sandboxes/{first}")).await.refused(409, "conflict");
    world.send_as(&key, "DELETE", &format!("/v1/sandboxes/{second}")).await.expect(204);
    world.send_as(&key, "DELETE", &format!("/v1/sandboxes/{first}")).await.expect(204);
    assert_eq!(listed(&world, &key).await, [own]);
}

#[tokio::test]
async fn a_key_shows_and_revokes_itself_and_no_other() {
    let world = World::new().await;
    let own = world.sandbox("own").await;
    let key = family_key(&world, &own).await;
    let shown = world.send_as(&key, "GET", "/v1/keys/self").await.expect(200).json();
    assert_eq!((&shown["sandbox_id"], &shown["forks"]), (&json!(own), &json!(true)));
    let admin = world.send("GET", "/v1/keys/self").await.expect(200).json();
    let path = format!("/v1/keys/{}", admin["id"].as_str().unwrap());
    for method in ["GET", "DELETE"] {
        world.send_as(&key, method, &path).await.refused(403, "forbidden");
    }
    world.send_as(&key, "DELETE", "/v1/keys/self").await.expect(204);
    world.send_as(&key, "GET", "/v1/keys/self").await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_fenced_connection_forks_and_reaches_its_forks_only() {
    let world = World::new().await;
    let (own, other) = (world.sandbox("own").await, world.sandbox("other").await);
    let child = fork(&world, &world.key, &own, json!({})).await;
    let call = async |query: &str, sandbox: &str| {
        let params = json!({ "name": "sandbox_status", "arguments": { "sandbox": sandbox } });
        super::mcp::ask(&world, &world.key, query, "tools/call", params).await
    };
    let text = |answer: &super::world::Answer| String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text(&call("?sandbox=own", &child).await).contains(&child));
    for hidden in [other.as_str(), "other"] {
        let answer = text(&call("?sandbox=own", hidden).await);
        assert!(answer.contains("[not_found]"), "{answer}");
        let answer = text(&call("?sandbox=own&all=true", hidden).await);
        assert!(answer.contains(&other), "{answer}");
    }
}
