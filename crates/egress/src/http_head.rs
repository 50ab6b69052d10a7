//! Parses the heads of plaintext HTTP/1 requests, and finds the end of each request.
//!
//! ```text
//! Head ──► check. ──┬──► Body(length) ──┐
//!   ▲               ├──► Chunks ────────┤
//!   └───────────────┴───────────────────┘     every request of a connection is checked, not only the first
//! ```
//!
//! Pure; the input is hostile. Ambiguous requests are refused (E-T6), because the server could see a request that was
//! never checked. Therefore lines must end in CR LF, headers must not be folded, and there must be exactly one `Host`
//! and exactly one way to determine the length of the body.

mod chunks;
mod head;

pub use head::{Head, HeadError};

use chunks::Chunks;

/// Longest head that is read; common servers have the same limit.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Longest method. The longest registered one has 17 characters.
const METHOD_MAX: usize = 24;

/// Whether the first bytes of a connection are an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpDetection {
    Http,
    /// Undecided until more bytes arrive.
    NeedMore,
    NotHttp,
}

/// Detects HTTP by the first line: a method, a target and a version.
pub fn detect(bytes: &[u8]) -> HttpDetection {
    let method = bytes.iter().position(|b| !head::is_token(*b)).unwrap_or(bytes.len());
    if method > METHOD_MAX {
        return HttpDetection::NotHttp;
    }
    match bytes.get(method) {
        None => return HttpDetection::NeedMore,
        Some(b' ') if method > 0 => {}
        Some(_) => return HttpDetection::NotHttp,
    }
    let line = match bytes.iter().position(|b| *b == b'\n') {
        Some(end) => &bytes[..end],
        None if bytes.len() > HEAD_BYTES_MAX => return HttpDetection::NotHttp,
        None => return HttpDetection::NeedMore,
    };
    let version = line.rsplit(|b| *b == b' ').next().unwrap_or_default();
    if version.starts_with(b"HTTP/") { HttpDetection::Http } else { HttpDetection::NotHttp }
}

/// Finds the boundaries of the requests of one connection.
#[derive(Debug)]
pub struct Framer {
    state: State,
}

#[derive(Debug)]
enum State {
    Head,
    Body { left: u64 },
    Chunks(Chunks),
}

/// What to do with the bytes at the front of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum FramerStep {
    /// A head of this many bytes, to be checked before it is forwarded.
    Head(Box<Head>, usize),
    /// This many bytes belong to the body of a checked request.
    Pass(usize),
    /// Undecided until more bytes arrive.
    NeedMore,
}

impl Framer {
    #[expect(clippy::new_without_default, reason = "a framer belongs to one connection and starts with it")]
    pub fn new() -> Self {
        Self { state: State::Head }
    }

    /// Classifies `bytes`, which follow the bytes that were forwarded before.
    pub fn next(&mut self, bytes: &[u8]) -> Result<FramerStep, HeadError> {
        match &mut self.state {
            State::Head => match head::read(bytes)? {
                None if bytes.len() >= HEAD_BYTES_MAX => Err(HeadError::TooLong),
                None => Ok(FramerStep::NeedMore),
                Some((head, length)) => {
                    self.state = match head.body {
                        head::Body::None => State::Head,
                        head::Body::Length(left) => State::Body { left },
                        head::Body::Chunked => State::Chunks(Chunks::new()),
                    };
                    Ok(FramerStep::Head(Box::new(head), length))
                }
            },
            State::Body { left } => {
                let have = u64::try_from(bytes.len()).unwrap_or(u64::MAX).min(*left);
                *left -= have;
                if *left == 0 {
                    self.state = State::Head;
                }
                Ok(passed(usize::try_from(have).unwrap_or(usize::MAX)))
            }
            State::Chunks(chunks) => {
                let (count, done) = chunks.pass(bytes)?;
                if done {
                    self.state = State::Head;
                }
                Ok(passed(count))
            }
        }
    }

    /// Whether the last byte so far is the end of a request.
    pub fn is_between_requests(&self) -> bool {
        matches!(self.state, State::Head)
    }
}

fn passed(count: usize) -> FramerStep {
    if count == 0 { FramerStep::NeedMore } else { FramerStep::Pass(count) }
}

#[cfg(test)]
mod tests;
