//! Pages of lists.

use burrow_catalog::PageRequest;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;

/// The requested page of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PageParams {
    /// `next_cursor` of the previous page.
    #[param(max_length = 256)]
    pub cursor: Option<String>,
    /// Maximum number of entries; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

impl PageParams {
    pub fn request(self) -> Result<PageRequest, ApiError> {
        use burrow_api::defaults::{PAGE_LIMIT, PAGE_LIMIT_MAX};
        let limit = self.limit.unwrap_or(PAGE_LIMIT);
        if !(1..=PAGE_LIMIT_MAX).contains(&limit) {
            return Err(ApiError::invalid(format!(
                "`limit` must be from 1 to {PAGE_LIMIT_MAX}, not {limit}"
            )));
        }
        Ok(PageRequest { cursor: self.cursor, limit })
    }
}

/// Converts the items of a page.
pub fn page<R, T>(page: burrow_catalog::Page<R>, convert: impl FnMut(R) -> T) -> burrow_api::Page<T> {
    burrow_api::Page { items: page.rows.into_iter().map(convert).collect(), next_cursor: page.next_cursor }
}

/// A page of a list that is complete in memory. The cursor is the id of the last entry of the previous page.
pub fn page_of_list<T>(
    mut items: Vec<T>,
    request: &PageRequest,
    id: impl Fn(&T) -> &str,
) -> Result<burrow_api::Page<T>, ApiError> {
    if let Some(cursor) = &request.cursor {
        let place = items.iter().position(|item| id(item) == cursor);
        let place = place.ok_or(burrow_catalog::CatalogError::BadCursor)?;
        items.drain(..=place);
    }
    let limit = request.limit as usize;
    let more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|item| id(item).to_owned());
    Ok(burrow_api::Page { items, next_cursor })
}
