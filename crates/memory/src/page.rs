//! Pages of long lists, and the cursors between them.
//!
//! A cursor contains the position of the last row of its page. It is opaque to callers.

use data_encoding::BASE64URL_NOPAD;

use crate::MemoryError;

/// Most rows of one page.
pub const PAGE_LIMIT_MAX: u32 = 1000;

/// Longer than any valid cursor: a key of 512 bytes in base64.
const CURSOR_LENGTH_MAX: usize = 1024;

/// The requested part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// `None` for the first page, then each page's `next_cursor`.
    pub cursor: Option<String>,
    /// The maximum number of rows; limited to 1 to [`PAGE_LIMIT_MAX`].
    pub limit: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// `None` on the last page.
    pub next_cursor: Option<String>,
}

impl PageRequest {
    pub fn first(limit: u32) -> Self {
        Self { cursor: None, limit }
    }

    pub(crate) fn rows_max(&self) -> usize {
        self.limit.clamp(1, PAGE_LIMIT_MAX) as usize
    }

    /// The text that the previous page ended with.
    pub(crate) fn after(&self) -> Result<Option<String>, MemoryError> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let bad = || MemoryError::invalid("the cursor", "it does not belong to this list");
        if cursor.len() > CURSOR_LENGTH_MAX {
            return Err(bad());
        }
        let bytes = BASE64URL_NOPAD.decode(cursor.as_bytes()).map_err(|_| bad())?;
        String::from_utf8(bytes).map(Some).map_err(|_| bad())
    }

    /// The number that the previous page ended with.
    pub(crate) fn after_number(&self) -> Result<Option<u64>, MemoryError> {
        let bad = |_| MemoryError::invalid("the cursor", "it does not belong to this list");
        self.after()?.map(|text| text.parse().map_err(bad)).transpose()
    }
}

impl<T> Page<T> {
    /// Creates a page from rows that were read with one more than the limit; the extra row shows that another page follows.
    pub(crate) fn cut(mut rows: Vec<T>, rows_max: usize, place: impl Fn(&T) -> String) -> Self {
        let more = rows.len() > rows_max;
        rows.truncate(rows_max);
        let next_cursor =
            rows.last().filter(|_| more).map(|row| BASE64URL_NOPAD.encode(place(row).as_bytes()));
        Self { rows, next_cursor }
    }
}
