//! Properties of the parsers of hostile bytes in this module, checked for arbitrary input. The fuzz targets search
//! for violations; the tests below contain past findings and one example of each property.
//!
//! Compiled only for tests and fuzzing.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::{BASE64, BASE64URL, HEXLOWER, HEXUPPER};
use http::header::{self, HeaderValue};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::{Messages, blot_headers};
use super::guard::{Gate, Guard};
use super::scrub::{Forms, Scrubber};
use super::websocket::{Frames, Side};
use super::{der, judge, leaf, path, secret_forms, slots};
use crate::http_head::{Framer, FramerStep};
use crate::policy::Destination;

/// Longer secrets only make runs slower.
const SECRET_MAX: usize = 64;

/// A part of a stream: a number of bytes of one form of a secret, chosen by index, followed by other bytes.
pub type Part = (u8, u8, Vec<u8>);

/// Whether a secret is usable here. It must not contain `*`, because a replacement could then create the secret.
fn is_secret(secret: &[u8]) -> bool {
    let plain = |b: &u8| (0x20..0x7f).contains(b) && *b != b'*';
    (burrow_model::SECRET_BYTES_MIN..=SECRET_MAX).contains(&secret.len()) && secret.iter().all(plain)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn joined(secret: &[u8], parts: &[Part]) -> Vec<u8> {
    let forms = secret_forms::of(secret);
    let mut text = Vec::new();
    for (form, keep, other) in parts {
        let form = &forms[usize::from(*form) % forms.len()];
        text.extend_from_slice(&form[..usize::from(*keep).min(form.len())]);
        text.extend_from_slice(other);
    }
    text
}

fn pieces(bytes: &[u8], step: u8) -> impl Iterator<Item = Bytes> + '_ {
    bytes.chunks(usize::from(step).max(1)).map(Bytes::copy_from_slice)
}

fn scrubbed(forms: &Forms, text: &[u8], step: u8) -> Vec<u8> {
    let mut scrubber = Scrubber::new(forms.clone());
    let mut clean = Vec::new();
    pieces(text, step).for_each(|piece| clean.extend_from_slice(&scrubber.push(piece)));
    clean.extend_from_slice(&scrubber.end());
    clean
}

// === Scrubbing ===

/// A stream that contains parts of a secret keeps its length, does not depend on how it was split, and contains no
/// form of the secret afterwards. The same holds for gRPC messages and for headers.
pub fn scrub(secret: &[u8], parts: &[Part], step: u8) {
    if !is_secret(secret) {
        return;
    }
    let (known, text) = (secret_forms::of(secret), joined(secret, parts));
    let forms = Forms::exact([secret]);
    let clean = scrubbed(&forms, &text, u8::MAX);
    assert_eq!(clean.len(), text.len());
    assert_eq!(clean, scrubbed(&forms, &text, step), "the result depends on the split");
    for form in &known {
        assert!(!contains(&clean, form), "a form is left");
    }
    let told = |step: u8| {
        let (mut messages, mut scrubber) = (Messages::default(), Scrubber::new(forms.clone()));
        let mut told = Vec::new();
        pieces(&text, step).for_each(|piece| told.extend_from_slice(&messages.scrub(piece, &mut scrubber)));
        told.extend_from_slice(&scrubber.end());
        told
    };
    let messages = told(u8::MAX);
    assert_eq!(messages.len(), text.len());
    assert_eq!(messages, told(step), "the messages depend on the split");
    assert!(known.iter().all(|form| !contains(&messages, form)), "a form is left in messages");
    if let Ok(value) = HeaderValue::from_bytes(&text) {
        let mut headers = HeaderMap::from_iter([(header::LOCATION, value)]);
        blot_headers(&mut headers, &forms);
        assert!(known.iter().all(|form| !contains(headers[header::LOCATION].as_bytes(), form)));
    }
}

