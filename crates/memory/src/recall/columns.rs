//! Access for ranking, in addition to the arms.

use std::sync::Arc;

use crate::space::signs;
use crate::{MemoryError, Reader, Row};

impl Reader<'_> {
    pub(super) fn at_ms(&self, row: Row) -> Option<u64> {
        self.visibility.arena.place(row).map(|(chunk, slot)| chunk.at_ms[slot])
    }

    pub(super) fn importance(&self, row: Row) -> f32 {
        self.visibility
            .arena
            .place(row)
            .map_or(crate::IMPORTANCE_USUAL, |(chunk, slot)| chunk.importance[slot])
    }

    /// The authors of an entry: its user and its agent.
    pub(super) fn by(&self, row: Row) -> Vec<Arc<str>> {
        let Some((chunk, slot)) = self.visibility.arena.place(row) else { return Vec::new() };
        let words = [chunk.user[slot], chunk.agent[slot]];
        words
            .into_iter()
            .filter(|no| *no != 0)
            .filter_map(|no| self.visibility.arena.words.word(no))
            .collect()
    }

    /// Rows of the space on all branches, like the counts of words. For weighting, not for output.
    pub(super) fn rows_about(&self) -> u64 {
        u64::from(self.visibility.arena.end.saturating_sub(1))
    }

    /// The number of visible entries, and of those with a vector of the current model.
    pub(super) fn counts(&self) -> (u64, u64) {
        let searched = self.len();
        match self.visibility.arena.pending {
            0 => (searched, searched),
            _ => (searched, self.rows().filter(|row| self.covered(*row)).count() as u64),
        }
    }

    /// The similarity of rows to a vector of length 1, for rows with a vector of the current model.
    pub(super) fn each_cosine(
        &self,
        vector: &[f32],
        rows: impl Iterator<Item = Row>,
        mut each: impl FnMut(Row, f32),
    ) -> Result<(), MemoryError> {
        let mut statement =
            self.connection.prepare_cached("SELECT scale, data FROM vectors WHERE row = ?")?;
        for row in rows.filter(|row| self.covered(*row)) {
            let mut found = statement.query([row.number()])?;
            if let Some(found) = found.next()? {
                #[expect(clippy::cast_possible_truncation, reason = "it was an f32 when it was written")]
                let scale = found.get::<_, f64>(0)? as f32;
                let data = found.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
                each(row, signs::cosine(vector, scale, data));
            }
        }
        Ok(())
    }

    /// Passes the texts of existing rows to `each`, without copying them. `rows` are sorted; those of one conversation are mostly
    /// adjacent, and are read in one go.
    pub(super) fn each_text(&self, rows: &[Row], mut each: impl FnMut(Row, &str)) -> Result<(), MemoryError> {
        let mut statement =
            self.connection.prepare_cached("SELECT row, text FROM texts WHERE row BETWEEN ? AND ?")?;
        for run in rows.chunk_by(|a, b| b.number() == a.number() + 1) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let mut found = statement.query([first.number(), last.number()])?;
            while let Some(found) = found.next()? {
                let row = Row(found.get(0)?);
                each(row, found.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?);
            }
        }
        Ok(())
    }
}
