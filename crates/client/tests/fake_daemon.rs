//! The client against a fake daemon: responses, refusals, and connections that break at the worst moment.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

#[path = "fake_daemon/memory.rs"]
mod memory;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use burrow_client::api::{
    CreateExec, CreateSandbox, CreateSnapshot, ErrorCode, ForkSandbox, OutputStream, RestoreSandbox,
    SandboxFromSnapshot, SandboxState, SnapshotKind, encode_output,
};
use burrow_client::{
    ApiKey, AttachEvent, AttachMode, AttachOptions, Client, ClientError, ClientOptions, EventQuery,
    SnapshotQuery, UploadBody, UploadOptions,
};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

type Body = UnsyncBoxBody<Bytes, Infallible>;
/// `None` closes the connection without a response.
type FakeResponse = Option<Response<Body>>;
type Handler =
    Arc<dyn Fn(usize, Request<Incoming>) -> Pin<Box<dyn Future<Output = FakeResponse> + Send>> + Send + Sync>;

/// Starts a fake daemon. The handler receives the number of requests before.
async fn daemon<F>(handler: impl Fn(usize, Request<Incoming>) -> F + Send + Sync + 'static) -> Client
where
    F: Future<Output = FakeResponse> + Send + 'static,
{
    let handler: Handler = Arc::new(move |count, request| Box::pin(handler(count, request)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(Mutex::new(0));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (handler, count) = (handler.clone(), count.clone());
            let service = service_fn(move |request| {
                let before = {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    *count - 1
                };
                let response = handler(before, request);
                async move { response.await.ok_or("closed") }
            });
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection.with_upgrades());
        }
    });
    client(&url)
}

fn client(url: &str) -> Client {
    Client::new(ClientOptions { url: url.to_owned(), key: Some(ApiKey::new("e2b_test")), ca_file: None })
        .unwrap()
}

fn response(status: u16, body: impl Into<Bytes>) -> FakeResponse {
    let body = Full::new(body.into()).boxed_unsync();
    Some(Response::builder().status(status).body(body).unwrap())
}

fn json(status: u16, value: &Value) -> FakeResponse {
    response(status, value.to_string())
}

/// Sends chunks as given, so that lines can be split anywhere. Without a last chunk, the connection breaks.
fn chunks(chunks: Vec<&'static str>) -> FakeResponse {
    let frames = chunks.into_iter().map(|chunk| Ok(Frame::data(Bytes::from(chunk))));
    Some(Response::new(BodyExt::boxed_unsync(StreamBody::new(futures_util::stream::iter(frames)))))
}

fn sandbox(id: &str) -> Value {
    json!({
        "id": id, "name": null, "state": "running", "stop_reason": null, "failure": null, "image": "debian",
        "image_id": "img", "driver": "container",
        "limits": { "ram_mib": 1, "cpu_millis": 1, "pids": 1, "disk_mib": 1 },
        "env": {}, "labels": {}, "workdir": null, "user": null, "ephemeral": false, "expires_ms": null,
        "created_ms": 0, "started_ms": null, "stopped_ms": null, "services": []
    })
}

fn exec(state: &str) -> Value {
    json!({
        "id": "exe", "sandbox_id": "sbx", "argv": ["true"], "state": state, "pid": 1, "terminal": false,
        "started_ms": 0, "ended_ms": null, "outcome": null, "output_end": 0, "output_start": 0, "output_dropped": 0
    })
}

fn snapshot(id: &str) -> Value {
    json!({
        "id": id, "name": null, "description": "", "labels": {}, "kind": "before-restore", "sandbox_id": "sbx",
        "sandbox_name": "web", "parent": null, "image": "debian", "image_id": "img", "processes": true,
        "ram_bytes": 1, "disk_bytes": 2, "pause_us": 3,
        "changes": { "paths": [{ "path": "/x", "kind": "added" }], "total": 1, "since": null },
        "created_ms": 0, "expires_ms": null
    })
}

/// Method and path with query, and the body.
async fn request_of(request: Request<Incoming>) -> (String, String) {
    let line = format!("{} {}", request.method(), request.uri().path_and_query().unwrap());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    (line, String::from_utf8(body.to_vec()).unwrap())
}

