//! Running code on simulated drivers: the requests to a bridge, the handling of its responses, and who may run code.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use burrow_model::Scope;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::audit::execs;
use super::world::{Answer, World};

const PORT: u16 = 49999;

/// The requests that a bridge received: method and path, headers, body.
type ReceivedRequests = Arc<Mutex<Vec<(String, Vec<String>, Value)>>>;

/// A bridge that sends the same response to every request.
struct Bridge {
    address: SocketAddr,
    asked: ReceivedRequests,
}

impl Bridge {
    async fn saying(status: u16, text: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = ReceivedRequests::default();
        let (seen, text) = (asked.clone(), text.to_owned());
        let router = Router::new().fallback(async move |request: Request| {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let headers = parts.headers.keys().map(ToString::to_string).collect();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            seen.lock().unwrap().push((format!("{} {}", parts.method, parts.uri), headers, body));
            (StatusCode::from_u16(status).unwrap(), text.clone())
        });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(asked, _, _)| asked.clone()).collect()
    }
}

/// A sandbox `lab` with that bridge in it.
async fn lab(bridge: &Bridge) -> (World, String) {
    let world = World::new().await;
    let id = world.sandbox("lab").await;
    world.network.serve_port(PORT, Some(bridge.address));
    (world, id)
}

const RUN: &str = "/v1/sandboxes/lab/contexts/default/run";

const LINES: &str = concat!(
    r#"{"type":"number_of_executions","execution_count":4}"#,
    "\n",
    r#"{"type":"stdout","text":"a\n","timestamp":1}"#,
    "\n",
    r#"{"type":"stderr","text":"b","timestamp":2}"#,
    "\n",
    r#"{"type":"result","text":"2","png":"aGk=","is_main_result":true}"#,
    "\n",
    r#"{"type":"error","name":"E","value":"v","traceback":"t"}"#,
    "\n",
    r#"{"type":"end_of_execution","status":"error","execution_count":4,"duration_ms":9}"#,
    "\n",
);

