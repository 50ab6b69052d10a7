//! Tells a program that it was refused, in the words of its own protocol where that has any.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dial::Failure;
use crate::policy::{Denial, Destination, ProtocolSeen};

/// What a refused program may still be sending is read and thrown away, so that it gets to read the refusal: closing
/// with unread bytes would make the kernel take the refusal back.
const DRAIN_MAX: u64 = 256 * 1024;
const PART_TIMEOUT: Duration = Duration::from_secs(2);

const ALERT_ACCESS_DENIED: u8 = 49;
const ALERT_UNRECOGNIZED_NAME: u8 = 112;
const ALERT_INTERNAL_ERROR: u8 = 80;

/// Whether closing `stream` resets the connection instead of ending it politely.
pub(crate) fn reset_on_close(stream: &TcpStream, reset: bool) {
    // Refused only by a socket that is closed already.
    let _ = sockopt::set_socket_linger(stream, reset.then_some(Duration::ZERO));
}

/// Refuses for a reason of the policy.
pub(crate) async fn denied(
    client: TcpStream,
    protocol: ProtocolSeen,
    destination: &Destination,
    reason: &Denial,
    status: Option<u16>,
) {
    let last_words = match protocol {
        ProtocolSeen::Tls => {
            let about_its_name =
                matches!(reason, Denial::NameMismatch { .. } | Denial::NoName { .. } | Denial::BadName);
            alert(if about_its_name { ALERT_UNRECOGNIZED_NAME } else { ALERT_ACCESS_DENIED })
        }
        ProtocolSeen::Http => denied_response(destination, reason, status),
        ProtocolSeen::Tcp => return reset_on_close(&client, true),
    };
    part(&client, &last_words).await;
}

/// Says that the host could not be reached.
pub(super) async fn failed(
    client: TcpStream,
    protocol: ProtocolSeen,
    destination: &Destination,
    failure: &Failure,
) {
    let last_words = match protocol {
        ProtocolSeen::Tls => alert(ALERT_INTERNAL_ERROR),
        ProtocolSeen::Http => {
            let text =
                format!("burrow: {}:{} is allowed, but {failure}.\n", destination.host, destination.port);
            response(502, &text)
        }
        ProtocolSeen::Tcp => return reset_on_close(&client, true),
    };
    part(&client, &last_words).await;
}

/// The answer to a plaintext request that is refused.
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

/// A fatal TLS alert, which every version reads before it has keys.
fn alert(description: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, description]
}

/// Sends `last_words`, then reads what still comes until the program has closed its side too.
pub(super) async fn part(client: &TcpStream, last_words: &[u8]) {
    let mut stream = SharedStream(client);
    let parting = async {
        stream.write_all(last_words).await?;
        stream.shutdown().await?;
        let mut rest = tokio::io::AsyncReadExt::take(stream, DRAIN_MAX);
        let mut bin = [0; 4096];
        while rest.read(&mut bin).await? > 0 {}
        std::io::Result::Ok(())
    };
    // It has been told or it is gone; there is nothing else to do.
    let _ = timeout(PART_TIMEOUT, parting).await;
}

/// Reads and writes a stream that others hold too.
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
