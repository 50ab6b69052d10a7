//! Directories as tar streams, in both directions, of any size and with constant RAM.
//!
//! Each stream has its own thread, since it waits for disk and network alternately; a bounded channel connects it to
//! the connection, so that neither side is ahead of the other by more than a few pieces.

mod header;
mod merge;
mod pack;
mod staging;
mod unpack;

use std::io;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::staging::Staging;
use super::check_path;
use crate::agent::failure::{fail, refused};
use crate::agent::wire::{Inbox, Outbox, WireError};
use crate::protocol::{ErrorCode, Frame, RequestError, TarIn, TarOut, TarSummary};

/// Streams at once; further ones wait.
static STREAMS: Semaphore = Semaphore::const_new(8);

/// Pieces in transit between the thread and the connection.
const PIECES: usize = 2;

/// The size of a piece of a packed stream.
const PIECE_BYTES: usize = 256 * 1024;

/// Nothing here recurses.
const STACK_BYTES: usize = 256 * 1024;

/// Carries out [`crate::protocol::Request::TarOut`].
pub(in crate::agent) async fn tar_out(request: TarOut, outbox: &mut Outbox<'_>) -> Result<(), WireError> {
    let _permit = STREAMS.acquire().await.expect("the semaphore is never closed");
    let opened = super::on_disk(move || {
        let path = check_path(&request.path)?;
        pack::Packer::open(path).map_err(|errno| refused("read", path, errno))
    });
    let packer = match opened.await {
        Ok(packer) => packer,
        Err(error) => return outbox.reply::<()>(Err(error)).await,
    };
    let (sender, mut pieces) = mpsc::channel(PIECES);
    let done = on_thread(move || packer.pack(&mut PieceWriter { sender, piece: Vec::new() }));
    let done = match done {
        Ok(done) => done,
        Err(error) => return outbox.reply::<()>(Err(error)).await,
    };
    outbox.push_reply(Ok(()))?;
    while let Some(piece) = pieces.recv().await {
        outbox.push(&Frame::Bytes(piece));
        outbox.flush().await?;
    }
    // Without its End frame, a truncated stream can be told from a complete one.
    match done.await {
        Ok(Ok(())) => outbox.push(&Frame::End),
        Ok(Err(_)) | Err(_) => return Err(WireError::HungUp),
    }
    outbox.flush().await
}

/// Carries out [`crate::protocol::Request::TarIn`].
pub(in crate::agent) async fn tar_in(
    request: TarIn,
    inbox: &mut Inbox<'_>,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let _permit = STREAMS.acquire().await.expect("the semaphore is never closed");
    let (sender, pieces) = mpsc::channel::<Result<Bytes, HungUp>>(PIECES);
    let done = on_thread(move || {
        check_path(&request.path)?;
        let mut staging = Staging::open(&request.path, request.user.as_deref())?;
        let mut source = PieceReader { pieces, piece: Bytes::new() };
        let summary = unpack::unpack(&mut source, &mut staging)?;
        staging.put_in_place()?;
        Ok(summary)
    });
    let done = match done {
        Ok(done) => done,
        Err(error) => return outbox.reply::<()>(Err(error)).await,
    };
    let fed = feed(sender, inbox).await;
    let result: Result<TarSummary, RequestError> =
        done.await.unwrap_or_else(|_| Err(fail(ErrorCode::Internal, "unpacking was interrupted")));
    fed?;
    outbox.reply(result).await
}

/// The host closed the connection before the end.
#[derive(Debug)]
struct HungUp;

async fn feed(sender: mpsc::Sender<Result<Bytes, HungUp>>, inbox: &mut Inbox<'_>) -> Result<(), WireError> {
    loop {
        let piece = match inbox.upload().await {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(()),
            Err(error) => {
                // Otherwise the end of the channel would look like the end of the archive.
                let _ = sender.send(Err(HungUp)).await;
                return Err(error);
            }
        };
        // The thread has stopped reading: it refused the archive, and its result contains the reason.
        if sender.send(Ok(piece)).await.is_err() {
            return Ok(());
        }
    }
}

fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, RequestError> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("tar".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // The receiver is gone if the connection is.
            let _ = sender.send(work());
        })
        .map_err(|error| fail(ErrorCode::TooMany, format_args!("could not start a thread: {error}")))?;
    Ok(receiver)
}

/// Collects bytes into pieces for the connection.
struct PieceWriter {
    sender: mpsc::Sender<Bytes>,
    piece: Vec<u8>,
}

impl io::Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES - self.piece.len();
        let taken = bytes.len().min(room);
        if self.piece.capacity() == 0 {
            self.piece.reserve_exact(PIECE_BYTES);
        }
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        self.sender.blocking_send(piece.into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Reads the pieces that come from the connection.
struct PieceReader {
    pieces: mpsc::Receiver<Result<Bytes, HungUp>>,
    piece: Bytes,
}

impl io::Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(HungUp)) => return Err(io::ErrorKind::ConnectionAborted.into()),
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
