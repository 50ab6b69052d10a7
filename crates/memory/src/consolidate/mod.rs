//! Background consolidation: fewer entries to search, without losing any.
//!
//! ```text
//!  equal and nearly equal entries ──► the oldest is kept warm and counts the others, which go cold
//!  old sessions ──► chunks ──► a summary that cites its sources, which go cold
//! ```
//!
//! *Cold* is a mark in the log, like any other change: reads of the past are unaffected, exports contain all entries, and a
//! search finds cold entries if the caller asks for them, or through the summary that cites them (`reach`). Nothing is
//! deleted here.
//!
//! Every step is one transaction, and the remaining steps follow from the entries that are still warm. So a run can be
//! interrupted anywhere, and the next one continues; a run with nothing to do changes nothing.

mod digest;
mod llm;
mod plan;
mod reach;
mod run;
mod sentences;
#[cfg(test)]
mod tests;
mod twins;

pub use digest::{ExtractiveSummariser, Source, SummariseError, Summariser, readable};
pub use llm::Chat;
pub use plan::{Plan, RollUp};
pub use reach::{KIND_SUMMARY, sources_of};
pub use run::{ConsolidateOptions, ConsolidateReport};
pub use twins::DuplicateGroup;

/// Which entries may be consolidated, and how.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Policy {
    /// Only sessions whose entries are older than this are rolled up.
    pub older_than_ms: u64,
    /// Entries with a higher importance stay warm.
    pub keep_importance_above: f32,
    /// Whether entries with equal texts are joined.
    pub join_duplicates: bool,
    /// The least similarity (0 to 1) at which entries are joined; `None` joins equal texts only.
    pub near_duplicate: Option<f32>,
    /// Entries per summary.
    pub chunk_entries: usize,
    /// Stop when this share of the warm entries is left; `None` to continue to the end.
    pub target_share: Option<f32>,
}

impl Policy {
    /// Suitable for a working agent: entries stay unchanged for a month.
    pub const fn usual() -> Self {
        Self {
            older_than_ms: 30 * 24 * 60 * 60 * 1000,
            keep_importance_above: 0.7,
            join_duplicates: true,
            near_duplicate: Some(0.9),
            chunk_entries: 16,
            target_share: None,
        }
    }
}
