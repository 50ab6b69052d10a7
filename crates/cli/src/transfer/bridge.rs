//! Bytes between the async side (network) and the blocking side (tar, local disk), through a bounded queue.

use std::io::{self, Read, Write};

use burrow_client::{ByteStream, ClientError, UploadBody};
use bytes::{Buf as _, Bytes};
use futures_util::Stream;
use tokio::sync::mpsc;

use super::progress::Progress;
use crate::failure::{Describe, OrFail as _, Stop};

/// Pieces in the queue; times the size of a piece, this is the memory use of a transfer.
const QUEUE: usize = 8;
const PIECE_BYTES: usize = 256 << 10;

/// A blocking reader of the bytes that the async side sends.
pub(crate) fn to_blocking() -> (QueueSender, QueueReader) {
    let (queue, received) = mpsc::channel(QUEUE);
    (QueueSender { queue }, QueueReader { queue: received, current: Bytes::new(), complete: false })
}

/// An async stream of the bytes that the blocking side writes.
pub(crate) fn from_blocking() -> (QueueWriter, impl Stream<Item = io::Result<Bytes>> + Send + 'static) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let stream =
        futures_util::stream::unfold(queue, |mut queue: mpsc::Receiver<io::Result<Bytes>>| async move {
            queue.recv().await.map(|item| (item, queue))
        });
    (QueueWriter { queue: sender, buffer: Vec::with_capacity(PIECE_BYTES) }, stream)
}

/// Sends a download to a reader. Ends early, without an error, if the reader ends: the reader reports its own error.
pub(crate) async fn pour(
    mut bytes: ByteStream,
    sender: QueueSender,
    progress: &Progress,
) -> Result<u64, ClientError> {
    let mut total = 0;
    while let Some(chunk) = bytes.chunk().await? {
        total += chunk.len() as u64;
        progress.add(chunk.len() as u64);
        if !sender.send(chunk).await {
            return Ok(total);
        }
    }
    sender.finish().await;
    Ok(total)
}

/// Sends what `write` writes on its own thread.
pub(crate) async fn send_written<W: Send + 'static, S>(
    write: impl FnOnce(&mut QueueWriter) -> io::Result<W> + Send + 'static,
    send: impl AsyncFnOnce(UploadBody) -> Result<S, ClientError>,
    what: impl Describe,
) -> Result<(S, W), Stop> {
    let (mut writer, stream) = from_blocking();
    let writing =
        tokio::task::spawn_blocking(move || write(&mut writer).inspect_err(|error| writer.fail(error)));
    let sent = send(UploadBody::from_stream(stream, None)).await;
    match (sent, writing.await.expect("writing does not panic")) {
        (Ok(sent), Ok(written)) => Ok((sent, written)),
        // If the daemon refused the request, a broken pipe of the writer is a consequence; otherwise it is the cause.
        (_, Err(local)) if local.kind() != io::ErrorKind::BrokenPipe => Err(local).or_fail(what),
        (Err(error), _) => Err(error).or_fail(what),
        (Ok(_), Err(local)) => Err(local).or_fail(what),
    }
}

/// If it is dropped without [`QueueSender::finish`], the reader gets an error: a truncated archive must not look
/// complete.
#[derive(Debug)]
pub(crate) struct QueueSender {
    queue: mpsc::Sender<QueueItem>,
}

#[derive(Debug)]
enum QueueItem {
    Bytes(Bytes),
    End,
}

impl QueueSender {
    /// Whether there is still a reader.
    async fn send(&self, bytes: Bytes) -> bool {
        self.queue.send(QueueItem::Bytes(bytes)).await.is_ok()
    }

    async fn finish(self) {
        let _ = self.queue.send(QueueItem::End).await;
    }
}

#[derive(Debug)]
pub(crate) struct QueueReader {
    queue: mpsc::Receiver<QueueItem>,
    current: Bytes,
    complete: bool,
}

impl Read for QueueReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            if self.complete {
                return Ok(0);
            }
            match self.queue.blocking_recv() {
                Some(QueueItem::Bytes(bytes)) => self.current = bytes,
                Some(QueueItem::End) => self.complete = true,
                None => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the transfer was cancelled"));
                }
            }
        }
        let count = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

#[derive(Debug)]
pub(crate) struct QueueWriter {
    queue: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl QueueWriter {
    /// Ends the stream with an error.
    pub(crate) fn fail(&mut self, error: &io::Error) {
        self.buffer.clear();
        let _ = self.queue.blocking_send(Err(io::Error::new(error.kind(), error.to_string())));
    }
}

impl Write for QueueWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..count]);
        if self.buffer.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE_BYTES));
        let sent = self.queue.blocking_send(Ok(Bytes::from(piece)));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the transfer was cancelled"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt as _;

    #[tokio::test]
    async fn bytes_arrive_in_order_in_both_directions() {
        let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let (mut writer, stream) = from_blocking();
        let copy = sent.clone();
        let writing =
            tokio::task::spawn_blocking(move || writer.write_all(&copy).and_then(|()| writer.flush()));
        let (sender, mut reader) = to_blocking();
        let reading = tokio::task::spawn_blocking(move || {
            let mut received = Vec::new();
            reader.read_to_end(&mut received).map(|_| received)
        });
        let mut stream = Box::pin(stream);
        while let Some(piece) = stream.try_next().await.unwrap() {
            assert!(sender.send(piece).await);
        }
        sender.finish().await;
        writing.await.unwrap().unwrap();
        assert!(reading.await.unwrap().unwrap() == sent);
    }

    #[tokio::test]
    async fn a_cancelled_transfer_does_not_look_complete() {
        let (sender, mut reader) = to_blocking();
        sender.send(Bytes::from_static(b"half")).await;
        drop(sender);
        let read = tokio::task::spawn_blocking(move || reader.read_to_end(&mut Vec::new()));
        assert_eq!(read.await.unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
