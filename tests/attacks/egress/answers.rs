//! Answers of a hostile host: they contain the received credential, in the form that the last part of the path selects.

use std::convert::Infallible;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::hosts::Body;

/// The pause between two words of a streamed answer.
const TICK: Duration = Duration::from_millis(50);

/// An answer that is not stopped ends after this many words.
const TICKS_MAX: usize = 2_000;

/// The credential of the last request for `store`. Requests below `stored` are answered with it.
static STORED: Mutex<String> = Mutex::new(String::new());

pub(crate) async fn to(request: Request<Incoming>) -> Response<Body> {
    let mut credential = credential(&request);
    let path = request.uri().path().to_owned();
    let last = path.rsplit('/').next().unwrap_or_default();
    if last == "store" {
        STORED.lock().unwrap().clone_from(&credential);
    } else if path.contains("/stored/") {
        credential.clone_from(&STORED.lock().unwrap());
    }
    let response = Response::builder();
    let response = match last {
        "forms" => response.body(whole(forms(&credential))),
        "gzip" => response.header("content-encoding", "gzip").body(whole(stored_gzip(&credential))),
        "range" => range(&request, &credential),
        "moved" => {
            let to = format!("https://other.example/take?t={credential}");
            response
                .status(302)
                .header("location", &to)
                .header("refresh", format!("0; url={to}"))
                .body(whole(to))
        }
        "cookie" => response.header("set-cookie", format!("key={credential}; Path=/")).body(whole("")),
        "reason" => {
            let mut answer = Response::new(whole(""));
            let words = hyper::ext::ReasonPhrase::try_from(credential.into_bytes()).unwrap();
            answer.extensions_mut().insert(words);
            return answer;
        }
        "pieces" | "cut" | "events" | "ticks" | "grpc" => return stream(request, credential, last),
        "grpc-only" => {
            // Some clients ignore an answer that arrives before they have sent their whole request.
            let _ = request.into_body().collect().await;
            let response = response.header("content-type", "application/grpc").header("grpc-status", "7");
            response.header("grpc-message", &credential).body(whole(""))
        }
        "socket" if request.headers().contains_key(header::UPGRADE) => return socket(request, credential),
        _ => return echo(request, credential).await,
    };
    response.unwrap()
}

fn credential(request: &Request<Incoming>) -> String {
    let told = |name: &str| {
        let value =
            request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        value.unwrap_or_default()
    };
    let bearer = told("authorization");
    let bearer = bearer.strip_prefix("Bearer ").unwrap_or(&bearer);
    format!("{bearer}{}{}", told("x-token"), told("x-token-bin"))
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// The whole request: in the body, in a header, in a trailer.
async fn echo(request: Request<Incoming>, credential: String) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let lines = parts
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    let head = format!("{} {}\n{}\n", parts.method, parts.uri, lines.collect::<String>());
    // A credential that is cut short is useless.
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let echo = HeaderValue::from_str(&credential).unwrap_or(HeaderValue::from_static("-"));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-trailer", echo.clone());
    let frames = vec![
        Ok::<_, io::Error>(Frame::data(Bytes::from(head))),
        Ok(Frame::data(body)),
        Ok(Frame::trailers(trailers)),
    ];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let response = Response::builder().header("x-echo", echo).header("trailer", "x-trailer");
    response.header("content-type", "text/plain").body(body).unwrap()
}

/// In the usual quotations and encodings of programs.
fn forms(secret: &str) -> String {
    let bytes = secret.as_bytes();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let every = |escape: fn(u8) -> String| bytes.iter().map(|b| escape(*b)).collect::<String>();
    let escaped: String = bytes
        .iter()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(*b).to_string() } else { format!("%{b:02X}") })
        .collect();
    let shifted = |before: &str| STANDARD.encode([before.as_bytes(), bytes, b"tail"].concat());
    [
        secret.to_owned(),
        shifted(""),
        shifted("a"),
        shifted("ab"),
        URL_SAFE.encode(bytes),
        hex.clone(),
        hex.to_uppercase(),
        escaped,
        every(|b| format!("%{b:02x}")),
        every(|b| format!("\\u{b:04x}")),
        secret.replace('/', "\\/"),
    ]
    .join("\n")
}

/// Compressed in stored blocks: the bytes appear in it unchanged.
fn stored_gzip(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
    gzip.extend(length.to_le_bytes());
    gzip.extend((!length).to_le_bytes());
    gzip.extend(text.as_bytes());
    // Its checksum, which no client checks before it passes on the bytes.
    gzip.extend([0; 4]);
    gzip.extend(u32::from(length).to_le_bytes());
    gzip
}

/// One byte of the credential at a time, if requested.
fn range(request: &Request<Incoming>, credential: &str) -> http::Result<Response<Body>> {
    let asked = request.headers().get(header::RANGE).and_then(|value| value.to_str().ok());
    let place = asked.and_then(|text| text.strip_prefix("bytes=")?.split('-').next()?.parse::<usize>().ok());
    match place.and_then(|place| credential.get(place..=place)) {
        Some(byte) => Response::builder().status(StatusCode::PARTIAL_CONTENT).body(whole(byte.to_owned())),
        None => Response::builder().body(whole(credential.to_owned())),
    }
}

