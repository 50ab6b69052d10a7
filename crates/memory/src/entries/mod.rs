//! Episodic memory: entries, their versions and marks.

mod add;
mod erase;
mod export;
mod fetch;
mod filter;
mod forget;
mod list;
pub(crate) mod put;
mod sieve;
mod stats;
pub(crate) mod tags;
mod types;
mod update;
pub(crate) mod valid;

pub(crate) use add::{add, by_key, embed_now, remember_key, twin};
pub use export::EXPORT_VERSION;
pub use export::{ExportLine, ImportReport};
pub(crate) use fetch::fetch;
pub use filter::{Condition, Filter, Op};
pub(crate) use list::RecentSession;
pub use list::SESSION_GAP_MS;
pub use sieve::Sieve;
pub use types::{
    AddResult, Entry, EntryChange, EntrySelection, EraseReport, ForgetReport, IMPORTANCE_USUAL, KIND_NOTE,
    NewEntry, SessionInfo, Stats, VectorStats, Version, VersionKind,
};
pub(crate) use update::{content_of, unpacked, update};
