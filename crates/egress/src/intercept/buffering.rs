//! Buffers around TLS that make fewer and larger reads than rustls does.
//!
//! ```text
//! socket ──64 KiB──► ReadAhead ──4 KiB──► rustls ──16 KiB records──► Coalesce ──full buffers──► HTTP
//! ```
//!
//! rustls reads 4 KiB at a time and returns one record per call. For a large answer that would be four system calls
//! and two task switches per record. A connection that waits for data keeps no buffer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Size of one read: as much as a socket usually holds.
const PIECE: usize = 64 * 1024;

/// Reads ahead of rustls, below TLS.
#[derive(Debug)]
pub(super) struct ReadAhead<S> {
    inner: S,
    buffer: Vec<u8>,
    /// Start of the bytes in the buffer that were not returned yet.
    from: usize,
    upto: usize,
}

impl<S> ReadAhead<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, buffer: Vec::new(), from: 0, upto: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.from == this.upto {
            this.buffer.resize(PIECE, 0);
            let mut piece = ReadBuf::new(&mut this.buffer);
            let read = Pin::new(&mut this.inner).poll_read(cx, &mut piece);
            (this.from, this.upto) = (0, piece.filled().len());
            if this.upto == 0 {
                this.buffer = Vec::new();
            }
            ready!(read)?;
        }
        let count = into.remaining().min(this.upto - this.from);
        into.put_slice(&this.buffer[this.from..this.from + count]);
        this.from += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Combines records into full reads, above TLS.
#[derive(Debug)]
pub(super) struct CoalescingStream<S> {
    inner: S,
    /// An error that occurred after some bytes were read: the bytes are returned first.
    error: Option<io::Error>,
}

impl<S> CoalescingStream<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, error: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CoalescingStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(error) = this.error.take() {
            return Poll::Ready(Err(error));
        }
        let before = into.filled().len();
        loop {
            let had = into.filled().len();
            let read = Pin::new(&mut this.inner).poll_read(cx, into);
            let (grown, begun) = (into.filled().len() > had, had > before);
            match read {
                Poll::Ready(Ok(())) if grown && into.remaining() > 0 => {}
                Poll::Ready(Err(error)) if begun => {
                    this.error = Some(error);
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending if begun => return Poll::Ready(Ok(())),
                Poll::Ready(_) | Poll::Pending => return read,
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescingStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Returns one piece per read; `None` is a pause, and the end is an error.
    struct PiecewiseReader(VecDeque<Option<&'static [u8]>>);

    impl AsyncRead for PiecewiseReader {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.0.pop_front() {
                Some(Some(piece)) => {
                    let (now, later) = piece.split_at(piece.len().min(into.remaining()));
                    into.put_slice(now);
                    if !later.is_empty() {
                        self.0.push_front(Some(later));
                    }
                    Poll::Ready(Ok(()))
                }
                Some(None) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
        }
    }

    fn pieces() -> PiecewiseReader {
        PiecewiseReader([Some(&b"ab"[..]), Some(b"cde"), None, Some(b"f"), Some(b"ghi")].into())
    }

    #[tokio::test]
    async fn available_bytes_are_returned_before_an_error() {
        let mut whole = CoalescingStream::new(pieces());
        let mut buffer = [0; 8];
        assert_eq!(whole.read(&mut buffer).await.unwrap(), 5);
        assert_eq!(&buffer[..5], b"abcde");
        assert_eq!(whole.read(&mut buffer[..3]).await.unwrap(), 3);
        assert_eq!(&buffer[..3], b"fgh");
        assert_eq!(whole.read(&mut buffer).await.unwrap(), 1);
        assert_eq!(whole.read(&mut buffer).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn bytes_keep_their_order_and_a_pause_frees_the_buffer() {
        let mut ahead = ReadAhead::new(pieces());
        let mut seen = Vec::new();
        let mut buffer = [0; 2];
        while let Ok(count) = ahead.read(&mut buffer).await {
            seen.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(seen, b"abcdefghi");
        assert_eq!(ahead.buffer.capacity(), 0);
    }
}
