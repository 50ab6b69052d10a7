//! Requests to ports of sandboxes over real sockets: streams, upgrades, HTTP/2 and its trailers, limits.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::world::World;
use crate::server::Server;
use burrow_http::activity::ConnectionTimeouts;

const PORT: u16 = 8080;

struct ServedGateway {
    world: World,
    address: SocketAddr,
    host: String,
}

/// A daemon on a socket, with a sandbox `web` whose port is connected to `inside`.
async fn serve(extra: &str, inside: SocketAddr) -> ServedGateway {
    let world = World::with(extra).await;
    let id = world.sandbox("web").await;
    world.network.serve_port(PORT, Some(inside));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server {
        listener,
        tls: None,
        router: world.router.clone(),
        connections_max: 100,
        patience: ConnectionTimeouts::USUAL,
        stop: CancellationToken::new(),
        kill: CancellationToken::new(),
        connections: TaskTracker::new(),
    };
    tokio::spawn(server.run());
    let host = format!("{PORT}-{id}.localhost:{}", address.port());
    ServedGateway { world, address, host }
}

impl ServedGateway {
    /// Sends a request head and returns the stream of the response.
    async fn open(&self, request: &str, more: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let key = &self.world.key;
        let head = format!("{request} HTTP/1.1\r\nhost: {}\r\nx-burrow-key: {key}\r\n{more}\r\n", self.host);
        stream.write_all(head.as_bytes()).await.unwrap();
        BufReader::new(stream)
    }
}

async fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    let reading = stream.read_line(&mut line);
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("a line comes").unwrap();
    line.trim_end().to_owned()
}

async fn head(stream: &mut BufReader<TcpStream>) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match line(stream).await {
            end if end.is_empty() => return lines,
            line => lines.push(line),
        }
    }
}

/// A server that runs `act` for each connection.
async fn inside<F>(act: impl Fn(BufReader<TcpStream>) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(act(BufReader::new(stream)));
        }
    });
    address
}

