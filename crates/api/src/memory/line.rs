//! Memory as JSON Lines: export from one space, import into another.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// One line of `GET /v1/memory/{of}/export`, and of the body of `POST …/import`. `line` is its type, `header` or
/// `entry`; the fields of an entry are those of a `MemoryEntry`. Ids are kept, so importing twice stores once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryLine {
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub fields: Map<String, Value>,
}

/// Response to an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedMemory {
    /// Lines read.
    pub lines: u64,
    /// New entries.
    pub added: u64,
    /// Entries of which a newer version was stored.
    pub updated: u64,
    /// Entries that existed already, in the same or a newer version.
    pub existed: u64,
    /// Entries that were erased here, and stay erased.
    pub erased: u64,
}
