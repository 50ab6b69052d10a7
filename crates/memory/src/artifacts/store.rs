//! Stores the content of artifacts: one object per content, named by its hash.
//!
//! ```text
//!  incoming/<random>      an upload in progress, or the rest of one that a crash interrupted
//!  <2>/<64 digits>        the content with this BLAKE3 hash, shared by all spaces
//! ```
//!
//! The store belongs to the host, for all spaces and tenants. Only a row in a space leads to an object, and an upload is always
//! read to its end, so a client cannot find out whether another tenant has the same content.
//!
//! **Placing and sweeping exclude each other.** An upload holds [`Blobs::placing`] from before its object is named
//! until its row is committed. The sweep takes the lock exclusively before it checks for rows a last time and removes objects. So an
//! object is removed only while no upload is about to refer to it. A crash in between leaves an object without a row, which
//! a later sweep removes.

use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;

use burrow_model::MemoryId;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::hash::{BLOCK_BYTES, BlobHash, Proof, Prover};
use super::room::{UploadBudget, UploadInProgress};
use crate::MemoryError;

/// Largest content: the limit of one copy request of an S3 store.
pub const ARTIFACT_BYTES_MAX: u64 = 5 << 30;

/// Bytes of one part of a large upload. S3 requires at least 5 MiB per part, and at most 10,000 parts.
const PART_BYTES: usize = 8 << 20;

/// Parts being sent at a time. With the one being filled, an upload keeps at most three of them in RAM.
const PARTS_IN_FLIGHT_MAX: usize = 2;

/// Folder of uploads until their hash is known.
pub(super) const INCOMING: &str = "incoming";

/// The body of an upload.
pub type Body = BoxStream<'static, io::Result<Bytes>>;

/// The artifact store in a local directory; each write is durable before it is acknowledged.
///
/// Uploads that a crash interrupted are removed: no other process writes there, and no upload is in progress at the start.
pub fn local_store(folder: &FilePath) -> Result<Arc<dyn ObjectStore>, MemoryError> {
    let failed = |source| MemoryError::Folder { path: folder.to_owned(), source };
    let incoming = folder.join(INCOMING);
    match std::fs::remove_dir_all(&incoming) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    std::fs::create_dir_all(&incoming).map_err(failed)?;
    let store = LocalFileSystem::new_with_prefix(folder)
        .map_err(|source| MemoryError::Blob { doing: "open", source })?
        .with_fsync(true);
    Ok(Arc::new(store))
}

/// The artifact store of this host.
#[derive(Clone, Debug)]
pub(crate) struct Blobs {
    store: Arc<dyn ObjectStore>,
    placing: Arc<RwLock<()>>,
    room: Arc<UploadBudget>,
}

/// Content that was received and is not named yet.
#[derive(Debug)]
pub(crate) struct ReceivedContent {
    pub(crate) proof: Proof,
    location: Path,
}