/// Accepts a WebSocket and passes it to `talk`.
fn websocket<F>(
    mut request: Request<Incoming>,
    talk: impl FnOnce(WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>) -> F + Send + 'static,
) -> FakeResponse
where
    F: Future<Output = ()> + Send + 'static,
{
    let accept = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(&mut request).await.unwrap();
        talk(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await).await;
    });
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", accept);
    Some(response.body(Full::default().boxed_unsync()).unwrap())
}

fn output(offset: u64, text: &str) -> Message {
    Message::binary(encode_output(OutputStream::Stdout, offset, text.as_bytes()))
}

fn exit() -> Message {
    Message::text(json!({ "kind": "exit", "exec": exec("ended") }).to_string())
}

const FROM_START: AttachOptions = AttachOptions { offset: 0, mode: AttachMode::Lossless };

#[tokio::test]
async fn a_refusal_carries_the_daemons_code_message_and_hint() {
    let client = daemon(|_, request| async move {
        assert_eq!(request.headers()["x-api-key"], "e2b_test");
        assert_eq!(request.uri().path(), "/v1/sandboxes/no%20such");
        json(404, &json!({ "error": { "code": "not_found", "message": "sandbox `x` does not exist", "hint": "burrow ls" } }))
    })
    .await;
    let error = client.sandbox("no such").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NotFound));
    assert_eq!(error.to_string(), "sandbox `x` does not exist");
    assert_eq!(error.hint().as_deref(), Some("burrow ls"));
}

#[tokio::test]
async fn a_response_that_is_not_from_a_daemon_is_recognised() {
    let proxy = daemon(|_, _| async { response(502, "<html>Bad \u{1b}Gateway") }).await;
    let error = proxy.sandbox("x").await.unwrap_err();
    assert!(
        matches!(&error, ClientError::NotBurrow { text, .. } if text == "<html>Bad \\u{1b}Gateway"),
        "{error:?}"
    );
    let page = daemon(|_, _| async { response(200, "<html>") }).await;
    assert!(matches!(page.sandbox("x").await.unwrap_err(), ClientError::Decode { .. }));
}

#[tokio::test]
async fn an_unreachable_daemon_is_reported_at_once_with_a_hint() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let error = client(&format!("http://{closed}")).sandbox("x").await.unwrap_err();
    assert!(error.is_unreachable());
    assert_eq!(error.hint().as_deref(), Some("is the daemon running? try `burrow up`"));
}

#[tokio::test]
async fn a_create_whose_connection_breaks_is_repeated_with_the_same_key() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = keys.clone();
    let client = daemon(move |count, request| {
        seen.lock().unwrap().push(request.headers()["idempotency-key"].to_str().unwrap().to_owned());
        async move { if count < 2 { None } else { json(201, &sandbox("sbx1")) } }
    })
    .await;
    assert_eq!(client.create_sandbox(&CreateSandbox::default()).await.unwrap().id, "sbx1");
    let first = keys.lock().unwrap().clone();
    assert_eq!(first.len(), 3);
    assert!(first.iter().all(|key| *key == first[0] && key.len() >= 20), "{first:?}");
    client.create_sandbox(&CreateSandbox::default()).await.unwrap();
    assert_ne!(keys.lock().unwrap()[3], first[0], "another create has another key");
}

#[tokio::test]
async fn unsafe_requests_are_not_repeated() {
    let count = Arc::new(Mutex::new(0));
    let seen = count.clone();
    let client = daemon(move |_, _| {
        *seen.lock().unwrap() += 1;
        async { None }
    })
    .await;
    assert!(matches!(client.start_sandbox("x").await.unwrap_err(), ClientError::Broken { .. }));
    assert_eq!(*count.lock().unwrap(), 1);
}

