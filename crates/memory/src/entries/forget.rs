//! Forgets entries: a mark on this branch. The past and other branches still see them.

use burrow_model::MemoryId;

use super::filter::Filter;
use super::types::{EntrySelection, ForgetReport};
use crate::limits::{FORGOTTEN_SHOWN_MAX, IDS_MAX};
use crate::space::arena::Row;
use crate::space::marks::Mark;
use crate::space::reader::Reader;
use crate::{MemoryError, View};

/// Entries forgotten in one commit; more are forgotten in several commits.
const FORGOTTEN_AT_ONCE: usize = 5000;

impl View {
    /// Hides entries from this branch from now on.
    pub async fn forget(&self, what: &EntrySelection, dry_run: bool) -> Result<ForgetReport, MemoryError> {
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        let which = what.clone();
        let ids = self.read(move |reader| selected(reader, &which)).await?;
        let mut count = ids.len() as u64;
        if !dry_run {
            count = 0;
            for part in ids.chunks(FORGOTTEN_AT_ONCE) {
                count += self.mark(part, Mark::Forgotten).await?;
            }
        }
        Ok(ForgetReport { count, ids: ids.into_iter().take(FORGOTTEN_SHOWN_MAX).collect() })
    }
}

/// The selected visible entries.
fn selected(reader: &Reader<'_>, which: &EntrySelection) -> Result<Vec<MemoryId>, MemoryError> {
    let rows: Vec<Row> = match which {
        EntrySelection::Ids(ids) => {
            check_count(ids)?;
            let mut rows = Vec::new();
            for id in ids {
                rows.extend(reader.row_of(id)?);
            }
            rows.sort_unstable();
            rows.dedup();
            rows
        }
        EntrySelection::Filter(filter) => {
            let sieve = reader.filter(filter)?;
            reader.rows().filter(|row| sieve.admits(*row)).collect()
        }
        EntrySelection::OlderThanMs(age_ms) => {
            let filter = older(reader, *age_ms);
            let sieve = reader.filter(&filter)?;
            reader.rows().filter(|row| sieve.admits(*row)).collect()
        }
    };
    let mut ids = Vec::with_capacity(rows.len());
    for row in rows {
        ids.extend(reader.id_of(row)?);
    }
    Ok(ids)
}

pub(super) fn older(reader: &Reader<'_>, age_ms: u64) -> Filter {
    Filter { until_ms: Some(reader.now_ms().saturating_sub(age_ms)), ..Filter::everything() }
}

pub(super) fn check_count(ids: &[MemoryId]) -> Result<(), MemoryError> {
    if ids.len() > IDS_MAX {
        let why = format!("it has {} ids, the limit is {IDS_MAX}", ids.len());
        return Err(MemoryError::invalid("the list of ids", why));
    }
    Ok(())
}
