//! Lists: one page, or all pages.

use burrow_api::Page;
use serde::de::DeserializeOwned;

use crate::url::Path;
use crate::{Client, ClientError};

/// Selects a page of a list.
#[derive(Clone, Debug, Default)]
pub struct PageQuery {
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
    pub limit: Option<u32>,
}

/// Maximum number of pages to follow, ten million entries in pages of the largest size: a daemon that never stops returning
/// cursors cannot block the client.
const PAGES_MAX: u32 = 10_000;

impl Client {
    pub(crate) async fn page<T: DeserializeOwned>(
        &self,
        path: Path,
        query: &PageQuery,
    ) -> Result<Page<T>, ClientError> {
        self.get(path.query_if("cursor", query.cursor.as_ref()).query_if("limit", query.limit)).await
    }

    pub(crate) async fn all_pages<T: DeserializeOwned>(&self, path: Path) -> Result<Vec<T>, ClientError> {
        let mut query = PageQuery { cursor: None, limit: Some(burrow_api::defaults::PAGE_LIMIT_MAX) };
        let mut items = Vec::new();
        for _ in 0..PAGES_MAX {
            let page: Page<T> = self.page(path.clone(), &query).await?;
            items.extend(page.items);
            match page.next_cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => break,
            }
        }
        Ok(items)
    }
}
