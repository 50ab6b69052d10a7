//! From a summary to its sources.
//!
//! A search covers warm entries. If a summary is among the best hits, its cold sources are searched as well, so
//! details are found in their original wording.

use burrow_model::MemoryId;
use rusqlite::OptionalExtension;

use crate::space::load::damaged;
use crate::{MemoryError, Reader, Row};

/// The kind of summaries.
pub const KIND_SUMMARY: &str = "summary";

/// The visible rows that a summary cites, in the order of their times. Empty for entries that are not summaries.
pub fn sources_of(reader: &Reader<'_>, summary: Row) -> Result<Vec<Row>, MemoryError> {
    if reader.column(summary).is_none_or(|columns| &*columns.kind != KIND_SUMMARY) {
        return Ok(Vec::new());
    }
    let mut statement = reader.connection().prepare_cached("SELECT links FROM texts WHERE row = ?")?;
    let links: Option<Option<String>> =
        statement.query_row([summary.number()], |row| row.get(0)).optional()?;
    let Some(links) = links.flatten() else { return Ok(Vec::new()) };
    let bad = |error: serde_json::Error| damaged(format!("the sources of a summary cannot be read: {error}"));
    let ids: Vec<MemoryId> = serde_json::from_str(&links).map_err(bad)?;
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        rows.extend(reader.row_of(&id)?.filter(|row| reader.visible(*row)));
    }
    Ok(rows)
}

impl Reader<'_> {
    /// Whether any entry, on any branch, has this kind: if none has, no search for it is needed.
    pub(crate) fn has_kind(&self, kind: &str) -> bool {
        self.visibility.arena.words.number(kind).is_some()
    }
}
