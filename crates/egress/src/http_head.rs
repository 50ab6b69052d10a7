//! Reads the heads of plaintext HTTP/1 requests, and finds where each request ends.
//!
//! ```text
//! Head ──► judged ──┬──► Body(length) ──┐
//!   ▲               ├──► Chunks ────────┤
//!   └───────────────┴───────────────────┘     every request of a connection is judged, not only its first
//! ```
//!
//! Pure, on bytes from a hostile program. Anything that two readers could understand differently is refused (E-T6): the
//! server behind would otherwise see a request that nobody judged. So: lines end in CR LF, nothing is folded, there is
//! one `Host`, and one way to tell where the body ends.

mod chunks;
mod head;

pub use head::{Head, HeadError};

use chunks::Chunks;

/// Longest head that is read: what common servers take.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Longest method. The longest registered one has 17 letters.
const METHOD_MAX: usize = 24;

/// Whether the first bytes of a connection are an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    LikeHttp,
    /// Not decided before there is more.
    NeedMore,
    Otherwise,
}

/// Tells HTTP from other protocols by the first line, which is a method, a target and a version.
pub fn looks(bytes: &[u8]) -> Looks {
    let method = bytes.iter().position(|b| !head::is_token(*b)).unwrap_or(bytes.len());
    if method > METHOD_MAX {
        return Looks::Otherwise;
    }
    match bytes.get(method) {
        None => return Looks::NeedMore,
        Some(b' ') if method > 0 => {}
        Some(_) => return Looks::Otherwise,
    }
    let line = match bytes.iter().position(|b| *b == b'\n') {
        Some(end) => &bytes[..end],
        None if bytes.len() > HEAD_BYTES_MAX => return Looks::Otherwise,
        None => return Looks::NeedMore,
    };
    let version = line.rsplit(|b| *b == b' ').next().unwrap_or_default();
    if version.starts_with(b"HTTP/") { Looks::LikeHttp } else { Looks::Otherwise }
}

/// Follows the requests of one connection.
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
pub enum Next {
    /// A head of this many bytes, to be judged before it is passed on.
    Head(Box<Head>, usize),
    /// This many bytes belong to the body of a judged request.
    Pass(usize),
    /// Not decided before there is more.
    NeedMore,
}

impl Framer {
    #[expect(clippy::new_without_default, reason = "a framer belongs to one connection and starts with it")]
    pub fn new() -> Self {
        Self { state: State::Head }
    }

    /// Looks at `bytes`, which follow what was passed on before.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Next, HeadError> {
        match &mut self.state {
            State::Head => match head::read(bytes)? {
                None if bytes.len() >= HEAD_BYTES_MAX => Err(HeadError::TooLong),
                None => Ok(Next::NeedMore),
                Some((head, length)) => {
                    self.state = match head.body {
                        head::Body::None => State::Head,
                        head::Body::Length(left) => State::Body { left },
                        head::Body::Chunked => State::Chunks(Chunks::new()),
                    };
                    Ok(Next::Head(Box::new(head), length))
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

    /// Whether the bytes so far end where a request ends.
    pub fn is_between_requests(&self) -> bool {
        matches!(self.state, State::Head)
    }
}

fn passed(count: usize) -> Next {
    if count == 0 { Next::NeedMore } else { Next::Pass(count) }
}

#[cfg(test)]
mod tests;
