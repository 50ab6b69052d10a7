//! What a merge does with contradictions.

use serde::{Deserialize, Serialize};

/// The side that wins if both changed the same entry, or added contradicting ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryPolicy {
    /// The parent's state is kept.
    Ours,
    /// The child's state is taken.
    Theirs,
    /// The parent's state is kept, and the child's is added as a separate entry.
    Both,
}

/// The side that wins if both changed the same key, skill or artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvPolicy {
    /// The parent's state is kept.
    Ours,
    /// The child's state is taken.
    Theirs,
    /// Nothing is merged at all.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeOptions {
    /// Report what would happen, and change nothing.
    pub dry_run: bool,
    /// Without a policy, the parent's state is kept, and the contradiction is listed and stays open.
    pub kv: Option<KvPolicy>,
    pub entries: Option<EntryPolicy>,
}
