//! Searching episodic memory, and why each hit was found.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{EntryFilter, MemoryEntry};

/// `POST /v1/memory/{of}/search`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchMemory {
    /// Words, a question, or a whole message.
    #[schema(min_length = 1, max_length = 65_536)]
    pub query: String,
    /// Hits at most; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 200, default = 10)]
    pub limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<EntryFilter>,
    /// Names or ids of the spaces to search, among the sandbox's own (`own`) and the attached ones; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub spaces: Vec<String>,
    /// Age that halves what recency adds to the score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub half_life_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<SearchWeights>,
    /// The cold tier too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_cold: bool,
    /// Only hits with at least this score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub min_score: Option<f32>,
    /// Tell the terms and figures of each arm for each hit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub explain: bool,
}

/// What counts how much, relative to one another; what is absent keeps its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchWeights {
    /// Words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.0, maximum = 10.0)]
    pub lexical: Option<f32>,
    /// Meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.0, maximum = 10.0)]
    pub vector: Option<f32>,
    /// What was said or done just before and after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.0, maximum = 10.0)]
    pub neighbours: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.0, maximum = 10.0)]
    pub recency: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.0, maximum = 10.0)]
    pub importance: Option<f32>,
}

/// Answer of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchResult {
    /// Best first.
    pub hits: Vec<MemoryHit>,
    /// Which arms took part, and which did not and why.
    pub arms: Vec<ArmReport>,
    /// Entries that could have been found.
    pub searched: u64,
    pub took_us: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryHit {
    pub entry: MemoryEntry,
    /// Where it was found: a space's name, or the sandbox's whose own it is.
    pub space: String,
    /// From 0 to 1.
    pub score: f32,
    pub why: SearchWhy,
    /// Ids of entries that say nearly the same, shown by this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collapsed: Vec<String>,
}

/// What each arm found in it; an arm that did not find it is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchWhy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lexical: Option<LexicalWhy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<VectorWhy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<NeighbourWhy>,
    /// What its age added.
    pub recency: f32,
    /// What its importance added.
    pub importance: f32,
    /// What is left of the score because of when it holds: 1 where it holds now.
    pub validity: f32,
}

/// Its words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LexicalWhy {
    /// Place among the arm's finds, from 1.
    pub rank: u64,
    pub score: f32,
    /// The words of the query that it has.
    #[serde(default)]
    pub terms: Vec<String>,
}

/// Its meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VectorWhy {
    /// Place among the arm's finds, from 1.
    pub rank: u64,
    /// How alike, from -1 to 1.
    pub cosine: f32,
}

/// What was said or done just before and after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NeighbourWhy {
    pub score: f32,
    /// Ids of the neighbours that have words of the query, as far as known.
    #[serde(default)]
    pub ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArmReport {
    /// `lexical`, `vector`, `neighbours`, …
    pub arm: String,
    pub state: ArmState,
    /// Why it was down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Share of the entries that it could see, from 0 to 1, when not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArmState {
    /// Took part.
    Took,
    /// Was not asked, or had nothing to go by.
    Off,
    /// Could not take part; `reason` says why.
    Down,
    /// Took part for some of the entries; `covered` says how many.
    Partial,
}
