//! Background consolidation: memory gets smaller to search and loses nothing.
//!
//! ```text
//!  equal and nearly equal entries ──► the oldest is kept warm and counts the others, which go cold
//!  old sessions ──► chunks ──► a summary that cites its sources, which go cold
//! ```
//!
//! *Cold* is a mark in the log, like any other change: reads of the past see what was, exports have everything, and a
//! search reaches cold entries when asked to, or through the summary that stands for them (`reach`). Nothing is ever
//! deleted here.
//!
//! Every step is one transaction of its own, and what is left to do follows from what is warm. So a run can be cut off
//! anywhere, and the next one goes on; a run with nothing to do changes nothing.

mod digest;
mod llm;
mod plan;
mod reach;
mod run;
mod sentences;
#[cfg(test)]
mod tests;
mod twins;

pub use digest::{Extractive, Source, SummariseError, Summariser, readable};
pub use llm::Chat;
pub use plan::{Plan, RollUp};
pub use reach::{KIND_SUMMARY, sources_of};
pub use run::{ConsolidateOptions, Consolidated};
pub use twins::Join;

/// What may be done to which entries.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Policy {
    /// Only sessions whose entries are older than this are rolled up.
    pub older_than_ms: u64,
    /// What is more important than this stays warm.
    pub keep_importance_above: f32,
    /// Whether entries that say the same are joined.
    pub join_duplicates: bool,
    /// And from which likeness on (0 to 1); `None` for equal texts only.
    pub near_duplicate: Option<f32>,
    /// Entries that one summary stands for.
    pub chunk_entries: usize,
    /// Stop when this share of what was warm is left; `None` to go on to the end.
    pub target_share: Option<f32>,
}

impl Policy {
    /// What suits an agent at work: a month stays as it was.
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
