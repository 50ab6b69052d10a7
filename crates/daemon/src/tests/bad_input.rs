//! Every invalid request gets a clear error.

use axum::body::Body;
use bytes::Bytes;
use http::Request;

use super::world::World;

#[tokio::test]
async fn errors_about_invalid_json_name_the_field() {
    let world = World::new().await;
    for (body, word) in [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("nonsense", "not JSON"),
        ("[1]", "the body"),
        ("{\"name\": 7}", "name"),
        ("{\"nmae\": \"x\"}", "nmae"),
        ("{\"limits\": {\"ram_mib\": -1}}", "limits.ram_mib"),
        ("{\"limits\": {\"pids\": 1e99}}", "limits.pids"),
        ("{\"limits\": {\"pids\": 1}}", "pids"),
        ("{\"name\": \"a\\u0000b\"}", "name"),
        ("{\"name\": \"\\u001b[31mred\"}", "name"),
        ("{\"env\": {\"A\\u0000\": \"x\"}}", "env"),
    ] {
        let answer = world.send_json("POST", "/v1/sandboxes", body).await;
        answer.refused(400, "invalid_request");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(word), "{body}: {message}");
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
    let list = world.send("GET", "/v1/sandboxes").await.expect(200);
    assert_eq!(list.json()["items"].as_array().unwrap().len(), 0, "nothing is left half-made");
}

#[tokio::test]
async fn deeply_nested_json_is_rejected() {
    let world = World::new().await;
    let body = "[".repeat(100_000);
    world.send_json("POST", "/v1/sandboxes", body).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_rejected_with_and_without_content_length() {
    let world = World::new().await;
    let huge = Bytes::from(vec![b' '; 2 << 20]);
    let announced = world
        .request(&world.key, "POST", "/v1/sandboxes")
        .header("content-type", "application/json")
        .header("content-length", huge.len())
        .body(Body::from(huge.clone()))
        .unwrap();
    world.raw(announced).await.refused(413, "too_large");
    let pieces =
        futures_util::stream::iter((0..64).map(move |_| Ok::<_, std::io::Error>(huge.slice(..65_536))));
    let answer = world.send_json("POST", "/v1/sandboxes", Body::from_stream(pieces)).await;
    answer.refused(413, "too_large");
}

#[tokio::test]
async fn a_body_with_another_content_type_is_rejected() {
    let world = World::new().await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        let request = world.request(&world.key, "POST", "/v1/sandboxes").header("content-type", kind);
        world.raw(request.body(Body::from("{}")).unwrap()).await.refused(415, "unsupported_media_type");
    }
    let request = world.request(&world.key, "POST", "/v1/sandboxes").body(Body::from("{}")).unwrap();
    world.raw(request).await.refused(415, "unsupported_media_type");
}

#[tokio::test]
async fn invalid_ids_differ_from_unknown_ids_but_foreign_ids_do_not() {
    let world = World::new().await;
    for bad in ["%00", "%1b%5b31m", "..%2f..%2fetc", "UPPER", "a%20b", "%ff", &"a".repeat(64)] {
        world.send("GET", &format!("/v1/sandboxes/{bad}")).await.refused(400, "invalid_request");
    }
    let unknown = burrow_model::SandboxId::generate();
    let image = burrow_model::ImageId::generate();
    for absent in [unknown.as_str(), image.as_str(), "nobody", "sbx", "sbxzzzz"] {
        for (method, rest) in [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/start"),
            ("POST", "/stop"),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("GET", "/stats"),
            ("GET", "/execs"),
            ("GET", "/services"),
            ("GET", "/files?path=/x"),
            ("GET", "/files/stat?path=/x"),
            ("GET", "/files/list?path=/x"),
            ("GET", "/files/tar?path=/x"),
            ("GET", "/files/watch?path=/x"),
        ] {
            let path = format!("/v1/sandboxes/{absent}{rest}");
            world.send(method, &path).await.refused(404, "not_found");
        }
    }
    let sandbox = world.sandbox("web").await;
    let exec = burrow_model::ExecId::generate();
    for rest in ["", "/wait", "/output"] {
        let path = format!("/v1/sandboxes/{sandbox}/execs/{exec}{rest}");
        world.send("GET", &path).await.refused(404, "not_found");
    }
    world.send("GET", &format!("/v1/sandboxes/{sandbox}/execs/%00")).await.refused(400, "invalid_request");
    world
        .send("GET", &format!("/v1/keys/{}", burrow_model::KeyId::generate()))
        .await
        .refused(404, "not_found");
}

