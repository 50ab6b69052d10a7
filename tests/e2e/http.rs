//! A plain HTTP/1.1 client, like curl: it sends exactly what it is given, valid or not.
//!
//! Our own client crate would refuse to send half of these requests. One connection per request; every wait is limited by
//! the timeout of the harness.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::harness::{Daemon, PATIENCE};

/// A request under construction.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    address: String,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// An answer whose body has not been read yet.
#[derive(Debug)]
pub(crate) struct StreamedAnswer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<Body>,
}

#[derive(Debug)]
struct Body {
    source: BufReader<TcpStream>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Bytes left.
    Sized(u64),
    /// Bytes left of the present chunk; `None` once the last one has been seen.
    Chunked(Option<u64>),
    ToTheEnd,
}

impl Daemon {
    /// A request with the admin key.
    pub(crate) fn http(&self, method: &str, target: &str) -> Call {
        let key = self.key();
        self.http_open(method, target).header("x-api-key", &key)
    }

    /// A request without a key.
    pub(crate) fn http_open(&self, method: &str, target: &str) -> Call {
        Call {
            address: self.url().trim_start_matches("http://").to_owned(),
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        self.http("GET", target).send()
    }

    pub(crate) fn post(&self, target: &str, body: &Value) -> Answer {
        self.http("POST", target).json(body).send()
    }
}

// === impl Call ===

impl Call {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn key(mut self, key: &str) -> Self {
        self.headers.retain(|(name, _)| name != "x-api-key");
        self.header("x-api-key", key)
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    #[track_caller]
    pub(crate) fn send(self) -> Answer {
        let what = format!("{} {}", self.method, self.target);
        let mut streamed = self.open();
        let mut body = Vec::new();
        streamed.body.read_to_end(&mut body).unwrap_or_else(|error| panic!("{what}: {error}"));
        Answer { status: streamed.status, headers: streamed.headers, body }
    }

    /// Sends the request and reads only the head of the answer.
    #[track_caller]
    pub(crate) fn open(mut self) -> StreamedAnswer {
        let body = std::mem::take(&mut self.body);
        let length = body.len() as u64;
        let mut stream = self.begin(length);
        // A daemon that refuses a body early closes the connection; its answer can still be read.
        let _ = stream.write_all(&body);
        Self::answer(stream)
    }

    /// Connects and sends the head, announcing a body of `length` bytes that the caller sends.
    #[track_caller]
    pub(crate) fn begin(&self, length: u64) -> TcpStream {
        let sized = length > 0 || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        self.connect(sized.then_some(length))
    }

    /// The same for a body of unknown length, whose chunks the caller sends.
    #[track_caller]
    pub(crate) fn begin_chunked(self) -> TcpStream {
        self.header("transfer-encoding", "chunked").connect(None)
    }

    #[track_caller]
    fn connect(&self, length: Option<u64>) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", self.method, self.target);
        if self.headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("host: {}\r\n", self.address));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(length) = length {
            head.push_str(&format!("content-length: {length}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Reads the head of the answer on a connection from [`Call::begin`].
    #[track_caller]
    pub(crate) fn answer(stream: TcpStream) -> StreamedAnswer {
        let mut source = BufReader::new(stream);
        let mut line = String::new();
        source.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            source.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let find =
            |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let kind = match (find("transfer-encoding"), find("content-length")) {
            (Some("chunked"), _) => Kind::Chunked(Some(0)),
            (_, Some(length)) => Kind::Sized(length.parse().unwrap()),
            (_, None) if status == 204 => Kind::Sized(0),
            (_, None) => Kind::ToTheEnd,
        };
        StreamedAnswer { status, headers, body: BufReader::new(Body { source, kind }) }
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body of an answer that must have this status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Checks that it has the form of every error (a status, a stable code, a message) and returns the error.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        let error = self.json()["error"].clone();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
        error
    }
}

// === impl StreamedAnswer ===

impl StreamedAnswer {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    /// The next line of NDJSON; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.body.read_line(&mut line).unwrap();
        (!line.is_empty())
            .then(|| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
    }
}

impl Read for StreamedAnswer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.body.read(buffer)
    }
}

// === impl Body ===

impl Body {
    fn take(&mut self, buffer: &mut [u8], left: u64) -> io::Result<u64> {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.source.read(&mut buffer[..count])?;
        if read == 0 && count > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer broke off"));
        }
        Ok(read as u64)
    }

    /// The length of the next chunk, after the line end of the previous one.
    fn next_chunk(&mut self) -> io::Result<u64> {
        loop {
            let mut line = String::new();
            if self.source.read_line(&mut line)? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the answer broke off between chunks",
                ));
            }
            let text = line.trim();
            if !text.is_empty() {
                return u64::from_str_radix(text, 16).map_err(io::Error::other);
            }
        }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.kind {
            Kind::ToTheEnd => return self.source.read(buffer),
            Kind::Sized(0) | Kind::Chunked(None) => 0,
            Kind::Sized(left) => {
                let read = self.take(buffer, left)?;
                self.kind = Kind::Sized(left - read);
                read
            }
            Kind::Chunked(Some(0)) => match self.next_chunk()? {
                0 => {
                    self.kind = Kind::Chunked(None);
                    0
                }
                length => {
                    self.kind = Kind::Chunked(Some(length));
                    return self.read(buffer);
                }
            },
            Kind::Chunked(Some(left)) => {
                let read = self.take(buffer, left)?;
                self.kind = Kind::Chunked(Some(left - read));
                read
            }
        };
        Ok(usize::try_from(read).unwrap())
    }
}
