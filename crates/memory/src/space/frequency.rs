//! How common a term is in a space.

/// How many rows had a term, when the space had `rows` rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frequency {
    pub(crate) count: u64,
    pub(crate) rows: u32,
}

impl Frequency {
    /// Counts only help to choose between terms; they may be 10 % off.
    pub(crate) fn is_fresh(self, rows: u32) -> bool {
        rows >= self.rows && rows - self.rows <= self.rows / 10
    }
}
