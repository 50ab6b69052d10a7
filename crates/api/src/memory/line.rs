//! Memory as JSON Lines: out of one space, into another.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// One line of `GET /v1/memory/{of}/export`, and of what `POST …/import` takes: `line` says what it is, `header` or
/// `entry`, and an entry's fields are those of a `MemoryEntry`. Ids are kept, so importing twice stores once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryLine {
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub fields: Map<String, Value>,
}

/// Answer of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedMemory {
    /// Lines read.
    pub lines: u64,
    /// Stored now.
    pub added: u64,
    /// A newer version of what was there.
    pub updated: u64,
    /// There already, as new or newer.
    pub existed: u64,
    /// Was erased here, and stays so.
    pub erased: u64,
}