#[tokio::test]
async fn pages_are_followed_to_the_last() {
    let client = daemon(|_, request| async move {
        let query = request.uri().query().unwrap();
        assert!(query.starts_with("label=a%3Db&"), "{query}");
        let page = match query.contains("cursor=two") {
            false => json!({ "items": [sandbox("sbx1")], "next_cursor": "two" }),
            true => json!({ "items": [sandbox("sbx2")] }),
        };
        json(200, &page)
    })
    .await;
    let query = burrow_client::SandboxQuery { labels: vec!["a=b".to_owned()], state: None };
    let ids: Vec<_> =
        client.all_sandboxes(&query).await.unwrap().into_iter().map(|sandbox| sandbox.id).collect();
    assert_eq!(ids, ["sbx1", "sbx2"]);
}

#[tokio::test]
async fn readiness_lists_what_the_daemon_waits_for() {
    let client =
        daemon(|_, _| async { json(503, &json!({ "ready": false, "waiting_for": ["the pool"] })) }).await;
    assert_eq!(client.readiness().await.unwrap().waiting_for, ["the pool"]);
}

#[tokio::test]
async fn events_arrive_once_and_in_order_despite_split_lines_and_dropped_connections() {
    let client = daemon(|count, request| async move {
        let query = request.uri().query().unwrap_or_default().to_owned();
        match count {
            0 => chunks(vec![
                "{\"seq\":1,\"at_ms\":0,\"kind\":\"a\",\"sandbox_id\":null,\"exec_id\":null,\"det",
                "ail\":{}}\n\n{\"seq\":2,\"at_ms\":0,\"kind\":\"b\",\"sandbox_id\":null,\"exec_id\":null,\"detail\":{}}\n",
            ]),
            _ => {
                assert_eq!(query, "since=2&follow=true");
                chunks(vec!["{\"seq\":3,\"at_ms\":0,\"kind\":\"c\",\"sandbox_id\":null,\"exec_id\":null,\"detail\":{}}\n"])
            }
        }
    })
    .await;
    let query = EventQuery { since: None, follow: true, sandbox: None };
    let mut events = client.events(query).await.unwrap();
    for seq in 1..=3 {
        assert_eq!(events.next().await.unwrap().unwrap().seq, seq);
    }
}

#[tokio::test]
async fn a_stream_that_ends_within_a_line_is_an_error() {
    let client = daemon(|_, _| async { chunks(vec!["{\"seq\":1"]) }).await;
    let mut events = client.events(EventQuery::default()).await.unwrap();
    assert!(matches!(events.next().await.unwrap_err(), ClientError::Truncated { .. }));
}

#[tokio::test]
async fn files_are_streamed_with_their_length() {
    const LENGTH: usize = 3 << 20;
    let client = daemon(|_, request| async move {
        if request.method() == http::Method::GET {
            let body = Full::new(Bytes::from(vec![7; LENGTH])).boxed_unsync();
            return Some(Response::builder().header("x-burrow-mode", "0755").body(body).unwrap());
        }
        assert_eq!(request.headers()["content-length"], LENGTH.to_string().as_str());
        assert_eq!(request.uri().query(), Some("path=%2Fa%20b&mode=0600&parents=true"));
        let received = request.into_body().collect().await.unwrap().to_bytes();
        assert!(received.iter().all(|byte| *byte == 7));
        json(200, &json!({
            "name": "a b", "path": "/a b", "kind": "file", "size": received.len(), "mode": "0600", "uid": 0, "gid": 0,
            "user": null, "group": null, "modified_ms": 0, "target": null
        }))
    })
    .await;
    // The source has grown since its length was read: only the announced length is sent.
    let source = std::io::Cursor::new(vec![7; LENGTH + 100]);
    let body = UploadBody::from_reader(source, Some(LENGTH as u64));
    let options = UploadOptions { mode: Some("0600".to_owned()), parents: true, ..UploadOptions::default() };
    let entry = client.upload("x", "/a b", &options, body).await.unwrap();
    assert_eq!(entry.size, LENGTH as u64);

    let download = client.download("x", "/a b", None).await.unwrap();
    assert_eq!((download.length, download.mode.as_deref()), (Some(LENGTH as u64), Some("0755")));
    let mut content = Vec::new();
    assert_eq!(download.bytes.copy_to(&mut content, |_| {}).await.unwrap(), LENGTH as u64);
    assert_eq!(content.len(), LENGTH);
}

