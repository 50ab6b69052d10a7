//! Selects the entries to examine: the results of the arms, and their neighbours.

use super::evidence::REACH;
use super::query::Query;
use super::quick_map::QuickMap;
use crate::consolidate::{KIND_SUMMARY, sources_of};
use crate::{MemoryError, QueryTerm, Reader, Row};

/// Candidates per arm. Together with their neighbours they are read and compared word by word, at about
/// three microseconds each.
const BY_WORDS: usize = 48;
const BY_MEANING: usize = 16;
const BY_TIME: usize = 32;

/// Summaries whose sources are examined as well.
const SUMMARIES: usize = 24;

/// Neighbours of a result that become candidates, on each side: the answer to a question that contains the words.
const SPREAD: usize = 2;

/// A space with at most this many rows is examined completely: an entry that no arm found may still be the answer.
const SMALL: u64 = 1000;

/// Approximate number of rows that the text index may rank: about 2 ms. The rarest words are searched for; the others count
/// when the texts are read.
const RANKED_MAX: u64 = 8_000;

/// Rows that are examined, from the newest, to find those of a given time.
const TIMED_LOOKED_AT: usize = 200_000;

/// The rows that take part in one ranking.
#[derive(Debug)]
pub(super) struct Candidates {
    /// The possible hits.
    pub(super) rows: Vec<Row>,
    /// All rows whose text is read: the candidates and their neighbours.
    pub(super) read: Vec<Row>,
    before: QuickMap<Row, Row>,
    after: QuickMap<Row, Row>,
    /// Ranks among the results by words, from 1.
    pub(super) lexical: QuickMap<Row, usize>,
    /// Ranks among the results by vectors, from 1, and the similarity.
    pub(super) nearest: QuickMap<Row, (usize, f32)>,
}

impl Candidates {
    /// `admit` selects the possible hits; other visible rows still count as their neighbours. `reach` selects the cold rows that
    /// may be hits if a summary that cites them answers the query.
    pub(super) fn find(
        reader: &Reader<'_>,
        query: &Query,
        vector: Option<&[f32]>,
        limit: usize,
        admit: &dyn Fn(Row) -> bool,
        reach: Option<&dyn Fn(Row) -> bool>,
    ) -> Result<Self, MemoryError> {
        let mut found = Self {
            rows: Vec::new(),
            read: Vec::new(),
            before: QuickMap::default(),
            after: QuickMap::default(),
            lexical: QuickMap::default(),
            nearest: QuickMap::default(),
        };
        let mut seeds = Vec::new();
        let terms = terms(query);
        for (row, _) in reader.lexical_where(&terms, BY_WORDS.max(limit), admit)?.hits {
            found.lexical.insert(row, found.lexical.len() + 1);
            seeds.push(row);
        }
        if let Some(vector) = vector {
            for (row, cosine) in reader.nearest(vector, BY_MEANING.max(limit), admit)? {
                found.nearest.insert(row, (found.nearest.len() + 1, cosine));
                seeds.push(row);
            }
        }
        if reader.rows_about() <= SMALL {
            seeds.extend(reader.rows().filter(|row| admit(*row)));
        } else if !query.times.is_empty() {
            let then = |row: Row| reader.at_ms(row).is_some_and(|at_ms| query.fits(at_ms) > 0.5);
            let lexical = reader.lexical_where(&terms, BY_TIME, &|row| then(row) && admit(row))?;
            seeds.extend(lexical.hits.into_iter().map(|(row, _)| row));
            let newest = reader.rows().take(TIMED_LOOKED_AT).filter(|row| then(*row) && admit(*row));
            seeds.extend(newest.take(BY_TIME));
        }
        let mut stand_ins = Vec::new();
        if let Some(reach) = reach {
            let summaries =
                reader.lexical_where(&terms, SUMMARIES, &|row| is_summary(reader, row) && admit(row))?;
            let near = found.nearest.keys().copied().filter(|row| is_summary(reader, *row));
            for summary in summaries.hits.into_iter().map(|(row, _)| row).chain(near.take(SUMMARIES)) {
                let sources = sources_of(reader, summary)?;
                let reached = seeds.len();
                seeds.extend(sources.into_iter().filter(|row| reader.cold(*row) && reach(*row)));
                // Results by words are better than summaries, and need their places.
                if seeds.len() > reached {
                    stand_ins.push(summary);
                }
            }
        }
        found.spread(reader, seeds, admit);
        found.rows.retain(|row| !stand_ins.contains(row));
        Ok(found)
    }

    fn spread(&mut self, reader: &Reader<'_>, mut seeds: Vec<Row>, admit: &dyn Fn(Row) -> bool) {
        seeds.sort_unstable();
        seeds.dedup();
        for seed in seeds {
            let (before, after) = (reader.neighbours(seed, REACH, 0), reader.neighbours(seed, 0, REACH));
            let own = before.len();
            let line: Vec<Row> = before.into_iter().chain([seed]).chain(after).collect();
            for pair in line.windows(2) {
                self.after.insert(pair[0], pair[1]);
                self.before.insert(pair[1], pair[0]);
            }
            let near = own.saturating_sub(SPREAD)..(own + SPREAD + 1).min(line.len());
            self.rows.extend(line[near].iter().filter(|row| **row == seed || admit(**row)));
            self.read.extend(line);
        }
        for rows in [&mut self.rows, &mut self.read] {
            rows.sort_unstable();
            rows.dedup();
        }
    }

    /// The neighbours before a row, nearest first, as far as they were examined.
    pub(super) fn before(&self, row: Row) -> impl Iterator<Item = Row> + '_ {
        std::iter::successors(self.before.get(&row), |row| self.before.get(row)).copied().take(REACH)
    }

    /// The neighbours after a row, nearest first.
    pub(super) fn after(&self, row: Row) -> impl Iterator<Item = Row> + '_ {
        std::iter::successors(self.after.get(&row), |row| self.after.get(row)).copied().take(REACH)
    }
}

fn is_summary(reader: &Reader<'_>, row: Row) -> bool {
    reader.column(row).is_some_and(|columns| &*columns.kind == KIND_SUMMARY)
}

/// The words that the index is searched for: from the rarest on, at least one. Words that most entries contain are omitted,
/// if there are others.
fn terms(query: &Query) -> Vec<QueryTerm> {
    let mut words: Vec<_> = query.words.iter().filter(|word| word.frequency > 0).collect();
    words.sort_by_key(|word| word.frequency);
    let (mut terms, mut rows) = (Vec::new(), 0u64);
    for word in words {
        rows = rows.saturating_add(word.frequency);
        if !terms.is_empty() && (word.rarity <= 0.0 || rows > RANKED_MAX) {
            break;
        }
        terms.push(QueryTerm::word(&word.text));
    }
    terms
}
