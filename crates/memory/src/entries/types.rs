//! The types of entries: input, output, and changes.

use burrow_model::{BranchId, MemoryId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The default kind of an entry.
pub const KIND_NOTE: &str = "note";

/// The default importance of an entry.
pub const IMPORTANCE_USUAL: f32 = 0.5;

/// An entry to add, stored verbatim.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry {
    /// An entry is added once per key, even if the request is repeated.
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
    /// When it happened; by default now.
    pub at_ms: Option<u64>,
    pub valid_from_ms: Option<u64>,
    pub valid_to_ms: Option<u64>,
    /// Entries that this one replaces. They stay, marked as superseded.
    pub supersedes: Vec<MemoryId>,
    /// Artifacts that it refers to, by hash or name.
    pub artifacts: Vec<String>,
    pub links: Vec<MemoryId>,
}

impl NewEntry {
    /// A note with the current time.
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

/// The result for one [`NewEntry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddResult {
    pub id: MemoryId,
    pub seq: u64,
    /// An existing entry with exactly the same text. Both are kept.
    pub duplicate_of: Option<MemoryId>,
    /// Its key had been used: nothing was added, and `id` is the existing entry.
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
    /// How often it happened; repetitions are counted, not stored again.
    pub count: u64,
    pub artifacts: Vec<String>,
    pub links: Vec<MemoryId>,
    /// Searches find it only if they include cold entries.
    pub cold: bool,
    /// The branch that wrote this version.
    pub branch: BranchId,
}

/// The fields to change; `None` leaves a field as it is, an inner `None` removes it.
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

/// One version or mark of an entry, as a branch sees it.
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

/// Selects entries.
#[derive(Clone, Debug, PartialEq)]
pub enum EntrySelection {
    Ids(Vec<MemoryId>),
    Filter(crate::Filter),
    /// Entries that happened longer ago than this many milliseconds.
    OlderThanMs(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetReport {
    pub count: u64,
    /// The first thousand ids.
    pub ids: Vec<MemoryId>,
}

/// The result of an erasure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EraseReport {
    /// The number of erased entries, including summaries.
    pub count: u64,
    /// The first thousand ids of the selected entries.
    pub ids: Vec<MemoryId>,
    /// Summaries of the selected entries, which were erased as well: the first thousand ids.
    pub summaries: Vec<MemoryId>,
    /// Remaining entries of the space with exactly the same text under another id, or that were joined with an erased
    /// one: the first thousand ids.
    pub copies: Vec<MemoryId>,
    /// The number of branches that had them.
    pub branches: u64,
}

/// A session, as derived from the entries that name it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    pub session: String,
    pub opened_ms: u64,
    pub last_ms: u64,
    pub entries: u64,
    pub first_excerpt: String,
    pub last_excerpt: String,
    /// No entry was added for half an hour.
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
    /// The bytes of the texts of visible entries.
    pub text_bytes: u64,
    /// The highest sequence number that this view sees.
    pub seq: u64,
    pub vectors: VectorStats,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorStats {
    pub model: String,
    pub covered: u64,
    pub pending: u64,
}
