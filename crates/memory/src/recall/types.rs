//! The request and the result of a search.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Entry, Filter, MemoryError, MemoryId, View};

/// Hits that one search may ask for.
pub const HITS_MAX: usize = 200;

/// A view to search, and the label of its space.
#[derive(Clone, Debug)]
pub struct LabelledView {
    pub label: String,
    pub view: View,
}

/// A search request.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    pub text: String,
    /// From 1 to [`HITS_MAX`].
    pub limit: usize,
    pub filter: Filter,
    /// The age at which the weight of recency is halved. Without it, age does not matter.
    pub half_life_ms: Option<u64>,
    pub weights: Option<Weights>,
    /// Whether every hit lists the neighbours that contributed to it.
    pub explain: bool,
    /// Include cold entries.
    pub include_cold: bool,
    /// Hits with a lower score are omitted. From 0 to 1.
    pub min_score: Option<f32>,
}

impl Search {
    /// A search for the ten best of all current entries.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            limit: 10,
            filter: Filter::all(),
            half_life_ms: None,
            weights: None,
            explain: false,
            include_cold: false,
            min_score: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), MemoryError> {
        if !(1..=HITS_MAX).contains(&self.limit) {
            let why = format!("the limit of hits is {}, and must be from 1 to {HITS_MAX}", self.limit);
            return Err(MemoryError::invalid("the search", why));
        }
        self.filter.check()
    }
}

/// The relative weights of the kinds of evidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// The words of the query, and similar words.
    pub lexical: f32,
    /// The meaning of the whole text, by its vector.
    pub vector: f32,
    /// The neighbours, in addition to the text itself.
    pub neighbours: f32,
    /// Being new; only with a half-life.
    pub recency: f32,
    /// The importance of the entry.
    pub importance: f32,
}

impl Weights {
    pub const fn usual() -> Self {
        Self { lexical: 1.0, vector: 1.0, neighbours: 1.0, recency: 0.5, importance: 0.4 }
    }
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct SearchOutcome {
    /// Best first.
    pub hits: Vec<Hit>,
    /// Which arms took part, so that the caller knows whether vectors were used.
    pub arms: Vec<ArmReport>,
    /// The number of entries that were searched.
    pub searched: u64,
    pub took_us: u64,
}

#[derive(Clone, Debug)]
pub struct Hit {
    pub entry: Entry,
    /// The label of its view.
    pub space: String,
    /// From 0 to 1: 1 would be all words of the query, in an entry with the same meaning.
    pub score: f32,
    pub why: ScoreBreakdown,
    /// Entries that are nearly the same and would have followed it.
    pub collapsed: Vec<MemoryId>,
}

/// The contribution of each arm to a hit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreBreakdown {
    pub lexical: Option<LexicalWhy>,
    pub vector: Option<VectorWhy>,
    pub neighbours: Option<NeighbourWhy>,
    /// The contribution of its age.
    pub recency: f32,
    /// The contribution of its importance.
    pub importance: f32,
    /// The factor for its validity period: 1 if it is valid now.
    pub validity: f32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LexicalWhy {
    /// Rank among the results by words, from 1.
    pub rank: usize,
    /// From 0 to 1, relative to the best.
    pub score: f32,
    /// The words of the query that it contains.
    pub terms: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct VectorWhy {
    /// Rank among the results by vectors, from 1.
    pub rank: usize,
    pub cosine: f32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NeighbourWhy {
    /// From 0 to 1, relative to the best.
    pub score: f32,
    /// The neighbours that contain words of the query, if an explanation was requested.
    pub ids: Vec<MemoryId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    Lexical,
    Vector,
    Neighbours,
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lexical => "lexical",
            Self::Vector => "vector",
            Self::Neighbours => "neighbours",
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ArmReport {
    pub arm: Arm,
    pub state: ArmState,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ArmState {
    /// It took part, with all entries.
    Took,
    /// It was not used: its weight is zero, or there were no words to search for.
    Off,
    /// It should have taken part, but failed.
    Down { reason: String },
    /// It took part with this share of the entries: the others have no vector yet.
    Partial { covered: f32 },
}
