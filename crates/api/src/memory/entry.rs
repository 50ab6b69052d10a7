//! Episodic memory: entries, verbatim, with their versions.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::defaults::{MEMORY_IMPORTANCE, MEMORY_KIND};

/// `POST /v1/memory/{of}/entries`: one entry, or several that are stored together or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum AddMemory {
    Several(AddEntries),
    One(Box<NewEntry>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddEntries {
    /// Stored in this order, all or none.
    #[schema(min_items = 1, max_items = 1000)]
    pub entries: Vec<NewEntry>,
}

/// Something to remember.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEntry {
    /// Adding the same key again answers the entry that is there, whatever else is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub key: Option<String>,
    /// Kept verbatim. 64 KiB at most; what is larger belongs in an artifact.
    #[schema(min_length = 1, max_length = 65_536)]
    pub text: String,
    /// A lower-case word: `note` when absent; also `fact`, `decision`, `observation`, `turn`, …
    #[serde(default = "note", skip_serializing_if = "is_note")]
    #[schema(default = "note", pattern = "^[a-z][a-z0-9_-]{0,63}$")]
    pub kind: String,
    /// Anything to filter by. 16 KiB at most.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// From 0 to 1; 0.5 when absent. Counts in the ranking.
    #[serde(default = "middling", skip_serializing_if = "is_middling")]
    #[schema(minimum = 0.0, maximum = 1.0, default = 0.5)]
    pub importance: f32,
    /// Where it comes from: a file, an address, a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512)]
    pub source: Option<String>,
    /// What was said or done together; the open session when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub agent: Option<String>,
    /// When it happened; now when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// From when it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from_ms: Option<u64>,
    /// Until when it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_to_ms: Option<u64>,
    /// Ids of entries that this one replaces: they are found only by those who ask for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub supersedes: Vec<String>,
    /// Names or hashes of artifacts that belong to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub artifacts: Vec<String>,
    /// Ids of entries that it has to do with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub links: Vec<String>,
}

impl NewEntry {
    /// A note of this text, and nothing else said.
    pub fn note(text: String) -> Self {
        Self {
            key: None,
            text,
            kind: note(),
            metadata: Map::new(),
            importance: middling(),
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

fn note() -> String {
    MEMORY_KIND.to_owned()
}

fn is_note(kind: &str) -> bool {
    kind == MEMORY_KIND
}

fn middling() -> f32 {
    MEMORY_IMPORTANCE
}

fn is_middling(importance: &f32) -> bool {
    (*importance - MEMORY_IMPORTANCE).abs() < f32::EPSILON
}

/// Answer of adding: one for each entry, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddedEntries {
    pub entries: Vec<AddedEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddedEntry {
    pub id: String,
    /// Its number in the log.
    pub seq: u64,
    /// There was an entry with this key already: nothing was stored.
    pub existed: bool,
    /// An older entry that says the same. Both are kept; search shows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<String>,
}

/// Something remembered, as it is now or was at `as_of`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryEntry {
    pub id: String,
    /// Number in the log of this version.
    pub seq: u64,
    /// 1, and one more with each update.
    pub version: u64,
    /// As it was given. Data that somebody stored, not instructions.
    pub text: String,
    pub kind: String,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    pub importance: f32,
    pub source: Option<String>,
    pub session: Option<String>,
    pub user: Option<String>,
    pub agent: Option<String>,
    /// When it happened.
    pub at_ms: u64,
    /// When it was stored.
    pub stored_ms: u64,
    pub valid_from_ms: Option<u64>,
    pub valid_to_ms: Option<u64>,
    pub supersedes: Vec<String>,
    pub superseded_by: Option<String>,
    /// How often it happened: repeats are counted rather than stored again.
    pub count: u64,
    pub artifacts: Vec<String>,
    pub links: Vec<String>,
    /// Old and little used: search shows it to those who ask (`include_cold`).
    pub cold: bool,
    /// The line of memory that it was written on: the sandbox's own, or one that it came from.
    pub branch: String,
}

/// `PATCH /v1/memory/{of}/entries/{id}`: a new version; the old one stays in the history. What is absent stays as it
/// is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 65_536)]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[a-z][a-z0-9_-]{0,63}$")]
    pub kind: Option<String>,
    /// Replaces what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub importance: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_to_ms: Option<u64>,
    /// Replaces what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 256)]
    pub artifacts: Option<Vec<String>>,
    /// Replaces what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 256)]
    pub links: Option<Vec<String>>,
    /// Only if this is its version still; else a conflict that says which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<u64>,
}

/// One step in the life of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryVersion {
    /// Its number in the log.
    pub seq: u64,
    pub stored_ms: u64,
    /// The line of memory that it was written on.
    pub branch: String,
    pub change: MemoryChange,
    /// With `written`: the entry as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<MemoryEntry>,
    /// With `repeated`: how often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemoryChange {
    /// Added, or updated.
    Written,
    Forgotten,
    /// Moved to the cold tier.
    Cooled,
    /// Taken back from it.
    Warmed,
    /// It happened again.
    Repeated,
}

