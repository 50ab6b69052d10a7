//! A connection that can be cut off from outside, whatever the library that reads it is waiting for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Reads and writes fail once the token was cancelled.
#[derive(Debug)]
pub(crate) struct Cuttable {
    stream: TcpStream,
    reading: Pin<Box<WaitForCancellationFutureOwned>>,
    writing: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Cuttable {
    pub(crate) fn new(stream: TcpStream, cut: &tokio_util::sync::CancellationToken) -> Self {
        let wait = || Box::pin(cut.clone().cancelled_owned());
        Self { stream, reading: wait(), writing: wait() }
    }
}

/// Two waits, since reader and writer are woken apart.
fn check(wait: &mut Pin<Box<WaitForCancellationFutureOwned>>, ctx: &mut Context<'_>) -> io::Result<()> {
    if wait.as_mut().poll(ctx).is_ready() {
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was cut off"));
    }
    Ok(())
}

impl AsyncRead for Cuttable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        check(&mut self.reading, ctx)?;
        Pin::new(&mut self.stream).poll_read(ctx, buffer)
    }
}

impl AsyncWrite for Cuttable {
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
