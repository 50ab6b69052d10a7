//! Pages of long lists, newest first, and the cursors between them.
//!
//! A cursor names the last row of its page by (time, id). Rows inserted later are newer and sort before it, so no row is
//! shown twice and no row that existed is left out. To callers it is opaque.

use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;

use crate::CatalogError;

/// The maximum number of rows of one page: a thousand sandboxes are about a megabyte of JSON.
pub const PAGE_LIMIT_MAX: u32 = 1000;

/// The longest valid cursor has 20 digits, a dot and an id.
const CURSOR_LENGTH_MAX: usize = 128;

/// The requested part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// `None` for the first page, then each page's `next_cursor`.
    pub cursor: Option<String>,
    /// The maximum number of rows; clamped to 1 to [`PAGE_LIMIT_MAX`].
    pub limit: u32,
}

impl PageRequest {
    pub(crate) fn rows_max(&self) -> usize {
        self.limit.clamp(1, PAGE_LIMIT_MAX) as usize
    }

    /// Where the previous page ended.
    pub(crate) fn after<I: FromStr>(&self) -> Result<Option<(i64, I)>, CatalogError> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        parse(cursor).map(Some).ok_or(CatalogError::BadCursor)
    }
}

fn parse<I: FromStr>(cursor: &str) -> Option<(i64, I)> {
    if cursor.len() > CURSOR_LENGTH_MAX {
        return None;
    }
    let bytes = BASE64URL_NOPAD.decode(cursor.as_bytes()).ok()?;
    let (at_ms, id) = std::str::from_utf8(&bytes).ok()?.split_once('.')?;
    let at_ms = at_ms.parse().ok().filter(|at_ms: &i64| *at_ms >= 0)?;
    Some((at_ms, id.parse().ok()?))
}

#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// `None` on the last page.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page from rows that were queried with one more than the page contains, which shows whether another follows.
    pub(crate) fn cut(mut rows: Vec<T>, rows_max: usize, place: impl Fn(&T) -> (u64, &str)) -> Self {
        let more = rows.len() > rows_max;
        rows.truncate(rows_max);
        let next_cursor = rows.last().filter(|_| more).map(|row| {
            let (at_ms, id) = place(row);
            BASE64URL_NOPAD.encode(format!("{at_ms}.{id}").as_bytes())
        });
        Self { rows, next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_model::{KeyId, SandboxId};

    #[test]
    fn a_cursor_reads_back_and_suits_only_its_own_list() {
        let id = SandboxId::generate();
        let page = Page::cut(vec![id.clone(), id.clone()], 1, |id| (17, id.as_str()));
        let request = PageRequest { cursor: page.next_cursor, limit: 1 };
        assert_eq!(request.after::<SandboxId>().unwrap(), Some((17, id)));
        assert!(matches!(request.after::<KeyId>(), Err(CatalogError::BadCursor)));
    }

    #[test]
    fn a_made_up_cursor_is_refused() {
        for bad in ["", "!", "MTc", "LTEuc2J4", &"a".repeat(10_000), "MTcuc2J4", "é"] {
            let request = PageRequest { cursor: Some(bad.to_owned()), limit: 1 };
            assert!(matches!(request.after::<SandboxId>(), Err(CatalogError::BadCursor)), "{bad:?}");
        }
    }

    #[test]
    fn a_limit_is_held_to_its_bounds() {
        assert_eq!(PageRequest { cursor: None, limit: 0 }.rows_max(), 1);
        assert_eq!(PageRequest { cursor: None, limit: u32::MAX }.rows_max(), 1000);
    }
}
