//! Inside a read: one moment of the space as one view sees it.

use rusqlite::Connection;

use super::Space;
use super::arena::Row;
use super::chain::Chain;
use super::lens::Lens;

/// One read transaction. Everything it answers is of the same moment.
#[derive(Debug)]
pub struct Reader<'a> {
    pub(crate) space: &'a Space,
    pub(crate) connection: &'a Connection,
    pub(crate) lens: Lens,
    pub(crate) now_ms: u64,
}

/// What is known of a row without reading its text.
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
    /// The transaction. `sees(branch, seq)` tells which rows of the log this view sees.
    pub fn connection(&self) -> &'a Connection {
        self.connection
    }

    pub fn chain(&self) -> &Chain {
        &self.lens.chain
    }

    /// The time of the read.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// On the chain, the newest version, and not forgotten. Cold and superseded entries are visible.
    pub fn visible(&self, row: Row) -> bool {
        self.lens.visible(row)
    }

    /// Decayed: search reaches it only when asked to.
    pub fn cold(&self, row: Row) -> bool {
        self.lens.cold(row)
    }

    /// What replaces it as the truth, if anything does.
    pub fn superseded_by(&self, row: Row) -> Option<Row> {
        self.lens.superseded_by(row)
    }

    pub fn column(&self, row: Row) -> Option<Columns> {
        let (chunk, slot) = self.lens.arena.place(row)?;
        let words = &self.lens.arena.words;
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
        self.lens.arena.rows_down().filter(|row| self.visible(*row))
    }

    /// How many rows are visible.
    pub fn len(&self) -> u64 {
        self.lens.count()
    }

    /// The highest number this view sees.
    pub fn seq(&self) -> u64 {
        let seen = self.lens.chain.links().map(|(branch, bound)| bound.min(self.space.head(branch)));
        seen.max().unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }
}
