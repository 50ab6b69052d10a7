//! What an entry is: what a caller gives, what it gets back, and what may be changed.

use burrow_model::{BranchId, MemoryId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind an entry has when nobody said more.
pub const KIND_NOTE: &str = "note";

/// How important an entry is when nobody said more.
pub const IMPORTANCE_USUAL: f32 = 0.5;

/// Something to be remembered, verbatim.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry {
    /// Added once per key, however often it is tried.
    pub key: Option<String>,
    pub text: String,
    /// A lower-case word: `note`, `fact`, `decision`, `observation`, `turn`, `exec`, `error`, `summary`, …
    pub kind: String,
    pub metadata: Map<String, Value>,
    /// From 0 to 1.
    pub importance: f32,
    pub source: Option<String>,
    pub session: Option<String>,
    pub user: Option<String>,
    pub agent: Option<String>,
    /// When it happened; now, unless said otherwise.
    pub at_ms: Option<u64>,
    pub valid_from_ms: Option<u64>,
    pub valid_to_ms: Option<u64>,
    /// Entries that this one replaces as the truth. They stay, marked.
    pub supersedes: Vec<MemoryId>,
    /// Artifacts it is about, by hash or name.
    pub artifacts: Vec<String>,
    pub links: Vec<MemoryId>,
}

impl NewEntry {
    /// A note of now.
    pub fn note(text: impl Into<String>) -> Self {
        Self {
            key: None,
            text: text.into(),
            kind: KIND_NOTE.to_owned(),
            metadata: Map::new(),
            importance: IMPORTANCE_USUAL,
            source: None,
            session: None,
            user: None,
            agent: None,
            at_ms: None,
            valid_from_ms: None,
            valid_to_ms: None,
            supersedes: Vec::new(),
            artifacts: Vec::new(),
            links: Vec::new(),
        }
    }
}

/// What became of a [`NewEntry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    pub id: MemoryId,
    pub seq: u64,
    /// An entry with the very same text that was there already. Both are kept.
    pub duplicate_of: Option<MemoryId>,
    /// Its key had been used: nothing was added, and `id` is what the key stands for.
    pub existed: bool,
}

/// An entry as a branch sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub id: MemoryId,
    /// The number of this version in the space's log.
    pub seq: u64,
    /// From 1.
    pub version: u64,
    pub text: String,
    pub kind: String,
    pub metadata: Map<String, Value>,
    pub importance: f32,
    pub source: Option<String>,
    pub session: Option<String>,
    pub user: Option<String>,
    pub agent: Option<String>,
    /// When it happened.
    pub at_ms: u64,
    /// When this version was written.
    pub stored_ms: u64,
    pub valid_from_ms: Option<u64>,
    pub valid_to_ms: Option<u64>,
    pub supersedes: Vec<MemoryId>,
    pub superseded_by: Option<MemoryId>,
    /// How often it happened; repeats are counted rather than stored again.
    pub count: u64,
    pub artifacts: Vec<String>,
    pub links: Vec<MemoryId>,
    /// Search reaches it only when asked to.
    pub cold: bool,
    /// The branch that wrote this version.
    pub branch: BranchId,
}

/// What to change; `None` leaves a thing as it is, an inner `None` takes it away.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryChange {
    pub text: Option<String>,
    pub kind: Option<String>,
    pub metadata: Option<Map<String, Value>>,
    pub importance: Option<f32>,
    pub source: Option<Option<String>>,
    pub session: Option<Option<String>>,
    pub user: Option<Option<String>>,
    pub agent: Option<Option<String>>,
    pub at_ms: Option<u64>,
    pub valid_from_ms: Option<Option<u64>>,
    pub valid_to_ms: Option<Option<u64>>,
    pub supersedes: Option<Vec<MemoryId>>,
    pub artifacts: Option<Vec<String>>,
    pub links: Option<Vec<MemoryId>>,
}

impl EntryChange {
    pub fn nothing() -> Self {
        Self {
            text: None,
            kind: None,
            metadata: None,
            importance: None,
            source: None,
            session: None,
            user: None,
            agent: None,
            at_ms: None,
            valid_from_ms: None,
            valid_to_ms: None,
            supersedes: None,
            artifacts: None,
            links: None,
        }
    }
}

/// One step in the life of an entry, as a branch sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    pub seq: u64,
    pub stored_ms: u64,
    pub branch: BranchId,
    pub what: VersionKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum VersionKind {
    Written { entry: Box<Entry> },
    Forgotten,
    Cooled,
    Warmed,
    Repeated { times: u64 },
}

/// Which entries are meant.
#[derive(Clone, Debug, PartialEq)]
pub enum Which {
    Ids(Vec<MemoryId>),
    Filter(crate::Filter),
    /// What happened before this many milliseconds ago.
    OlderThanMs(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    pub count: u64,
    /// The first thousand of them.
    pub ids: Vec<MemoryId>,
}

/// What an erasure took, and what it did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erased {
    /// All of them, summaries included.
    pub count: u64,
    /// The first thousand of those that were meant.
    pub ids: Vec<MemoryId>,
    /// Summaries that were made of them, and went along: the first thousand.
    pub summaries: Vec<MemoryId>,
    /// Entries of the space that say the very same under another id, or were joined with one of them, and are still
    /// there: the first thousand.
    pub copies: Vec<MemoryId>,
    /// On how many branches they lay.
    pub branches: u64,
}

/// A stretch of work, as the entries that name it tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    pub session: String,
    pub opened_ms: u64,
    pub last_ms: u64,
    pub entries: u64,
    pub first_excerpt: String,
    pub last_excerpt: String,
    /// Nothing was added for half an hour.
    pub closed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Visible entries, cold ones included.
    pub entries: u64,
    pub by_kind: std::collections::BTreeMap<String, u64>,
    pub cold: u64,
    pub superseded: u64,
    pub sessions: u64,
    pub kv_keys: u64,
    pub skills: u64,
    pub artifacts: u64,
    pub artifact_bytes: u64,
    /// Of the texts of visible entries.
    pub text_bytes: u64,
    /// The highest number this view sees.
    pub seq: u64,
    pub vectors: VectorStats,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorStats {
    pub model: String,
    pub covered: u64,
    pub pending: u64,
}
