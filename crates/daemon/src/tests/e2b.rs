//! Requests of E2B's clients, and who may send them. `scripts/test-e2b.sh` runs the clients themselves.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use burrow_gateway::e2b::Lookups;
use burrow_model::Scope;
use http::Request;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::audit::execs;
use super::world::{Answer, World};

/// A sandbox's id and its token.
async fn made(world: &World) -> (String, String) {
    let answer =
        world.send_json("POST", "/v2/sandboxes", r#"{"templateID": "base"}"#).await.expect(201).json();
    let text = |name: &str| answer[name].as_str().unwrap().to_owned();
    (text("sandboxID"), text("envdAccessToken"))
}

async fn inside(world: &World, id: &str, token: Option<&str>, method: &str, path: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("e2b-sandbox-id", id);
    if let Some(token) = token {
        request = request.header("x-access-token", token);
    }
    let request = request.header("content-type", "application/json").body(Body::from("{}")).unwrap();
    world.raw(request).await
}

fn refused(answer: &Answer, status: u16) {
    let body = answer.json();
    assert_eq!((answer.status.as_u16(), &body["code"]), (status, &json!(status)), "{body}");
    assert!(body["message"].is_string(), "{body}");
}

#[tokio::test]
async fn both_generations_of_paths_create_a_sandbox() {
    let world = World::new().await;
    for path in ["/sandboxes", "/v2/sandboxes"] {
        let body =
            r#"{"templateID": "base", "metadata": {"a": "\u00e4 b"}, "timeout": 60, "autoPause": true}"#;
        let made = world.send_json("POST", path, body).await.expect(201).json();
        for field in ["templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken", "domain"] {
            assert!(made[field].is_string(), "{field}: {made}");
        }
        let id = made["sandboxID"].as_str().unwrap();
        assert!(id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{id}");
        let info = world.send("GET", &format!("/sandboxes/{id}")).await.expect(200).json();
        assert_eq!((&info["state"], &info["metadata"]["a"]), (&json!("running"), &json!("ä b")));
        assert_eq!(info["lifecycle"]["onTimeout"], "pause");
        world.send("DELETE", &format!("/sandboxes/{id}")).await.expect(204);
        refused(&world.send("DELETE", &format!("/sandboxes/{id}")).await, 404);
    }
}

#[tokio::test]
async fn errors_have_the_form_that_its_clients_expect() {
    let world = World::new().await;
    let made_up = format!("e2b_{}", "0".repeat(40));
    for key in ["", "nonsense", &made_up] {
        refused(&world.send_as(key, "GET", "/v2/sandboxes").await, 401);
    }
    let read = world.new_key(Scope::Read, None).await;
    refused(&world.send_json_as(&read, "POST", "/v2/sandboxes", r#"{"templateID": "base"}"#).await, 403);
    for (body, status) in [
        ("nonsense", 400),
        ("{}", 400),
        (r#"{"templateID": "base", "timeout": -1}"#, 400),
        (r#"{"templateID": "no-such"}"#, 404),
        (r#"{"templateID": "../x"}"#, 404),
        (r#"{"templateID": "base", "volumeMounts": [{"name": "a", "path": "/b"}]}"#, 404),
        (r#"{"templateID": "base", "iam": {"tokens": {"a": {}}}}"#, 501),
        (r#"{"templateID": "base", "newer": true}"#, 501),
        (r#"{"templateID": "base", "network": {"denyOut": ["192.0.2.0/33"]}}"#, 400),
    ] {
        refused(&world.send_json("POST", "/v2/sandboxes", body).await, status);
    }
    for path in ["/secrets", "/teams"] {
        refused(&world.send("GET", path).await, 501);
    }
    let unknown = burrow_model::SandboxId::generate();
    refused(&world.send("GET", &format!("/sandboxes/{unknown}")).await, 404);
}

#[tokio::test]
async fn a_token_gives_access_to_one_sandbox_only() {
    let world = World::new().await;
    let ((one, token), (other, _)) = (made(&world).await, made(&world).await);
    inside(&world, &one, Some(&token), "GET", "/health").await.expect(204);
    for (id, token) in
        [(&other, Some(token.as_str())), (&one, None), (&one, Some("")), (&one, Some("nonsense"))]
    {
        refused(&inside(&world, id, token, "GET", "/health").await, 401);
        let answer = inside(&world, id, token, "POST", "/process.Process/List").await;
        assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (401, &json!("unauthenticated")));
        refused(&inside(&world, id, token, "GET", "/files?path=/etc/passwd").await, 401);
    }
    // Without a token, the response does not reveal whether a sandbox exists.
    let unknown = burrow_model::SandboxId::generate().to_string();
    refused(&inside(&world, &unknown, None, "GET", "/health").await, 401);
    let key = |id: &str| {
        let request = world.request(&world.key, "GET", "/health").header("e2b-sandbox-id", id);
        request.body(Body::empty()).unwrap()
    };
    world.raw(key(&one)).await.expect(204);
    refused(&world.raw(key(&unknown)).await, 502);
    let bound = world.new_key(Scope::Exec, Some(&other)).await;
    let request = world.request(&bound, "GET", "/health").header("e2b-sandbox-id", &one);
    refused(&world.raw(request.body(Body::empty()).unwrap()).await, 502);
    // With the token of a deleted sandbox, the response says that it is gone.
    world.send("DELETE", &format!("/sandboxes/{one}")).await.expect(204);
    let answer = inside(&world, &one, Some(&token), "GET", "/health").await;
    refused(&answer, 502);
    assert_eq!(answer.json()["sandboxId"], json!(one));
}

#[tokio::test]
async fn read_keys_receive_no_token() {
    let world = World::new().await;
    let (id, token) = made(&world).await;
    let shown = async |key: &str| {
        world.send_as(key, "GET", &format!("/sandboxes/{id}")).await.expect(200).json()["envdAccessToken"]
            .clone()
    };
    assert_eq!(shown(&world.key).await, json!(token));
    assert_eq!(shown(&world.new_key(Scope::Exec, None).await).await, json!(token));
    let read = world.new_key(Scope::Read, None).await;
    assert_eq!(shown(&read).await, Value::Null);
    for path in ["connect", "pause", "timeout", "fork", "snapshots"] {
        let path = format!("/sandboxes/{id}/{path}");
        refused(&world.send_json_as(&read, "POST", &path, r#"{"timeout": 60}"#).await, 403);
    }
    let request = world.request(&read, "GET", "/health").header("e2b-sandbox-id", &id);
    refused(&world.raw(request.body(Body::empty()).unwrap()).await, 403);
    let exec = world.new_key(Scope::Exec, None).await;
    refused(&world.send_json_as(&exec, "POST", "/v3/templates", r#"{"name": "mine"}"#).await, 403);
}

#[tokio::test]
async fn ports_are_private_unless_the_client_requests_otherwise() {
    let world = World::new().await;
    for (network, public) in [
        ("null", false),
        (r#"{"allowPublicTraffic": false}"#, false),
        (r#"{"allowPublicTraffic": true}"#, true),
    ] {
        let body = format!(r#"{{"templateID": "base", "network": {network}}}"#);
        let made = world.send_json("POST", "/v2/sandboxes", body).await.expect(201).json();
        assert!(made["trafficAccessToken"].is_string(), "{made}");
        let info =
            world.send("GET", &format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap())).await.json();
        assert_eq!(info["network"]["allowPublicTraffic"], json!(public));
    }
}

#[tokio::test]
async fn a_private_port_answers_as_e2bs_proxy_does() {
    let world = World::new().await;
    let (id, _) = made(&world).await;
    let ask = |host: String, header: Option<(&'static str, &'static str)>| {
        let mut request = Request::get("/").header("host", host);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        world.raw(request.body(Body::empty()).unwrap())
    };
    let host = format!("8000-{id}.localhost");
    let answer = ask(host.clone(), None).await.expect(403).json();
    assert_eq!((&answer["sandboxId"], &answer["code"]), (&json!(id), &json!(403)));
    assert!(
        answer["message"].as_str().unwrap().ends_with("'e2b-traffic-access-token' is missing"),
        "{answer}"
    );
    let answer =
        ask(host.clone(), Some(("e2b-traffic-access-token", "bst_nonsense"))).await.expect(403).json();
    assert!(answer["message"].as_str().unwrap().ends_with("is invalid"), "{answer}");
    // An invalid key gets Burrow's own error.
    ask(host, Some(("x-burrow-key", "nonsense"))).await.expect(401);
    // So does every request to a sandbox that was not created by an E2B client.
    let own = world.sandbox("own").await;
    ask(format!("8000-{own}.localhost"), None).await.expect(401);
    ask(format!("8000-{}.localhost", burrow_model::SandboxId::generate()), None).await.expect(401);
}

/// Builds a template; its last status.
async fn built(world: &World, name: &str, instructions: &Value) -> Value {
    let body = json!({ "name": name }).to_string();
    let begun = world.send_json("POST", "/v3/templates", body).await.expect(202).json();
    let build = begun["buildID"].as_str().unwrap();
    let path = format!("/v2/templates/{name}/builds/{build}");
    world.send_json("POST", &path, instructions.to_string()).await.expect(202);
    loop {
        let path = format!("/templates/{name}/builds/{build}/status");
        let status = world.send("GET", &path).await.expect(200).json();
        if status["status"] != "building" {
            return status;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_commands_of_a_template_are_recorded() {
    let world = World::new().await;
    let instructions = json!({ "fromTemplate": "base", "startCmd": "serve", "readyCmd": "true" });
    let status = built(&world, "ready", &instructions).await;
    assert_eq!(status["status"], "ready", "{status}");
    let found = execs(&world).await;
    let starts = found.iter().filter(|event| *event == "exec.start /bin/sh").count();
    assert_eq!(starts, 2, "{found:?}");
}

#[tokio::test]
async fn a_build_with_an_invalid_step_fails_at_that_step() {
    let world = World::new().await;
    for (instructions, step) in [
        (json!({ "fromTemplate": "none-such" }), "base"),
        (json!({ "fromImage": "a", "fromImageRegistry": { "type": "aws" } }), "base"),
        (
            json!({ "fromTemplate": "base", "steps": [
            { "type": "RUN", "args": ["true"] }, { "type": "USER", "args": ["; exit 1"] },
        ] }),
            "2",
        ),
    ] {
        let status = built(&world, "fails", &instructions).await;
        assert_eq!(
            (&status["status"], &status["reason"]["step"]),
            (&json!("error"), &json!(step)),
            "{status}"
        );
    }
}

/// A server that speaks HTTPS only, with a certificate that no client trusts. As Python's, it ends a response by closing
/// the connection, without a TLS alert.
async fn https_server() -> SocketAddr {
    let files = super::wire::files();
    let certificate = CertificateDer::from_pem_file(files.cert).unwrap();
    let key = PrivateKeyDer::from_pem_file(files.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut seen = Vec::new();
            // A request without a body, or with the body of this test.
            while !seen.ends_with(if seen.starts_with(b"POST") { b"end!" } else { b"\r\n\r\n" }) {
                if stream.read_buf(&mut seen).await.unwrap() == 0 {
                    break;
                }
            }
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").await.unwrap();
            stream.flush().await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn requests_to_https_ports_reach_servers_that_speak_https() {
    let world = World::new().await;
    let address = https_server().await;
    for port in [8443, 8444] {
        world.network.serve_port(port, Some(address));
    }
    let network = json!({ "httpsPorts": [8443], "allowPublicTraffic": true });
    let body = json!({ "templateID": "base", "network": network }).to_string();
    let made = world.send_json("POST", "/v2/sandboxes", body).await.expect(201).json();
    let id = made["sandboxID"].as_str().unwrap();
    let ask = |method: &str, port: u16, body: &'static str| {
        let request =
            Request::builder().method(method).uri("/").header("host", format!("{port}-{id}.localhost"));
        world.raw(request.body(Body::from(body)).unwrap())
    };
    for (method, body) in [("GET", ""), ("POST", "the end!")] {
        assert_eq!(ask(method, 8443, body).await.expect(200).body, "hello", "{method}");
    }
    ask("GET", 8444, "").await.expect(502);
    let info = world.send("GET", &format!("/sandboxes/{id}")).await.json();
    assert_eq!(info["network"]["httpsPorts"], json!([8443]));
    let path = format!("/sandboxes/{id}/network");
    refused(&world.send_json("PUT", &path, r#"{"httpsPorts": [1]}"#).await, 501);
}

#[tokio::test]
async fn a_masked_host_is_stored_with_the_sandbox() {
    let world = World::new().await;
    let make = |mask: &str| {
        let body = json!({ "templateID": "base", "network": { "maskRequestHost": mask } });
        world.send_json("POST", "/v2/sandboxes", body.to_string())
    };
    let made = make("localhost:${PORT}").await.expect(201).json();
    let info = world.send("GET", &format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap())).await.json();
    assert_eq!(info["network"]["maskRequestHost"], json!("localhost:${PORT}"));
    refused(&make("a b").await, 400);
}

#[tokio::test]
async fn request_headers_are_replaced_as_a_whole_and_shown_to_those_who_may_set_them() {
    let world = World::new().await;
    let rules = json!({ "API.example.com": [{ "transform": { "headers": { "Authorization": "Bearer sk-canary" } } }] });
    let shown = json!({ "api.example.com": [{ "transform": { "headers": { "Authorization": "Bearer sk-canary" } } }] });
    let body = json!({ "templateID": "base", "network": { "rules": rules, "denyOut": ["0.0.0.0/0"] } });
    let made = world.send_json("POST", "/v2/sandboxes", body.to_string()).await.expect(201).json();
    let id = made["sandboxID"].as_str().unwrap();
    let network = async |key: &str| {
        world.send_as(key, "GET", &format!("/sandboxes/{id}")).await.expect(200).json()["network"].clone()
    };
    let first = network(&world.key).await;
    assert_eq!((&first["rules"], &first["allowOut"]), (&shown, &json!([])), "headers allow nothing");
    // Read keys, and keys that may be inside, see no values.
    let read = world.new_key(Scope::Read, None).await;
    let bound = world.new_key(Scope::Exec, Some(id)).await;
    for key in [&read, &bound] {
        let seen = network(key).await["rules"].clone();
        assert_eq!(seen["api.example.com"][0]["transform"]["headers"]["Authorization"], json!("***"));
    }
    let own = world.send("GET", &format!("/v1/sandboxes/{id}")).await.expect(200).json().to_string();
    assert!(!own.contains("canary") && !own.contains("sealed"), "{own}");

    let path = format!("/sandboxes/{id}/network");
    let put = |body: Value| world.send_json("PUT", &path, body.to_string());
    refused(&world.send_json_as(&bound, "PUT", &path, json!({ "rules": rules }).to_string()).await, 403);
    let other = json!({ "*.example.com": [{ "transform": { "headers": { "X-Team": "blue" } } }] });
    put(json!({ "rules": other })).await.expect(204);
    assert_eq!(network(&world.key).await["rules"], other);
    for (bad, status) in [
        (json!({ "*": [] }), 400),
        (json!({ "a.example": [{ "transform": { "headers": { "Host": "b.example" } } }] }), 400),
        (
            json!({ "a.example": [{ "transform": { "headers": { "X-A": "${e2b.identity.tokens.aws}" } } }] }),
            501,
        ),
    ] {
        refused(&put(json!({ "rules": bad })).await, status);
    }
    assert_eq!(network(&world.key).await["rules"], other, "a refused change changes nothing");
    put(json!({})).await.expect(204);
    assert_eq!(network(&world.key).await["rules"], Value::Null);
}

#[tokio::test]
async fn snapshots_have_names_of_e2bs_alphabet() {
    let world = World::new().await;
    let (id, _) = made(&world).await;
    let path = format!("/sandboxes/{id}/snapshots");
    let taken = world.send_json("POST", &path, r#"{"name": "My_Snap"}"#).await.expect(201).json();
    assert_eq!(taken["names"], json!(["my_snap"]));
    let listed = world.send("GET", "/snapshots?name=my_snap").await.expect(200).json();
    assert_eq!(listed[0]["snapshotID"], taken["snapshotID"]);
    assert_eq!(world.send("GET", "/snapshots?name=my-snap").await.expect(200).json(), json!([]));
    let alias = world.send("GET", "/templates/aliases/my_snap").await.expect(200).json();
    assert_eq!(alias["templateID"], taken["snapshotID"]);
    world.send_json("POST", "/v2/sandboxes", r#"{"templateID": "my_snap:default"}"#).await.expect(201);
    refused(&world.send_json("POST", &path, r#"{"name": "my snap"}"#).await, 400);
    world.send("DELETE", "/templates/my_snap").await.expect(204);
}

#[tokio::test]
async fn the_log_of_a_sandbox_has_its_commands() {
    let world = World::new().await;
    let (id, _) = made(&world).await;
    let exec = json!({ "argv": ["false"], "wait": false });
    world.send_json("POST", &format!("/v1/sandboxes/{id}/execs"), exec.to_string()).await;
    // Execs are recorded asynchronously; reading events waits for that.
    world.events_of(&id).await;
    let logs = world.send("GET", &format!("/v2/sandboxes/{id}/logs")).await.expect(200).json();
    let messages: Vec<_> = logs["logs"].as_array().unwrap().iter().map(|entry| &entry["message"]).collect();
    assert!(
        messages.contains(&&json!("Sandbox created")) && messages.contains(&&json!("Process started")),
        "{logs}"
    );
    let lines = world.send("GET", &format!("/sandboxes/{id}/logs?limit=1")).await.expect(200).json();
    let line: Value = serde_json::from_str(lines["logs"][0]["line"].as_str().unwrap()).unwrap();
    assert_eq!((&line["level"], lines["logs"].as_array().unwrap().len()), (&json!("info"), 1), "{lines}");
    refused(&world.send("GET", "/sandboxes/sbxnone/logs").await, 404);
}

#[tokio::test]
async fn publishing_a_template_is_accepted() {
    let world = World::new().await;
    world.send_json("PATCH", "/templates/base", r#"{"public": true}"#).await.expect(200);
    refused(&world.send_json("PATCH", "/v2/templates/no-such", r#"{"public": false}"#).await, 404);
    refused(&world.send_json("PATCH", "/templates/base", r#"{"newer": true}"#).await, 501);
}

#[tokio::test]
async fn a_signed_url_is_valid_for_one_file() {
    let world = World::new().await;
    let (id, token) = made(&world).await;
    let signature = |path: &str, way: &str, expires: &str| {
        use base64::Engine as _;
        let words = format!("{path}:{way}:root:{token}{expires}");
        let hash = ring::digest::digest(&ring::digest::SHA256, words.as_bytes());
        let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(hash);
        format!("v1_{}", text.replace('+', "%2B").replace('/', "%2F"))
    };
    let written = inside(&world, &id, Some(&token), "POST", "/files?path=/x&username=root").await;
    assert_eq!(written.status.as_u16(), 200, "{}", written.json());
    let get = async |query: String| {
        let request = Request::get(format!("/files?{query}")).body(Body::empty()).unwrap();
        world.raw(request).await.status.as_u16()
    };
    let good = signature("/x", "read", "");
    assert_eq!(get(format!("path=/x&username=root&signature={good}")).await, 200);
    assert_eq!(get(format!("path=/y&username=root&signature={good}")).await, 401);
    assert_eq!(get(format!("path=/x&username=user&signature={good}")).await, 401);
    assert_eq!(get("path=/x&username=root&signature=v1_x".to_owned()).await, 401);
    let write = signature("/x", "write", "");
    assert_eq!(get(format!("path=/x&username=root&signature={write}")).await, 401);
    let past = signature("/x", "read", ":17");
    assert_eq!(get(format!("path=/x&username=root&signature={past}&signature_expiration=17")).await, 401);
    // A URL that names its sandbox is checked with that sandbox's token only.
    assert_eq!(get(format!("path=/x&username=root&signature={good}&sandbox_id={id}")).await, 200);
    let (other, _) = made(&world).await;
    assert_eq!(get(format!("path=/x&username=root&signature={good}&sandbox_id={other}")).await, 401);
    assert_eq!(get(format!("path=/x&username=root&signature={good}&sandbox_id=x")).await, 401);
    // Admitted requests are in the audit log; rejected ones could be anyone's.
    let events = world.send("GET", "/v1/audit?action=link.use").await.expect(200).json();
    assert_eq!(events["items"].as_array().unwrap().len(), 2, "{events}");
    assert_eq!(events["items"][0]["sandbox_id"], id.as_str());
}

/// The status of a read of `/x` with a URL that names no sandbox.
async fn unnamed(world: &World, token: &str) -> u16 {
    let uri = format!("/files?path=/x&username=root&signature={}", signature(token, "/x"));
    world.raw(Request::get(uri).body(Body::empty()).unwrap()).await.status.as_u16()
}

#[tokio::test]
async fn a_url_without_a_sandbox_is_checked_with_the_tokens_that_clients_received() {
    let mut world = World::new().await;
    for number in 0..40 {
        world.sandbox(&format!("own{number}")).await;
    }
    let ((one, token), (other, others)) = (made(&world).await, made(&world).await);
    for (id, token) in [(&one, &token), (&other, &others)] {
        let written = inside(&world, id, Some(token), "POST", "/files?path=/x&username=root").await;
        assert_eq!(written.status.as_u16(), 200, "{}", written.json());
    }
    let refused = Request::get("/files?path=/x&username=root&signature=v1_x").body(Body::empty()).unwrap();
    let answer = world.raw(refused).await.expect(401).json();
    assert!(answer["message"].as_str().unwrap().contains("&sandbox_id="), "{answer}");
    assert_eq!(world.app.part::<Lookups>().tries(), 2, "42 sandboxes, two tokens that clients received");
    assert_eq!((unnamed(&world, &token).await, unnamed(&world, &others).await), (200, 200));
    // After a restart, the sandboxes with the newest leases are those whose tokens clients have.
    world.restart().await;
    assert_eq!((unnamed(&world, &token).await, unnamed(&world, &others).await), (200, 200));
    assert_eq!(unnamed(&world, "nonsense").await, 401);
    assert!(world.app.part::<Lookups>().tries() <= 6, "{} tries", world.app.part::<Lookups>().tries());
    // Revoked tokens and deleted sandboxes are forgotten.
    world.send("POST", &format!("/v1/sandboxes/{one}/revoke-tokens")).await.expect(204);
    world.send("DELETE", &format!("/sandboxes/{other}")).await.expect(204);
    assert_eq!((unnamed(&world, &token).await, unnamed(&world, &others).await), (401, 401));
    let again = world.send_json("POST", &format!("/sandboxes/{one}/connect"), "{}").await.expect(200).json();
    assert_eq!(unnamed(&world, again["envdAccessToken"].as_str().unwrap()).await, 200);
}

#[tokio::test]
async fn revoked_tokens_are_rejected_and_new_ones_accepted() {
    let world = World::new().await;
    let ((id, token), (other, others)) = (made(&world).await, made(&world).await);
    let health =
        async |id: &str, token: &str| inside(&world, id, Some(token), "GET", "/health").await.status.as_u16();
    assert_eq!((health(&id, &token).await, health(&other, &others).await), (204, 204));
    let path = format!("/v1/sandboxes/{id}/revoke-tokens");
    world.send("POST", &path).await.expect(204);
    assert_eq!((health(&id, &token).await, health(&other, &others).await), (401, 204));
    let again = world.send_json("POST", &format!("/sandboxes/{id}/connect"), "{}").await.expect(200).json();
    let next = again["envdAccessToken"].as_str().unwrap();
    assert_ne!(next, token);
    assert_eq!(health(&id, next).await, 204);
    // Nothing else changed: the sandbox runs, and keys are valid.
    assert_eq!(world.state_of(&id).await, "running");
    world
        .send("POST", &format!("/v1/sandboxes/{}/revoke-tokens", burrow_model::SandboxId::generate()))
        .await
        .expect(404);
    let events = world.send("GET", "/v1/audit?action=token.revoke&outcome=done").await.expect(200).json();
    assert_eq!(events["items"].as_array().unwrap().len(), 1, "{events}");
}

#[tokio::test]
async fn a_command_is_a_stream_of_events() {
    let world = World::new().await;
    let (id, token) = made(&world).await;
    let body = json!({ "process": { "cmd": "echo", "args": ["hi"] }, "stdin": false }).to_string();
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
    framed.extend_from_slice(body.as_bytes());
    let request = |bytes: Vec<u8>| {
        Request::post("/process.Process/Start")
            .header("e2b-sandbox-id", &id)
            .header("x-access-token", &token)
            .header("content-type", "application/connect+json")
            .body(Body::from(bytes))
            .unwrap()
    };
    let messages = messages(&world.raw(request(framed)).await.expect(200).body);
    assert!(messages[0]["event"]["start"]["pid"].is_number(), "{messages:?}");
    assert!(messages.iter().any(|message| message["event"]["data"]["stdout"].is_string()), "{messages:?}");
    let last = &messages[messages.len() - 2]["event"]["end"];
    assert_eq!((&last["exitCode"], &last["exited"]), (&json!(0), &json!(true)));
    assert_eq!(messages[messages.len() - 1], json!({}));
    for hostile in
        [vec![], vec![0, 0xff, 0xff, 0xff, 0xff], vec![1, 0, 0, 0, 2, b'{', b'}'], vec![0, 0, 0, 0, 1, b'x']]
    {
        let answer = world.raw(request(hostile.clone())).await.expect(200);
        let told = self::messages(&answer.body);
        assert!(told[0]["error"]["code"].is_string(), "{hostile:?}: {told:?}");
    }
}

fn messages(bytes: &[u8]) -> Vec<Value> {
    let (mut rest, mut all) = (bytes, Vec::new());
    while let [_, a, b, c, d, after @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        all.push(serde_json::from_slice(&after[..length]).unwrap());
        rest = &after[length..];
    }
    all
}

#[tokio::test]
async fn a_pause_removes_the_end_and_a_connect_sets_one() {
    let world = World::new().await;
    let (id, _) = made(&world).await;
    let info = async || world.send("GET", &format!("/sandboxes/{id}")).await.expect(200).json();
    world.send_json("POST", &format!("/sandboxes/{id}/pause"), r#"{"memory": false}"#).await.expect(204);
    assert_eq!(
        (info().await["state"].as_str(), info().await["pauseMode"].as_str()),
        (Some("paused"), Some("filesystem"))
    );
    refused(&world.send_json("POST", &format!("/sandboxes/{id}/pause"), "{}").await, 409);
    let kept = world.send("GET", &format!("/v1/sandboxes/{id}")).await.json();
    assert!(kept["expires_ms"].is_null(), "{kept}");
    world.send_json("POST", &format!("/v2/sandboxes/{id}/connect"), r#"{"timeout": 77}"#).await.expect(201);
    world.send_json("POST", &format!("/sandboxes/{id}/connect"), r#"{"timeout": 1}"#).await.expect(200);
    assert_eq!(info().await["state"], "running");
    let kept = world.send("GET", &format!("/v1/sandboxes/{id}")).await.json();
    assert!(kept["expires_ms"].is_number(), "{kept}");
}

#[tokio::test]
async fn sandboxes_that_e2b_clients_did_not_create_are_never_deleted_by_their_timeouts() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    world.send_json("POST", &format!("/sandboxes/{id}/timeout"), r#"{"timeout": 60}"#).await.expect(204);
    let info = world.send("GET", &format!("/sandboxes/{id}")).await.expect(200).json();
    assert_eq!(info["lifecycle"]["onTimeout"], "pause");
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let world = World::new().await;
    for metadata in [r#"{"k": "v v"}"#, r#"{"k": "other"}"#, "{}"] {
        let body = format!(r#"{{"templateID": "base", "metadata": {metadata}}}"#);
        world.send_json("POST", "/v2/sandboxes", body).await.expect(201);
    }
    let count = async |query: &str| {
        let list = world.send("GET", &format!("/v2/sandboxes{query}")).await.expect(200).json();
        list.as_array().unwrap().len()
    };
    assert_eq!(count("").await, 3);
    assert_eq!(count("?metadata=k%3Dv%252520v").await, 1);
    assert_eq!(count("?state=paused").await, 0);
    assert_eq!(count("?state=running,paused&limit=2").await, 2);
    let page = world.send("GET", "/v2/sandboxes?limit=2").await;
    let next = page.headers["x-next-token"].to_str().unwrap().to_owned();
    assert_eq!(count(&format!("?limit=2&nextToken={next}")).await, 1);
    refused(&world.send("GET", "/v2/sandboxes?colour=red").await, 501);
    refused(&world.send("GET", "/v2/sandboxes?nextToken=nonsense").await, 400);
}

#[tokio::test]
async fn health_depends_on_the_state_and_wakes_nothing() {
    let world = World::new().await;
    let (id, token) = made(&world).await;
    let state = async || {
        world.send("GET", &format!("/sandboxes/{id}")).await.expect(200).json()["state"]
            .as_str()
            .map(str::to_owned)
    };
    inside(&world, &id, Some(&token), "GET", "/health").await.expect(204);
    world.send_json("POST", &format!("/sandboxes/{id}/pause"), r#"{"memory": false}"#).await.expect(204);
    refused(&inside(&world, &id, Some(&token), "GET", "/health").await, 502);
    assert_eq!(state().await.as_deref(), Some("paused"), "nothing woke it");
    // A use wakes it, because its client did not disable that.
    inside(&world, &id, Some(&token), "POST", "/process.Process/List").await.expect(200);
    assert_eq!(state().await.as_deref(), Some("running"));
}

#[tokio::test]
async fn browsers_get_a_page_instead_of_the_body_of_e2b() {
    const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0";
    let world = World::new().await;
    let body = r#"{"templateID": "base", "autoPause": true}"#;
    let made = world.send_json("POST", "/v2/sandboxes", body).await.expect(201).json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let (id, token) = (text("sandboxID"), text("trafficAccessToken"));
    let ask = async |token: &str, agent: &str| {
        let request = Request::get("/")
            .header("host", format!("8000-{id}.localhost:7700"))
            .header("e2b-traffic-access-token", token)
            .header("user-agent", agent);
        world.raw(request.body(Body::empty()).unwrap()).await
    };
    let shows = |answer: &Answer, status: u16, title: &str| {
        let page = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status.as_u16(), status, "{page}");
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
        assert!(page.contains(&format!("<title>{title}</title>")), "{page}");
    };
    refused(&ask("wrong", "node").await, 403);
    shows(&ask("wrong", FIREFOX).await, 403, "Traffic Access Token Required");
    world.send_json("POST", &format!("/sandboxes/{id}/pause"), r#"{"memory": false}"#).await.expect(204);
    refused(&ask(&token, "node").await, 502);
    shows(&ask(&token, FIREFOX).await, 502, "Sandbox Not Found");
}

#[tokio::test]
async fn auto_pause_without_auto_resume_needs_a_connect() {
    let world = World::new().await;
    for (resume, wakes) in [("", false), (r#", "autoResume": {"enabled": true}"#, true)] {
        let body = format!(r#"{{"templateID": "base", "autoPause": true{resume}}}"#);
        let made = world.send_json("POST", "/v2/sandboxes", body).await.expect(201).json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        let (id, token) = (text("sandboxID"), text("envdAccessToken"));
        let info = world.send("GET", &format!("/sandboxes/{id}")).await.expect(200).json();
        assert_eq!(info["lifecycle"]["autoResume"], json!(wakes));
        world.send_json("POST", &format!("/sandboxes/{id}/pause"), r#"{"memory": false}"#).await.expect(204);
        let port = traffic(&world, &id, made["trafficAccessToken"].as_str().unwrap()).await;
        let file = format!("/files?path=/x&username=root&signature={}", signature(&token, "/x"));
        let signed = world.raw(Request::get(file).body(Body::empty()).unwrap()).await;
        let code = inside_port(&world, &id, &token, "49999", "/contexts").await;
        let used = inside(&world, &id, Some(&token), "POST", "/process.Process/List").await;
        if wakes {
            assert_eq!(used.status.as_u16(), 200);
        } else {
            for answer in [port, signed, code, used] {
                refused(&answer, 502);
                assert_eq!(answer.json()["message"], "The sandbox was not found");
            }
            assert_ne!(world.state_of(&id).await, "running", "nothing woke it");
        }
        world.send_json("POST", &format!("/sandboxes/{id}/connect"), r#"{"timeout": 60}"#).await;
        inside(&world, &id, Some(&token), "POST", "/process.Process/List").await.expect(200);
    }
}

/// Sends a request to a port by the host name that clients use.
async fn traffic(world: &World, id: &str, token: &str) -> Answer {
    let request = Request::get("/")
        .header("host", format!("8000-{id}.localhost:7700"))
        .header("e2b-traffic-access-token", token);
    world.raw(request.body(Body::empty()).unwrap()).await
}

/// Sends a request to a port by E2B's headers.
async fn inside_port(world: &World, id: &str, token: &str, port: &str, path: &str) -> Answer {
    let request = Request::get(path)
        .header("e2b-sandbox-id", id)
        .header("e2b-sandbox-port", port)
        .header("x-access-token", token);
    world.raw(request.body(Body::empty()).unwrap()).await
}

/// The signature of a URL with which root reads a file.
fn signature(token: &str, path: &str) -> String {
    use base64::Engine as _;
    let words = format!("{path}:read:root:{token}");
    let hash = ring::digest::digest(&ring::digest::SHA256, words.as_bytes());
    let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(hash);
    format!("v1_{}", text.replace('+', "%2B").replace('/', "%2F"))
}

#[tokio::test]
async fn a_list_of_sandboxes_started_after_a_time_includes_those_started_at_that_time() {
    let world = World::new().await;
    let (id, _) = made(&world).await;
    let info = world.send("GET", &format!("/sandboxes/{id}")).await.expect(200).json();
    let started = info["startedAt"].as_str().unwrap();
    let list = world.send("GET", &format!("/v2/sandboxes?startedAfter={started}")).await.expect(200).json();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
}

#[tokio::test]
async fn an_expired_signature_has_its_own_error() {
    let world = World::new().await;
    let uri = "/files?path=/x&username=root&signature=v1_x&signature_expiration=17";
    let answer = world.raw(Request::get(uri).body(Body::empty()).unwrap()).await;
    refused(&answer, 401);
    assert_eq!(answer.json()["message"], "signature is already expired");
}