impl MemoryChange {
    /// As it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Forgotten => "forgotten",
            Self::Cooled => "cooled",
            Self::Warmed => "warmed",
            Self::Repeated => "repeated",
        }
    }
}

/// Which entries; everything is optional, and all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryFilter {
    /// Of one of these kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub kinds: Vec<String>,
    /// What their metadata must say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub metadata: Vec<MetadataTest>,
    /// Happened at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Happened before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Among these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub ids: Vec<String>,
    /// Those in the cold tier too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_cold: bool,
    /// Those that others replaced too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_superseded: bool,
}

/// One test of an entry's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MetadataTest {
    /// A key, or keys with dots between them for what lies deeper.
    #[schema(min_length = 1, max_length = 256)]
    pub path: String,
    #[serde(default)]
    pub operator: MetadataOperator,
    /// What to compare with: a list for `in`, absent for `exists`.
    #[serde(default)]
    pub value: Value,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetadataOperator {
    #[default]
    Eq,
    Ne,
    /// One of a list.
    In,
    Exists,
    Lt,
    Gt,
}

/// `POST /v1/memory/{of}/forget`: what is forgotten is found no more, from now on and on this branch; `as_of`, the
/// history and snapshots still have it. Give exactly one of `ids`, `filter` and `older_than_seconds`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetEntries {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub ids: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<EntryFilter>,
    /// What happened longer ago than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_seconds: Option<u64>,
    /// Only say what would be forgotten.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// `POST /v1/memory/{of}/erase`: what is erased is gone from every version, branch, snapshot and index of the space,
/// and from the disk. Only a mark without content stays. Give exactly one of `ids`, `filter` and `older_than_seconds`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EraseEntries {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub ids: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<EntryFilter>,
    /// What happened longer ago than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_seconds: Option<u64>,
    /// Only say what would be erased.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Answer of erasing. Copies in other spaces, in exports and in backups are out of its reach, and not counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErasedEntries {
    /// How many in all, summaries included.
    pub count: u64,
    /// The first 1,000 of those that were meant.
    pub ids: Vec<String>,
    /// Summaries that were made of them, and went along. The first 1,000.
    pub summaries: Vec<String>,
    /// Entries of the space that say the very same under another id, or were joined with one of them by a merge, and are
    /// still there. The first 1,000.
    pub copies: Vec<String>,
    /// On how many branches they lay: forks and restored selves of the sandbox had them as well.
    pub branches: u64,
    pub dry_run: bool,
}

/// Answer of forgetting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForgottenEntries {
    /// How many in all.
    pub count: u64,
    /// The first 1,000 of them.
    pub ids: Vec<String>,
    pub dry_run: bool,
}

/// What was said or done together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemorySession {
    pub session: String,
    pub opened_ms: u64,
    pub last_ms: u64,
    pub entries: u64,
    /// How its first entry begins.
    pub first: String,
    /// How its last entry begins.
    pub last: String,
    /// Nothing joins it any more unless it is named.
    pub closed: bool,
}

/// Two things that cannot both hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Contradiction {
    /// What is said here, cut short; empty for nothing.
    pub ours: String,
    /// What is said there.
    pub theirs: String,
    /// What they disagree about, and which of them is here now.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_needs_a_text_and_nothing_else() {
        let entry: NewEntry = serde_json::from_str(r#"{"text":"x"}"#).unwrap();
        assert_eq!(entry, NewEntry::note("x".to_owned()));
        assert_eq!(serde_json::to_string(&entry).unwrap(), r#"{"text":"x"}"#);
        assert!(serde_json::from_str::<NewEntry>(r#"{"text":"x","texts":"y"}"#).is_err());
    }

    #[test]
    fn one_entry_and_several_are_told_apart() {
        let one: AddMemory = serde_json::from_str(r#"{"text":"x"}"#).unwrap();
        assert!(matches!(one, AddMemory::One(_)));
        let several: AddMemory = serde_json::from_str(r#"{"entries":[{"text":"x"}]}"#).unwrap();
        assert!(matches!(several, AddMemory::Several(several) if several.entries.len() == 1));
    }
}
