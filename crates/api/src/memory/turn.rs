//! Memory for agent loops: one call before a turn, one after it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{ArmReport, EntryFilter};

/// One message of a conversation, as model APIs write it: what goes to a model can be given as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TurnMessage {
    /// `user`, `assistant`, `tool`, `system`, …
    #[schema(min_length = 1, max_length = 64)]
    pub role: String,
    /// A text, or a list of parts.
    #[serde(default)]
    pub content: Value,
    /// Whatever else it holds. Calls of tools are remembered.
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
    /// What it should be about. Without it and without messages: "where was I", the last session, open work and recent
    /// failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 65_536)]
    pub query: Option<String>,
    /// The conversation so far; the last messages count most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub messages: Vec<TurnMessage>,
    /// Tokens the block may take; 1000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 64, maximum = 32_000, default = 1000)]
    pub budget_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<EntryFilter>,
    /// The session that goes on, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub session: Option<String>,
    /// Names or ids of the spaces to look in, among the sandbox's own (`own`) and the attached ones; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub spaces: Vec<String>,
}

/// A block for a prompt, and what it is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ContextBlock {
    /// Dated, with ids and relevance, fenced as data so that stored text cannot pose as instructions. Empty when there
    /// is nothing to tell.
    pub text: String,
    /// Tokens it takes, as estimated.
    pub used_tokens: u32,
    /// Ids of the entries in it.
    pub ids: Vec<String>,
    pub arms: Vec<ArmReport>,
    /// There was more to tell than fits.
    pub truncated: bool,
}

/// `POST /v1/memory/{of}/recall`: what to put before a turn. Answers a `ContextBlock`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecallRequest {
    /// The conversation so far, as it goes to the model.
    #[schema(min_items = 1, max_items = 1000)]
    pub messages: Vec<TurnMessage>,
    /// Tokens the block may take; 1000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 64, maximum = 32_000, default = 1000)]
    pub budget_tokens: Option<u32>,
    /// The session that goes on, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub session: Option<String>,
}

/// `POST /v1/memory/{of}/turns`: what to remember after a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreTurn {
    /// What is new: what was asked and what was answered. What was stored just before is not stored again.
    #[schema(min_items = 1, max_items = 1000)]
    pub messages: Vec<TurnMessage>,
    /// The open session when absent; one opens and closes by itself.
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

/// Answer of storing a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoredTurn {
    pub session: String,
    /// Ids of the entries, in order, those that were there already included.
    pub ids: Vec<String>,
    /// How many of them are new.
    pub added: u64,
}
