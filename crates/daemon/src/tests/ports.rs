//! The routes for ports: listing, publishing, links.

use burrow_model::{SandboxId, Scope};
use serde_json::json;

use super::world::World;

#[tokio::test]
async fn listening_and_public_ports_are_one_list() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    world.send("PUT", "/v1/sandboxes/web/ports/8080").await.expect(204);
    world.send("PUT", "/v1/sandboxes/web/ports/8080").await.expect(204);
    world.send("PUT", &format!("/v1/sandboxes/{id}/ports/3000")).await.expect(204);
    let request =
        world.request(&world.key, "GET", "/v1/sandboxes/web/ports").header("host", "127.0.0.1:7700");
    let listed = world.raw(request.body(axum::body::Body::empty()).unwrap()).await.expect(200).json();
    let first = json!({
        "port": 3000, "published": true, "addresses": ["127.0.0.1"], "user": "root", "pid": 7, "process": "node",
        "command": "node server.js", "url": format!("http://3000-{id}.localhost:7700/"),
    });
    assert_eq!(listed["items"][0], first);
    assert_eq!((&listed["items"][1]["port"], &listed["items"][1]["published"]), (&json!(8080), &json!(true)));
    assert_eq!(listed["items"][1]["addresses"], json!([]));
    let paged = world.send("GET", "/v1/sandboxes/web/ports?limit=1").await.expect(200).json();
    assert_eq!((paged["items"].as_array().unwrap().len(), &paged["next_cursor"]), (1, &json!("1")));
    let rest = world.send("GET", "/v1/sandboxes/web/ports?limit=1&cursor=1").await.expect(200).json();
    assert_eq!((&rest["items"][0]["port"], &rest["next_cursor"]), (&json!(8080), &json!(null)));
    world.send("GET", "/v1/sandboxes/web/ports?cursor=x").await.refused(400, "invalid_request");
    world.send("DELETE", "/v1/sandboxes/web/ports/8080").await.expect(204);
    world.send("DELETE", "/v1/sandboxes/web/ports/8080").await.expect(204);
    let left = world.send("GET", "/v1/sandboxes/web/ports").await.json();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_stopped_sandbox_is_not_woken_by_a_list() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.send("PUT", "/v1/sandboxes/web/ports/80").await.expect(204);
    world.send("POST", "/v1/sandboxes/web/stop").await.expect(200);
    let listed = world.send("GET", "/v1/sandboxes/web/ports").await.expect(200).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.send("GET", "/v1/sandboxes/web").await.json()["state"], "stopped");
}

#[tokio::test]
async fn invalid_ports_and_unknown_sandboxes_are_rejected() {
    let world = World::new().await;
    world.sandbox("web").await;
    for port in ["0", "65536", "x", "-1", "080", "+80", "7711"] {
        let path = format!("/v1/sandboxes/web/ports/{port}");
        world.send("PUT", &path).await.refused(400, "invalid_request");
    }
    let unknown = SandboxId::generate();
    for (method, rest) in [("GET", ""), ("PUT", "/80"), ("DELETE", "/80")] {
        for sandbox in ["nothere", unknown.as_str()] {
            let path = format!("/v1/sandboxes/{sandbox}/ports{rest}");
            world.send(method, &path).await.refused(404, "not_found");
        }
    }
    let path = format!("/v1/sandboxes/{unknown}/ports/80/url");
    world.send_json("POST", &path, "{}").await.refused(404, "not_found");
    for body in ["{\"expires_seconds\": 0}", "{\"expires_seconds\": 2592001}", "{\"x\": 1}"] {
        world.send_json("POST", "/v1/sandboxes/web/ports/80/url", body).await.refused(400, "invalid_request");
    }
    world.send("GET", "/v1/sandboxes/web/ports/80/connect").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn publishing_needs_an_exec_key() {
    let world = World::new().await;
    world.sandbox("web").await;
    let read = world.new_key(Scope::Read, None).await;
    world.send_as(&read, "GET", "/v1/sandboxes/web/ports").await.expect(200);
    for (method, path) in [("PUT", "/80"), ("DELETE", "/80"), ("POST", "/80/url"), ("GET", "/80/connect")] {
        let path = format!("/v1/sandboxes/web/ports{path}");
        world.send_as(&read, method, &path).await.refused(403, "forbidden");
        world.send_as("", method, &path).await.refused(401, "unauthorized");
    }
}

#[tokio::test]
async fn the_number_of_public_ports_is_limited() {
    let world = World::new().await;
    world.sandbox("web").await;
    for port in 1..=64 {
        world.send("PUT", &format!("/v1/sandboxes/web/ports/{port}")).await.expect(204);
    }
    world.send("PUT", "/v1/sandboxes/web/ports/65").await.refused(429, "too_many");
}