/// A text that contains a secret and is encoded by a program does not reveal the secret when it is decoded again.
pub fn encoded(before: &[u8], secret: &[u8], behind: &[u8], step: u8) {
    if !is_secret(secret) {
        return;
    }
    let forms = Forms::exact([secret]);
    let whole = [before, secret, behind].concat();
    // The replacement has the same length, so a decoder that accepts any stand-in for `*` finds all other bytes in
    // place.
    let decode = |text: &[u8], alphabet: &data_encoding::Encoding, stand_in: u8| {
        let text: Vec<u8> = text.iter().map(|b| if *b == b'*' { stand_in } else { *b }).collect();
        alphabet.decode(&text).unwrap_or_default()
    };
    for alphabet in [BASE64, BASE64URL, HEXLOWER, HEXUPPER] {
        let clean = scrubbed(&forms, alphabet.encode(&whole).as_bytes(), step);
        // Adjacent bytes that equal the secret are replaced as well, so it cannot be found with both stand-ins.
        let is_left = |stand_in| contains(&decode(&clean, &alphabet, stand_in), secret);
        assert!(!(is_left(b'0') && is_left(b'9')), "encoded, it is left");
    }
    let percent: String = whole.iter().map(|b| format!("%{b:02x}")).collect();
    for text in [percent.clone(), percent.to_uppercase()] {
        let clean = scrubbed(&forms, text.as_bytes(), step);
        let clean = String::from_utf8_lossy(&clean).into_owned();
        assert!(!contains(&slots::decoded(&clean), secret), "escaped, it is left");
    }
    if let Ok(text) = std::str::from_utf8(&whole) {
        let clean = scrubbed(&forms, serde_json::json!(text).to_string().as_bytes(), step);
        let told: String = serde_json::from_slice(&clean).unwrap_or_default();
        assert!(!contains(told.as_bytes(), secret), "as JSON, it is left");
    }
}

// === WebSocket ===

/// The result of one direction: the bytes, the number of forms found, and whether it succeeded.
fn framed(forms: &Forms, side: Side, bytes: &[u8], step: u8) -> (Vec<u8>, u64, bool) {
    let mut frames = Frames::new(forms.clone(), side);
    let (mut clean, mut found) = (Vec::new(), 0);
    for piece in pieces(bytes, step) {
        match frames.push(piece) {
            Ok((passed, hits)) => {
                clean.extend_from_slice(&passed);
                found += hits;
            }
            Err(_) => return (clean, found, false),
        }
    }
    (clean, found, true)
}

/// Arbitrary bytes in both directions.
pub fn frames(bytes: &[u8], step: u8) {
    let forms = Forms::exact([&b"token-12345"[..]]);
    for side in [Side::Program, Side::Host] {
        let (whole, found, well) = framed(&forms, side, bytes, u8::MAX);
        let (cut, found_cut, well_cut) = framed(&forms, side, bytes, step);
        assert_eq!(well, well_cut, "success depends on the split");
        assert!(whole.len() <= bytes.len());
        if well {
            assert_eq!((&whole, found), (&cut, found_cut), "the result depends on the split");
        }
        if side == Side::Program {
            assert!(bytes.starts_with(&whole), "a program's frames are forwarded unchanged");
        }
    }
}

/// Messages that contain parts of a secret, split into frames. Those from hosts are forwarded without the secret;
/// those from programs that contain it are not forwarded.
pub fn messages(secret: &[u8], given: &[(u8, Part)], step: u8) {
    if !is_secret(secret) {
        return;
    }
    let forms = Forms::exact([secret]);
    for side in [Side::Program, Side::Host] {
        let mut bytes = Vec::new();
        for (first, part) in given {
            let content = joined(secret, std::slice::from_ref(part));
            // A control frame, a complete message, the start of a message, or its continuation.
            let first = [0x89, 0x81, 0x01, 0x00, 0x80][usize::from(*first) % 5];
            let content = &content[..content.len().min(if first & 8 == 0 { 4_096 } else { 125 })];
            bytes.extend(frame(first, content, (side == Side::Program).then_some([1, 2, 3, 4])));
        }
        let (clean, found, well) = framed(&forms, side, &bytes, step);
        assert!(well, "a well-formed message was refused");
        let read = |bytes: &[u8]| contents(bytes).iter().any(|content| forms.are_in(content));
        match side {
            Side::Host => assert!(!read(&clean), "a message contains a form of the secret"),
            Side::Program => assert!(found > 0 || !read(&bytes), "not found"),
        }
    }
}