#[tokio::test]
async fn an_attachment_survives_a_lost_connection_without_missing_or_repeating_a_byte() {
    let client = daemon(|count, request| async move {
        let query = request.uri().query().unwrap().to_owned();
        match count {
            0 => websocket(request, |mut socket| async move {
                socket.send(output(0, "hello ")).await.unwrap();
                // Dropped without a close frame, as by a daemon that is killed.
            }),
            // The daemon is restarting.
            1 => response(502, ""),
            2 => None,
            _ => {
                assert_eq!(query, "offset=6&mode=lossless");
                websocket(request, |mut socket| async move {
                    // Begins before the requested byte.
                    socket.send(output(3, "lo world")).await.unwrap();
                    socket.send(exit()).await.unwrap();
                    while let Some(Ok(_)) = socket.next().await {}
                })
            }
        }
    })
    .await;
    let (_sender, mut attachment) = client.attach("sbx", "exe", FROM_START).await.unwrap();
    let (mut text, mut again, mut ended) = (String::new(), 0, false);
    loop {
        match attachment.next().await {
            Ok(Some(AttachEvent::Output { bytes, .. })) => text += std::str::from_utf8(&bytes).unwrap(),
            Ok(Some(AttachEvent::Reattached { input_in_doubt })) => {
                assert!(!input_in_doubt);
                again += 1;
            }
            Ok(Some(AttachEvent::Exit(_))) => ended = true,
            Ok(Some(AttachEvent::Gap { .. })) => panic!("nothing is missing"),
            Ok(None) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!((text.as_str(), again, ended), ("hello world", 1, true));
}

#[tokio::test]
async fn a_new_connection_receives_the_terminal_size_and_the_end_of_input_again() {
    let client = daemon(|count, request| async move {
        websocket(request, move |mut socket| async move {
            if count == 0 {
                // Reads the size and disconnects, so the fate of the input is unknown.
                socket.next().await.unwrap().unwrap();
                return;
            }
            let mut texts = Vec::new();
            while texts.len() < 2 {
                if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
                    texts.push(text.to_string());
                }
            }
            texts.sort();
            assert!(texts[0].contains("close-stdin") && texts[1].contains("99"), "{texts:?}");
            socket.send(exit()).await.unwrap();
            while let Some(Ok(_)) = socket.next().await {}
        })
    })
    .await;
    let (sender, mut attachment) = client.attach("sbx", "exe", FROM_START).await.unwrap();
    sender.resize(99, 33).await.unwrap();
    sender.stdin("input").await.unwrap();
    sender.close_stdin().await.unwrap();
    assert_eq!(attachment.next().await.unwrap(), Some(AttachEvent::Reattached { input_in_doubt: true }));
    assert!(matches!(attachment.next().await.unwrap(), Some(AttachEvent::Exit(_))));
    assert_eq!(attachment.next().await.unwrap(), None);
}

#[tokio::test]
async fn acknowledged_input_is_not_in_doubt() {
    let client = daemon(|count, request| async move {
        websocket(request, move |mut socket| async move {
            if count == 0 {
                // Five bytes and the end of input.
                let last = Bytes::copy_from_slice(&6u64.to_be_bytes());
                while socket.next().await.unwrap().unwrap() != Message::Ping(last.clone()) {}
                socket.flush().await.unwrap();
                socket.send(output(0, "taken")).await.unwrap();
                return;
            }
            socket.send(exit()).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                assert!(!message.is_text(), "the end of input is not sent again: {message}");
            }
        })
    })
    .await;
    let (sender, mut attachment) = client.attach("sbx", "exe", FROM_START).await.unwrap();
    sender.stdin("input").await.unwrap();
    sender.close_stdin().await.unwrap();
    assert!(matches!(attachment.next().await.unwrap(), Some(AttachEvent::Output { .. })));
    assert_eq!(attachment.next().await.unwrap(), Some(AttachEvent::Reattached { input_in_doubt: false }));
    assert!(matches!(attachment.next().await.unwrap(), Some(AttachEvent::Exit(_))));
}

