//! A minimal HTTP client: one connection, one prepared request, sent repeatedly.
//!
//! For request rates only, where a full client would use a relevant part of the two cores that it shares with the daemon.

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::daemon::Daemon;
use crate::error::BenchError;

/// Maximum length of an answer's header.
const HEADER_BYTES_MAX: usize = 16 << 10;
const END_OF_HEADER: &[u8] = b"\r\n\r\n";

#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: BytesMut,
}

impl Wire {
    /// Connects, and prepares a request for `path`.
    pub(crate) async fn connect(daemon: &Daemon, path: &str) -> Result<Self, BenchError> {
        let address = daemon.address();
        let stream = TcpStream::connect(address).await.map_err(BenchError::io("connect to", address))?;
        stream.set_nodelay(true).map_err(BenchError::io("set up the connection to", address))?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nx-api-key: {}\r\n\r\n", daemon.key());
        Ok(Self::over(stream, request))
    }

    /// Prepares this request over this connection.
    pub(crate) fn over(stream: TcpStream, request: String) -> Self {
        Self { stream, request: request.into_bytes(), buffer: BytesMut::with_capacity(HEADER_BYTES_MAX) }
    }

    /// Sends one request; anything but status 200 with a length is an error.
    pub(crate) async fn ask(&mut self) -> Result<(), BenchError> {
        self.stream.write_all(&self.request).await.map_err(BenchError::io("send to", "the daemon"))?;
        let (header, length) = loop {
            if let Some(found) = parse(&self.buffer)? {
                break found;
            }
            self.fill().await?;
        };
        while self.buffer.len() < header + length {
            self.fill().await?;
        }
        self.buffer.advance(header + length);
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), BenchError> {
        self.buffer.reserve(4096);
        let count = self.stream.read_buf(&mut self.buffer).await;
        match count.map_err(BenchError::io("read from", "the daemon"))? {
            0 => Err(BenchError::WrongAnswer { what: "the connection was closed".to_owned() }),
            _ => Ok(()),
        }
    }
}

/// Bytes of the header and of the body, once the header is complete.
fn parse(bytes: &[u8]) -> Result<Option<(usize, usize)>, BenchError> {
    let wrong = |what: String| BenchError::WrongAnswer { what };
    let Some(end) = bytes.windows(END_OF_HEADER.len()).position(|window| window == END_OF_HEADER) else {
        return match bytes.len() {
            0..HEADER_BYTES_MAX => Ok(None),
            _ => Err(wrong("a header without end".to_owned())),
        };
    };
    let header = String::from_utf8_lossy(&bytes[..end]);
    if !header.starts_with("HTTP/1.1 200") {
        return Err(wrong(header.lines().next().unwrap_or_default().to_owned()));
    }
    let length = header.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.ok_or_else(|| wrong("an answer of unknown length".to_owned()))?;
    Ok(Some((end + END_OF_HEADER.len(), length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_when_it_is_complete() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello";
        assert_eq!(parse(&answer[..20]).unwrap(), None);
        assert_eq!(parse(answer).unwrap(), Some((answer.len() - 5, 12)));
    }

    #[test]
    fn a_refusal_or_an_answer_of_unknown_length_is_an_error() {
        assert!(parse(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(parse(&vec![b'x'; HEADER_BYTES_MAX]).is_err());
    }
}
