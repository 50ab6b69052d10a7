//! Where the content of artifacts lies: one object per content, named by its hash.
//!
//! ```text
//!  incoming/<random>      being uploaded, or left behind by a crash
//!  <2>/<64 digits>        the content with this BLAKE3 hash, whoever has it
//! ```
//!
//! The store is the host's, for all spaces and tenants; only a row in a space leads to an object, and an upload is always
//! read to its end, so whether somebody else has the same content shows nowhere.
//!
//! **Placing and sweeping exclude each other.** An upload holds [`Blobs::placing`] from before its object gets its name
//! until its row is committed; the sweep takes the lock alone before it looks for rows a last time and removes. So an
//! object is removed only while nobody is about to refer to it. A crash in between leaves an object without a row, which
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
use super::room::{Arriving, Room};
use crate::MemoryError;

/// Largest content: what one copy request of an S3 store can put in place.
pub const ARTIFACT_BYTES_MAX: u64 = 5 << 30;

/// Bytes of one part of a large upload. S3 wants at least 5 MiB, and at most 10,000 parts.
const PART_BYTES: usize = 8 << 20;

/// Parts on their way at a time. With the one being filled, an upload holds three of them in RAM at most.
const PARTS_IN_FLIGHT_MAX: usize = 2;

/// Where uploads go until their hash is known.
pub(super) const INCOMING: &str = "incoming";

/// What a body of an upload is.
pub type Body = BoxStream<'static, io::Result<Bytes>>;

/// The artifact store in a local directory, each write durable before it is answered.
///
/// Uploads that a crash cut off are removed: nobody else writes there, and no upload is under way at the start.
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
    room: Arc<Room>,
}

/// Content that has arrived and has no name yet.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) proof: Proof,
    location: Path,
}

impl Blobs {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, room: Arc<Room>) -> Self {
        Self { store, placing: Arc::new(RwLock::new(())), room }
    }

    pub(super) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Held while an object gets its name and its row.
    pub(crate) async fn placing(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.placing).read_owned().await
    }

    /// Held while objects are removed.
    pub(super) async fn sweeping(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.placing).write_owned().await
    }

    /// Reads a body to its end into an object without a name, at constant RAM. Where it is refused midway, by its sender
    /// or for want of room, nothing of it stays.
    pub(crate) async fn receive(
        &self,
        name: &str,
        mut body: Body,
        arriving: &mut Arriving,
    ) -> Result<Incoming, MemoryError> {
        // Random, from the one generator of ids there is; what it names does not matter.
        let location = Path::from_iter([INCOMING, MemoryId::generate().as_str()]);
        let mut prover = Prover::new();
        let mut first = BytesMut::new();
        while (first.len() as u64) < BLOCK_BYTES {
            let Some(piece) = next(name, &mut body, &mut prover, arriving).await? else {
                let written = self.store.put(&location, first.freeze().into()).await;
                written.map_err(|source| MemoryError::Blob { doing: "write to", source })?;
                return Ok(Incoming { proof: prover.finish(), location });
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
                Ok(Incoming { proof: prover.finish(), location })
            }
            Err(error) => {
                if let Err(source) = writer.abort().await {
                    tracing::warn!(error = %source, "could not take back a cut-off upload; the sweep will");
                }
                Err(error)
            }
        }
    }

    /// Gives content its name. One object per content: it takes the place of an equal one, and mends a damaged one.
    ///
    /// The caller holds [`Self::placing`] until it has committed the row.
    pub(crate) async fn place(&self, incoming: &Incoming) -> Result<(), MemoryError> {
        let renamed = self.store.rename(&incoming.location, &location_of(incoming.proof.hash)).await;
        renamed.map_err(|source| MemoryError::Blob { doing: "write to", source })
    }

    /// Whether there is content with this hash, of this length. For `check`; says nothing about what is in it.
    pub(crate) async fn has(&self, hash: BlobHash, bytes: u64) -> Result<bool, MemoryError> {
        match self.store.head(&location_of(hash)).await {
            Ok(found) => Ok(found.size == bytes),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(MemoryError::Blob { doing: "read from", source }),
        }
    }

    /// Takes back content that gets no name.
    pub(crate) async fn discard(&self, incoming: &Incoming) {
        if let Err(error) = self.store.delete(&incoming.location).await {
            tracing::warn!(%error, "could not take back an upload; the sweep will");
        }
    }
}

pub(super) fn location_of(hash: BlobHash) -> Path {
    let text = hash.to_string();
    Path::from_iter([&text[..2], text.as_str()])
}

/// The hash an object is named by; `None` for what is not ours.
pub(super) fn hash_at(location: &Path) -> Option<BlobHash> {
    let hash = location.filename().and_then(BlobHash::parse)?;
    (location_of(hash) == *location).then_some(hash)
}

/// Whether an object is the content of artifacts, and not an upload under way or a stranger's.
pub(crate) fn is_content(location: &Path) -> bool {
    hash_at(location).is_some()
}

async fn next(
    name: &str,
    body: &mut Body,
    prover: &mut Prover,
    arriving: &mut Arriving,
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
    arriving: &mut Arriving,
    writer: &mut WriteMultipart,
) -> Result<(), MemoryError> {
    while let Some(piece) = next(name, body, prover, arriving).await? {
        writer.put(piece);
        let capacity = writer.wait_for_capacity(PARTS_IN_FLIGHT_MAX).await;
        capacity.map_err(|source| MemoryError::Blob { doing: "write to", source })?;
    }
    Ok(())
}
