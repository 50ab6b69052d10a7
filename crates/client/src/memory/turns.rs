//! For prompts and agent loops: a block of context, one call before a turn, one after it.

use burrow_api::memory::{ContextBlock, ContextRequest, RecallRequest, StoreTurn, StoredTurn};
use http::Method;

use super::Memory;
use crate::ClientError;

impl Memory {
    /// A block for a prompt, fenced as data. Without a query: where was I.
    pub async fn context(&self, request: &ContextRequest) -> Result<ContextBlock, ClientError> {
        self.client.send_json(Method::POST, self.looking(self.route("context")), request).await
    }

    /// What to put before a turn.
    pub async fn recall(&self, request: &RecallRequest) -> Result<ContextBlock, ClientError> {
        self.client.send_json(Method::POST, self.looking(self.route("recall")), request).await
    }

    /// What to remember after it. What was stored just before is not stored again.
    pub async fn store_turn(&self, turn: &StoreTurn) -> Result<StoredTurn, ClientError> {
        self.client.send_json(Method::POST, self.writing(self.route("turns")), turn).await
    }
}