#[tokio::test]
async fn invalid_queries_are_rejected() {
    let world = World::new().await;
    let sandbox = world.sandbox("web").await;
    for query in [
        "limit=-1",
        "limit=0",
        "limit=1001",
        "limit=99999999999999",
        "limit=x",
        "cursor=made-up",
        "state=asleep",
        "label=novalue",
        "label=a%00=b",
        "colour=red",
    ] {
        world.send("GET", &format!("/v1/sandboxes?{query}")).await.refused(400, "invalid_request");
    }
    for rest in [
        "execs?limit=-1",
        "files",
        "files?path=relative",
        "files?path=/a%00b",
        "files?path=/%ff",
        "files?path=/a&path=/b",
        "files?path=/a&colour=red",
        "files/list?path=/&depth=0",
        "files/list?path=/&depth=-1",
        "files/watch?path=/&recursive=maybe",
        "services?colour=red",
    ] {
        let answer = world.send("GET", &format!("/v1/sandboxes/{sandbox}/{rest}")).await;
        answer.refused(400, "invalid_request");
    }
    let long = format!("/v1/sandboxes/{sandbox}/files?path=/{}", "a".repeat(5000));
    world.send("GET", &long).await.refused(400, "invalid_request");
    world
        .send("PUT", &format!("/v1/sandboxes/{sandbox}/files?path=/a&mode=999"))
        .await
        .refused(400, "invalid_request");
    let offset = format!("/v1/sandboxes/{sandbox}/files?path=/a&offset=18446744073709551615");
    world.send("PUT", &offset).await.refused(400, "invalid_request");
    world
        .send("POST", &format!("/v1/sandboxes/{sandbox}/stop?grace_ms=-1"))
        .await
        .refused(400, "invalid_request");
    world.send("GET", "/v1/events?limit=0").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn unknown_routes_and_methods_have_their_own_errors() {
    let world = World::new().await;
    world.send("GET", "/v9/sandboxes").await.refused(404, "no_such_route");
    world.send_as("", "GET", "/").await.refused(404, "no_such_route");
    let answer = world.send("PUT", "/v1/sandboxes").await;
    answer.refused(405, "method_not_allowed");
    let allowed = answer.headers.get("allow").expect("405 says what is allowed").to_str().unwrap();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    world.send("BREW", "/v1/version").await.refused(405, "method_not_allowed");
}

#[tokio::test]
async fn limits_above_the_operators_maximum_are_rejected() {
    let world = World::with("[limits]\nmax_ram = \"128M\"\n").await;
    let body = "{\"limits\": {\"ram_mib\": 129}}";
    world.send_json("POST", "/v1/sandboxes", body).await.refused(422, "unprocessable");
    world.send_json("POST", "/v1/sandboxes", "{\"image\": \"nope\"}").await.refused(404, "not_found");
    world.send_json("POST", "/v1/sandboxes", "{\"driver\": \"nope\"}").await.refused(422, "unprocessable");
}

#[tokio::test]
async fn an_invalid_idempotency_key_is_rejected() {
    let world = World::new().await;
    for key in ["", &"k".repeat(256)] {
        let request = world
            .request(&world.key, "POST", "/v1/sandboxes")
            .header("content-type", "application/json")
            .header("idempotency-key", key);
        world.raw(request.body(Body::from("{}")).unwrap()).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_dead_guest_is_reported_and_its_sandbox_can_still_be_deleted() {
    let world = World::new().await;
    let sandbox = world.sandbox("web").await;
    world.network.set_reachable(&sandbox.parse().unwrap(), false);
    let exec = "{\"command\": \"true\"}";
    let path = format!("/v1/sandboxes/{sandbox}/execs");
    world.send_json("POST", &path, exec).await.refused(504, "guest_unreachable");
    let path = format!("/v1/sandboxes/{sandbox}/files?path=/x");
    world.send("GET", &path).await.refused(504, "guest_unreachable");
    world.send("DELETE", &format!("/v1/sandboxes/{sandbox}")).await.expect(204);
    world.send("GET", &format!("/v1/sandboxes/{sandbox}")).await.refused(404, "not_found");
}

#[tokio::test]
async fn too_many_concurrent_requests_get_a_retry_after() {
    let world = World::with("[limits]\nrequests = 8\n").await;
    let streams: Vec<_> = futures_util::future::join_all((0..8).map(|_| {
        let request = world.request(&world.key, "GET", "/v1/events?follow=true").body(Body::empty()).unwrap();
        tower::ServiceExt::oneshot(world.router.clone(), request)
    }))
    .await;
    world.send("GET", "/v1/sandboxes").await.refused(429, "busy");
    world.send_as("", "GET", "/healthz").await.expect(200);
    drop(streams);
    world.send("GET", "/v1/sandboxes").await.expect(200);
}

#[tokio::test]
async fn every_answer_has_a_request_id() {
    let world = World::new().await;
    let answer = world.raw(Request::get("/nope").body(Body::empty()).unwrap()).await;
    assert_eq!(answer.headers["x-request-id"].len(), 16);
}
