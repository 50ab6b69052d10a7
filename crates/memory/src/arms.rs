//! The arms of recall: what a view finds by words, by meaning, and by what stood beside it.
//!
//! Every arm asks whether a row is visible before it ranks it; what a branch cannot see takes no place among the hits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::PoisonError;

use rusqlite::OptionalExtension;

use crate::MemoryError;
use crate::space::arena::{CHUNK_ROWS, Row};
use crate::space::reader::Reader;
use crate::space::signs;
use crate::translated;

/// Rows that one question ranks by words: some 5 ms of work. Terms are taken from the rarest on until they have so many;
/// what is commoner tells little. A question of common terms only gets the newest of them.
const RANKED_MAX: u64 = 20_000;

/// BM25's own: how much long texts are held back.
const K1: f32 = 1.2;
const B: f32 = 0.75;

/// A term is counted up to here: beyond it is common, whatever the count.
const COUNTED_MAX: u64 = 100_000;

/// Terms of one question.
const TERMS_MAX: usize = 64;

/// Terms whose count is kept; then all are forgotten, which costs one count each.
const FREQUENCIES_KEPT: usize = 10_000;

/// Rows that the scan of signs hands on to be guessed at, from their signs and the whole of the query. Where more are as
/// close, the newest of them.
const GUESSED_MIN: usize = 800;

/// Of those, the rows that are read and scored exactly: each is a place of its own in the file, and costs as much as the
/// guesses at a hundred. Recall of real questions is the same with 96 as with 500 among 100,000 entries.
const RESCORED_MIN: usize = 96;
const RESCORED_EACH: usize = 3;

/// Distances that are looked at in one step.
const PASSED_BY: usize = 32;

/// Rows of a session that are looked at for one neighbour that is visible.
const NEIGHBOURS_LOOKED_AT: usize = 1024;

/// A word to look for, or several in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryTerm {
    pub text: String,
    /// Also what begins with it.
    pub prefix: bool,
}

impl QueryTerm {
    pub fn word(text: impl Into<String>) -> Self {
        Self { text: text.into(), prefix: false }
    }

    /// As the text index wants it: quoted, so that no word of a question is an operator.
    fn expression(&self) -> Option<String> {
        if !self.text.chars().any(char::is_alphanumeric) {
            return None;
        }
        let text: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let star = if self.prefix { "*" } else { "" };
        Some(format!("\"{}\"{star}", text.replace('"', "\"\"")))
    }
}

/// What the words of a question found.
#[derive(Clone, Debug, PartialEq)]
pub struct Lexical {
    /// By BM25, each term counted once; higher is better.
    pub hits: Vec<(Row, f32)>,
    /// Terms so common that they were not looked for.
    pub left_out: Vec<QueryTerm>,
}

/// How many rows have a term, when the space had so many rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frequency {
    count: u64,
    rows: u32,
}

impl Frequency {
    /// Counts are for choosing between terms; they may be a tenth off.
    fn is_fresh(self, rows: u32) -> bool {
        rows >= self.rows && rows - self.rows <= self.rows / 10
    }
}

#[derive(PartialEq)]
struct Ranked(f32, Row);

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    /// The worst is the greatest, so that a heap gives it away first; of equals the older.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

/// The best so many.
struct Best {
    heap: BinaryHeap<Ranked>,
    limit: usize,
}

impl Best {
    fn new(limit: usize) -> Self {
        Self { heap: BinaryHeap::with_capacity(limit.saturating_add(1).min(CHUNK_ROWS)), limit }
    }

    /// Whether this score would be among them.
    fn wants(&self, score: f32) -> bool {
        self.heap.len() < self.limit || self.heap.peek().is_some_and(|worst| score > worst.0)
    }

    fn offer(&mut self, score: f32, row: Row) {
        self.heap.push(Ranked(score, row));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    fn sorted(self) -> Vec<(Row, f32)> {
        self.heap.into_sorted_vec().into_iter().map(|Ranked(score, row)| (row, score)).collect()
    }
}

/// How often each distance below `end` is there. Most are nearly the same, so by turns they are counted in four places: a
/// count would else wait for the one before it.
fn counted(distances: &[u16], end: usize) -> Vec<usize> {
    let mut counts = vec![[0u32; 4]; end];
    for group in distances.chunks(4) {
        group.iter().zip(0..).for_each(|(distance, turn)| counts[usize::from(*distance)][turn] += 1);
    }
    counts.iter().map(|turns| turns.iter().map(|count| *count as usize).sum()).collect()
}

/// Terms that are looked for, each as an expression with the rows it has; and those that are too common.
struct Chosen {
    taken: Vec<(String, u64)>,
    left_out: Vec<QueryTerm>,
}

impl Reader<'_> {
    /// Visible rows that have any of the terms, the best first.
    pub fn lexical(&self, terms: &[QueryTerm], limit: usize) -> Result<Lexical, MemoryError> {
        self.lexical_where(terms, limit, &|_| true)
    }

