//! The API over real sockets: HTTP/1, HTTP/2, TLS, WebSocket, limits and shutdown.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::world::World;
use crate::server::{Server, Tls};
use crate::wiring::{DrainTime, RunningInterfaces};
use burrow_config::TlsFiles;
use burrow_http::activity::ConnectionTimeouts;
use burrow_http::error::ApiError;

struct ServedApi {
    world: World,
    address: SocketAddr,
    stop: CancellationToken,
    connections: TaskTracker,
    accepting: JoinHandle<()>,
}

async fn serve(tls: bool, connections_max: usize) -> ServedApi {
    serve_with(tls, connections_max, ConnectionTimeouts::USUAL).await
}

async fn serve_with(tls: bool, connections_max: usize, patience: ConnectionTimeouts) -> ServedApi {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
    let server = Server {
        listener,
        tls: tls.then(|| Tls::open(&files()).unwrap().acceptor()),
        router: world.router.clone(),
        connections_max,
        patience,
        stop: stop.clone(),
        kill: CancellationToken::new(),
        connections: connections.clone(),
    };
    let accepting = tokio::spawn(server.run());
    ServedApi { world, address, stop, connections, accepting }
}

pub(super) fn files() -> TlsFiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") }
}

/// Sends bytes and reads the head of one response.
async fn exchange(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut answer).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let served = serve(false, 10).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    for _ in 0..3 {
        let answer = exchange(&mut stream, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

/// The head of a request without a key, whose body has not been sent yet.
fn without_a_key(body_bytes: usize) -> String {
    format!(
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {body_bytes}\r\n\r\n"
    )
}

#[tokio::test]
async fn an_error_before_the_body_keeps_the_connection_open() {
    let served = serve(false, 10).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    for _ in 0..3 {
        let answer = exchange(&mut stream, &without_a_key(2)).await;
        assert!(answer.contains("HTTP/1.1 401 "), "{answer}");
        assert!(!answer.to_lowercase().contains("connection: close"), "{answer}");
        // The response has arrived, and only now the body is sent.
        let answer = exchange(&mut stream, "{}GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(answer.contains("HTTP/1.1 200 "), "{answer}");
    }
}

#[tokio::test]
async fn the_daemon_does_not_wait_for_a_long_body_that_was_rejected() {
    let served = serve(false, 10).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let answer = exchange(&mut stream, &without_a_key(1 << 30)).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn http2_is_supported() {
    let served = serve(false, 10).await;
    let stream = TokioIo::new(TcpStream::connect(served.address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://x/v1/sandboxes").header("x-api-key", &served.world.key);
    let answer = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn tls_is_used_when_configured() {
    let served = serve(true, 10).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files().cert).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(served.address).await.unwrap();
    let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"), "{answer}");
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    let answer = exchange(&mut plain, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(!answer.contains("200"), "{answer}");
}

#[test]
fn errors_about_invalid_certificates_name_the_file() {
    let cert = TlsFiles { cert: files().key, key: files().key };
    assert!(Tls::open(&cert).err().unwrap().to_string().contains("there is no certificate in"));
    let key = TlsFiles { cert: files().cert, key: files().cert };
    assert!(Tls::open(&key).err().unwrap().to_string().contains("could not read the private key"));
    let absent = TlsFiles { cert: "/nowhere".into(), key: "/nowhere".into() };
    assert!(Tls::open(&absent).err().unwrap().to_string().contains("/nowhere"));
}

#[tokio::test]
async fn heads_beyond_their_limits_are_rejected() {
    let served = serve(false, 10).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let headers: String = (0..200).map(|i| format!("x-{i}: y\r\n")).collect();
    let answer =
        exchange(&mut stream, &format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let answer = exchange(&mut stream, "nonsense\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let short = Duration::from_millis(10);
    let served =
        serve_with(false, 10, ConnectionTimeouts { head: short, idle: short, look_every: short }).await;
    for head in ["", "GET /healthz HT", "PRI * HTT"] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // Ends only when the daemon closes the connection.
        let _ = stream.read_to_end(&mut rest).await;
        assert!(!String::from_utf8_lossy(&rest).contains("200"), "{rest:?}");
    }
}

#[tokio::test]
async fn one_connection_too_many_waits_for_another_to_close() {
    let served = serve(false, 1).await;
    let mut first = TcpStream::connect(served.address).await.unwrap();
    exchange(&mut first, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let mut second = TcpStream::connect(served.address).await.unwrap();
    second.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(served.connections.len(), 1);
    drop(first);
    let mut answer = [0; 12];
    second.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

async fn attach(served: &ServedApi, exec: &str) -> tokio_tungstenite::WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(served.address).await.unwrap();
    let request = Request::get(format!("ws://x/v1/sandboxes/web/execs/{exec}/attach"))
        .header("host", "x")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("x-api-key", &served.world.key);
    tokio_tungstenite::client_async(request.body(()).unwrap(), stream).await.unwrap().0
}

async fn exec(served: &ServedApi, argv: &str) -> String {
    let body = format!("{{\"argv\": {argv}}}");
    let exec = served.world.send_json("POST", "/v1/sandboxes/web/execs", body).await.expect(201).json();
    exec["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_attached_client_receives_the_output_and_the_end() {
    let served = serve(false, 10).await;
    served.world.sandbox("web").await;
    let exec = exec(&served, "[\"echo\", \"hello\"]").await;
    let mut socket = attach(&served, &exec).await;
    let Message::Binary(output) = socket.next().await.unwrap().unwrap() else { panic!("output comes first") };
    let expected = (burrow_api::OutputStream::Stdout, 0, &b"hello\n"[..]);
    assert_eq!(burrow_api::decode_output(&output), Some(expected));
    let Message::Text(last) = socket.next().await.unwrap().unwrap() else { panic!("the end comes last") };
    let last: burrow_api::AttachServerMessage = serde_json::from_str(&last).unwrap();
    assert!(matches!(last, burrow_api::AttachServerMessage::Exit { .. }), "{last:?}");
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
}

#[tokio::test]
async fn attaching_and_input_are_in_the_audit_log() {
    let served = serve(false, 10).await;
    served.world.sandbox("web").await;
    let exec = exec(&served, "[\"stay\"]").await;
    let mut socket = attach(&served, &exec).await;
    socket.next().await.unwrap().unwrap();
    let of = async |action: &str| {
        let page = served.world.send("GET", &format!("/v1/audit?action={action}")).await.expect(200).json();
        page["items"].as_array().unwrap().clone()
    };
    let (attached, typed) = (of("exec.attach").await, of("exec.input").await);
    assert_eq!((attached.len(), typed.len()), (1, 0), "no input was sent yet: {attached:?} {typed:?}");
    assert_eq!(attached[0]["outcome"], "done");
    socket.send(Message::Binary(b"rm -rf /\n"[..].into())).await.unwrap();
    // The guest accepts one message and ends.
    while let Some(Ok(_)) = socket.next().await {}
    let typed = of("exec.input").await;
    assert_eq!((typed.len(), &typed[0]["target"]), (1, &exec.clone().into()), "{typed:?}");
    assert_eq!(typed[0]["actor"], attached[0]["actor"]);
    assert!(!serde_json::to_string(&typed).unwrap().contains("rm -rf"), "{typed:?}");
}

#[tokio::test]
async fn an_attached_client_that_sends_a_too_large_message_is_disconnected() {
    let served = serve(false, 10).await;
    served.world.sandbox("web").await;
    let exec = exec(&served, "[\"echo\", \"hello\"]").await;
    let mut socket = attach(&served, &exec).await;
    let _ = socket.send(Message::Binary(vec![0; 3 << 20].into())).await;
    let mut messages = 0;
    while let Some(Ok(_)) = socket.next().await {
        messages += 1;
        assert!(messages < 10, "the connection is still open");
    }
}

#[tokio::test]
async fn shutdown_ends_streams_and_idle_connections_and_lets_requests_finish() {
    let served = serve(false, 10).await;
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    exchange(&mut idle, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let stream = TokioIo::new(TcpStream::connect(served.address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request =
        Request::get("/v1/events?follow=true").header("x-api-key", &served.world.key).header("host", "x");
    let events = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
    served.stop.cancel();
    served.world.app.draining.cancel();
    served.accepting.await.unwrap();
    // The stream ends regularly, not in the middle.
    events.into_body().collect().await.unwrap();
    served.connections.close();
    served.connections.wait().await;
    assert_eq!(idle.read(&mut [0; 10]).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn shutdown_waits_longer_for_operations_on_sandboxes_than_for_requests() {
    let served = serve(false, 10).await;
    let (app, stop, kill) = (served.world.app.clone(), served.stop.clone(), CancellationToken::new());
    let running = RunningInterfaces {
        stop,
        kill: kill.clone(),
        connections: served.connections.clone(),
        app: app.clone(),
    };
    let (end, ended) = tokio::sync::oneshot::channel();
    let change = tokio::spawn(async move {
        app.carry_out(async move { ended.await.map_err(|_| ApiError::invalid("the test has ended")) }).await
    });
    while served.world.app.operations.is_empty() {
        tokio::task::yield_now().await;
    }
    let time = DrainTime { requests: Duration::from_millis(1), operations: Duration::from_secs(60) };
    let draining = tokio::spawn(running.drain(served.accepting, time));
    while !served.world.app.operations.is_closed() {
        tokio::task::yield_now().await;
    }
    // Well beyond the time limit of requests.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!draining.is_finished() && !kill.is_cancelled());
    end.send(7).unwrap();
    draining.await.unwrap();
    assert_eq!(change.await.unwrap().unwrap(), 7);
    assert!(!kill.is_cancelled(), "every client received the outcome");
}

#[tokio::test]
async fn a_client_of_a_sandbox_that_is_put_to_sleep_receives_an_error() {
    let served = serve(false, 10).await;
    served.world.sandbox("web").await;
    let exec = exec(&served, "[\"stay\"]").await;
    let mut socket = attach(&served, &exec).await;
    assert!(matches!(socket.next().await, Some(Ok(Message::Binary(_)))));
    let follow = format!("/v1/sandboxes/web/execs/{exec}/output?follow=true");
    let (lines, asleep) = tokio::join!(served.world.send("GET", &follow), async {
        // Once a client reads, which the other half of this test has started to do.
        tokio::task::yield_now().await;
        served.world.send("POST", "/v1/sandboxes/web/hibernate").await
    });
    assert_eq!(asleep.expect(200).json()["state"], "hibernated");
    let Message::Text(last) = socket.next().await.unwrap().unwrap() else { panic!("the reason is reported") };
    let last: burrow_api::AttachServerMessage = serde_json::from_str(&last).unwrap();
    let burrow_api::AttachServerMessage::Error { error } = last else { panic!("{last:?}") };
    assert_eq!(error.code, burrow_api::ErrorCode::SandboxAsleep);
    assert!(error.hint.is_some());
    let Some(Ok(Message::Close(Some(goodbye)))) = socket.next().await else { panic!("a goodbye") };
    assert_eq!(goodbye.reason.as_str(), "sandbox_asleep");
    let last = String::from_utf8_lossy(&lines.body).lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("sandbox_asleep"), "{last}");
}
