//! How much there is, whether it is sound; merging and making smaller.

use burrow_api::memory::{
    ConsolidateMemory, ConsolidatedMemory, MemoryCheck, MemoryStats, MergeMemory, MergedMemory,
};
use http::Method;

use super::Memory;
use crate::ClientError;
use crate::url::Path;

impl Memory {
    pub async fn stats(&self) -> Result<MemoryStats, ClientError> {
        self.client.get(self.reading(Path::new("/v1/memory").part(&self.whose.of))).await
    }

    /// Brings what a fork remembered back.
    pub async fn merge(&self, request: &MergeMemory) -> Result<MergedMemory, ClientError> {
        self.client.send_json(Method::POST, self.route("merge"), request).await
    }

    pub async fn consolidate(&self, request: &ConsolidateMemory) -> Result<ConsolidatedMemory, ClientError> {
        self.client.send_json(Method::POST, self.writing(self.route("consolidate")), request).await
    }

    /// Whether all indices agree with the log.
    pub async fn check(&self) -> Result<MemoryCheck, ClientError> {
        self.client.post_empty(self.writing(self.route("check"))).await
    }

    /// Makes the indices anew from the log.
    pub async fn rebuild(&self) -> Result<MemoryCheck, ClientError> {
        self.client.post_empty(self.writing(self.route("rebuild"))).await
    }
}