#[tokio::test]
async fn an_exec_that_echoes_its_input_does_not_deadlock_with_the_client() {
    const PIECES: usize = 200;
    const PIECE: usize = 256 << 10;
    let client = daemon(|_, request| async move {
        websocket(request, |mut socket| async move {
            let mut offset = 0;
            while let Some(Ok(message)) = socket.next().await {
                match message {
                    Message::Binary(bytes) => {
                        let echo = encode_output(OutputStream::Stdout, offset, &bytes);
                        offset += bytes.len() as u64;
                        socket.send(Message::binary(echo)).await.unwrap();
                    }
                    Message::Text(_) => socket.send(exit()).await.unwrap(),
                    Message::Close(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
                }
            }
        })
    })
    .await;
    let (sender, mut attachment) = client.attach("sbx", "exe", FROM_START).await.unwrap();
    let feeding = tokio::spawn(async move {
        for _ in 0..PIECES {
            sender.stdin(vec![b'x'; PIECE]).await.unwrap();
        }
        sender.close_stdin().await.unwrap();
    });
    let mut received = 0;
    while let Some(event) = attachment.next().await.unwrap() {
        if let AttachEvent::Output { bytes, .. } = event {
            received += bytes.len();
        }
    }
    feeding.await.unwrap();
    assert_eq!(received, PIECES * PIECE);
}

#[tokio::test]
async fn output_sent_before_the_daemon_closes_is_read_even_if_input_fails() {
    let end = Arc::new(tokio::sync::Notify::new());
    let (closed, mut is_closed) = tokio::sync::mpsc::channel(1);
    let ending = end.clone();
    let client = daemon(move |count, request| {
        assert_eq!(count, 0, "the client must not attach again");
        let (ending, closed) = (ending.clone(), closed.clone());
        async move {
            websocket(request, |mut socket| async move {
                ending.notified().await;
                socket.send(output(0, "its last words")).await.unwrap();
                socket.send(exit()).await.unwrap();
                // Closing with unread input resets the connection.
                drop(socket);
                closed.send(()).await.unwrap();
            })
        }
    })
    .await;
    let (sender, mut attachment) = client.attach("sbx", "exe", FROM_START).await.unwrap();
    let feeding = tokio::spawn(async move { while sender.stdin(vec![b'x'; 256 << 10]).await.is_ok() {} });
    // Wait until the connection accepts no more input.
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(200), attachment.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    end.notify_one();
    is_closed.recv().await.unwrap();
    let Some(AttachEvent::Output { bytes, .. }) = attachment.next().await.unwrap() else {
        panic!("no output")
    };
    assert_eq!(bytes, "its last words");
    assert!(matches!(attachment.next().await.unwrap(), Some(AttachEvent::Exit(_))));
    drop(attachment);
    feeding.await.unwrap();
}

#[tokio::test]
async fn a_refused_attachment_returns_the_daemons_error() {
    let client = daemon(|_, _| async {
        json(409, &json!({ "error": { "code": "not_running", "message": "sandbox `x` is stopped" } }))
    })
    .await;
    let error = client.attach("x", "exe", FROM_START).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NotRunning));
}

#[tokio::test]
async fn create_exec_never_waits_and_run_always_does() {
    let client = daemon(|_, request| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let request: CreateExec = serde_json::from_slice(&body).unwrap();
        match request.wait {
            true => {
                json(200, &json!({ "exec": exec("ended"), "stdout": "hi", "stderr": "", "truncated": false }))
            }
            false => json(201, &exec("running")),
        }
    })
    .await;
    let request = CreateExec { argv: vec!["true".to_owned()], ..CreateExec::default() };
    assert_eq!(client.create_exec("x", &request).await.unwrap().id, "exe");
    assert_eq!(client.run("x", &request).await.unwrap().stdout, "hi");
}

