//! Contents of artifacts that move with a branch: out by their hash, in only with all their bytes.

use burrow_model::SpaceId;

use super::content::Content;
use super::hash::{BlobHash, Proof};
use super::room::Used;
use super::store::{Blobs, Body};
use crate::MemoryError;

/// What content is called in messages: its name is in rows that name it by hash.
const NAME: &str = "of a moved branch";

impl Blobs {
    /// All of a content, proven block by block by the list of its blocks.
    pub(crate) async fn read_whole(
        &self,
        hash: BlobHash,
        bytes: u64,
        list: &[u8],
    ) -> Result<Content, MemoryError> {
        let proof = Proof::restore(hash, bytes, list).ok_or_else(|| MemoryError::DamagedBlob {
            name: NAME.to_owned(),
            hash: hash.to_string(),
            why: "the list of its blocks is not of it".to_owned(),
        })?;
        self.read(NAME, proof, 0..bytes).await
    }

    /// Stores content that is known by its hash, and answers the list of its blocks. What turns out to be something else
    /// leaves nothing. The rows that refer to it are there already, so no sweep takes it.
    pub(crate) async fn take_whole(
        &self,
        space: &SpaceId,
        hash: BlobHash,
        bytes: u64,
        body: Body,
    ) -> Result<Vec<u8>, MemoryError> {
        let mut arriving = self.room().arriving(space, Used::default());
        let incoming = self.receive(NAME, body, &mut arriving).await?;
        if (incoming.proof.hash, incoming.proof.bytes) != (hash, bytes) {
            self.discard(&incoming).await;
            let why = "it is not what the rows say".to_owned();
            return Err(MemoryError::DamagedBlob { name: NAME.to_owned(), hash: hash.to_string(), why });
        }
        let _placing = self.placing().await;
        if let Err(error) = self.place(&incoming).await {
            self.discard(&incoming).await;
            return Err(error);
        }
        Ok(incoming.proof.list())
    }

    /// Whether so many bytes would fit into a space that has none.
    pub(crate) fn check_room(&self, space: &SpaceId, bytes: u64) -> Result<(), MemoryError> {
        self.room().check(space, Used::default(), bytes)
    }
}
