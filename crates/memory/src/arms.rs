//! The arms of recall: finding rows by words, by vectors, and by their neighbours in a session.
//!
//! Every arm checks that a row is visible before ranking it, so rows that a branch cannot see do not displace others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::PoisonError;

use rusqlite::OptionalExtension;

use crate::MemoryError;
use crate::simd;
use crate::space::arena::{CHUNK_ROWS, Row};
use crate::space::frequency::Frequency;
use crate::space::reader::Reader;
use crate::space::signs;

/// Rows that one query ranks by words: about 5 ms of work. Terms are added from the rarest on until this many rows
/// are reached. A query that has only common terms ranks the newest rows of one of them.
const RANKED_MAX: u64 = 20_000;

/// BM25's parameters: how fast repetitions saturate, and how much long texts are penalised.
const K1: f32 = 1.2;
const B: f32 = 0.75;

/// Counting the rows of a term stops here: the term is common anyway.
const COUNTED_MAX: u64 = 100_000;

/// Terms of one query.
const TERMS_MAX: usize = 64;

/// Terms whose row count is cached. When the cache is full, it is emptied.
const FREQUENCIES_KEPT: usize = 10_000;

/// Rows that the scan of signs passes on to be estimated from their signs and the whole query vector. Of rows at
/// the same distance, the newest are passed on.
const GUESSED_MIN: usize = 800;

/// Of those, the rows that are read and scored exactly: each is read from another place in the file, and costs as much as
/// estimating a hundred rows. For real queries on 100,000 entries, recall is the same with 96 as with 500.
const RESCORED_MIN: usize = 96;
const RESCORED_EACH: usize = 3;

/// Distances that are compared in one step.
const PASSED_BY: usize = 32;

/// Rows of a session that are examined to find one visible neighbour.
const NEIGHBOURS_LOOKED_AT: usize = 1024;

/// A word to search for, or several consecutive words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryTerm {
    pub text: String,
    /// Also match words that begin with it.
    pub prefix: bool,
}

impl QueryTerm {
    pub fn word(text: impl Into<String>) -> Self {
        Self { text: text.into(), prefix: false }
    }

    /// The term as an expression of the text index: quoted, so that no word of a query is an operator.
    fn expression(&self) -> Option<String> {
        if !self.text.chars().any(char::is_alphanumeric) {
            return None;
        }
        let text: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let star = if self.prefix { "*" } else { "" };
        Some(format!("\"{}\"{star}", text.replace('"', "\"\"")))
    }
}

/// The result of a search by words.
#[derive(Clone, Debug, PartialEq)]
pub struct LexicalResult {
    /// Scored by BM25, counting each term once; higher is better.
    pub hits: Vec<(Row, f32)>,
    /// Terms that were skipped because they are too common.
    pub left_out: Vec<QueryTerm>,
}

#[derive(PartialEq)]
struct RankedRow(f32, Row);

impl Eq for RankedRow {}

impl PartialOrd for RankedRow {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RankedRow {
    /// The worst hit is the greatest, so that a heap removes it first; of equal hits, the older is worse.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

/// The best hits, up to a limit.
struct BestHits {
    heap: BinaryHeap<RankedRow>,
    limit: usize,
}

impl BestHits {
    fn new(limit: usize) -> Self {
        Self { heap: BinaryHeap::with_capacity(limit.saturating_add(1).min(CHUNK_ROWS)), limit }
    }

    /// Whether a hit with this score would be kept.
    fn wants(&self, score: f32) -> bool {
        self.heap.len() < self.limit || self.heap.peek().is_some_and(|worst| score > worst.0)
    }

    fn offer(&mut self, score: f32, row: Row) {
        self.heap.push(RankedRow(score, row));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    fn sorted(self) -> Vec<(Row, f32)> {
        self.heap.into_sorted_vec().into_iter().map(|RankedRow(score, row)| (row, score)).collect()
    }
}

/// How often each distance below `end` occurs. Most distances are nearly equal, so four counters are used in turn:
/// otherwise each increment would wait for the previous one.
fn counted(distances: &[u16], end: usize) -> Vec<usize> {
    let mut counts = vec![[0u32; 4]; end];
    for group in distances.chunks(4) {
        group.iter().zip(0..).for_each(|(distance, turn)| counts[usize::from(*distance)][turn] += 1);
    }
    counts.iter().map(|turns| turns.iter().map(|count| *count as usize).sum()).collect()
}

/// Terms that are searched for, each as an expression with its number of rows; and those that are too common.
struct ChosenTerms {
    taken: Vec<(String, u64)>,
    left_out: Vec<QueryTerm>,
}

impl Reader<'_> {
    /// Visible rows that contain any of the terms, best first.
    pub fn lexical(&self, terms: &[QueryTerm], limit: usize) -> Result<LexicalResult, MemoryError> {
        self.lexical_where(terms, limit, &|_| true)
    }

