//! Events: what happened, in order.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One line of `GET /v1/events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Increases by one with each event; pass the last one received as `since`.
    pub seq: u64,
    pub at_ms: u64,
    /// `sandbox.created`, `sandbox.stopped`, `exec.started`, …
    pub kind: String,
    pub sandbox_id: Option<String>,
    pub exec_id: Option<String>,
    #[schema(value_type = Object)]
    pub detail: serde_json::Value,
}
