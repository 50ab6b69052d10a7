//! A TCP stream that can be cancelled from outside, whatever the SSH library is waiting for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Reads and writes fail as soon as the token is cancelled.
#[derive(Debug)]
pub(crate) struct CancellableStream {
    stream: TcpStream,
    reading: Pin<Box<WaitForCancellationFutureOwned>>,
    writing: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl CancellableStream {
    pub(crate) fn new(stream: TcpStream, cancel: &tokio_util::sync::CancellationToken) -> Self {
        let wait = || Box::pin(cancel.clone().cancelled_owned());
        Self { stream, reading: wait(), writing: wait() }
    }
}

/// The reader and the writer each have a wait of their own, because they are woken separately.
fn check(wait: &mut Pin<Box<WaitForCancellationFutureOwned>>, ctx: &mut Context<'_>) -> io::Result<()> {
    if wait.as_mut().poll(ctx).is_ready() {
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was cancelled"));
    }
    Ok(())
}

impl AsyncRead for CancellableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        check(&mut self.reading, ctx)?;
        Pin::new(&mut self.stream).poll_read(ctx, buffer)
    }
}

impl AsyncWrite for CancellableStream {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        check(&mut self.writing, ctx)?;
        Pin::new(&mut self.stream).poll_write(ctx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(ctx)
    }
}