    /// As [`Reader::lexical`], limited to rows that `admit` accepts.
    pub fn lexical_where(
        &self,
        terms: &[QueryTerm],
        limit: usize,
        admit: &dyn Fn(Row) -> bool,
    ) -> Result<LexicalResult, MemoryError> {
        let ChosenTerms { taken, left_out } = self.choose(terms)?;
        if taken.is_empty() || limit == 0 {
            return Ok(LexicalResult { hits: Vec::new(), left_out });
        }
        let found = self.postings(&taken)?;
        let lengths = found.iter().map(|(row, _)| self.bytes(*row)).sum::<f32>();
        let mean = lengths / (found.len().max(1) as f32);
        let mut best = BestHits::new(limit);
        for of_row in found.chunk_by(|a, b| a.0 == b.0) {
            let row = of_row[0].0;
            let rarity: f32 = of_row.iter().map(|(_, rarity)| rarity).sum();
            let score = rarity * (K1 + 1.0) / (1.0 + K1 * (1.0 - B + B * self.bytes(row) / mean.max(1.0)));
            if best.wants(score) && admit(row) {
                best.offer(score, row);
            }
        }
        Ok(LexicalResult { hits: best.sorted(), left_out })
    }

    /// The visible rows of each term with the score of the term, newest first; at most [`RANKED_MAX`] of one term.
    ///
    /// The index's own ranking reads the length of every row and counts each occurrence of a word. That took two
    /// thirds of the time, although the texts are compared word by word later anyway.
    fn postings(&self, terms: &[(String, u64)]) -> Result<Vec<(Row, f32)>, MemoryError> {
        let entries = f64::from(self.visibility.arena.end);
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
        // Each term's rows are already sorted, so this sort only merges runs.
        found.sort_by_key(|(row, _)| Reverse(*row));
        Ok(found)
    }

    fn bytes(&self, row: Row) -> f32 {
        self.visibility.arena.place(row).map_or(0.0, |(chunk, slot)| chunk.bytes[slot] as f32)
    }

    /// Chooses terms from the rarest on until they have too many rows; at least one.
    fn choose(&self, terms: &[QueryTerm]) -> Result<ChosenTerms, MemoryError> {
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
        Ok(ChosenTerms { taken, left_out })
    }

    /// The approximate number of rows of the space that contain a term. For choosing and weighting terms, not for output: it
    /// includes rows of other branches.
    pub fn document_frequency(&self, term: &str) -> Result<u64, MemoryError> {
        QueryTerm::word(term).expression().map_or(Ok(0), |expression| self.count(&expression))
    }

    fn count(&self, expression: &str) -> Result<u64, MemoryError> {
        let rows = self.visibility.arena.end;
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

    /// Visible rows with the most similar vectors, most similar first. The vector must be of the current model.
    pub fn nearest(
        &self,
        vector: &[f32],
        limit: usize,
        admit: &dyn Fn(Row) -> bool,
    ) -> Result<Vec<(Row, f32)>, MemoryError> {
        let wanted = signs::of(vector);
        let arena = &self.visibility.arena;
        if wanted.len() != arena.stride || limit == 0 || arena.stride == 0 {
            return Ok(Vec::new());
        }
        let rescored = RESCORED_MIN.max(limit.saturating_mul(RESCORED_EACH));
        let close = self.close(&wanted, rescored.max(GUESSED_MIN), admit);
        let guess = signs::SignEstimator::of(vector);
        let mut likely = BestHits::new(rescored);
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

    /// About `count` visible rows whose signs differ least from these.
    ///
    /// All distances are computed and counted first. Then rows are checked for visibility and admission, closest first, until
    /// there are enough. So a branch that sees few of many rows gets as many results as one that sees all.
    fn close(&self, wanted: &[u64], count: usize, admit: &dyn Fn(Row) -> bool) -> Vec<Row> {
        let arena = &self.visibility.arena;
        let mut distances = Vec::with_capacity(arena.chunks.len() * CHUNK_ROWS);
        arena.chunks.iter().for_each(|chunk| simd::distances(&chunk.signs, wanted, &mut distances));
        let counts = counted(&distances, wanted.len() * 64 + 1);
        let mut found = Vec::with_capacity(count);
        let (mut least, mut looked_at) = (0, 0);
        while found.len() < count && least < counts.len() {
            // At first as many as are wanted; if too few of those were visible, four times as many.
            let aim = if least == 0 { count } else { looked_at * 4 };
            let mut most = least;
            while most < counts.len() && looked_at < aim.max(1) {
                looked_at += counts[most];
                most += 1;
            }
            let near = least as u16..most as u16;
            // Few rows are close; the others are skipped in groups.
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
        let mut best = BestHits::new(limit);
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

    /// The vectors of rows, normalised to length 1; `None` for a row without a vector of the current model.
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

    /// Whether a row has a vector of the current model.
    pub fn covered(&self, row: Row) -> bool {
        self.visibility.arena.place(row).is_some_and(|(chunk, slot)| chunk.covered[slot])
    }

    /// The visible entries before and after this one in the same session, in that order.
    pub fn neighbours(&self, row: Row, before: usize, after: usize) -> Vec<Row> {
        let arena = &self.visibility.arena;
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
