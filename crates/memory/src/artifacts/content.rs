//! Reads content, verifying every block before returning any byte of it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::{GetOptions, GetRange, ObjectStore as _};

use super::hash::{BLOCK_BYTES, Proof};
use super::store::{Blobs, location_of};
use crate::MemoryError;

/// Content as a stream. An error ends the stream; the bytes before the error are correct.
pub type Content = BoxStream<'static, Result<Bytes, MemoryError>>;

/// A range of content that is being read.
struct RangeReader {
    name: String,
    proof: Proof,
    source: BoxStream<'static, object_store::Result<Bytes>>,
    /// The requested range.
    range: Range<u64>,
    /// The next block to read.
    block: u64,
    /// The bytes received of it, and perhaps of later blocks.
    arrived: BytesMut,
}

impl Blobs {
    /// Opens a range of content; `range` must be within it.
    ///
    /// The first block is verified before this returns, so that damage there is reported as an error and not as a broken stream.
    pub(super) async fn read(
        &self,
        name: &str,
        proof: Proof,
        range: Range<u64>,
    ) -> Result<Content, MemoryError> {
        if range.is_empty() {
            return Ok(stream::empty().boxed());
        }
        let first = range.start / BLOCK_BYTES;
        let whole_blocks =
            first * BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).min(proof.bytes);
        let options = GetOptions { range: Some(GetRange::Bounded(whole_blocks)), ..GetOptions::default() };
        let found = match self.store().get_opts(&location_of(proof.hash), options).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Err(damaged(name, &proof, "it is missing")),
            Err(source) => return Err(MemoryError::Blob { doing: "read from", source }),
        };
        if found.meta.size != proof.bytes {
            let why = format!("it is {} bytes long and should be {}", found.meta.size, proof.bytes);
            return Err(damaged(name, &proof, why));
        }
        let source = found.into_stream();
        let mut reading = RangeReader {
            name: name.to_owned(),
            proof,
            source,
            range,
            block: first,
            arrived: BytesMut::new(),
        };
        let first = reading.next().await?;
        let rest = stream::try_unfold(reading, |mut reading| async move {
            let piece = reading.next().await?;
            Ok(piece.map(|piece| (piece, reading)))
        });
        Ok(stream::iter(first.map(Ok)).chain(rest).boxed())
    }

    /// Reads all of it and discards it; returns an error if it is damaged.
    pub(super) async fn prove(&self, name: &str, proof: Proof) -> Result<(), MemoryError> {
        let bytes = proof.bytes;
        // Empty content has no blocks to read, but its object must exist.
        if bytes == 0 && !self.has(proof.hash, 0).await? {
            return Err(damaged(name, &proof, "it is missing"));
        }
        let mut content = self.read(name, proof, 0..bytes).await?;
        while let Some(piece) = content.next().await {
            piece?;
        }
        Ok(())
    }
}

impl RangeReader {
    /// The requested part of the next block; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, MemoryError> {
        let start = self.block * BLOCK_BYTES;
        if start >= self.range.end {
            return Ok(None);
        }
        let length = usize::try_from(self.proof.block_len(self.block)).expect("a block is 1 MiB at most");
        while self.arrived.len() < length {
            match self.source.next().await {
                Some(Ok(piece)) => self.arrived.extend_from_slice(&piece),
                Some(Err(source)) => return Err(MemoryError::Blob { doing: "read from", source }),
                None => return Err(damaged(&self.name, &self.proof, "it ends too early")),
            }
        }
        let block = self.arrived.split_to(length).freeze();
        if !self.proof.proves(self.block, &block) {
            let end = start + length as u64;
            return Err(damaged(
                &self.name,
                &self.proof,
                format!("bytes {start} to {end} differ from the stored content"),
            ));
        }
        self.block += 1;
        let within = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX).min(length);
        Ok(Some(block.slice(within(self.range.start)..within(self.range.end))))
    }
}

fn damaged(name: &str, proof: &Proof, why: impl Into<String>) -> MemoryError {
    MemoryError::DamagedBlob { name: name.to_owned(), hash: proof.hash.to_string(), why: why.into() }
}
