//! The bodies of requests and answers, looked through as they stream by.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::exchange::Exchange;
use super::rest::Lent;
use super::scrub::{Forms, Hits, Scrubber};
use super::upstream::Lease;

/// What a program sends. A placeholder in it ends the request, and so does a budget that is used up.
#[derive(Debug)]
pub(super) struct RequestBody {
    inner: Lent,
    /// Only finds: what it holds has been passed on, except for the end of a placeholder.
    finder: Scrubber,
    placeholders: Forms,
    exchange: Arc<Exchange>,
}

impl RequestBody {
    pub(super) fn new(inner: Lent, placeholders: Forms, exchange: Arc<Exchange>) -> Self {
        let finder = Scrubber::new(placeholders.clone());
        Self { inner, finder, placeholders, exchange }
    }

    fn look(&mut self, frame: &Frame<Bytes>) -> io::Result<()> {
        if let Some(data) = frame.data_ref() {
            drop(self.finder.push(data.clone()));
            if self.finder.found > 0 {
                return Err(self.exchange.alarm("a placeholder stands in the body"));
            }
            self.exchange.goes_out(data.len())?;
        }
        if let Some(trailers) = frame.trailers_ref()
            && trailers.values().any(|value| self.placeholders.are_in(value.as_bytes()))
        {
            return Err(self.exchange.alarm("a placeholder stands in a trailer"));
        }
        Ok(())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)) else { return Poll::Ready(None) };
        // Not the host's fault: it is told so, if it can still be told anything.
        let frame = frame.map_err(|error| this.exchange.malformed(&error))?;
        this.look(&frame)?;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// What a program gets.
