//! Contents of artifacts that move with a branch: read by hash, and stored only if the hash matches.

use burrow_model::SpaceId;

use super::content::Content;
use super::hash::{BlobHash, Proof};
use super::room::SpaceUsage;
use super::store::{Blobs, Body};
use crate::MemoryError;

/// The name used in error messages: here the content is known only by its hash.
const NAME: &str = "of a moved branch";

impl Blobs {
    /// All of a content, verified block by block with the list of block hashes.
    pub(crate) async fn read_whole(
        &self,
        hash: BlobHash,
        bytes: u64,
        list: &[u8],
    ) -> Result<Content, MemoryError> {
        let proof = Proof::restore(hash, bytes, list).ok_or_else(|| MemoryError::DamagedBlob {
            name: NAME.to_owned(),
            hash: hash.to_string(),
            why: "the list of block hashes does not match it".to_owned(),
        })?;
        self.read(NAME, proof, 0..bytes).await
    }

    /// Stores content with a known hash, and returns the list of its block hashes. Content with another hash is
    /// discarded. The rows that refer to it exist already, so no sweep removes it.
    pub(crate) async fn take_whole(
        &self,
        space: &SpaceId,
        hash: BlobHash,
        bytes: u64,
        body: Body,
    ) -> Result<Vec<u8>, MemoryError> {
        let mut arriving = self.room().arriving(space, SpaceUsage::default());
        let incoming = self.receive(NAME, body, &mut arriving).await?;
        if (incoming.proof.hash, incoming.proof.bytes) != (hash, bytes) {
            self.discard(&incoming).await;
            let why = "its length or hash does not match the rows that refer to it".to_owned();
            return Err(MemoryError::DamagedBlob { name: NAME.to_owned(), hash: hash.to_string(), why });
        }
        let _placing = self.placing().await;
        if let Err(error) = self.place(&incoming).await {
            self.discard(&incoming).await;
            return Err(error);
        }
        Ok(incoming.proof.list())
    }

    /// Whether this many bytes would fit into an empty space.
    pub(crate) fn check_room(&self, space: &SpaceId, bytes: u64) -> Result<(), MemoryError> {
        self.room().check(space, SpaceUsage::default(), bytes)
    }
}