#[tokio::test]
async fn fields_missing_from_an_older_daemon_have_defaults_and_unknown_fields_are_ignored() {
    let client = daemon(|count, _| async move {
        let mut response = sandbox("sbx1");
        if count > 0 {
            response["state"] = json!("hibernated");
            response["origin"] = json!({ "snapshot": "snp1", "sandbox": "sbx0", "kind": "fork" });
            response["sleep"] = json!({ "pause_after_seconds": 60, "hibernate_after_seconds": null, "stop_after_seconds": null });
            response["asleep_since_ms"] = json!(7);
            response["something_of_tomorrow"] = json!(true);
        }
        json(200, &response)
    })
    .await;
    let older = client.sandbox("x").await.unwrap();
    assert_eq!((older.origin, older.snapshot_policy, older.asleep_since_ms), (None, None, None));
    let newer = client.sandbox("x").await.unwrap();
    assert_eq!((newer.state, newer.asleep_since_ms), (SandboxState::Hibernated, Some(7)));
    assert_eq!(newer.origin.unwrap().snapshot, "snp1");
    assert_eq!(newer.sleep.pause_after_seconds, Some(60));
}

#[tokio::test]
async fn sleep_and_wake_use_their_routes() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = lines.clone();
    let client = daemon(move |_, request| {
        let seen = seen.clone();
        async move {
            let (line, body) = request_of(request).await;
            assert_eq!(body, "");
            seen.lock().unwrap().push(line);
            json(200, &sandbox("sbx1"))
        }
    })
    .await;
    client.hibernate_sandbox("a b").await.unwrap();
    client.wake_sandbox("web").await.unwrap();
    client.start_sandbox_from_files("web").await.unwrap();
    client.delete_sandbox_with_snapshots("web").await.unwrap();
    assert_eq!(
        *lines.lock().unwrap(),
        [
            "POST /v1/sandboxes/a%20b/hibernate",
            "POST /v1/sandboxes/web/wake",
            "POST /v1/sandboxes/web/start?files_only=true",
            "DELETE /v1/sandboxes/web?snapshots=true",
        ]
    );
}

#[tokio::test]
async fn snapshots_are_created_once_and_listed_by_query() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = keys.clone();
    let client = daemon(move |count, request| {
        let seen = seen.clone();
        async move {
            if let Some(key) = request.headers().get("idempotency-key") {
                seen.lock().unwrap().push(key.to_str().unwrap().to_owned());
            }
            let (line, body) = request_of(request).await;
            match count {
                // The connection breaks: the same request is sent again, with the same key.
                0 => None,
                1 => {
                    assert_eq!(line, "POST /v1/sandboxes/web/snapshots");
                    assert_eq!(body, r#"{"name":"before","files_only":true,"expires_seconds":60}"#);
                    json(201, &snapshot("snp1"))
                }
                2 => {
                    let query = "sandbox=web&label=a%3Db&kind=policy&kind=before-restore&limit=1000";
                    assert_eq!(line, format!("GET /v1/snapshots?{query}"));
                    json(200, &json!({ "items": [snapshot("snp1")], "next_cursor": null }))
                }
                _ => {
                    assert_eq!(line, "DELETE /v1/snapshots/before");
                    json(409, &json!({ "error": { "code": "snapshot_in_use", "message": "in use" } }))
                }
            }
        }
    })
    .await;
    let request = CreateSnapshot {
        name: Some("before".to_owned()),
        files_only: true,
        expires_seconds: Some(60),
        ..CreateSnapshot::default()
    };
    let taken = client.create_snapshot("web", &request).await.unwrap();
    assert_eq!((taken.id.as_str(), taken.kind), ("snp1", SnapshotKind::BeforeRestore));
    let keys = keys.lock().unwrap().clone();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    let query = SnapshotQuery {
        sandbox: Some("web".to_owned()),
        labels: vec!["a=b".to_owned()],
        kinds: vec![SnapshotKind::Policy, SnapshotKind::BeforeRestore],
    };
    assert_eq!(client.all_snapshots(&query).await.unwrap().len(), 1);
    let error = client.delete_snapshot("before").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::SnapshotInUse));
}

