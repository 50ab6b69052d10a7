//! Changes of the columns in RAM: collected while jobs run, applied after their commit.

use std::sync::Arc;

use super::arena::{Arena, ArenaRow, MARKED, Row, SUPERSEDED};
use super::chain::{Branch, BranchNo};
use super::marks::{Mark, PlacedMark};
use super::words::WordNo;

#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) rows: Vec<ArenaRow>,
    pub(crate) marks: Vec<(u32, PlacedMark)>,
    pub(crate) superseders: Vec<(u32, Row)>,
    pub(crate) words: Vec<(WordNo, String)>,
    pub(crate) branches: Vec<(BranchNo, Branch)>,
    pub(crate) heads: Vec<(BranchNo, u64)>,
    pub(crate) covered: Vec<(u32, Box<[u64]>)>,
    pub(crate) erased_rows: Vec<u32>,
    pub(crate) erased_entities: Vec<u32>,
    pub(crate) removed_words: Vec<WordNo>,
}

/// The length of each list before a job: rolling back a job truncates the lists.
pub(crate) struct ListLengths([usize; 10]);

impl Effects {
    pub(crate) fn mileage(&self) -> ListLengths {
        ListLengths([
            self.rows.len(),
            self.marks.len(),
            self.superseders.len(),
            self.words.len(),
            self.branches.len(),
            self.heads.len(),
            self.covered.len(),
            self.erased_rows.len(),
            self.erased_entities.len(),
            self.removed_words.len(),
        ])
    }

    pub(crate) fn take_back(&mut self, to: &ListLengths) {
        let [rows, marks, superseders, words, branches, heads, covered, erased, entities, removed] = to.0;
        self.rows.truncate(rows);
        self.marks.truncate(marks);
        self.superseders.truncate(superseders);
        self.words.truncate(words);
        self.branches.truncate(branches);
        self.heads.truncate(heads);
        self.covered.truncate(covered);
        self.erased_rows.truncate(erased);
        self.erased_entities.truncate(entities);
        self.removed_words.truncate(removed);
    }

    /// Updates the arena to the state of the file.
    pub(crate) fn apply(&self, arena: &mut Arena) {
        if !self.branches.is_empty() {
            let branches = Arc::make_mut(&mut arena.branches);
            for (no, branch) in &self.branches {
                branches.insert(*no, branch.clone());
            }
        }
        self.words.iter().for_each(|(no, word)| arena.words.insert(*no, word));
        for row in &self.rows {
            arena.put(row);
            if row.row != row.entity {
                let mark = Mark::Version(Row(row.row));
                insert_mark(arena, row.entity, PlacedMark { seq: row.seq, branch: row.branch, mark });
            }
            if !arena.marks.superseders(row.entity).is_empty() {
                arena.raise(row.row, SUPERSEDED);
            }
        }
        self.marks.iter().for_each(|(entity, marked)| insert_mark(arena, *entity, *marked));
        for (target, row) in &self.superseders {
            arena.marks.insert_superseder(*target, *row);
            arena.raise_entity(*target, SUPERSEDED);
        }
        self.covered.iter().for_each(|(row, signs)| arena.cover(*row, signs));
        self.erased_rows.iter().for_each(|row| arena.erase(*row));
        self.erased_entities.iter().for_each(|entity| arena.marks.remove(*entity));
        self.removed_words.iter().for_each(|no| arena.words.remove(*no));
    }
}

/// Adds a mark. The entry's first version is added before it, because the list was not needed until now.
pub(crate) fn insert_mark(arena: &Arena, entity: u32, marked: PlacedMark) {
    let first = Row(entity);
    if let Some((chunk, slot)) = arena.place(first) {
        let (seq, branch) = (chunk.seq[slot], chunk.branch[slot]);
        arena.marks.insert(entity, PlacedMark { seq, branch, mark: Mark::Version(first) });
    }
    arena.marks.insert(entity, marked);
    arena.raise_entity(entity, MARKED);
}