fn frame(first: u8, content: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let flag = if mask.is_some() { 0x80 } else { 0 };
    let mut frame = vec![first];
    match u8::try_from(content.len()) {
        Ok(length @ ..126) => frame.push(flag | length),
        Ok(_) | Err(_) => {
            frame.push(flag | 126);
            frame.extend(u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    frame.extend(mask.iter().flatten());
    frame.extend(content.iter().zip(mask.unwrap_or_default().iter().cycle()).map(|(b, mask)| b ^ mask));
    frame
}

/// The inverse of [`frame`]: returns messages and control frames.
fn contents(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut all, mut message) = (Vec::new(), Vec::new());
    while let [first, second, rest @ ..] = bytes {
        let (length, rest) = match (second & 0x7f, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (length, rest) => (usize::from(length), rest),
        };
        let (mask, rest) = if second & 0x80 == 0 { (&[0; 4][..], rest) } else { rest.split_at(4) };
        let (content, behind) = rest.split_at(length.min(rest.len()));
        let content = content.iter().zip(mask.iter().cycle()).map(|(b, mask)| b ^ mask);
        if first & 8 != 0 {
            all.push(content.collect());
        } else {
            message.extend(content);
            if first & 0x80 != 0 {
                all.push(std::mem::take(&mut message));
            }
        }
        bytes = behind;
    }
    all.push(message);
    all
}

// === HTTP/1 ===

/// A request as the guard or the server reads it.
#[derive(Debug, PartialEq, Eq)]
struct ObservedRequest {
    method: String,
    host: String,
}

/// The server behind the guard sees exactly the requests that were checked, in the same order.
pub fn guard(bytes: &[u8], step: u8) {
    let checked = checked(bytes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let seen = runtime.expect("a runtime can be had").block_on(async {
        let seen = tokio::time::timeout(Duration::from_secs(5), served(bytes, step)).await;
        seen.expect("a connection that has ended is served to its end")
    });
    assert!(checked.starts_with(&seen), "{seen:?} of {checked:?}");
}

fn checked(mut bytes: &[u8]) -> Vec<ObservedRequest> {
    let (mut framer, mut checked) = (Framer::new(), Vec::new());
    loop {
        match framer.next(bytes) {
            Ok(FramerStep::Head(head, length)) => {
                checked.push(ObservedRequest { method: head.method, host: head.host.to_string() });
                if head.upgrade.is_some() {
                    return checked;
                }
                bytes = &bytes[length..];
            }
            Ok(FramerStep::Pass(count)) => bytes = &bytes[count..],
            Ok(FramerStep::NeedMore) | Err(_) => return checked,
        }
    }
}

async fn served(bytes: &[u8], step: u8) -> Vec<ObservedRequest> {
    let gate = Gate::new().expect("there is randomness");
    let pieces = ChunkedClient(pieces(bytes, step).collect::<Vec<_>>().into_iter());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (all, stand_in) = (Arc::clone(&seen), Arc::clone(&gate));
    let service = service_fn(move |request: Request<Incoming>| {
        let (all, gate) = (Arc::clone(&all), Arc::clone(&stand_in));
        async move {
            let mut response = Response::new(Empty::<Bytes>::new());
            // Like the real service: data after the upgrade is not inspected.
            if request.headers().contains_key(header::UPGRADE) {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            if gate.malformed(request.headers()).is_none() {
                let method = request.method().to_string();
                let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
                let host = host.and_then(judge::split_authority).map(|(host, _)| host.to_string());
                let host = host.unwrap_or_default();
                all.lock().unwrap_or_else(PoisonError::into_inner).push(ObservedRequest { method, host });
            }
            let _ = request.into_body().collect().await;
            Ok::<_, Infallible>(response)
        }
    });
    let stream = TokioIo::new(Guard::new(pieces, gate));
    let _ = http1::Builder::new().half_close(true).serve_connection(stream, service).await;
    std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A client that sends its bytes in pieces and ignores the responses.
struct ChunkedClient(std::vec::IntoIter<Bytes>);

impl AsyncRead for ChunkedClient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(piece) = self.0.next() {
            into.put_slice(&piece);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ChunkedClient {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

// === Targets, hosts, certificates ===

/// The target and the host of a request.
pub fn target(text: &str, name: &str) {
    if let Ok(normal) = path::normal(text) {
        assert_eq!(path::normal(&normal).as_deref(), Ok(normal.as_str()), "there is one normal form");
        let mut read = normal.into_bytes();
        // The path as read by a host that decodes too often.
        for _ in 0..3 {
            let dots = |segment: &[u8]| {
                let segment = segment.split(|b| *b == b';').next().unwrap_or_default();
                matches!(segment, b"." | b"..")
            };
            assert!(!read.split(|b| matches!(b, b'/' | b'\\')).any(dots), "dots are left");
            read = slots::decoded(&String::from_utf8_lossy(&read));
        }
    }
    let rest = slots::without_parameter(text, name);
    let is_left = |pair: &str| {
        let given = slots::decoded(pair.split('=').next().unwrap_or_default());
        !pair.is_empty() && given.eq_ignore_ascii_case(name.as_bytes())
    };
    assert!(!rest.split('&').any(is_left), "the parameter is left");
    let (Ok(host), Ok(value)) = (name.parse(), HeaderValue::from_str(text)) else { return };
    let destination = Destination { host, port: 443 };
    let headers = HeaderMap::from_iter([(header::HOST, value)]);
    if judge::check_authority(&http::Uri::default(), &headers, &destination).is_ok() {
        let host = text.rsplit_once(":443").map_or(text, |(host, _)| host);
        assert_eq!(host.parse().ok(), Some(destination.host), "another host");
    }
}

/// Certificates.
pub fn certificate(bytes: &[u8]) {
    let _ = leaf::subject(bytes);
    let mut rest = bytes;
    while let Some(read) = der::next(&mut rest) {
        let again = der::value(read.tag, &[read.inside]);
        // Encoded in the shortest form, it decodes to the same value.
        assert!(again.len() <= read.whole.len());
        let same = der::next(&mut &again[..]).map(|same| (same.tag, same.inside.to_vec()));
        assert_eq!(same, Some((read.tag, read.inside.to_vec())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"sk-aab/aab+aa\"aab";

    #[test]
    fn stream_properties_hold_for_the_examples() {
        let parts = [(0, 200, b"x".to_vec()), (3, 9, b"sk-a".to_vec()), (7, 200, Vec::new())];
        for step in [1, 3, 200] {
            scrub(SECRET, &parts, step);
            encoded(b"before", SECRET, b"behind", step);
            messages(SECRET, &[(2, parts[0].clone()), (0, parts[2].clone()), (4, parts[1].clone())], step);
            frames(&frame(0x81, SECRET, None), step);
            frames(&frame(0x81, SECRET, Some([9; 4])), step);
        }
    }

    #[test]
    fn request_properties_hold_for_the_examples() {
        let sent = b"POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: A.example:443\r\n\r\n";
        assert_eq!(checked(sent).len(), 2);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(served(sent, 5)), checked(sent));
        guard(sent, 1);
        guard(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n", 7);
        target("/a/%252e%252e/b", "a.example");
        target("a.example:443", "a.example");
        certificate(&leaf::tests::authority().certificate);
    }
}