    /// As [`Reader::lexical`], of the rows that `admit` lets through.
    pub fn lexical_where(
        &self,
        terms: &[QueryTerm],
        limit: usize,
        admit: &dyn Fn(Row) -> bool,
    ) -> Result<Lexical, MemoryError> {
        let Chosen { taken, left_out } = self.choose(terms)?;
        if taken.is_empty() || limit == 0 {
            return Ok(Lexical { hits: Vec::new(), left_out });
        }
        let found = self.postings(&taken)?;
        let lengths = found.iter().map(|(row, _)| self.bytes(*row)).sum::<f32>();
        let mean = lengths / (found.len().max(1) as f32);
        let mut best = Best::new(limit);
        for of_row in found.chunk_by(|a, b| a.0 == b.0) {
            let row = of_row[0].0;
            let rarity: f32 = of_row.iter().map(|(_, rarity)| rarity).sum();
            let score = rarity * (K1 + 1.0) / (1.0 + K1 * (1.0 - B + B * self.bytes(row) / mean.max(1.0)));
            if best.wants(score) && admit(row) {
                best.offer(score, row);
            }
        }
        Ok(Lexical { hits: best.sorted(), left_out })
    }

    /// The visible rows of each term with what having it counts, the newest first; at most [`RANKED_MAX`] of one term.
    ///
    /// The index's own ranking would look up the length of every row, and count a word as often as it stands there: two
    /// thirds of all its time, for what is compared word by word afterwards anyway.
    fn postings(&self, terms: &[(String, u64)]) -> Result<Vec<(Row, f32)>, MemoryError> {
        let entries = f64::from(self.lens.arena.end);
        let mut statement =
            self.connection.prepare_cached("SELECT rowid FROM fts WHERE fts MATCH ? ORDER BY rowid DESC")?;
        let mut found = Vec::new();
        for (expression, count) in terms {
            let count = *count as f64;
            let rarity = (1.0 + (entries - count + 0.5).max(0.5) / (count + 0.5)).ln() as f32;
            let mut rows = statement.query([expression])?;
            let mut ranked = 0;
            while let Some(row) = rows.next()? {
                let row = Row(row.get(0)?);
                if self.visible(row) {
                    found.push((row, rarity));
                    ranked += 1;
                }
                if ranked >= RANKED_MAX {
                    break;
                }
            }
        }
        // Runs in order, one per term: merging them is all there is to do.
        found.sort_by_key(|(row, _)| Reverse(*row));
        Ok(found)
    }

    fn bytes(&self, row: Row) -> f32 {
        self.lens.arena.place(row).map_or(0.0, |(chunk, slot)| chunk.bytes[slot] as f32)
    }

    /// Terms from the rarest on, while they have not too many rows; at least one.
    fn choose(&self, terms: &[QueryTerm]) -> Result<Chosen, MemoryError> {
        let mut known = BTreeMap::new();
        for term in terms.iter().take(TERMS_MAX) {
            if let Some(expression) = term.expression() {
                known.entry(expression).or_insert(term);
            }
        }
        let mut counted = Vec::with_capacity(known.len());
        for (expression, term) in known {
            let count = self.count(&expression)?;
            if count > 0 {
                counted.push((count, expression, term));
            }
        }
        counted.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let (mut taken, mut left_out, mut sum) = (Vec::new(), Vec::new(), 0);
        for (count, expression, term) in counted {
            sum += count;
            if taken.is_empty() || sum <= RANKED_MAX {
                taken.push((expression, count));
            } else {
                left_out.push(term.clone());
            }
        }
        Ok(Chosen { taken, left_out })
    }

    /// About how many rows of the space have a term. For choosing and weighing terms, not for showing: it counts what
    /// other branches have, too.
    pub fn document_frequency(&self, term: &str) -> Result<u64, MemoryError> {
        QueryTerm::word(term).expression().map_or(Ok(0), |expression| self.count(&expression))
    }

    fn count(&self, expression: &str) -> Result<u64, MemoryError> {
        let rows = self.lens.arena.end;
        {
            let known = self.space.frequencies.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(frequency) = known.get(expression).filter(|frequency| frequency.is_fresh(rows)) {
                return Ok(frequency.count);
            }
        }
        let mut statement = self
            .connection
            .prepare_cached("SELECT count(*) FROM (SELECT rowid FROM fts WHERE fts MATCH ?1 LIMIT ?2)")?;
        let count = statement
            .query_row((expression, crate::space::load::integer(COUNTED_MAX)), |row| {
                crate::space::load::unsigned(row, 0)
            })
            .optional()?
            .unwrap_or(0);
        let mut known = self.space.frequencies.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= FREQUENCIES_KEPT {
            known.clear();
        }
        known.insert(expression.to_owned(), Frequency { count, rows });
        Ok(count)
    }