/// Answers that are sent in pieces.
fn stream(request: Request<Incoming>, credential: String, kind: &str) -> Response<Body> {
    let (sender, frames) = mpsc::channel::<Result<Frame<Bytes>, io::Error>>(8);
    let is_grpc = kind == "grpc";
    let response = Response::builder().header("x-echo", &credential);
    let response = match kind {
        "cut" => response.header("content-length", credential.len() + 100),
        "grpc" => response.header("content-type", "application/grpc"),
        "events" | "ticks" => response.header("content-type", "text/event-stream"),
        _ => response,
    };
    tokio::spawn(pour(request, credential, kind.to_owned(), sender));
    let frames = futures_util::stream::unfold(frames, |mut frames| async {
        frames.recv().await.map(|frame| (frame, frames))
    });
    let response = if is_grpc { response.header("trailer", "grpc-status") } else { response };
    response.body(StreamBody::new(frames).boxed_unsync()).unwrap()
}

async fn pour(
    request: Request<Incoming>,
    credential: String,
    kind: String,
    sender: mpsc::Sender<Result<Frame<Bytes>, io::Error>>,
) {
    let say = async |text: String| sender.send(Ok(Frame::data(Bytes::from(text)))).await.is_ok();
    match kind.as_str() {
        "pieces" => {
            for byte in credential.chars() {
                say(byte.to_string()).await;
            }
        }
        // All bytes except the last one, and then nothing more.
        "cut" => {
            say(credential[..credential.len().saturating_sub(1)].to_owned()).await;
            // Long enough for the sent bytes to arrive.
            tokio::time::sleep(10 * TICK).await;
            let _ = sender.send(Err(io::Error::other("cut"))).await;
        }
        "events" => {
            let (front, back) = credential.split_at(credential.len() / 2);
            say(format!("data: {credential}\n\ndata: {front}")).await;
            say(back.to_owned()).await;
            say("\n\ndata: over\n\n".to_owned()).await;
        }
        "ticks" => {
            for number in 0..TICKS_MAX {
                if !say(format!("data: tick {number}\n\n")).await {
                    return;
                }
                tokio::time::sleep(TICK).await;
            }
        }
        _ => {
            let mut body = request.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(data) = frame.into_data() else { continue };
                let _ = sender.send(Ok(Frame::data(data))).await;
                let length = u32::try_from(credential.len()).unwrap().to_be_bytes();
                let message = [&[0][..], &length, credential.as_bytes()].concat();
                let _ = sender.send(Ok(Frame::data(Bytes::from(message)))).await;
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            trailers.insert("grpc-message", HeaderValue::from_str(&credential).unwrap());
            trailers.insert("x-echo-bin", HeaderValue::from_str(&STANDARD.encode(&credential)).unwrap());
            let _ = sender.send(Ok(Frame::trailers(trailers))).await;
        }
    }
}

/// A WebSocket: answers `tell` with the credential, split in every way, `tick` with endless words, and echoes everything
/// else.
fn socket(mut request: Request<Incoming>, credential: String) -> Response<Body> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let _ = converse(TokioIo::new(upgraded), &credential).await;
    });
    let response =
        Response::builder().status(101).header("connection", "upgrade").header("upgrade", "websocket");
    response.body(whole("")).unwrap()
}

async fn converse(mut stream: TokioIo<hyper::upgrade::Upgraded>, credential: &str) -> io::Result<()> {
    let (front, back) = credential.split_at(credential.len() / 2);
    loop {
        let mut header = [0; 6];
        stream.read_exact(&mut header).await?;
        let mut content = vec![0; usize::from(header[1] & 0x7f)];
        stream.read_exact(&mut content).await?;
        content.iter_mut().enumerate().for_each(|(at, b)| *b ^= header[2 + at % 4]);
        let said = match content.as_slice() {
            b"tell" => [
                frame(0x81, credential),
                // One message in two fragments with a control frame in between.
                frame(0x01, front),
                frame(0x89, credential),
                frame(0x80, back),
                // Two messages.
                frame(0x81, front),
                frame(0x81, back),
                frame(0x81, "told"),
            ]
            .concat(),
            b"tick" => {
                for number in 0..TICKS_MAX {
                    stream.write_all(&frame(0x81, &format!("tick {number}"))).await?;
                    stream.flush().await?;
                    tokio::time::sleep(TICK).await;
                }
                return Ok(());
            }
            other => frame(0x81, &String::from_utf8_lossy(other)),
        };
        stream.write_all(&said).await?;
        stream.flush().await?;
    }
}

fn frame(first: u8, content: &str) -> Vec<u8> {
    let mut frame = vec![first, u8::try_from(content.len()).unwrap()];
    assert!(content.len() < 126, "a short frame");
    frame.extend(content.as_bytes());
    frame
}