#[derive(Debug)]
pub(super) enum Answer {
    /// From us.
    Ours(Full<Bytes>),
    /// From the host.
    Theirs(Box<ResponseBody>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Ours(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Self::Theirs(body) => Pin::new(body.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Ours(body) => body.is_end_stream(),
            Self::Theirs(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ours(body) => body.size_hint(),
            Self::Theirs(body) => body.size_hint(),
        }
    }
}

/// The body of a host's answer, without any secret of the sandbox (E-S2, E-S21). Dropping it before its end drops what it holds.
#[derive(Debug)]
pub(super) struct ResponseBody {
    inner: Incoming,
    /// Only where the sandbox has secrets.
    scrubber: Option<Scrubber>,
    forms: Option<Forms>,
    /// Of gRPC, whose messages are answered one by one.
    messages: Option<Messages>,
    trailers: Option<HeaderMap>,
    /// Nothing more comes.
    ended: bool,
    /// It was read to its end, so that its connection can be used again.
    whole: bool,
    lease: Option<Lease>,
    exchange: Arc<Exchange>,
}

impl ResponseBody {
    pub(super) fn new(
        inner: Incoming,
        forms: Option<Forms>,
        is_grpc: bool,
        lease: Lease,
        exchange: Arc<Exchange>,
    ) -> Self {
        Self {
            inner,
            scrubber: forms.clone().map(Scrubber::new),
            forms,
            messages: is_grpc.then(Messages::default),
            trailers: None,
            ended: false,
            whole: false,
            lease: Some(lease),
            exchange,
        }
    }

    fn scrub(&mut self, data: Bytes) -> Bytes {
        self.exchange.comes_in(data.len());
        let Some(scrubber) = &mut self.scrubber else { return data };
        let clean = match &mut self.messages {
            None => scrubber.push(data),
            Some(messages) => messages.scrub(data, scrubber),
        };
        self.exchange.scrubbed(&scrubber.take_hits());
        clean
    }

    fn rest(&mut self) -> Bytes {
        self.ended = true;
        self.whole = true;
        let Some(scrubber) = &mut self.scrubber else { return Bytes::new() };
        let rest = scrubber.end();
        self.exchange.scrubbed(&scrubber.take_hits());
        rest
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        loop {
            if this.ended {
                return Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let rest = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.scrub(data),
                    Err(frame) => {
                        let mut trailers = frame.into_trailers().unwrap_or_default();
                        if let Some(forms) = &this.forms {
                            this.exchange.scrubbed(&blot_headers(&mut trailers, forms));
                        }
                        this.trailers = Some(trailers);
                        this.rest()
                    }
                },
                Some(Err(error)) => {
                    // Dropped, never passed on: what follows is not known.
                    this.scrubber = None;
                    this.ended = true;
                    this.lease = None;
                    return Poll::Ready(Some(Err(io::Error::other(error))));
                }
                None => this.rest(),
            };
            if !rest.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(rest))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let nothing_held = self.scrubber.as_ref().is_none_or(|scrubber| scrubber.held() == 0);
        nothing_held && self.trailers.is_none() && (self.ended || self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.scrubber.as_ref().map_or(0, Scrubber::held) as u64;
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        // What is blotted out is as long as what was there.
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint.set_lower(inner.lower().saturating_add(held));
        hint
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // Of a body with a length this is known before anybody asks for what comes behind it; of others it is not.
        let whole = self.whole || (!self.ended && self.inner.is_end_stream());
        if let Some(lease) = self.lease.take().filter(|_| whole) {
            lease.give_back();
        }
        self.exchange.ended(whole);
    }
}

/// Follows the messages of gRPC: a flag, four bytes of length, and so many bytes.
#[derive(Debug, Default)]
pub(super) struct Messages {
    header: Vec<u8>,
    left: usize,
}

impl Messages {
    const HEADER: usize = 5;

    pub(super) fn scrub(&mut self, mut data: Bytes, scrubber: &mut Scrubber) -> Bytes {
        let mut clean = BytesMut::with_capacity(data.len());
        while !data.is_empty() {
            if self.left == 0 {
                let count = (Self::HEADER - self.header.len()).min(data.len());
                let part = data.split_to(count);
                self.header.extend_from_slice(&part);
                clean.extend_from_slice(&scrubber.push(part));
                if self.header.len() < Self::HEADER {
                    break;
                }
                let length = [self.header[1], self.header[2], self.header[3], self.header[4]];
                self.left = u32::from_be_bytes(length) as usize;
                self.header.clear();
            } else {
                let part = data.split_to(self.left.min(data.len()));
                self.left -= part.len();
                clean.extend_from_slice(&scrubber.push(part));
            }
            if self.left == 0 {
                clean.extend_from_slice(&scrubber.message_ended());
            }
        }
        clean.freeze()
    }
}

/// Blots secrets out of headers or trailers, and says which. A name that holds one goes with its value.
pub(super) fn blot_headers(headers: &mut HeaderMap, forms: &Forms) -> Hits {
    let mut hits = Hits::default();
    for value in headers.values_mut() {
        if let Some(clean) = forms.blot_counted(value.as_bytes(), &mut hits) {
            *value = HeaderValue::from_bytes(&clean).unwrap_or(HeaderValue::from_static("*"));
        }
    }
    // Names have lost their case, so it cannot matter here.
    let folded = forms.folded();
    let mut named = Vec::new();
    for name in headers.keys() {
        if folded.blot_counted(name.as_str().as_bytes(), &mut hits).is_some() {
            named.push(name.clone());
        }
    }
    for name in named {
        headers.remove(name);
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_s16_a_grpc_message_is_whole_when_it_has_come() {
        let forms = Forms::exact([&b"token-12345"[..]]);
        let mut scrubber = Scrubber::new(forms);
        let mut messages = Messages::default();
        let mut message = vec![0, 0, 0, 0, 5];
        message.extend_from_slice(b"abcto");
        assert_eq!(messages.scrub(Bytes::from(message.clone()), &mut scrubber), message);
        let mut echo = vec![0, 0, 0, 0, 13];
        echo.extend_from_slice(b"x token-12345");
        let mut seen = Vec::new();
        for piece in echo.chunks(2) {
            seen.extend_from_slice(&messages.scrub(Bytes::copy_from_slice(piece), &mut scrubber));
        }
        assert_eq!(&seen[5..], b"x ***********");
    }

    #[test]
    fn e_s5_headers_lose_secrets_wherever_they_stand() {
        let forms = Forms::exact([&b"Token-12345"[..]]);
        let mut headers = HeaderMap::new();
        headers.insert("location", "https://evil.example/?t=Token-12345".parse().unwrap());
        headers.insert("x-token-12345", "1".parse().unwrap());
        headers.insert("x-fine", "1".parse().unwrap());
        let hits = blot_headers(&mut headers, &forms);
        assert_eq!(hits.iter().map(|(_, count)| count).sum::<u64>(), 2);
        assert_eq!(headers["location"], "https://evil.example/?t=***********");
        assert!(!headers.contains_key("x-token-12345") && headers.contains_key("x-fine"));
    }
}