    /// Visible rows whose vectors point where this one does, the closest first. The vector has to be of the model in use.
    pub fn nearest(
        &self,
        vector: &[f32],
        limit: usize,
        admit: &dyn Fn(Row) -> bool,
    ) -> Result<Vec<(Row, f32)>, MemoryError> {
        let wanted = signs::of(vector);
        let arena = &self.lens.arena;
        if wanted.len() != arena.stride || limit == 0 || arena.stride == 0 {
            return Ok(Vec::new());
        }
        let rescored = RESCORED_MIN.max(limit.saturating_mul(RESCORED_EACH));
        let close = self.close(&wanted, rescored.max(GUESSED_MIN), admit);
        let guess = signs::Guess::of(vector);
        let mut likely = Best::new(rescored);
        for row in close {
            if let Some((chunk, slot)) = arena.place(row) {
                let score = guess.score(&chunk.signs[slot * arena.stride..(slot + 1) * arena.stride]);
                if likely.wants(score) {
                    likely.offer(score, row);
                }
            }
        }
        let mut rows: Vec<Row> = likely.heap.into_iter().map(|ranked| ranked.1).collect();
        // In the order of the file.
        rows.sort_unstable();
        self.rescored(vector, &rows, limit)
    }

    /// About so many visible rows whose signs differ least from these.
    ///
    /// All distances are taken first, and counted; then rows are asked whether they are visible and admitted, from the
    /// closest on, until there are enough: a branch that sees few of many rows gets as many as one that sees all.
    fn close(&self, wanted: &[u64], count: usize, admit: &dyn Fn(Row) -> bool) -> Vec<Row> {
        let arena = &self.lens.arena;
        let mut distances = Vec::with_capacity(arena.chunks.len() * CHUNK_ROWS);
        arena.chunks.iter().for_each(|chunk| translated::distances(&chunk.signs, wanted, &mut distances));
        let counts = counted(&distances, wanted.len() * 64 + 1);
        let mut found = Vec::with_capacity(count);
        let (mut least, mut looked_at) = (0, 0);
        while found.len() < count && least < counts.len() {
            // At first as many as are wanted; then, since many of those were not visible, four times as many.
            let aim = if least == 0 { count } else { looked_at * 4 };
            let mut most = least;
            while most < counts.len() && looked_at < aim.max(1) {
                looked_at += counts[most];
                most += 1;
            }
            let near = least as u16..most as u16;
            // Few are near: those that are not are passed by many at a time.
            for (at, group) in distances.chunks(PASSED_BY).enumerate().rev() {
                if !group.iter().fold(false, |any, distance| any | near.contains(distance)) {
                    continue;
                }
                for (slot, distance) in group.iter().enumerate().rev() {
                    let row = Row((at * PASSED_BY + slot) as u32);
                    if near.contains(distance) && self.covered(row) && self.visible(row) && admit(row) {
                        found.push(row);
                        if found.len() >= count * 2 {
                            return found;
                        }
                    }
                }
            }
            least = most;
        }
        found
    }

    fn rescored(&self, vector: &[f32], rows: &[Row], limit: usize) -> Result<Vec<(Row, f32)>, MemoryError> {
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        if length == 0.0 || !length.is_finite() {
            return Ok(Vec::new());
        }
        let query: Vec<f32> = vector.iter().map(|value| value / length).collect();
        let mut statement =
            self.connection.prepare_cached("SELECT scale, data FROM vectors WHERE row = ?")?;
        let mut best = Best::new(limit);
        for row in rows {
            let mut found = statement.query([row.number()])?;
            if let Some(found) = found.next()? {
                let scale = found.get::<_, f64>(0)? as f32;
                let data = found.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
                best.offer(signs::cosine(&query, scale, data), *row);
            }
        }
        Ok(best.sorted())
    }

    /// The vectors of rows, of length one; `None` where there is none of the model in use.
    pub fn vectors(&self, rows: &[Row]) -> Result<Vec<Option<Vec<f32>>>, MemoryError> {
        let mut statement =
            self.connection.prepare_cached("SELECT scale, data FROM vectors WHERE row = ?")?;
        let mut vector = |row: &Row| {
            if !self.covered(*row) {
                return Ok(None);
            }
            let unpack = |found: &rusqlite::Row<'_>| {
                let data = found.get_ref(1)?.as_blob()?;
                Ok(signs::unpack(found.get::<_, f64>(0)? as f32, data))
            };
            Ok(statement.query_row([row.number()], unpack).optional()?)
        };
        rows.iter().map(&mut vector).collect()
    }

    /// Whether a row has a vector of the model in use.
    pub fn covered(&self, row: Row) -> bool {
        self.lens.arena.place(row).is_some_and(|(chunk, slot)| chunk.covered[slot])
    }

    /// What happened just before and after, in the same session, as far as it is visible; in that order.
    pub fn neighbours(&self, row: Row, before: usize, after: usize) -> Vec<Row> {
        let arena = &self.lens.arena;
        let Some((chunk, slot)) = arena.place(row) else { return Vec::new() };
        let session = chunk.session[slot];
        if session == 0 {
            return Vec::new();
        }
        let place = (session, chunk.at_ms[slot], chunk.entity[slot], row.number());
        let admit = |row: u32| self.visible(Row(row));
        let mut found = arena.sessions.before(place, before, NEIGHBOURS_LOOKED_AT, admit);
        found.reverse();
        found.extend(arena.sessions.after(place, after, NEIGHBOURS_LOOKED_AT, admit));
        found.into_iter().map(Row).collect()
    }
}
