//! The head of one request: request line, headers, and how the length of the body is given.

use crate::policy::Host;

/// Largest number of headers in one request.
const HEADERS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub method: String,
    /// The `Host` header, which an absolute target must match.
    pub host: Host,
    /// The port in `Host`, if it has one.
    pub port: Option<u16>,
    /// The protocol that the client asks to switch to.
    pub upgrade: Option<String>,
    pub(super) body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Length(u64),
    Chunked,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("the head is longer than 32 KiB")]
    TooLong,
    #[error("the request line is not `METHOD target HTTP/1.1`")]
    RequestLine,
    #[error("a line does not end in CR LF, or holds a control byte")]
    Line,
    #[error("a header is not `name: value` on one line")]
    Header,
    #[error("there are more than 200 headers")]
    TooManyHeaders,
    #[error("there is not exactly one Host")]
    HostCount,
    #[error("the Host is not a host name with an optional port")]
    Host,
    #[error("the target's host differs from Host")]
    TargetHost,
    #[error("the body's length is missing or ambiguous")]
    Length,
    #[error("invalid chunk in the body")]
    Chunk,
    #[error("CONNECT")]
    Connect,
    #[error("HTTP/2 without TLS")]
    Http2,
}

impl HeadError {
    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::TooLong | Self::TooManyHeaders => 431,
            Self::TargetHost => 421,
            Self::Connect => 403,
            Self::Http2 => 501,
            Self::RequestLine
            | Self::Line
            | Self::Header
            | Self::HostCount
            | Self::Host
            | Self::Length
            | Self::Chunk => 400,
        }
    }
}

pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads the head at the front of `bytes`; `None` if it is incomplete.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
    let mut lines = Lines { bytes, at: 0 };
    let Some(request_line) = lines.next()? else { return Ok(None) };
    let request = request_line_of(request_line)?;
    let mut headers = Headers::default();
    for _ in 0..=HEADERS_MAX {
        let Some(line) = lines.next()? else { return Ok(None) };
        if line.is_empty() {
            return Ok(Some((headers.finish(request)?, lines.at)));
        }
        headers.take(line)?;
    }
    Err(HeadError::TooManyHeaders)
}

/// Iterates over lines that end in CR LF; a lone CR or LF or a NUL is an error.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<Option<&'a [u8]>, HeadError> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| *b == b'\n');
        let line = match end {
            // An invalid byte is refused before the end of the line has arrived.
            None => rest.strip_suffix(b"\r").unwrap_or(rest),
            Some(end) => rest[..end].strip_suffix(b"\r").ok_or(HeadError::Line)?,
        };
        if line.iter().any(|b| *b < b' ' && *b != b'\t' || *b == 0x7f) {
            return Err(HeadError::Line);
        }
        Ok(end.map(|end| {
            self.at += end + 1;
            line
        }))
    }
}

struct RequestLine<'a> {
    method: &'a [u8],
    /// The authority of an absolute target.
    authority: Option<&'a str>,
    is_1_0: bool,
}

fn request_line_of(line: &[u8]) -> Result<RequestLine<'_>, HeadError> {
    let mut words = line.split(|b| *b == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadError::RequestLine);
    };
    if method == b"PRI" && target == b"*" {
        return Err(HeadError::Http2);
    }
    let is_1_0 = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ => return Err(HeadError::RequestLine),
    };
    if method.is_empty() || !method.iter().all(|b| is_token(*b)) || target.contains(&b'\t') {
        return Err(HeadError::RequestLine);
    }
    if method == b"CONNECT" {
        return Err(HeadError::Connect);
    }
    let authority = match target {
        [b'/', ..] => None,
        b"*" if method == b"OPTIONS" => None,
        _ => Some(authority_of(target)?),
    };
    Ok(RequestLine { method, authority, is_1_0 })
}

/// The host and port of `http://host:port/path`.
fn authority_of(target: &[u8]) -> Result<&str, HeadError> {
    let (scheme, rest) = target.split_at_checked(7).ok_or(HeadError::RequestLine)?;
    if !scheme.eq_ignore_ascii_case(b"http://") {
        return Err(HeadError::RequestLine);
    }
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).map_err(|_| HeadError::Host)
}

/// The headers that affect the framing or the policy.
#[derive(Default)]
struct Headers {
    host: Option<(Host, Option<u16>)>,
    length: Option<u64>,
    chunked: bool,
    upgrade: Option<String>,
}

impl Headers {
    fn take(&mut self, line: &[u8]) -> Result<(), HeadError> {
        let colon = line.iter().position(|b| *b == b':').ok_or(HeadError::Header)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // The check for a token also refuses folded lines and blanks before the colon.
        if name.is_empty() || !name.iter().all(|b| is_token(*b)) {
            return Err(HeadError::Header);
        }
        if name.eq_ignore_ascii_case(b"host") {
            let text = std::str::from_utf8(value).map_err(|_| HeadError::Host)?;
            if self.host.replace(host_of(text)?).is_some() {
                return Err(HeadError::HostCount);
            }
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = digits(value).ok_or(HeadError::Length)?;
            if self.length.replace(length).is_some() {
                return Err(HeadError::Length);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadError::Length);
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            let text = std::str::from_utf8(value).map_err(|_| HeadError::Header)?;
            if text.split(',').any(|token| token.trim().to_ascii_lowercase().starts_with("h2c")) {
                return Err(HeadError::Http2);
            }
            self.upgrade = Some(text.to_owned());
        } else if name.eq_ignore_ascii_case(b"http2-settings") {
            return Err(HeadError::Http2);
        }
        Ok(())
    }

    fn finish(self, request: RequestLine<'_>) -> Result<Head, HeadError> {
        let (host, port) = self.host.ok_or(HeadError::HostCount)?;
        if let Some(authority) = request.authority {
            let (target_host, target_port) = host_of(authority)?;
            let http = crate::policy::HTTP_PORT;
            if target_host != host || target_port.unwrap_or(http) != port.unwrap_or(http) {
                return Err(HeadError::TargetHost);
            }
        }
        let body = match (self.length, self.chunked) {
            (Some(_), true) => return Err(HeadError::Length),
            (None, true) if request.is_1_0 => return Err(HeadError::Length),
            (None, true) => Body::Chunked,
            (Some(0) | None, false) => Body::None,
            (Some(length), false) => Body::Length(length),
        };
        // The data after an upgrade is not HTTP, so there must be no body in between.
        if self.upgrade.is_some() && body != Body::None {
            return Err(HeadError::Length);
        }
        let method = String::from_utf8_lossy(request.method).into_owned();
        Ok(Head { method, host, port, upgrade: self.upgrade, body })
    }
}

/// Parses a host and an optional port, as in `Host`.
fn host_of(text: &str) -> Result<(Host, Option<u16>), HeadError> {
    let colon = text.rfind(':').filter(|colon| !text[*colon..].contains(']'));
    let (host, port) = match colon {
        Some(colon) => (&text[..colon], Some(&text[colon + 1..])),
        None => (text, None),
    };
    let port = match port.map(|port| digits(port.as_bytes()).and_then(|port| u16::try_from(port).ok())) {
        Some(None | Some(0)) => return Err(HeadError::Host),
        Some(Some(port)) => Some(port),
        None => None,
    };
    Ok((host.parse().map_err(|_| HeadError::Host)?, port))
}

/// Parses a number of plain digits: no sign, blank or list.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