#[tokio::test]
async fn restores_and_forks_return_their_results() {
    let client = daemon(|_, request| async move {
        let (line, body) = request_of(request).await;
        match line.as_str() {
            "POST /v1/sandboxes/web/restore" => {
                assert_eq!(body, r#"{"snapshot":"before"}"#);
                json(200, &json!({ "sandbox": sandbox("sbx1"), "undo": snapshot("snp2") }))
            }
            "POST /v1/snapshots/before/sandboxes" => {
                assert_eq!(body, r#"{"name":"web2"}"#);
                json(201, &sandbox("sbx2"))
            }
            "POST /v1/sandboxes/web/fork" => {
                assert_eq!(body, r#"{"count":2,"names":["a","b"]}"#);
                let failed = json!({ "code": "no_space", "message": "full" });
                json(201, &json!({ "children": [sandbox("sbx3")], "failed": [failed], "snapshot": "snp3", "pause_us": 9 }))
            }
            other => panic!("{other}"),
        }
    })
    .await;
    let request = RestoreSandbox { snapshot: "before".to_owned(), files_only: false };
    assert_eq!(client.restore_sandbox("web", &request).await.unwrap().undo.id, "snp2");
    let request = SandboxFromSnapshot { name: Some("web2".to_owned()), ..SandboxFromSnapshot::default() };
    assert_eq!(client.create_sandbox_from("before", &request).await.unwrap().id, "sbx2");
    let request =
        ForkSandbox { count: 2, names: vec!["a".to_owned(), "b".to_owned()], ..ForkSandbox::default() };
    let forked = client.fork_sandbox("web", &request).await.unwrap();
    assert_eq!((forked.children.len(), forked.failed[0].code), (1, ErrorCode::NoSpace));
}

#[tokio::test]
async fn lineage_and_garbage_are_read_and_garbage_is_collected_only_on_request() {
    let client = daemon(|_, request| async move {
        let (line, body) = request_of(request).await;
        let report = |applied| json!({ "applied": applied, "unused_for_seconds": 60, "items": [] });
        match line.as_str() {
            "GET /v1/tree" => json(200, &json!({ "nodes": [
                { "kind": "sandbox", "id": "sbx1", "name": null, "parent": null, "created_ms": 0, "state": "waking" },
                { "kind": "snapshot", "id": "snp1", "name": null, "parent": 0, "created_ms": 0, "snapshot_kind": "fork" },
            ] })),
            "GET /v1/gc?unused_for_seconds=60" => json(200, &report(false)),
            "POST /v1/gc" => {
                assert_eq!(body, r#"{"unused_for_seconds":60}"#);
                json(200, &report(true))
            }
            other => panic!("{other}"),
        }
    })
    .await;
    let nodes = client.tree().await.unwrap().nodes;
    assert_eq!((nodes[0].state, nodes[1].parent), (Some(SandboxState::Waking), Some(0)));
    let minute = Some(std::time::Duration::from_secs(60));
    assert!(!client.garbage(minute).await.unwrap().applied);
    assert!(client.collect_garbage(minute).await.unwrap().applied);
}

#[tokio::test]
async fn an_attachment_ends_when_its_sandbox_is_put_to_sleep() {
    use tokio_tungstenite::tungstenite::protocol::CloseFrame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
    let connections = Arc::new(Mutex::new(0));
    let seen = connections.clone();
    let client = daemon(move |count, request| {
        *seen.lock().unwrap() += 1;
        async move {
            websocket(request, move |mut socket| async move {
                socket.send(output(0, "so far")).await.unwrap();
                // Reported in a message, or in the close frame alone.
                let last = match count {
                    0 => {
                        let error =
                            json!({ "code": "sandbox_asleep", "message": "sandbox `web` was hibernated" });
                        Message::text(json!({ "kind": "error", "error": error }).to_string())
                    }
                    _ => Message::Close(Some(CloseFrame {
                        code: CloseCode::Away,
                        reason: "sandbox_asleep".into(),
                    })),
                };
                socket.send(last).await.unwrap();
                while let Some(Ok(_)) = socket.next().await {}
            })
        }
    })
    .await;
    for attempt in 1..=2 {
        let (_sender, mut attachment) = client.attach("web", "exe", FROM_START).await.unwrap();
        assert!(matches!(attachment.next().await.unwrap(), Some(AttachEvent::Output { .. })));
        let error = attachment.next().await.unwrap_err();
        assert!(error.is_asleep(), "{error:?}");
        assert_eq!(attachment.next().await.unwrap(), None);
        assert_eq!(*connections.lock().unwrap(), attempt, "it did not attach again");
    }
}
