//! Bidirectional streams: gRPC with trailers, and WebSocket. Messages are echoed, together with the credential of the
//! request.

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::{Message, protocol::Role};

use super::{Answer, RecordedRequest, reply};

pub(super) async fn answer(seen: &RecordedRequest, request: Request<Incoming>) -> Answer {
    match seen.host.as_str() {
        "grpc" => grpc(seen, request),
        _ => websocket(seen, request),
    }
}

/// Echoes messages, whatever the method; then sends trailers that repeat the received metadata.
fn grpc(seen: &RecordedRequest, request: Request<Incoming>) -> Answer {
    if seen.header("content-type") != "application/grpc" {
        return reply(StatusCode::UNSUPPORTED_MEDIA_TYPE, "text/plain", "only gRPC here");
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", if seen.path.ends_with("/Fail") { "7" } else { "0" }.parse().unwrap());
    trailers.insert("grpc-message", format!("by {}", seen.credential()).parse().unwrap());
    trailers.insert("x-said", seen.credential().parse().unwrap());
    trailers.insert("x-mark", seen.header("x-mark").parse().unwrap());
    let state = (request.into_body(), Some(trailers));
    let stream = futures_util::stream::unfold(state, |(mut body, mut trailers)| async move {
        loop {
            match body.frame().await {
                Some(Ok(frame)) if frame.is_data() => return Some((Ok(frame), (body, trailers))),
                Some(Ok(_)) => {}
                Some(Err(_)) => return None,
                None => return trailers.take().map(|last| (Ok(Frame::trailers(last)), (body, trailers))),
            }
        }
    });
    let body = StreamBody::new(stream).boxed_unsync();
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

fn websocket(seen: &RecordedRequest, mut request: Request<Incoming>) -> Answer {
    let accept = derive_accept_key(seen.header("sec-websocket-key").as_bytes());
    let greeting = format!("hello {}", seen.query);
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        let mut said = socket.send(Message::text(greeting)).await.is_ok();
        while said {
            said = match socket.next().await {
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                    socket.send(message).await.is_ok()
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => false,
                Some(Ok(_)) => true,
            };
        }
    });
    let body = Empty::<Bytes>::new().boxed_unsync();
    let switching =
        Response::builder().status(StatusCode::SWITCHING_PROTOCOLS).header("upgrade", "websocket");
    switching.header("connection", "Upgrade").header("sec-websocket-accept", accept).body(body).unwrap()
}
