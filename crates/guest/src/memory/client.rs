//! HTTP/1.1 to the sandbox's own listener, using only the standard library: one request per connection.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::{Failure, show};

/// The address of every sandbox's own listener: the gateway's address and port, the same in each sandbox.
const OWN_LISTENER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 88, 0, 1)), 7700);

/// Overrides the address, for tests and special setups.
const OWN_LISTENER_VARIABLE: &str = "BURROW_MEMORY_DOOR";

/// A running daemon answers within milliseconds; a restarting one is available again within seconds.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// The longest wait for data: a search over much data that is not cached takes a while.
const SILENCE: Duration = Duration::from_secs(120);

/// The largest answer that is read into RAM.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The longest line in the head of an answer, and the number of lines.
const HEAD_LINE_BYTES_MAX: u64 = 16 << 10;
const HEAD_LINES_MAX: usize = 100;

pub(super) struct Client {
    address: SocketAddr,
}

/// The body of a request; only a piece of it is in RAM.
pub(super) struct Upload {
    body: Box<dyn Read>,
    /// `None`: unknown, sent in chunks.
    bytes: Option<u64>,
}

impl Upload {
    pub(super) fn input() -> Self {
        Self { body: Box::new(io::stdin()), bytes: None }
    }

    pub(super) fn file(file: File) -> io::Result<Self> {
        let about = file.metadata()?;
        let bytes = about.is_file().then_some(about.len());
        Ok(Self { body: Box::new(file), bytes })
    }

    fn json(value: &Value) -> Self {
        let bytes = value.to_string().into_bytes();
        Self { bytes: Some(bytes.len() as u64), body: Box::new(io::Cursor::new(bytes)) }
    }
}

impl Client {
    pub(super) fn of_this_sandbox() -> Self {
        let given = std::env::var(OWN_LISTENER_VARIABLE).ok().and_then(|text| text.parse().ok());
        Self { address: given.unwrap_or(OWN_LISTENER) }
    }

    pub(super) fn get(&self, place: &str) -> Result<Value, Failure> {
        self.ask("GET", place, None)
    }

    pub(super) fn delete(&self, place: &str) -> Result<Value, Failure> {
        self.ask("DELETE", place, None)
    }

    pub(super) fn post(&self, place: &str, body: &Value) -> Result<Value, Failure> {
        self.ask("POST", place, Some(Upload::json(body)))
    }

    pub(super) fn put(&self, place: &str, body: &Value) -> Result<Value, Failure> {
        self.ask("PUT", place, Some(Upload::json(body)))
    }

    pub(super) fn upload(&self, place: &str, body: Upload) -> Result<Value, Failure> {
        self.send("PUT", place, Some(body), "application/octet-stream")?.json()
    }

    pub(super) fn download(&self, place: &str) -> Result<Response, Failure> {
        self.send("GET", place, None, "")
    }

    fn ask(&self, method: &str, place: &str, body: Option<Upload>) -> Result<Value, Failure> {
        self.send(method, place, body, "application/json")?.json()
    }

    fn send(&self, method: &str, place: &str, body: Option<Upload>, kind: &str) -> Result<Response, Failure> {
        let away = |error: io::Error| {
            Failure::Failed(format!(
                "this sandbox's memory cannot be reached ({error}); is the daemon running?"
            ))
        };
        let mut stream = TcpStream::connect_timeout(&self.address, CONNECT_TIME).map_err(away)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        let slash = if place.is_empty() { "" } else { "/" };
        let mut head =
            format!("{method} /v1/memory/self{slash}{place} HTTP/1.1\r\nHost: {}\r\n", self.address);
        head.push_str("Connection: close\r\n");
        match &body {
            Some(Upload { bytes: Some(bytes), .. }) => {
                head.push_str(&format!("Content-Type: {kind}\r\nContent-Length: {bytes}\r\n\r\n"));
            }
            Some(Upload { bytes: None, .. }) => {
                head.push_str(&format!("Content-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"));
            }
            None => head.push_str("\r\n"),
        }
        stream.write_all(head.as_bytes())?;
        if let Some(upload) = body {
            // A daemon that refuses answers without reading the body; its answer is more useful than the broken pipe.
            let _ = pour(upload, &mut stream);
        }
        Response::read(stream)
    }
}

fn pour(upload: Upload, into: &mut TcpStream) -> io::Result<()> {
    let Upload { mut body, bytes } = upload;
    let mut piece = vec![0; 64 << 10];
    loop {
        let length = body.read(&mut piece)?;
        match (length, bytes) {
            (0, Some(_)) => return Ok(()),
            (0, None) => return into.write_all(b"0\r\n\r\n"),
            (length, Some(_)) => into.write_all(&piece[..length])?,
            (length, None) => {
                into.write_all(format!("{length:x}\r\n").as_bytes())?;
                into.write_all(&piece[..length])?;
                into.write_all(b"\r\n")?;
            }
        }
    }
}

/// A successful answer, read up to its body.
pub(super) struct Response {
    stream: BufReader<TcpStream>,
    left: BodyLeft,
}

/// How much of a body is left.
#[derive(Clone, Copy, Debug)]
enum BodyLeft {
    Bytes(u64),
    /// Of this chunk; other chunks follow.
    Chunk(u64),
    UntilClosed,
}

