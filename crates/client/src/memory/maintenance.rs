//! Maintenance of memory: statistics, checks, merging, consolidation.

use burrow_api::memory::{
    ConsolidateMemory, ConsolidatedMemory, MemoryCheck, MemoryStats, MergeMemory, MergedMemory,
};
use http::Method;

use super::Memory;
use crate::ClientError;
use crate::url::Path;

impl Memory {
    pub async fn stats(&self) -> Result<MemoryStats, ClientError> {
        self.client.get(self.read_path(Path::new("/v1/memory").part(&self.selection.of))).await
    }

    /// Merges what a fork has remembered.
    pub async fn merge(&self, request: &MergeMemory) -> Result<MergedMemory, ClientError> {
        self.client.send_json(Method::POST, self.route("merge"), request).await
    }

    pub async fn consolidate(&self, request: &ConsolidateMemory) -> Result<ConsolidatedMemory, ClientError> {
        self.client.send_json(Method::POST, self.write_path(self.route("consolidate")), request).await
    }

    /// Checks whether all indexes match the log.
    pub async fn check(&self) -> Result<MemoryCheck, ClientError> {
        self.client.post_empty(self.write_path(self.route("check"))).await
    }

    /// Rebuilds the indexes from the log.
    pub async fn rebuild(&self) -> Result<MemoryCheck, ClientError> {
        self.client.post_empty(self.write_path(self.route("rebuild"))).await
    }
}
