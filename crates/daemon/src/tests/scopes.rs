//! The rights of each scope.

use axum::body::Body;
use burrow_model::Scope;
use http::Request;

use super::world::World;

#[tokio::test]
async fn without_a_usable_key_nothing_is_revealed() {
    let world = World::new().await;
    let made_up = format!("e2b_{}", "0".repeat(40));
    for key in ["", "nonsense", &made_up, "e2b_"] {
        for path in
            ["/v1/sandboxes", "/v1/host", "/v1/config", "/v1/keys", "/v1/images", "/v1/events", "/v1/backup"]
        {
            let answer = world.send_as(key, "GET", path).await;
            answer.refused(401, "unauthorized");
            assert!(answer.json()["error"]["hint"].as_str().unwrap().contains("X-API-Key"));
        }
    }
    for path in ["/healthz", "/readyz", "/v1/version", "/v1/openapi.json", "/metrics"] {
        world.send_as("", "GET", path).await.expect(200);
    }
}

#[tokio::test]
async fn a_key_may_be_sent_as_a_bearer_token() {
    let world = World::new().await;
    for value in [format!("Bearer {}", world.key), format!("bearer {}", world.key)] {
        let request =
            Request::get("/v1/sandboxes").header("authorization", value).body(Body::empty()).unwrap();
        world.raw(request).await.expect(200);
    }
    let basic = format!("Basic {}", world.key);
    let request = Request::get("/v1/sandboxes").header("authorization", basic).body(Body::empty()).unwrap();
    world.raw(request).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn each_scope_has_its_rights_and_no_others() {
    let world = World::new().await;
    let sandbox = world.sandbox("web").await;
    let read = world.new_key(Scope::Read, None).await;
    let exec = world.new_key(Scope::Exec, None).await;
    let run = format!("/v1/sandboxes/{sandbox}/execs");
    let echo = "{\"argv\": [\"echo\", \"hi\"]}";

    for path in ["/v1/sandboxes", "/v1/host", "/v1/images", "/v1/events", &run] {
        world.send_as(&read, "GET", path).await.expect(200);
    }
    world.send_json_as(&read, "POST", "/v1/sandboxes", "{}").await.refused(403, "forbidden");
    world.send_json_as(&read, "POST", &run, echo).await.refused(403, "forbidden");
    world.send_as(&read, "DELETE", &format!("/v1/sandboxes/{sandbox}")).await.refused(403, "forbidden");
    world
        .send_as(&read, "PUT", &format!("/v1/sandboxes/{sandbox}/files?path=/a"))
        .await
        .refused(403, "forbidden");
    world.send_as(&read, "GET", &format!("{run}/exeaaaa/attach")).await.refused(403, "forbidden");

    world.send_json_as(&exec, "POST", &run, echo).await.expect(201);
    for (method, path) in
        [("GET", "/v1/keys"), ("GET", "/v1/config"), ("GET", "/v1/backup"), ("DELETE", "/v1/keys/keyaaaa")]
    {
        world.send_as(&exec, method, path).await.refused(403, "forbidden");
    }
    world.send_json_as(&exec, "POST", "/v1/images", "{}").await.refused(403, "forbidden");
    let key = "{\"name\": \"x\", \"scope\": \"read\"}";
    world.send_json_as(&exec, "POST", "/v1/keys", key).await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_key_bound_to_one_sandbox_sees_only_that_sandbox() {
    let world = World::new().await;
    let mine = world.sandbox("mine").await;
    let other = world.sandbox("other").await;
    let key = world.new_key(Scope::Admin, Some(&mine)).await;

    let list = world.send_as(&key, "GET", "/v1/sandboxes").await.expect(200).json();
    let ids: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
    assert_eq!(ids, [mine.as_str()]);
    assert_eq!(
        world.send_as(&key, "GET", "/v1/sandboxes?label=a=b").await.expect(200).json()["items"],
        serde_json::json!([])
    );
    for name in [mine.as_str(), "mine", &mine[..8]] {
        world.send_as(&key, "GET", &format!("/v1/sandboxes/{name}")).await.expect(200);
    }
    // A foreign sandbox is answered exactly like an unknown one, even for a prefix that matches both.
    let unknown = burrow_model::SandboxId::generate().to_string();
    for name in [other.as_str(), "other", "sbx", &other[..8], &unknown] {
        world.send_as(&key, "GET", &format!("/v1/sandboxes/{name}")).await.refused(404, "not_found");
        let path = format!("/v1/sandboxes/{name}/files?path=/x");
        world.send_as(&key, "GET", &path).await.refused(404, "not_found");
        let echo = "{\"argv\": [\"echo\"]}";
        let path = format!("/v1/sandboxes/{name}/execs");
        world.send_json_as(&key, "POST", &path, echo).await.refused(404, "not_found");
        world.send_as(&key, "GET", &format!("/v1/events?sandbox={name}")).await.refused(404, "not_found");
    }
    world.send_json_as(&key, "POST", "/v1/sandboxes", "{}").await.refused(403, "forbidden");
    world.send_as(&key, "GET", "/v1/keys").await.refused(403, "forbidden");
    world.send_as(&key, "GET", "/v1/config").await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_bound_key_changes_no_label_that_holds_a_setting() {
    let world = World::new().await;
    let mine = world.sandbox("mine").await;
    let key = world.new_key(Scope::Admin, Some(&mine)).await;
    let path = format!("/v1/sandboxes/{mine}");
    for label in
        ["e2b/auto-resume", "e2b/https-ports", "e2b/mask-request-host", "e2b/mcp", "e2b/mcp-token", "e2b/new"]
    {
        for value in [serde_json::json!("x"), serde_json::Value::Null] {
            let body = serde_json::json!({ "labels": { label: value } }).to_string();
            world.send_json_as(&key, "PATCH", &path, body).await.refused(403, "forbidden");
        }
    }
    let body = r#"{"labels": {"e2b": "x", "team": "y"}, "env": {"A": "b"}}"#;
    world.send_json_as(&key, "PATCH", &path, body).await.expect(200);
    let body = r#"{"labels": {"e2b/auto-resume": null}}"#;
    world.send_json_as(&world.key, "PATCH", &path, body).await.expect(200);
}

#[tokio::test]
async fn keys_are_created_shown_without_their_secret_and_revoked_at_once() {
    let world = World::new().await;
    let body = "{\"name\": \"ci\", \"scope\": \"read\", \"ttl_seconds\": 60}";
    let created = world.send_json("POST", "/v1/keys", body).await.expect(201).json();
    let (id, secret) = (created["key"]["id"].as_str().unwrap(), created["secret"].as_str().unwrap());
    assert!(secret.starts_with("e2b_") && secret.len() == 44);
    world.send_as(secret, "GET", "/v1/sandboxes").await.expect(200);
    for path in ["/v1/keys".to_owned(), format!("/v1/keys/{id}"), "/v1/keys/ci".to_owned()] {
        let shown = world.send("GET", &path).await.expect(200);
        assert!(!String::from_utf8_lossy(&shown.body).contains(secret), "{shown:?}");
    }
    world.send("DELETE", &format!("/v1/keys/{id}")).await.expect(204);
    world.send_as(secret, "GET", "/v1/sandboxes").await.refused(401, "unauthorized");
    world.send("DELETE", &format!("/v1/keys/{id}")).await.expect(204);

    let created = world.send_json("POST", "/v1/keys", body).await.expect(201).json();
    world.clock.advance(61_000);
    let secret = created["secret"].as_str().unwrap();
    world.send_as(secret, "GET", "/v1/sandboxes").await.refused(401, "unauthorized");
}

#[tokio::test]
async fn invalid_keys_are_rejected() {
    let world = World::new().await;
    for body in [
        "{\"name\": \"\", \"scope\": \"read\"}",
        "{\"name\": \"a\\u0007\", \"scope\": \"read\"}",
        "{\"name\": \"a\", \"scope\": \"god\"}",
        "{\"name\": \"a\", \"scope\": \"read\", \"ttl_seconds\": 0}",
        "{\"name\": \"a\"}",
    ] {
        world.send_json("POST", "/v1/keys", body).await.refused(400, "invalid_request");
    }
    let body = "{\"name\": \"a\", \"scope\": \"read\", \"sandbox\": \"nobody\"}";
    world.send_json("POST", "/v1/keys", body).await.refused(404, "not_found");
}

#[tokio::test]
async fn the_last_admin_key_cannot_be_revoked() {
    let world = World::new().await;
    let keys = world.send("GET", "/v1/keys").await.expect(200).json();
    let id = keys["items"][0]["id"].as_str().unwrap().to_owned();
    world.send("DELETE", &format!("/v1/keys/{id}")).await.refused(409, "conflict");
}

#[tokio::test]
async fn a_foreign_host_name_gets_no_response_without_a_key() {
    let open = ["/healthz", "/readyz", "/v1/version", "/v1/openapi.json", "/metrics"];
    let world = World::with("[gateway]\ndomain = \"boxes.example.com\"\n").await;
    let ask = async |world: &World, key: &str, path: &str, host: &str| {
        world.raw(world.request(key, "GET", path).header("host", host).body(Body::empty()).unwrap()).await
    };
    for path in open {
        for host in ["evil.example:7700", "localhost.evil.example", ""] {
            ask(&world, "", path, host).await.refused(403, "forbidden");
            ask(&world, &world.key, path, host).await.expect(200);
        }
        for host in ["127.0.0.1:7700", "localhost:7700", "[::1]:7700", "boxes.example.com"] {
            ask(&world, "", path, host).await.expect(200);
        }
    }
    // If the daemon listens beyond loopback, it does not know its own host names.
    let world = World::with("listen = \"0.0.0.0:1\"\ninsecure_http = true\n").await;
    ask(&world, "", "/healthz", "burrow.example.com").await.expect(200);
}

#[tokio::test]
async fn metrics_need_a_key_if_the_daemon_is_reachable_from_other_machines() {
    let world = World::with("listen = \"0.0.0.0:1\"\ninsecure_http = true\n").await;
    world.send_as("", "GET", "/metrics").await.refused(401, "unauthorized");
    let page = world.send("GET", "/metrics").await.expect(200);
    assert!(String::from_utf8_lossy(&page.body).contains("burrow_requests_total"));
}
