//! Memory for agent loops: one call before a turn, one after it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{ArmReport, EntryFilter};

/// One message of a conversation, in the format of model APIs: messages for a model can be passed unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TurnMessage {
    /// `user`, `assistant`, `tool`, `system`, …
    #[schema(min_length = 1, max_length = 64)]
    pub role: String,
    /// A text, or a list of parts.
    #[serde(default)]
    pub content: Value,
    /// All other fields. Tool calls are remembered.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub more: Map<String, Value>,
}

impl TurnMessage {
    /// A message of plain text.
    pub fn text(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Value::String(content.into()), more: Map::new() }
    }
}

/// `POST /v1/memory/{of}/context`: a block for a prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextRequest {
    /// The topic. Without it and without messages, the block answers "where was I": the last session, open work and
    /// recent failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 65_536)]
    pub query: Option<String>,
    /// The conversation so far; the last messages count most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub messages: Vec<TurnMessage>,
    /// Maximum tokens of the block; 1000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 64, maximum = 32_000, default = 1000)]
    pub budget_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<EntryFilter>,
    /// Name of the session to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub session: Option<String>,
    /// Names or ids of the spaces to search, of the sandbox's own (`own`) and the attached ones; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub spaces: Vec<String>,
}

/// A block for a prompt, and its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ContextBlock {
    /// Dated, with ids and relevance, fenced as data so that stored text cannot pose as instructions. Empty when
    /// nothing relevant was found.
    pub text: String,
    /// Tokens it takes, as estimated.
    pub used_tokens: u32,
    /// Ids of the entries in it.
    pub ids: Vec<String>,
    pub arms: Vec<ArmReport>,
    /// More was found than fits.
    pub truncated: bool,
}

/// `POST /v1/memory/{of}/recall`: a block to insert before a turn. Returns a `ContextBlock`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecallRequest {
    /// The conversation so far, as it is sent to the model.
    #[schema(min_items = 1, max_items = 1000)]
    pub messages: Vec<TurnMessage>,
    /// Maximum tokens of the block; 1000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 64, maximum = 32_000, default = 1000)]
    pub budget_tokens: Option<u32>,
    /// Name of the session to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub session: Option<String>,
}

/// `POST /v1/memory/{of}/turns`: what to remember after a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreTurn {
    /// The new messages: the question and the answer. Messages that were stored just before are not stored again.
    #[schema(min_items = 1, max_items = 1000)]
    pub messages: Vec<TurnMessage>,
    /// The open session when absent; sessions open and close automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub agent: Option<String>,
}

/// Response to storing a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoredTurn {
    pub session: String,
    /// Ids of the entries, in order, including those that existed already.
    pub ids: Vec<String>,
    /// How many of them are new.
    pub added: u64,
}
