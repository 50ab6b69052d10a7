//! Converts between the API and the types of the memory crate.

mod entries;
mod kv;
mod search;
mod skills;
mod spaces;
mod upkeep;

pub use entries::{
    added_entry, conditions, entry_change, erased, forgotten, memory_entry, memory_id, memory_session,
    memory_version, new_entry, which,
};
pub use kv::{artifact, kv_event, kv_item, kv_operation, kv_version};
pub use search::{context_block, context_request, found, messages, related, search, stored_turn};
pub use skills::{new_skill, outcome, skill};
pub(super) use spaces::sandbox_memory;
pub use spaces::{check_description, check_labels, memory_change, memory_spec, space, space_name};
pub use upkeep::{consolidate_plan, consolidated, memory_check, memory_stats, merge_options, merged};

use std::ops::RangeInclusive;

use crate::error::ApiError;

/// Maximum length of a query: that of an entry.
const QUERY_BYTES_MAX: usize = 64 << 10;

/// A given number, or its default, within limits.
pub fn bounded(
    field: &str,
    given: Option<u32>,
    default: u32,
    bounds: RangeInclusive<u32>,
) -> Result<u32, ApiError> {
    let number = given.unwrap_or(default);
    if bounds.contains(&number) {
        return Ok(number);
    }
    Err(ApiError::invalid(format!("`{field}` must be from {} to {}", bounds.start(), bounds.end())))
}

pub fn check_query(query: &str) -> Result<(), ApiError> {
    if query.trim().is_empty() {
        return Err(ApiError::invalid("`query` is empty"));
    }
    if query.len() > QUERY_BYTES_MAX {
        let message = format!("`query` is {} bytes long; the limit is {QUERY_BYTES_MAX}", query.len());
        return Err(ApiError::new(burrow_api::ErrorCode::TooLarge, message)
            .hint("shorten the query to its significant words"));
    }
    Ok(())
}

/// Seconds of a request as milliseconds.
fn millis(field: &str, seconds: u64) -> Result<u64, ApiError> {
    seconds.checked_mul(1000).ok_or_else(|| ApiError::invalid(format!("`{field}` is too long")))
}