fn lines(answer: &Answer) -> Vec<Value> {
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_run_is_streamed_or_returned_as_a_whole() {
    let bridge = Bridge::saying(200, LINES).await;
    let (world, _) = lab(&bridge).await;
    let streamed = world.send_json("POST", RUN, r#"{"code": "1+1", "timeout_ms": 2500}"#).await.expect(200);
    assert_eq!(streamed.headers["content-type"], "application/x-ndjson");
    let result = json!({"main": true, "text": "2", "png": "aGk="});
    assert_eq!(
        lines(&streamed),
        [
            json!({"kind": "stdout", "text": "a\n"}),
            json!({"kind": "stderr", "text": "b"}),
            json!({"kind": "result", "main": true, "text": "2", "png": "aGk="}),
            json!({"kind": "error", "name": "E", "value": "v", "traceback": "t"}),
            json!({"kind": "end", "status": "error", "execution_count": 4, "duration_ms": 9}),
        ]
    );
    let whole = world.send_json("POST", RUN, r#"{"code": "1+1", "wait": true}"#).await.expect(200).json();
    assert_eq!(
        whole,
        json!({
            "status": "error", "execution_count": 4, "duration_ms": 9, "stdout": "a\n", "stderr": "b",
            "results": [result], "error": {"name": "E", "value": "v", "traceback": "t"}, "truncated": false,
        })
    );
    let asked = bridge.asked.lock().unwrap();
    let (first, headers, body) = &asked[0];
    assert_eq!(first, "POST /execute");
    assert!(!headers.iter().any(|name| name == "x-api-key" || name == "authorization"), "{headers:?}");
    assert_eq!(
        (&body["code"], &body["timeout"], &body["language"]),
        (&json!("1+1"), &json!(2.5), &json!("python"))
    );
}

#[tokio::test]
async fn contexts_are_created_and_managed_by_the_bridge() {
    let context = r#"{"id":"c1","language":"python","cwd":"/root","state":"idle","execution_count":0}"#;
    let bridge = Bridge::saying(200, context).await;
    let (world, _) = lab(&bridge).await;
    let contexts = "/v1/sandboxes/lab/contexts";
    let made = world.send_json("POST", contexts, r#"{"cwd": "/srv", "env": {"A": "1"}}"#).await.expect(201);
    assert_eq!(made.json()["id"], "c1");
    world.send("GET", &format!("{contexts}/c1")).await.expect(200);
    world.send("POST", &format!("{contexts}/c1/interrupt")).await.expect(204);
    world.send("POST", &format!("{contexts}/c1/restart")).await.expect(200);
    world.send("DELETE", &format!("{contexts}/c1")).await.expect(204);
    let expected = [
        "POST /contexts",
        "GET /contexts/c1",
        "POST /contexts/c1/interrupt",
        "POST /contexts/c1/restart",
        "GET /contexts/c1",
        "DELETE /contexts/c1",
    ];
    assert_eq!(bridge.asked(), expected);
    for bad in ["a%2Fb", "..", "a%3Fb", "a b".replace(' ', "%20").as_str()] {
        let answer = world.send("GET", &format!("{contexts}/{bad}")).await;
        assert!(answer.status.is_client_error(), "{bad}: {answer:?}");
    }
    assert_eq!(bridge.asked().len(), expected.len(), "invalid requests did not reach the bridge");
}

#[tokio::test]
async fn errors_of_a_bridge_are_passed_on_with_their_messages() {
    for (status, body, expected, code) in [
        (400, r#"{"message":"no language `x`"}"#, 422, "unprocessable"),
        (404, r#"{"message":"no such"}"#, 404, "not_found"),
        (413, r#"{"message":"too long"}"#, 413, "too_large"),
        (429, r#"{"message":"too many contexts"}"#, 429, "too_many"),
        (500, r#"{"message":"broke"}"#, 502, "bad_gateway"),
        (500, "<html>", 502, "bad_gateway"),
    ] {
        let bridge = Bridge::saying(status, body).await;
        let (world, _) = lab(&bridge).await;
        world.send_json("POST", RUN, r#"{"code": "1"}"#).await.refused(expected, code);
    }
}

#[tokio::test]
async fn another_server_on_the_bridges_port_ends_a_run_with_an_error() {
    for text in ["hello\n", r#"{"type":"stdout","text":"a"}"#, "", "[]\n"] {
        let bridge = Bridge::saying(200, text).await;
        let (world, _) = lab(&bridge).await;
        let streamed = world.send_json("POST", RUN, r#"{"code": "1"}"#).await.expect(200);
        let last = lines(&streamed).pop().unwrap();
        assert_eq!(
            (&last["kind"], &last["error"]["code"]),
            (&json!("broken"), &json!("bad_gateway")),
            "{text}"
        );
        world.send_json("POST", RUN, r#"{"code": "1", "wait": true}"#).await.refused(502, "bad_gateway");
    }
}

#[tokio::test]
async fn a_sandbox_without_a_bridge_has_no_contexts_and_names_what_is_missing() {
    let world = World::new().await;
    world.sandbox("lab").await;
    world.network.serve_port(PORT, None);
    let listed = world.send("GET", "/v1/sandboxes/lab/contexts").await.expect(200).json();
    assert_eq!(listed, json!({"items": []}));
    world.send("GET", "/v1/sandboxes/lab/contexts/default").await.refused(404, "not_found");
    let execs = world.send("GET", "/v1/sandboxes/lab/execs").await.json();
    assert_eq!(execs["items"], json!([]), "listing starts nothing");
    let refused = world.send_json("POST", RUN, r#"{"code": "1"}"#).await;
    refused.refused(422, "unprocessable");
    assert!(refused.json()["error"]["hint"].as_str().unwrap().contains("--ready python-interpreter"));
}

#[tokio::test]
async fn the_start_of_the_bridge_is_recorded() {
    let bridge = Bridge::saying(200, LINES).await;
    let (world, _) = lab(&bridge).await;
    world.network.serve_port(PORT, None);
    world.send("PUT", "/v1/sandboxes/lab/files?path=/usr/bin/python3").await.expect(200);
    let served = async {
        while execs(&world).await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        world.network.serve_port(PORT, Some(bridge.address));
    };
    let (ran, ()) = tokio::join!(world.send_json("POST", RUN, r#"{"code": "1"}"#), served);
    ran.expect(200);
    assert_eq!(execs(&world).await, ["exec.start python3"]);
}

#[tokio::test]
async fn invalid_requests_are_rejected_before_the_bridge_is_used() {
    let bridge = Bridge::saying(200, LINES).await;
    let (world, _) = lab(&bridge).await;
    for body in [
        r#"{"code": "1", "timeout_ms": 0}"#,
        r#"{"code": "1", "output_bytes_max": 0}"#,
        r#"{"code": "1", "env": {"A=B": "1"}}"#,
        r#"{"code": "1", "unknown": 1}"#,
        "{}",
    ] {
        let answer = world.send_json("POST", RUN, body).await;
        assert!(answer.status.is_client_error(), "{body}: {answer:?}");
    }
    let path = "/v1/sandboxes/lab/contexts";
    for body in [r#"{"language": "a b"}"#, r#"{"language": ""}"#, r#"{"cwd": "relative"}"#] {
        let answer = world.send_json("POST", path, body).await;
        assert!(answer.status.is_client_error(), "{body}: {answer:?}");
    }
    assert_eq!(bridge.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn running_code_requires_a_key_that_may_run_programs() {
    let bridge = Bridge::saying(200, "[]").await;
    let (world, id) = lab(&bridge).await;
    let read = world.new_key(Scope::Read, None).await;
    world.send_as(&read, "GET", "/v1/sandboxes/lab/contexts").await.expect(200);
    world.send_json_as(&read, "POST", RUN, r#"{"code": "1"}"#).await.refused(403, "forbidden");
    world.send_json_as("", "POST", RUN, r#"{"code": "1"}"#).await.refused(401, "unauthorized");
    let other = world.sandbox("other").await;
    let bound = world.new_key(Scope::Exec, Some(&other)).await;
    let path = format!("/v1/sandboxes/{id}/contexts/default/run");
    world.send_json_as(&bound, "POST", &path, r#"{"code": "1"}"#).await.refused(404, "not_found");
}

/// Runs code as E2B's clients do.
async fn execute(world: &World, id: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::post("/execute").header("content-type", "application/json");
    request = request.header("e2b-sandbox-id", id).header("e2b-sandbox-port", "49999");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    world.raw(request.body(Body::from(r#"{"code":"1"}"#)).unwrap()).await
}

#[tokio::test]
async fn e2b_clients_run_code_by_token_or_key_even_if_ports_are_public() {
    let bridge = Bridge::saying(200, LINES).await;
    let world = World::new().await;
    let body = r#"{"templateID": "base", "network": {"allowPublicTraffic": true}}"#;
    let made = world.send_json("POST", "/v2/sandboxes", body).await.expect(201).json();
    world.network.serve_port(PORT, Some(bridge.address));
    let id = made["sandboxID"].as_str().unwrap();
    let token = made["envdAccessToken"].as_str().unwrap();
    let traffic = made["trafficAccessToken"].as_str().unwrap();
    for headers in [
        [("x-access-token", token)],
        [("e2b-traffic-access-token", traffic)],
        [("x-api-key", world.key.as_str())],
    ] {
        let answer = execute(&world, id, &headers).await.expect(200);
        assert_eq!(String::from_utf8_lossy(&answer.body), LINES, "the bridge's response, unchanged");
    }
    assert_eq!(execute(&world, id, &[]).await.status, 401);
    assert_eq!(execute(&world, id, &[("x-access-token", "bst_nonsense")]).await.status, 401);
    assert_eq!(execute(&world, "nonsense", &[("x-access-token", token)]).await.status, 502);
    let read = world.new_key(Scope::Read, None).await;
    assert_eq!(execute(&world, id, &[("x-api-key", &read)]).await.status, 403);
    let by_path = |request: http::request::Builder| request.body(Body::from(r#"{"code":"1"}"#)).unwrap();
    let path = format!("/p/{id}/49999/execute");
    assert_eq!(
        world.raw(by_path(Request::post(&path))).await.status,
        401,
        "the path form requires a token, too"
    );
    let publish = world.send("PUT", &format!("/v1/sandboxes/{id}/ports/49999")).await;
    publish.refused(400, "invalid_request");
    let host = format!("49999-{id}.localhost:7700");
    let by_host = Request::post("/execute").header("host", &host).header("x-access-token", token);
    world.raw(by_host.body(Body::from(r#"{"code":"1"}"#)).unwrap()).await.expect(200);
    let elsewhere = Request::get("/other").header("host", &host).header("x-access-token", token);
    world.raw(elsewhere.body(Body::empty()).unwrap()).await.expect(501);
    let expected = ["POST /environment", "POST /execute", "POST /execute", "POST /execute", "POST /execute"];
    assert_eq!(bridge.asked(), expected);
    for (_, headers, _) in bridge.asked.lock().unwrap().iter() {
        assert!(!headers.iter().any(|name| name.starts_with("e2b") || name.starts_with("x-")), "{headers:?}");
    }
}

#[tokio::test]
async fn e2bs_code_template_is_an_image_that_must_be_built_first() {
    let world = World::new().await;
    let answer = world.send_json("POST", "/v2/sandboxes", r#"{"templateID": "code-interpreter-v1"}"#).await;
    let message = answer.expect(404).json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("--ready python-interpreter"), "{message}");
}

#[tokio::test]
async fn e2bs_code_template_is_the_image_with_more_languages_once_it_is_built() {
    let world = World::new().await;
    for name in ["python-interpreter", "polyglot-interpreter"] {
        let body = json!({ "name": name }).to_string();
        world.send_json("POST", "/v1/images/debian/tags", body).await.expect(200);
        let found = world.send("GET", "/templates/aliases/code-interpreter-v1").await.expect(200).json();
        assert_eq!(found["templateID"], name);
        let create = r#"{"templateID": "code-interpreter-v1"}"#;
        world.send_json("POST", "/v2/sandboxes", create).await.expect(201);
    }
    let listed = world.send("GET", "/v2/sandboxes?template=code-interpreter-v1").await.expect(200).json();
    assert_eq!(listed.as_array().unwrap().len(), 2, "sandboxes of either image belong to the template");
}