#[tokio::test]
async fn upgraded_connections_are_copied_in_both_directions() {
    let address = inside(async |mut stream: BufReader<TcpStream>| {
        let head = head(&mut stream).await;
        // Names in the case that most servers and proxies use.
        assert!(head.contains(&"Upgrade: shouting/1".to_owned()), "{head:?}");
        assert!(!head.iter().any(|line| line.contains("burrow")), "{head:?}");
        let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: shouting/1\r\nx-own: 1\r\n\r\nHELLO\n";
        stream.write_all(switch.as_bytes()).await.unwrap();
        loop {
            let said = line(&mut stream).await;
            if said.is_empty() {
                return;
            }
            stream.write_all(format!("{}\n", said.to_uppercase()).as_bytes()).await.unwrap();
        }
    })
    .await;
    let served = serve("", address).await;
    let mut stream = served.open("GET /chat", "connection: Upgrade\r\nupgrade: shouting/1\r\n").await;
    let answer = head(&mut stream).await;
    assert_eq!(answer[0], "HTTP/1.1 101 Switching Protocols");
    assert!(
        answer.contains(&"x-own: 1".to_owned()) && answer.contains(&"upgrade: shouting/1".to_owned()),
        "{answer:?}"
    );
    assert_eq!(line(&mut stream).await, "HELLO", "bytes after the response head are not lost");
    stream.write_all(b"one\ntwo\n").await.unwrap();
    assert_eq!((line(&mut stream).await, line(&mut stream).await), ("ONE".to_owned(), "TWO".to_owned()));
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn responses_and_request_bodies_are_streamed() {
    let address = inside(async |mut stream: BufReader<TcpStream>| {
        head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        // Each piece of the response is sent only after the previous piece of the request was received.
        for _ in 0..3 {
            let length = line(&mut stream).await;
            let heard = line(&mut stream).await;
            stream.write_all(format!("data: {length} {heard}\n\n").as_bytes()).await.unwrap();
        }
    })
    .await;
    let served = serve("", address).await;
    let mut stream = served.open("POST /events", "transfer-encoding: chunked\r\n").await;
    for word in ["one", "two", "six"] {
        stream.write_all(format!("3\r\n{word}\r\n").as_bytes()).await.unwrap();
        if word == "one" {
            let answer = head(&mut stream).await;
            assert!(answer.contains(&"transfer-encoding: chunked".to_owned()), "{answer:?}");
        }
        let _length = line(&mut stream).await;
        assert_eq!(line(&mut stream).await, format!("data: 3 {word}"));
        let (_, _) = (line(&mut stream).await, line(&mut stream).await);
    }
}

#[tokio::test]
async fn shutdown_ends_event_streams_but_not_transfers() {
    let address = inside(async |mut stream: BufReader<TcpStream>| {
        let head = head(&mut stream).await;
        let events = head[0].contains("/events");
        let kind = if events { "text/event-stream; charset=utf-8" } else { "application/octet-stream" };
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\ndata: 1\n\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        // The transfer continues when signalled; the event stream sends nothing more.
        let more = line(&mut stream).await;
        let _ = stream.write_all(format!("{more} more\n").as_bytes()).await;
    })
    .await;
    let served = serve("", address).await;
    let mut events = served.open("GET /events", "").await;
    let mut transfer = served.open("POST /file", "transfer-encoding: chunked\r\n").await;
    for stream in [&mut events, &mut transfer] {
        head(stream).await;
        let _length = line(stream).await;
        assert_eq!(line(stream).await, "data: 1");
        let (_, _) = (line(stream).await, line(stream).await);
    }
    served.world.app.draining.cancel();
    assert_eq!(line(&mut events).await, "0", "the last chunk: a clean end");
    transfer.write_all(b"5\r\ngo on\r\n1\r\n\n\r\n0\r\n\r\n").await.unwrap();
    let _length = line(&mut transfer).await;
    assert_eq!(line(&mut transfer).await, "5 more", "the server received the length of a chunk");
}

#[tokio::test]
async fn a_request_ends_when_its_sandbox_is_put_to_sleep_and_does_not_wake_it() {
    let (arrived, mut arrivals) = tokio::sync::mpsc::channel(10);
    let address = inside(move |mut stream: BufReader<TcpStream>| {
        let arrived = arrived.clone();
        async move {
            let first = head(&mut stream).await.remove(0);
            arrived.send(first).await.unwrap();
            // It never responds.
            let _ = stream.read_u8().await;
        }
    })
    .await;
    let served = serve("", address).await;
    for request in ["GET /slow", "POST /slow"] {
        let mut stream = served.open(request, "content-length: 0\r\naccept: application/json\r\n").await;
        assert_eq!(arrivals.recv().await.unwrap(), format!("{request} HTTP/1.1"));
        served.world.send("POST", "/v1/sandboxes/web/hibernate").await.expect(200);
        let answer = head(&mut stream).await;
        assert_eq!(answer[0], "HTTP/1.1 409 Conflict", "{answer:?}");
        let mut body = [0; 40];
        stream.read_exact(&mut body).await.unwrap();
        assert!(String::from_utf8_lossy(&body).contains("sandbox_asleep"), "{body:?}");
        assert_eq!(served.world.state_of("web").await, "hibernated", "{request}");
    }
}

/// A server that answers every request of a connection with the connection's number, until it is asked to close it.
async fn numbered() -> SocketAddr {
    let connections = Arc::new(AtomicUsize::new(0));
    inside(move |mut stream: BufReader<TcpStream>| {
        let number = connections.fetch_add(1, Ordering::Relaxed);
        async move {
            loop {
                let head = head(&mut stream).await;
                let Some(asked) = head.first() else { return };
                let answer = match asked.split(' ').nth(1) {
                    Some("/large") => format!("content-length: 300000\r\n\r\n{}", "x".repeat(300_000)),
                    Some("/chunked") => {
                        format!("transfer-encoding: chunked\r\n\r\n1\r\n{number}\r\n0\r\n\r\n")
                    }
                    Some("/last") => format!("content-length: 1\r\nconnection: close\r\n\r\n{number}"),
                    _ => format!("content-length: 1\r\n\r\n{number}"),
                };
                stream.write_all(format!("HTTP/1.1 200 OK\r\n{answer}").as_bytes()).await.unwrap();
                // Without notice, as servers do after an idle timeout.
                if asked.contains("/silent") || asked.contains("/last") {
                    return;
                }
            }
        }
    })
    .await
}

impl ServedGateway {
    /// Sends a request on a persistent connection, and returns the body.
    async fn ask(&self, stream: &mut BufReader<TcpStream>, path: &str) -> String {
        let (host, key) = (&self.host, &self.world.key);
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nx-burrow-key: {key}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = head(stream).await;
        assert_eq!(answer[0], "HTTP/1.1 200 OK", "{answer:?}");
        if answer.iter().any(|line| line == "transfer-encoding: chunked") {
            let (_, body) = (line(stream).await, line(stream).await);
            let (_, _) = (line(stream).await, line(stream).await);
            return body;
        }
        let length = answer.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        String::from_utf8(body).unwrap()
    }
}

#[tokio::test]
async fn a_connection_into_a_sandbox_is_reused_until_the_server_closes_it() {
    let served = serve("", numbered().await).await;
    let mut stream = BufReader::new(TcpStream::connect(served.address).await.unwrap());
    for path in ["/", "/", "/chunked", "/"] {
        assert_eq!(served.ask(&mut stream, path).await, "0", "{path}");
    }
    assert_eq!(served.ask(&mut stream, "/large").await.len(), 300_000);
    assert_eq!(served.ask(&mut stream, "/last").await, "0");
    assert_eq!(
        served.ask(&mut stream, "/silent").await,
        "1",
        "a connection that will be closed is not reused"
    );
    // The server closes the connection without notice; the next request does not fail.
    assert_eq!(served.ask(&mut stream, "/").await, "2");
    // Another client uses the connection of the first one.
    let mut other = BufReader::new(TcpStream::connect(served.address).await.unwrap());
    assert_eq!(served.ask(&mut other, "/").await, "2");
}

#[tokio::test]
async fn an_unread_response_is_never_sent_to_another_client() {
    let served = serve("", numbered().await).await;
    // Disconnects in the middle of the body.
    let mut gone = served.open("GET /large", "").await;
    head(&mut gone).await;
    drop(gone);
    let mut stream = BufReader::new(TcpStream::connect(served.address).await.unwrap());
    for _ in 0..3 {
        let said = served.ask(&mut stream, "/").await;
        assert!(said == "0" || said == "1", "{said}");
    }
}

#[tokio::test]
async fn contradicting_lengths_never_reach_the_server() {
    let address = inside(async |mut stream: BufReader<TcpStream>| {
        let head = head(&mut stream).await;
        let lengths = head
            .iter()
            .map(|line| line.to_lowercase())
            .filter(|line| line.starts_with("content-length") || line.starts_with("transfer-encoding"));
        let text = format!("{:?}", lengths.collect::<Vec<_>>());
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}", text.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let served = serve("", address).await;
    let smuggled = "0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n";
    for (headers, seen) in [
        ("content-length: 5\r\ncontent-length: 6\r\n", None),
        ("content-length: 5, 6\r\n", None),
        ("content-length: +5\r\n", None),
        ("transfer-encoding: chunked, identity\r\n", None),
        ("transfer-encoding: x\r\n", None),
        // Sent twice, but passed on only once.
        ("content-length: 5\r\ntransfer-encoding: chunked\r\n", Some("[\"transfer-encoding: chunked\"]")),
    ] {
        let mut stream = served.open("POST /", &format!("connection: close\r\n{headers}")).await;
        let _ = stream.write_all(smuggled.as_bytes()).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        match seen {
            None => assert!(answer.starts_with("HTTP/1.1 400 "), "{headers}: {answer}"),
            Some(seen) => {
                assert!(answer.contains(seen) || answer.starts_with("HTTP/1.1 400 "), "{headers}: {answer}")
            }
        }
    }
}

/// A gRPC-like server: HTTP/2 only, which responds with a message, and with its status in trailers.
async fn grpc() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = async |request: Request<Incoming>| {
        assert_eq!(request.headers()["te"], "trailers");
        let address = request.uri().to_string();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let said = format!("{address} {}", String::from_utf8_lossy(&body));
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from(said))), Ok(Frame::trailers(trailers))];
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        Ok::<_, Infallible>(
            Response::builder().header("content-type", "application/grpc").body(body).unwrap(),
        )
    };
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    address
}