impl Blobs {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, room: Arc<UploadBudget>) -> Self {
        Self { store, placing: Arc::new(RwLock::new(())), room }
    }

    pub(super) fn room(&self) -> &Arc<UploadBudget> {
        &self.room
    }

    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Held while an object is named and its row is committed.
    pub(crate) async fn placing(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.placing).read_owned().await
    }

    /// Held while objects are removed.
    pub(super) async fn sweeping(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.placing).write_owned().await
    }

    /// Reads a body to its end into an unnamed object, with constant RAM. If the sender aborts or there is not enough
    /// space, the object is removed.
    pub(crate) async fn receive(
        &self,
        name: &str,
        mut body: Body,
        arriving: &mut UploadInProgress,
    ) -> Result<ReceivedContent, MemoryError> {
        // A random name; its value does not matter.
        let location = Path::from_iter([INCOMING, MemoryId::generate().as_str()]);
        let mut prover = Prover::new();
        let mut first = BytesMut::new();
        while (first.len() as u64) < BLOCK_BYTES {
            let Some(piece) = next(name, &mut body, &mut prover, arriving).await? else {
                let written = self.store.put(&location, first.freeze().into()).await;
                written.map_err(|source| MemoryError::Blob { doing: "write to", source })?;
                return Ok(ReceivedContent { proof: prover.finish(), location });
            };
            first.extend_from_slice(&piece);
        }
        let upload = self.store.put_multipart(&location).await;
        let upload = upload.map_err(|source| MemoryError::Blob { doing: "write to", source })?;
        let mut writer = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        writer.put(first.freeze());
        match pour(name, &mut body, &mut prover, arriving, &mut writer).await {
            Ok(()) => {
                let finished = writer.finish().await;
                finished.map_err(|source| MemoryError::Blob { doing: "write to", source })?;
                Ok(ReceivedContent { proof: prover.finish(), location })
            }
            Err(error) => {
                if let Err(source) = writer.abort().await {
                    tracing::warn!(error = %source, "could not remove an interrupted upload; the sweep will remove it");
                }
                Err(error)
            }
        }
    }

    /// Names content by its hash. It replaces an object with equal content, which repairs a damaged one.
    ///
    /// The caller holds [`Self::placing`] until it has committed the row.
    pub(crate) async fn place(&self, incoming: &ReceivedContent) -> Result<(), MemoryError> {
        let renamed = self.store.rename(&incoming.location, &location_of(incoming.proof.hash)).await;
        renamed.map_err(|source| MemoryError::Blob { doing: "write to", source })
    }

    /// Whether an object with this hash and length exists. For `check`; does not verify the content.
    pub(crate) async fn has(&self, hash: BlobHash, bytes: u64) -> Result<bool, MemoryError> {
        match self.store.head(&location_of(hash)).await {
            Ok(found) => Ok(found.size == bytes),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(MemoryError::Blob { doing: "read from", source }),
        }
    }

    /// Removes content that was not named.
    pub(crate) async fn discard(&self, incoming: &ReceivedContent) {
        if let Err(error) = self.store.delete(&incoming.location).await {
            tracing::warn!(%error, "could not remove a rejected upload; the sweep will remove it");
        }
    }
}

pub(super) fn location_of(hash: BlobHash) -> Path {
    let text = hash.to_string();
    Path::from_iter([&text[..2], text.as_str()])
}

/// The hash that an object is named by; `None` for objects of other programs.
pub(super) fn hash_at(location: &Path) -> Option<BlobHash> {
    let hash = location.filename().and_then(BlobHash::parse)?;
    (location_of(hash) == *location).then_some(hash)
}

/// Whether an object is the content of artifacts, and not an upload in progress or an object of another program.
pub(crate) fn is_content(location: &Path) -> bool {
    hash_at(location).is_some()
}

async fn next(
    name: &str,
    body: &mut Body,
    prover: &mut Prover,
    arriving: &mut UploadInProgress,
) -> Result<Option<Bytes>, MemoryError> {
    let Some(piece) = body.next().await else { return Ok(None) };
    let piece = piece.map_err(|source| MemoryError::Upload { name: name.to_owned(), source })?;
    arriving.take(piece.len() as u64)?;
    prover.update(&piece);
    if prover.bytes() > ARTIFACT_BYTES_MAX {
        return Err(MemoryError::TooLarge {
            what: "the artifact",
            bytes: prover.bytes(),
            max: ARTIFACT_BYTES_MAX,
        });
    }
    Ok(Some(piece))
}

async fn pour(
    name: &str,
    body: &mut Body,
    prover: &mut Prover,
    arriving: &mut UploadInProgress,
    writer: &mut WriteMultipart,
) -> Result<(), MemoryError> {
    while let Some(piece) = next(name, body, prover, arriving).await? {
        writer.put(piece);
        let capacity = writer.wait_for_capacity(PARTS_IN_FLIGHT_MAX).await;
        capacity.map_err(|source| MemoryError::Blob { doing: "write to", source })?;
    }
    Ok(())
}
