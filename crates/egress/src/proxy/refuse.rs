//! Informs a program that it was refused, in its own protocol where that is possible.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dial::Failure;
use crate::policy::{Denial, Destination, DetectedProtocol};

/// Bytes that a refused program still sends are read and discarded, so that it can read the refusal: closing a socket
/// with unread bytes would make the kernel discard the refusal.
const DRAIN_MAX: u64 = 256 * 1024;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

const ALERT_ACCESS_DENIED: u8 = 49;
const ALERT_UNRECOGNIZED_NAME: u8 = 112;
const ALERT_INTERNAL_ERROR: u8 = 80;

/// Whether closing `stream` resets the connection instead of ending it regularly.
pub(crate) fn reset_on_close(stream: &TcpStream, reset: bool) {
    // Fails only for a socket that is closed already.
    let _ = sockopt::set_socket_linger(stream, reset.then_some(Duration::ZERO));
}

/// Refuses a connection because of the policy.
pub(crate) async fn denied(
    client: TcpStream,
    protocol: DetectedProtocol,
    destination: &Destination,
    reason: &Denial,
    status: Option<u16>,
) {
    let last_words = match protocol {
        DetectedProtocol::Tls => {
            let about_its_name =
                matches!(reason, Denial::NameMismatch { .. } | Denial::NoName { .. } | Denial::BadName);
            alert(if about_its_name { ALERT_UNRECOGNIZED_NAME } else { ALERT_ACCESS_DENIED })
        }
        DetectedProtocol::Http => denied_response(destination, reason, status),
        DetectedProtocol::Tcp => return reset_on_close(&client, true),
    };
    close_gracefully(&client, &last_words).await;
}

/// Reports that the host could not be reached.
pub(super) async fn failed(
    client: TcpStream,
    protocol: DetectedProtocol,
    destination: &Destination,
    failure: &Failure,
) {
    let last_words = match protocol {
        DetectedProtocol::Tls => alert(ALERT_INTERNAL_ERROR),
        DetectedProtocol::Http => {
            let text =
                format!("burrow: {}:{} is allowed, but {failure}.\n", destination.host, destination.port);
            response(502, &text)
        }
        DetectedProtocol::Tcp => return reset_on_close(&client, true),
    };
    close_gracefully(&client, &last_words).await;
}

/// The response to a refused plaintext request.
pub(super) fn denied_response(destination: &Destination, reason: &Denial, status: Option<u16>) -> Vec<u8> {
    let status = status.unwrap_or_else(|| status_of(reason));
    let remedy = reason.remedy().map(|remedy| format!(" {remedy}")).unwrap_or_default();
    let text = format!(
        "burrow: the connection to {}:{} was refused: {reason}.{remedy}\n",
        destination.host, destination.port
    );
    response(status, &text)
}

fn status_of(reason: &Denial) -> u16 {
    match reason {
        Denial::NameMismatch { .. } => 421,
        Denial::Malformed { .. } => 400,
        Denial::Unsupported { .. } => 501,
        Denial::NetworkOff
        | Denial::Host { .. }
        | Denial::Port { .. }
        | Denial::Protocol { .. }
        | Denial::NoName { .. }
        | Denial::BadName
        | Denial::UnknownSynthetic { .. }
        | Denial::Address { .. }
        | Denial::NameBudget { .. }
        | Denial::ConnectionsMax
        | Denial::ConnectionRate
        | Denial::QuestionRate
        | Denial::SilentClient
        | Denial::Revoked
        | Denial::NoAuthority { .. }
        | Denial::MintRate
        | Denial::Request { .. } => 403,
    }
}

fn response(status: u16, text: &str) -> Vec<u8> {
    let phrase = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        _ => "Bad Gateway",
    };
    format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\nX-Burrow-Egress: refused\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}

/// A fatal TLS alert, which every version of TLS accepts before keys are exchanged.
fn alert(description: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, description]
}

/// Sends `last_words`, then reads and discards bytes until the program has closed its side too.
pub(super) async fn close_gracefully(client: &TcpStream, last_words: &[u8]) {
    let mut stream = SharedStream(client);
    let closing = async {
        stream.write_all(last_words).await?;
        stream.shutdown().await?;
        let mut rest = tokio::io::AsyncReadExt::take(stream, DRAIN_MAX);
        let mut bin = [0; 4096];
        while rest.read(&mut bin).await? > 0 {}
        std::io::Result::Ok(())
    };
    // The program was informed or has disconnected.
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}

/// Reads and writes a stream by reference.
#[derive(Clone, Copy, Debug)]
struct SharedStream<'a>(&'a TcpStream);

impl tokio::io::AsyncRead for SharedStream<'_> {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        loop {
            std::task::ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return std::task::Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return std::task::Poll::Ready(Err(error)),
            }
        }
    }
}

impl tokio::io::AsyncWrite for SharedStream<'_> {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        loop {
            std::task::ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                other => return std::task::Poll::Ready(other),
            }
        }
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let shut = rustix::net::shutdown(self.0, rustix::net::Shutdown::Write);
        std::task::Poll::Ready(shut.map_err(Into::into))
    }
}
