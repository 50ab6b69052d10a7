//! The memory branch in a file: rows first, then contents of artifacts.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use burrow_memory::artifacts::BlobHash;
use burrow_memory::moving::{CarriedBlob, ImportedMemory};
use burrow_memory::{Memory, MemoryError};
use burrow_model::{MemoryPoint, SpaceId};
use burrow_portable::{Entry, PortableError, Reader, Sink, Writer};
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::processes::{put, read_small};
use crate::EngineError;

/// Rows in their order; each file is a batch of lines.
const LOG: &[u8] = b"log/";

/// Contents by their hash.
const OBJECTS: &[u8] = b"objects/";

/// Batches that may wait for the disk.
const BATCHES_MAX: usize = 4;

/// Bytes of a batch of rows; one row may be long.
const BATCH_BYTES_MAX: u64 = 4 << 20;

pub(super) fn write_out<W: Write>(
    writer: &mut Writer<W>,
    handle: &Handle,
    memory: &Memory,
    space: &SpaceId,
    point: &MemoryPoint,
) -> Result<(), EngineError> {
    let (sender, mut batches) = mpsc::channel(BATCHES_MAX);
    let (reading, of, at) = (memory.clone(), space.clone(), point.clone());
    let rows = handle.spawn(async move { reading.write_out(&of, &at, sender).await });
    let mut number = 0;
    while let Some(batch) = batches.blocking_recv() {
        number += 1;
        let path = format!("log/{number:08}");
        put(writer, path.as_bytes(), batch.len() as u64, &mut |buffer, offset| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(batch.len());
            (&batch[start..]).read_exact(buffer)
        })?;
    }
    let blobs = handle.block_on(rows).map_err(|_| MemoryError::Panicked)??;
    for blob in blobs {
        let mut content = handle.block_on(memory.read_blob(space, &blob))?;
        let mut arrived = BytesMut::new();
        let path = format!("objects/{}", blob.hash);
        put(writer, path.as_bytes(), blob.bytes, &mut |buffer, _| {
            while arrived.len() < buffer.len() {
                match handle.block_on(content.next()) {
                    Some(Ok(piece)) => arrived.extend_from_slice(&piece),
                    Some(Err(error)) => return Err(io::Error::other(error)),
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            arrived.copy_to_slice(buffer);
            Ok(())
        })?;
    }
    Ok(())
}

/// A memory branch that is being imported.
pub(super) struct MemoryImport<'m> {
    handle: &'m Handle,
    memory: &'m Memory,
    space: SpaceId,
    rows: Option<Rows>,
    /// The point that the rows reached, and the contents that are still missing.
    taken: Option<(MemoryPoint, BTreeSet<CarriedBlob>)>,
}

struct Rows {
    sender: mpsc::Sender<Vec<u8>>,
    work: JoinHandle<Result<ImportedMemory, MemoryError>>,
}

impl<'m> MemoryImport<'m> {
    pub(super) fn into_space(handle: &'m Handle, memory: &'m Memory, space: SpaceId) -> Self {
        let (sender, lines) = mpsc::channel(BATCHES_MAX);
        let (filling, of) = (memory.clone(), space.clone());
        let work = handle.spawn(async move { filling.take_in(&of, lines).await });
        Self { handle, memory, space, rows: Some(Rows { sender, work }), taken: None }
    }

    pub(super) fn take<R: Read>(&mut self, reader: &mut Reader<R>, entry: &Entry) -> Result<(), EngineError> {
        let path = entry.path.as_bytes();
        let refused = |reason| EngineError::from(PortableError::Entry { path: entry.path.shown(), reason });
        if path.starts_with(LOG) {
            let batch = read_small(reader, entry, BATCH_BYTES_MAX)?;
            let rows = self.rows.as_ref().ok_or_else(|| refused("rows come after contents"))?;
            if rows.sender.blocking_send(batch).is_err() {
                // The receiver has failed: its own error says why.
                self.end_rows()?;
                return Err(refused("there are too many rows"));
            }
            return Ok(());
        }
        let hash = path.strip_prefix(OBJECTS).and_then(|hash| std::str::from_utf8(hash).ok());
        let hash = hash.and_then(BlobHash::parse).ok_or_else(|| refused("it is not part of the memory"))?;
        self.end_rows()?;
        let (_, missing) = self.taken.as_mut().expect("the rows have ended");
        let blob = CarriedBlob { hash, bytes: entry.content_bytes() };
        if !missing.remove(&blob) {
            return Err(refused("no row refers to it"));
        }
        self.take_blob(reader, blob)
    }

    fn take_blob<R: Read>(&self, reader: &mut Reader<R>, blob: CarriedBlob) -> Result<(), EngineError> {
        let (sender, pieces) = mpsc::channel::<io::Result<Bytes>>(BATCHES_MAX);
        let body = futures_util::stream::unfold(pieces, |mut pieces| async move {
            let piece = pieces.recv().await?;
            Some((piece, pieces))
        });
        let (memory, space) = (self.memory.clone(), self.space.clone());
        let work = self.handle.spawn(async move { memory.take_blob(&space, &blob, body.boxed()).await });
        let sent = reader.content(&mut ContentSender(&sender));
        if sent.is_err() {
            // It must not take a part for the whole.
            let _ = sender.blocking_send(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        drop(sender);
        let stored = self.handle.block_on(work).map_err(|_| MemoryError::Panicked)?;
        // If both failed, the file is to blame: its content was rejected for that.
        sent?;
        Ok(stored?)
    }

    fn end_rows(&mut self) -> Result<(), EngineError> {
        if let Some(Rows { sender, work }) = self.rows.take() {
            drop(sender);
            let taken = self.handle.block_on(work).map_err(|_| MemoryError::Panicked)??;
            self.taken = Some((taken.point, taken.blobs));
        }
        Ok(())
    }

    /// The point from which the branch continues, once it is complete.
    pub(super) fn finish(mut self) -> Result<MemoryPoint, EngineError> {
        self.end_rows()?;
        match self.taken.take() {
            Some((point, missing)) if missing.is_empty() => Ok(point),
            Some(_) | None => {
                let reason = "the content of an artifact is missing".to_owned();
                Err(PortableError::Refused { reason }.into())
            }
        }
    }
}

impl Drop for MemoryImport<'_> {
    /// After a failure: waits until the space is no longer being filled, before it is removed.
    fn drop(&mut self) {
        if let Some(Rows { sender, work }) = self.rows.take() {
            drop(sender);
            let _ = self.handle.block_on(work);
        }
    }
}

/// Passes content on to async code.
struct ContentSender<'s>(&'s mpsc::Sender<io::Result<Bytes>>);

impl Sink for ContentSender<'_> {
    fn piece(&mut self, _: u64, bytes: &[u8]) -> io::Result<()> {
        // If the receiver is gone, its own error says why.
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn chunk(&mut self, _: &[u8; 32], _: u64, _: u64) {}

    fn again(&mut self, _: &[u8; 32], _: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}
