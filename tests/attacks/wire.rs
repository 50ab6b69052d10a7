//! A minimal HTTP client that sends exactly the given bytes.
//!
//! The client library would refuse to send most of these requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// No request here takes longer; one that does has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Answers larger than this are cut off.
const ANSWER_BYTES_MAX: u64 = 512 << 20;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {} {}", self.status, self.text()))
    }
}

/// One connection, used for several requests in sequence.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: BufReader<TcpStream>,
    key: String,
}

impl Wire {
    /// `url` in the form of the daemon's harness.
    pub(crate) fn open(url: &str, key: &str) -> Self {
        let stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), key: key.to_owned() }
    }

    /// A complete request and its complete answer.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        target: &[u8],
        kind: &str,
        body: &[u8],
    ) -> std::io::Result<Answer> {
        self.send(method, target, kind, body)?;
        self.answer()
    }

    fn answer(&mut self) -> std::io::Result<Answer> {
        let head = self.head()?;
        let mut content = Vec::new();
        if head.chunked {
            self.read_chunks(&mut content)?;
        } else {
            (&mut self.stream).take(head.length.min(ANSWER_BYTES_MAX)).read_to_end(&mut content)?;
        }
        Ok(Answer { status: head.status, body: content })
    }

    /// Sends a request and reads only the status of the answer.
    pub(crate) fn begin(&mut self, method: &str, target: &[u8]) -> std::io::Result<u16> {
        self.send(method, target, "", b"")?;
        Ok(self.head()?.status)
    }

    /// Requests a WebSocket, and reads nothing from it.
    pub(crate) fn upgrade(&mut self, target: &str) -> std::io::Result<u16> {
        let request = format!(
            "GET {target} HTTP/1.1\r\nhost: attacks\r\nx-api-key: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.key
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        Ok(self.head()?.status)
    }

    /// Up to `bytes` of a partly read answer, unchanged.
    pub(crate) fn some(&mut self, bytes: u64) -> std::io::Result<u64> {
        std::io::copy(&mut (&mut self.stream).take(bytes), &mut std::io::sink())
    }

    fn send(&mut self, method: &str, target: &[u8], kind: &str, body: &[u8]) -> std::io::Result<()> {
        let mut request = Vec::new();
        request.extend_from_slice(method.as_bytes());
        request.push(b' ');
        request.extend_from_slice(target);
        write!(request, " HTTP/1.1\r\nhost: attacks\r\nx-api-key: {}\r\n", self.key)?;
        if !kind.is_empty() {
            write!(request, "content-type: {kind}\r\n")?;
        }
        write!(request, "content-length: {}\r\n\r\n", body.len())?;
        let stream = self.stream.get_mut();
        stream.write_all(&request)?;
        // A server that refuses a body may answer and close before all of it was sent.
        let _ = stream.write_all(body);
        Ok(())
    }

    fn head(&mut self) -> std::io::Result<Head> {
        let mut head = Head { status: 0, length: 0, chunked: false };
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        head.status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| std::io::Error::other(format!("no status line: {line:?}")))?;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { return Ok(head) };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.length = value.trim().parse().map_err(std::io::Error::other)?,
                "transfer-encoding" => head.chunked = value.contains("chunked"),
                _ => {}
            }
        }
    }

    fn read_chunks(&mut self, content: &mut Vec<u8>) -> std::io::Result<()> {
        let mut line = String::new();
        while content.len() as u64 <= ANSWER_BYTES_MAX {
            line.clear();
            self.stream.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            (&mut self.stream).take(size).read_to_end(content)?;
            line.clear();
            self.stream.read_line(&mut line)?;
            if size == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// A request on a separate connection, with these headers and no other key. Without a `host` header it gets the daemon's.
/// daemon's own.
pub(crate) fn plain(url: &str, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut wire = Wire::open(url, "");
    let mut request =
        format!("{method} {target} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if headers.iter().all(|(name, _)| *name != "host") {
        request.push_str("host: localhost\r\n");
    }
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let stream = wire.stream.get_mut();
    stream.write_all(request.as_bytes()).unwrap();
    let _ = stream.write_all(body);
    wire.answer().unwrap()
}

struct Head {
    status: u16,
    length: u64,
    chunked: bool,
}

/// Percent-encodes all characters except plainly harmless ones.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    bytes
        .iter()
        .map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
