//! Connects to the daemon: TCP, TLS for https, or a pipe within the process. Used by HTTP requests and WebSockets.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::url::BaseUrl;

/// A host that does not answer a SYN for this long counts as unreachable; TCP alone would try for two minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn dial(base: &BaseUrl, tls: Option<&TlsConnector>) -> io::Result<Wire> {
    let connecting = async {
        let tcp = TcpStream::connect((base.host(), base.port())).await?;
        // Requests and keystrokes are small, and a user waits for each.
        tcp.set_nodelay(true)?;
        #[cfg(target_os = "linux")]
        use_reno_on_loopback(&tcp);
        let Some(tls) = tls else { return Ok(Wire::Plain(tcp)) };
        let name = ServerName::try_from(base.host().to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Wire::Tls(Box::new(tls.connect(name, tcp).await?)))
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s")),
    }
}

/// There is no congestion within a host: an algorithm that paces packets, such as BBR, would only slow uploads down.
/// Every kernel has reno; if setting it fails, the connection is merely slower.
#[cfg(target_os = "linux")]
fn use_reno_on_loopback(tcp: &TcpStream) {
    if tcp.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback()) {
        let _ = rustix::net::sockopt::set_tcp_congestion(tcp, "reno");
    }
}

/// A connection, encrypted or not.
#[derive(Debug)]
pub(crate) enum Wire {
    /// To a server in the same process.
    Within(DuplexStream),
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Within(stream) => Pin::new(stream).poll_read(ctx, buffer),
            Self::Plain(stream) => Pin::new(stream).poll_read(ctx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(ctx, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Within(stream) => Pin::new(stream).poll_write(ctx, bytes),
            Self::Plain(stream) => Pin::new(stream).poll_write(ctx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(ctx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Within(stream) => Pin::new(stream).poll_flush(ctx),
            Self::Plain(stream) => Pin::new(stream).poll_flush(ctx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(ctx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Within(stream) => Pin::new(stream).poll_shutdown(ctx),
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(ctx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(ctx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Within(stream) => Pin::new(stream).poll_write_vectored(ctx, slices),
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(ctx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(ctx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Within(stream) => stream.is_write_vectored(),
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
