//! Memory for prompts and agent loops: a block of context, a call before each turn, a call after it.

use burrow_api::memory::{ContextBlock, ContextRequest, RecallRequest, StoreTurn, StoredTurn};
use http::Method;

use super::Memory;
use crate::ClientError;

impl Memory {
    /// A block for a prompt, fenced as data. Without a query: the state of the work.
    pub async fn context(&self, request: &ContextRequest) -> Result<ContextBlock, ClientError> {
        self.client.send_json(Method::POST, self.read_all_spaces(self.route("context")), request).await
    }

    /// The memories to add to the prompt before a turn.
    pub async fn recall(&self, request: &RecallRequest) -> Result<ContextBlock, ClientError> {
        self.client.send_json(Method::POST, self.read_all_spaces(self.route("recall")), request).await
    }

    /// Stores what to remember after a turn. What was stored just before is not stored again.
    pub async fn store_turn(&self, turn: &StoreTurn) -> Result<StoredTurn, ClientError> {
        self.client.send_json(Method::POST, self.write_path(self.route("turns")), turn).await
    }
}
