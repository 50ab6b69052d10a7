//! A read transaction: one moment of a space as one view sees it.

use rusqlite::Connection;

use super::Space;
use super::arena::Row;
use super::chain::Chain;
use super::visibility::Visibility;

/// One read transaction. All results are from the same moment.
#[derive(Debug)]
pub struct Reader<'a> {
    pub(crate) space: &'a Space,
    pub(crate) connection: &'a Connection,
    pub(crate) visibility: Visibility,
    pub(crate) now_ms: u64,
}

/// The columns of a row, without its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    pub seq: u64,
    pub at_ms: u64,
    pub importance: f32,
    pub kind: std::sync::Arc<str>,
    pub session: Option<std::sync::Arc<str>>,
    pub cold: bool,
}

impl<'a> Reader<'a> {
    /// The transaction. `sees(branch, seq)` returns whether this view sees a row of the log.
    pub fn connection(&self) -> &'a Connection {
        self.connection
    }

    pub fn chain(&self) -> &Chain {
        &self.visibility.chain
    }

    /// The time of the read.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// On the chain, the newest version, and not forgotten. Cold and superseded entries are visible.
    pub fn visible(&self, row: Row) -> bool {
        self.visibility.visible(row)
    }

    /// Whether it is cold: searches find it only if they include cold entries.
    pub fn cold(&self, row: Row) -> bool {
        self.visibility.cold(row)
    }

    /// The entry that supersedes it, if any.
    pub fn superseded_by(&self, row: Row) -> Option<Row> {
        self.visibility.superseded_by(row)
    }

    pub fn column(&self, row: Row) -> Option<Columns> {
        let (chunk, slot) = self.visibility.arena.place(row)?;
        let words = &self.visibility.arena.words;
        Some(Columns {
            seq: chunk.seq[slot],
            at_ms: chunk.at_ms[slot],
            importance: chunk.importance[slot],
            kind: words.word(chunk.kind[slot]).unwrap_or_else(|| "".into()),
            session: words.word(chunk.session[slot]),
            cold: self.cold(row),
        })
    }

    /// Visible rows, newest first.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.visibility.arena.rows_down().filter(|row| self.visible(*row))
    }

    /// The number of visible rows.
    pub fn len(&self) -> u64 {
        self.visibility.count()
    }

    /// The highest sequence number that this view sees.
    pub fn seq(&self) -> u64 {
        let seen = self.visibility.chain.links().map(|(branch, bound)| bound.min(self.space.head(branch)));
        seen.max().unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }
}
