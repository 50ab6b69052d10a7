//! What a search is asked, and what it answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Entry, Filter, MemoryError, MemoryId, View};

/// Hits that one search may ask for.
pub const HITS_MAX: usize = 200;

/// A view to search, and how its space is shown.
#[derive(Clone, Debug)]
pub struct Labelled {
    pub label: String,
    pub view: View,
}

/// A question to memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    pub text: String,
    /// From 1 to [`HITS_MAX`].
    pub limit: usize,
    pub filter: Filter,
    /// The age at which being recent counts half of what it counts now. Without it age does not matter.
    pub half_life_ms: Option<u64>,
    pub weights: Option<Weights>,
    /// Whether every hit names the neighbours that spoke for it.
    pub explain: bool,
    /// Also what consolidation put aside.
    pub include_cold: bool,
    /// Hits below it are left out. From 0 to 1.
    pub min_score: Option<f32>,
}

impl Search {
    /// The ten best of everything current.
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
            let why = format!("it asks for {} hits, and may ask for 1 to {HITS_MAX}", self.limit);
            return Err(MemoryError::invalid("the search", why));
        }
        self.filter.check()
    }
}

/// What each kind of evidence counts, beside the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// The words of the question, and words like them.
    pub lexical: f32,
    /// The meaning of the whole text, as the embedder sees it.
    pub vector: f32,
    /// What stands just before and after, beside the text itself.
    pub neighbours: f32,
    /// Being new; only with a half-life.
    pub recency: f32,
    /// Being important.
    pub importance: f32,
}

impl Weights {
    pub const fn usual() -> Self {
        Self { lexical: 1.0, vector: 1.0, neighbours: 1.0, recency: 0.5, importance: 0.4 }
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The best first.
    pub hits: Vec<Hit>,
    /// Which arms took part: nobody has to guess whether meaning was looked at.
    pub arms: Vec<ArmReport>,
    /// Entries that could have been found.
    pub searched: u64,
    pub took_us: u64,
}

#[derive(Clone, Debug)]
pub struct Hit {
    pub entry: Entry,
    /// The label of the view it is of.
    pub space: String,
    /// From 0 to 1: 1 would be all the question's words, in an entry of the same meaning.
    pub score: f32,
    pub why: Why,
    /// Entries that say nearly the same and would have come after it.
    pub collapsed: Vec<MemoryId>,
}

/// What spoke for a hit, arm by arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    pub lexical: Option<LexicalWhy>,
    pub vector: Option<VectorWhy>,
    pub neighbours: Option<NeighbourWhy>,
    /// What its age added.
    pub recency: f32,
    /// What its importance added.
    pub importance: f32,
    /// What is left of the score because of when it holds: 1 where it holds now.
    pub validity: f32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LexicalWhy {
    /// Place among what the words found, from 1.
    pub rank: usize,
    /// From 0 to 1: what it has beside the best.
    pub score: f32,
    /// The words of the question that it has.
    pub terms: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct VectorWhy {
    /// Place among what is closest in meaning, from 1.
    pub rank: usize,
    pub cosine: f32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NeighbourWhy {
    /// From 0 to 1: what they added beside the best.
    pub score: f32,
    /// Those that have words of the question, where an explanation was asked for.
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
    /// It took part, with all there is.
    Took,
    /// It was not asked: no weight, or no words to look for.
    Off,
    /// It should have taken part and could not.
    Down { reason: String },
    /// It took part with a share of the entries: the rest have no vector yet.
    Partial { covered: f32 },
}
