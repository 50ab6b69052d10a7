//! The memory of agents: working, episodic and procedural memory, and artifacts, as state of the machine.
//!
//! ```text
//!  Memory ──► View (space, branch, moment) ──► read(|reader| …)    one read transaction: arena + SQLite
//!                                         └──► write(|writer| …)   queued, one commit for many
//! ```
//!
//! One SQLite file per space contains one append-only log. Every row has a sequence number and a branch. A branch sees its
//! own rows, and those of its ancestors up to the points where it was forked ([`Chain`]). So a fork, a snapshot and a restore write
//! nothing. All queries apply this one rule, so a branch cannot find rows that it cannot see.
//!
//! Needs no LLM. Does not know sandboxes: the engine passes the [`MemoryRef`] of each.

mod arms;
pub mod artifacts;
mod backup;
mod check;
mod clock;
mod collect;
pub mod consolidate;
pub mod context;
pub mod embed;
mod entries;
mod error;
pub mod kv;
pub mod limits;
mod memory;
pub mod merge;
pub mod moving;
mod newest;
mod page;
pub mod recall;
pub mod remember;
mod shown;
mod simd;
pub mod skills;
mod space;
#[cfg(test)]
mod testing;
mod view;
mod work;

pub use arms::{LexicalResult, QueryTerm};
pub use backup::Blob;
pub use burrow_model::{BranchId, MemoryId, MemoryPoint, MemoryRef, SpaceId};
pub use check::{CheckReport, Finding};
pub use clock::{Clock, ManualClock, SystemClock};
pub use collect::{COLLECT_GRACE_MS, CollectReport, KeptReference};
pub use embed::{Embedder, ModelId};
pub use entries::{
    AddResult, Condition, EXPORT_VERSION, Entry, EntryChange, EntrySelection, EraseReport, ExportLine,
    Filter, ForgetReport, IMPORTANCE_USUAL, ImportReport, KIND_NOTE, NewEntry, Op, SESSION_GAP_MS,
    SessionInfo, Sieve, Stats, VectorStats, Version, VersionKind,
};
pub use error::MemoryError;
pub use limits::Limits;
pub use memory::{Memory, MemoryOptions};
pub use page::{PAGE_LIMIT_MAX, Page, PageRequest};
pub use space::FORMAT_VERSION;
pub use space::arena::Row;
pub use space::chain::{BranchNo, Chain};
pub use space::reader::{Columns, Reader};
pub use space::writer::{LogKind, Writer};
pub use view::{AsOf, View};
pub use work::{Budget, WorkReport};

/// Runs work on a thread that may block.
pub(crate) async fn blocking<T, F>(work: F) -> Result<T, MemoryError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, MemoryError> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => Err(MemoryError::Panicked),
        Err(_) => Err(MemoryError::Closed),
    }
}