#[tokio::test]
async fn grpc_is_forwarded_as_http2_with_its_trailers() {
    let served = serve("", grpc().await).await;
    let stream = TokioIo::new(TcpStream::connect(served.address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..2 {
        let request = Request::post(format!("http://{}/svc/Call", served.host))
            .header("x-burrow-key", &served.world.key)
            .header("content-type", "application/grpc+proto")
            .header("te", "trailers");
        let answer = sender.send_request(request.body(Body::from("hi")).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let collected = answer.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(collected.to_bytes(), format!("http://{}/svc/Call hi", served.host));
    }
}

#[tokio::test]
async fn http2_without_grpc_is_forwarded_as_http1() {
    let served = serve("", super::gateway::mirror().await).await;
    let stream = TokioIo::new(TcpStream::connect(served.address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{}/x?y", served.host))
        .header("x-burrow-key", &served.world.key)
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    let answer = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
    let seen: serde_json::Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(seen["address"], "/x?y");
    let headers = seen["headers"].to_string();
    assert!(headers.contains("[\"cookie\",\"a=1; b=2\"]"), "{headers}");
    assert!(headers.contains(&format!("[\"host\",\"{}\"]", served.host)), "{headers}");
    assert!(headers.contains("[\"x-forwarded-for\",\"127.0.0.1\"]"), "{headers}");
}

#[tokio::test]
async fn open_streams_use_the_gateways_slots_and_none_of_the_apis() {
    let address = inside(async |mut stream: BufReader<TcpStream>| {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nbegun\n").await.unwrap();
        // Until the client disconnects.
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    let served =
        serve("[limits]\nrequests = 8\n[gateway]\nrequests = 10\nrequests_per_sandbox = 9\n", address).await;
    let mut open = Vec::new();
    for _ in 0..9 {
        let mut stream = served.open("GET /", "").await;
        assert_eq!(head(&mut stream).await[0], "HTTP/1.1 200 OK");
        open.push(stream);
    }
    let mut refused = served.open("GET /", "").await;
    assert!(head(&mut refused).await[0].starts_with("HTTP/1.1 429 "));
    served.world.send("GET", "/v1/sandboxes").await.expect(200);
    open.pop();
    // The slot is released when the daemon has noticed the disconnect.
    loop {
        let mut stream = served.open("GET /", "").await;
        if head(&mut stream).await[0] == "HTTP/1.1 200 OK" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_server_that_times_out_differs_from_one_that_sends_invalid_responses() {
    let silent = inside(async |mut stream: BufReader<TcpStream>| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
    })
    .await;
    let served = serve("[gateway]\nanswer_seconds = 1\n", silent).await;
    let mut stream = served.open("GET /", "").await;
    assert_eq!(head(&mut stream).await[0], "HTTP/1.1 504 Gateway Timeout");
    for nonsense in ["SSH-2.0-OpenSSH\r\n", ""] {
        let address = inside(move |mut stream: BufReader<TcpStream>| async move {
            let _ = stream.write_all(nonsense.as_bytes()).await;
        })
        .await;
        served.world.network.serve_port(PORT, Some(address));
        let mut stream = served.open("GET /", "").await;
        assert_eq!(head(&mut stream).await[0], "HTTP/1.1 502 Bad Gateway", "{nonsense:?}");
    }
}

#[tokio::test]
async fn a_websocket_of_the_api_carries_raw_tcp_with_an_end_for_each_direction() {
    use futures_util::{SinkExt as _, StreamExt as _};
    use tokio_tungstenite::tungstenite::Message;
    let address = inside(async |mut stream: BufReader<TcpStream>| {
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        stream.write_all(format!("after the end: {all}").as_bytes()).await.unwrap();
    })
    .await;
    let served = serve("", address).await;
    let stream = TcpStream::connect(served.address).await.unwrap();
    let request = Request::get(format!("ws://{}/v1/sandboxes/web/ports/{PORT}/connect", served.address))
        .header("host", served.address.to_string())
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("x-api-key", &served.world.key);
    let (mut socket, _) = tokio_tungstenite::client_async(request.body(()).unwrap(), stream).await.unwrap();
    socket.send(Message::Binary("all I ".into())).await.unwrap();
    socket.send(Message::Binary("say".into())).await.unwrap();
    socket.send(Message::text("{\"kind\":\"end\"}")).await.unwrap();
    let mut said = Vec::new();
    loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Binary(bytes) => said.extend_from_slice(&bytes),
            Message::Text(text) => {
                assert_eq!(text.as_str(), "{\"kind\":\"end\"}");
                break;
            }
            other @ (Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_)) => {
                panic!("{other:?}")
            }
        }
    }
    assert_eq!(String::from_utf8(said).unwrap(), "after the end: all I say");
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
}
