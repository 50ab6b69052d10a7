//! Pages of the lists of memory: what a request asks for, and the page of the response.

use burrow_api::defaults::{PAGE_LIMIT, PAGE_LIMIT_MAX};
use burrow_http::error::ApiError;
use burrow_memory::PageRequest;

/// The requested page of a list.
pub(super) fn page_request(cursor: Option<String>, limit: Option<u32>) -> Result<PageRequest, ApiError> {
    let limit = limit.unwrap_or(PAGE_LIMIT);
    if !(1..=PAGE_LIMIT_MAX).contains(&limit) {
        return Err(ApiError::invalid(format!("`limit` must be from 1 to {PAGE_LIMIT_MAX}, not {limit}")));
    }
    Ok(PageRequest { cursor, limit })
}

/// A page of a list, in the types of the API.
pub(super) fn memory_page<R, T>(
    page: burrow_memory::Page<R>,
    convert: impl FnMut(R) -> T,
) -> burrow_api::Page<T> {
    burrow_api::Page { items: page.rows.into_iter().map(convert).collect(), next_cursor: page.next_cursor }
}
