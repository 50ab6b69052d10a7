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
    /// Maximum number of hits; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 200, default = 10)]
    pub limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<EntryFilter>,
    /// Names or ids of the spaces to search, of the sandbox's own (`own`) and the attached ones; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub spaces: Vec<String>,
    /// The age at which the contribution of recency to the score is halved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub half_life_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<SearchWeights>,
    /// Include entries in the cold tier.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_cold: bool,
    /// Only hits with at least this score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub min_score: Option<f32>,
    /// Include the terms and figures of each arm for each hit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub explain: bool,
}

/// The relative weights of the parts of the score. Absent fields keep their defaults.
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
    /// Proximity to matches: what was said or done just before and after.
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

/// Response to a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchResult {
    /// Best first.
    pub hits: Vec<MemoryHit>,
    /// Which arms took part, and why others did not.
    pub arms: Vec<ArmReport>,
    /// Number of entries that were searched.
    pub searched: u64,
    pub took_us: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryHit {
    pub entry: MemoryEntry,
    /// The space in which it was found: its name, or the name of the sandbox that owns it.
    pub space: String,
    /// From 0 to 1.
    pub score: f32,
    pub why: SearchWhy,
    /// Ids of entries with nearly the same text, which this hit represents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collapsed: Vec<String>,
}

/// What each arm contributed to a hit; absent for an arm that did not find it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchWhy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lexical: Option<LexicalWhy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<VectorWhy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<NeighbourWhy>,
    /// The contribution of its age.
    pub recency: f32,
    /// The contribution of its importance.
    pub importance: f32,
    /// The factor for its validity: 1 if it is valid now.
    pub validity: f32,
}

/// The match by words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LexicalWhy {
    /// Rank among the hits of this arm, from 1.
    pub rank: u64,
    pub score: f32,
    /// The words of the query that it contains.
    #[serde(default)]
    pub terms: Vec<String>,
}

/// The match by meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VectorWhy {
    /// Rank among the hits of this arm, from 1.
    pub rank: u64,
    /// Cosine similarity, from -1 to 1.
    pub cosine: f32,
}

/// The match by proximity: what was said or done just before and after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NeighbourWhy {
    pub score: f32,
    /// Ids of the neighbours that contain words of the query, as far as known.
    #[serde(default)]
    pub ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArmReport {
    /// `lexical`, `vector`, `neighbours`, …
    pub arm: String,
    pub state: ArmState,
    /// Why it was unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Share of the entries that it could search, from 0 to 1, when not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArmState {
    /// Searched all entries.
    Took,
    /// Was not requested, or did not apply.
    Off,
    /// Was unavailable; `reason` says why.
    Down,
    /// Searched a part of the entries; `covered` is their number.
    Partial,
}