impl Response {
    fn read(stream: TcpStream) -> Result<Self, Failure> {
        let mut stream = BufReader::new(stream);
        let status = head_line(&mut stream)?;
        let code: u16 =
            status.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(invalid_response)?;
        let mut left = BodyLeft::UntilClosed;
        for _ in 0..HEAD_LINES_MAX {
            let line = head_line(&mut stream)?;
            if line.is_empty() {
                let answer = Self { stream, left: if code == 204 { BodyLeft::Bytes(0) } else { left } };
                return if (200..300).contains(&code) { Ok(answer) } else { Err(answer.refusal(code)) };
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            if name.eq_ignore_ascii_case("content-length") {
                left = BodyLeft::Bytes(value.trim().parse().map_err(|_| invalid_response())?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                left = BodyLeft::Chunk(0);
            }
        }
        Err(invalid_response().into())
    }

    fn json(self) -> Result<Value, Failure> {
        let mut bytes = Vec::new();
        self.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|_| invalid_response().into())
    }

    fn refusal(self, code: u16) -> Failure {
        let error = self.json().unwrap_or(Value::Null);
        let detail = &error["error"];
        let message = detail["message"]
            .as_str()
            .map_or_else(|| format!("the request failed with status {code}"), show::plain);
        Failure::Failed(match detail["hint"].as_str() {
            Some(hint) => format!("{message}\nhint: {}", show::plain(hint)),
            None => message,
        })
    }

    /// The size of the next chunk; 0 ends the body.
    fn next_chunk(&mut self) -> io::Result<u64> {
        let line = head_line(&mut self.stream)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| invalid_response())?;
        if size == 0 {
            while !head_line(&mut self.stream)?.is_empty() {}
        }
        Ok(size)
    }
}

impl Read for Response {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let BodyLeft::Chunk(0) = self.left {
            self.left = match self.next_chunk()? {
                0 => BodyLeft::Bytes(0),
                size => BodyLeft::Chunk(size),
            };
        }
        let (BodyLeft::Bytes(most) | BodyLeft::Chunk(most)) = self.left else {
            return self.stream.read(into);
        };
        if most == 0 {
            return Ok(0);
        }
        let most_now = usize::try_from(most).unwrap_or(usize::MAX).min(into.len());
        let length = self.stream.read(&mut into[..most_now])?;
        if length == 0 && !into.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the response was truncated"));
        }
        let left = most - length as u64;
        match &mut self.left {
            BodyLeft::Bytes(bytes) => *bytes = left,
            BodyLeft::Chunk(bytes) => {
                *bytes = left;
                if left == 0 && !head_line(&mut self.stream)?.is_empty() {
                    return Err(invalid_response());
                }
            }
            BodyLeft::UntilClosed => {}
        }
        Ok(length)
    }
}

fn head_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = Vec::new();
    stream.take(HEAD_LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(invalid_response());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| invalid_response())
}

fn invalid_response() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the response of the sandbox's own listener is not valid HTTP")
}

/// A name as part of a path; slashes are not escaped.
pub(super) fn escape(text: &str) -> String {
    escape_all_but(text, b"-._~/")
}

/// A text as the value of a query parameter.
pub(super) fn escape_query(text: &str) -> String {
    escape_all_but(text, b"-._~")
}

fn escape_all_but(text: &str, plain: &[u8]) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use serde_json::json;

    use super::*;

    /// Answers one request with `answer`, and returns the request.
    fn serve(answer: &'static str) -> (Client, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut piece) {
                request.extend_from_slice(&piece[..length]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        (Client { address }, served)
    }

    #[test]
    fn requests_contain_path_and_length() {
        let (client, served) = serve("HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{\"a\": 1}");
        assert_eq!(client.post("entries", &json!({ "text": "x" })).unwrap_or_default(), json!({ "a": 1 }));
        let request = served.join().unwrap();
        assert!(request.starts_with("POST /v1/memory/self/entries HTTP/1.1\r\n"), "{request}");
        assert!(
            request.contains("Content-Length: 12\r\n") && request.ends_with("\r\n\r\n{\"text\":\"x\"}"),
            "{request}"
        );
    }

    #[test]
    fn chunked_responses_are_reassembled() {
        let (client, served) =
            serve("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n");
        assert_eq!(client.get("").unwrap_or_default(), json!([1, 2]));
        assert!(served.join().unwrap().starts_with("GET /v1/memory/self HTTP/1.1\r\n"));
    }

    #[test]
    fn errors_contain_the_message_of_the_daemon() {
        let (client, served) = serve(
            "HTTP/1.1 404 Not Found\r\nContent-Length: 49\r\n\r\n{\"error\":{\"message\":\"no \\u001b[1mx\",\"hint\":\"ls\"}}",
        );
        let Err(Failure::Failed(text)) = client.get("kv/x") else { panic!("expected an error") };
        assert_eq!(text, "no  [1mx\nhint: ls");
        served.join().unwrap();
    }

    #[test]
    fn truncated_responses_are_errors() {
        let (client, served) = serve("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}");
        assert!(client.get("").is_err());
        served.join().unwrap();
    }

    #[test]
    fn names_are_escaped_in_paths_and_queries() {
        assert_eq!(escape("a b/c%d?e"), "a%20b/c%25d%3Fe");
        assert_eq!(escape_query("a/b&c"), "a%2Fb%26c");
    }
}
