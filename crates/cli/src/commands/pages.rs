//! Lists that are read page by page.

use burrow_api::Page;
use burrow_api::defaults::PAGE_LIMIT_MAX;
use burrow_client::{ClientError, PageQuery};

/// At most `limit` items, and whether there are more.
pub(super) async fn read<T>(
    limit: usize,
    fetch: impl AsyncFn(&PageQuery) -> Result<Page<T>, ClientError>,
) -> Result<(Vec<T>, bool), ClientError> {
    let mut query = PageQuery::default();
    let (mut items, mut more) = (Vec::new(), true);
    while more && items.len() < limit {
        let left = u32::try_from(limit - items.len()).unwrap_or(PAGE_LIMIT_MAX);
        query.limit = Some(left.min(PAGE_LIMIT_MAX));
        let page = fetch(&query).await?;
        items.extend(page.items);
        query.cursor = page.next_cursor;
        more = query.cursor.is_some();
    }
    Ok((items, more))
}
