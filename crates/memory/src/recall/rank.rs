//! Combines all evidence for the candidates of one view into scores.
//!
//! ```text
//!  score = lexical · (words / best + 0.5 · like + 0.4 · like around) + vector · meaning
//!        + named author + named time − is a question + recency + importance, all · validity
//! ```
//!
//! Each part is scaled to 0..1 over the candidates before it is weighted: a weighted sum of such parts was far better than a
//! fusion of ranks. The factors were tuned on some conversations and validated on others; `bench recall` shows
//! the contribution of each.

use super::candidates::Candidates;
use super::evidence::{Examiner, Text, Window};
use super::query::Query;
use super::quick_map::QuickMap;
use super::types::{LexicalWhy, NeighbourWhy, ScoreBreakdown, Search, VectorWhy, Weights};
use crate::consolidate::KIND_SUMMARY;
use crate::{Entry, Filter, MemoryError, Reader, Row};

const LIKE: f32 = 0.5;
const LIKE_AROUND: f32 = 0.4;
const BY_NAMED: f32 = 0.35;
const OF_TIME: f32 = 0.6;
const ASKS: f32 = 0.15;

/// The factor for an entry that is not valid now.
const NOT_VALID: f32 = 0.5;

/// The weight of vectors relative to words: of a model that reads whole sentences, and of a mean over tokens, which adds
/// little to the words themselves.
const SENTENCES: f32 = 0.6;
const TOKENS: f32 = 0.3;

/// A candidate with its score.
#[derive(Clone, Debug)]
pub(super) struct ScoredRow {
    pub(super) row: Row,
    pub(super) score: f32,
    pub(super) why: ScoreBreakdown,
}

/// The inputs of a search, the same for all of its views.
#[derive(Clone, Debug)]
pub(super) struct SearchInputs {
    pub(super) search: Search,
    pub(super) weights: Weights,
    /// The vector of the query, if the embedder could compute one.
    pub(super) vector: Option<Vec<f32>>,
    /// Whether it comes from a model that reads sentences.
    pub(super) reads_sentences: bool,
}

/// Parts of one candidate's score, unscaled.
struct Parts {
    row: Row,
    exact: f32,
    own: f32,
    alike: f32,
    alike_around: f32,
    cosine: Option<f32>,
    flat: f32,
    recency: f32,
    importance: f32,
}

/// The best candidates of a view, best first.
pub(super) fn rank(reader: &Reader<'_>, looking: &SearchInputs) -> Result<Vec<ScoredRow>, MemoryError> {
    let search = &looking.search;
    let mut filter = search.filter.clone();
    filter.include_cold |= search.include_cold;
    let sieve = reader.filter(&filter)?;
    let entries = reader.rows_about();
    let query = Query::new(&search.text, reader.now_ms(), entries, |word| reader.document_frequency(word))?;
    let vector = looking.vector.as_deref().filter(|_| looking.weights.vector > 0.0);
    let admit = |row: Row| sieve.admits(row);
    let cold = Filter { include_cold: true, ..filter.clone() };
    let cold_sieve = reader.filter(&cold)?;
    let reach = |row: Row| cold_sieve.admits(row);
    let reach =
        (!filter.include_cold && reader.has_kind(KIND_SUMMARY)).then_some(&reach as &dyn Fn(Row) -> bool);
    let found = Candidates::find(reader, &query, vector, search.limit, &admit, reach)?;
    let texts = examine(reader, &query, &found)?;
    let cosines = cosines(reader, vector, &found)?;
    let windows: Vec<(Row, Window<'_>)> =
        found.rows.iter().filter_map(|row| Some((*row, window(&found, &texts, *row)?))).collect();
    let neighbours = looking.weights.neighbours;
    let mean = windows.iter().map(|(_, window)| window.length(neighbours)).sum::<f32>()
        / windows.len().max(1) as f32;
    let mut parts = Vec::with_capacity(windows.len());
    for (row, window) in &windows {
        parts.push(Parts {
            row: *row,
            exact: window.exact(&query, neighbours, mean),
            own: window.exact(&query, 0.0, mean),
            alike: window.alike(&query),
            alike_around: window.alike_around(&query, neighbours),
            cosine: cosines.get(row).copied(),
            flat: flat(reader, &query, *row, window.own),
            recency: recency(reader, looking, *row),
            importance: looking.weights.importance * (reader.importance(*row) - crate::IMPORTANCE_USUAL),
        });
    }
    let mut scored = fuse(&parts, looking, &query);
    let (limit, fetched) = (search.limit, &found);
    scored.truncate(limit.saturating_add(SPARE));
    for hit in &mut scored {
        explain(reader, hit, &query, fetched, &texts, search.explain)?;
    }
    Ok(scored)
}

/// Hits fetched beyond the limit, to replace those that are collapsed.
const SPARE: usize = 16;

fn examine(
    reader: &Reader<'_>,
    query: &Query,
    found: &Candidates,
) -> Result<QuickMap<Row, Text>, MemoryError> {
    let mut examiner = Examiner::new(query);
    let mut texts = QuickMap::with_capacity_and_hasher(found.read.len(), Default::default());
    reader.each_text(&found.read, |row, text| {
        texts.insert(row, examiner.examine(text));
    })?;
    Ok(texts)
}

fn window<'a>(found: &Candidates, texts: &'a QuickMap<Row, Text>, row: Row) -> Option<Window<'a>> {
    let own = texts.get(&row)?;
    let before = found.before(row).filter_map(|row| texts.get(&row)).collect();
    let after = found.after(row).filter_map(|row| texts.get(&row)).collect();
    Some(Window { own, before, after })
}

fn cosines(
    reader: &Reader<'_>,
    vector: Option<&[f32]>,
    found: &Candidates,
) -> Result<QuickMap<Row, f32>, MemoryError> {
    let mut cosines: QuickMap<Row, f32> =
        found.nearest.iter().map(|(row, (_, cosine))| (*row, *cosine)).collect();
    let Some(vector) = vector else { return Ok(cosines) };
    let known = cosines.clone();
    let rest = found.rows.iter().copied().filter(|row| !known.contains_key(row));
    reader.each_cosine(vector, rest, |row, cosine| {
        cosines.insert(row, cosine);
    })?;
    Ok(cosines)
}

/// The part that does not depend on the other candidates.
fn flat(reader: &Reader<'_>, query: &Query, row: Row, own: &Text) -> f32 {
    let by_named = own.is_by_named || reader.by(row).iter().any(|name| query.names(name));
    let of_time = reader.at_ms(row).map_or(0.0, |at_ms| query.fits(at_ms));
    BY_NAMED * f32::from(by_named) + OF_TIME * of_time - ASKS * f32::from(own.is_question)
}

fn recency(reader: &Reader<'_>, looking: &SearchInputs, row: Row) -> f32 {
    let (Some(half_life), Some(at_ms)) = (looking.search.half_life_ms, reader.at_ms(row)) else { return 0.0 };
    #[expect(clippy::cast_precision_loss, reason = "an age needs no more than 24 bits")]
    let halves = reader.now_ms().saturating_sub(at_ms) as f32 / half_life.max(1) as f32;
    looking.weights.recency * (-halves).exp2()
}

/// The similarity that unrelated texts typically reach. With few candidates that are all good, it prevents small differences
/// from being stretched to the whole range from 0 to 1.
const ALIKE_ANYWAY: f32 = 0.3;
const ALIKE_AROUND_ANYWAY: f32 = 0.15;

/// The smallest and the largest value, for scaling a part to 0..1.
fn bounds(values: impl Iterator<Item = f32>, anyway: f32) -> (f32, f32) {
    values.fold((anyway, f32::MIN), |(low, high), value| (low.min(value), high.max(value)))
}

fn within(value: f32, (low, high): (f32, f32)) -> f32 {
    if high - low > 1e-6 { (value - low) / (high - low) } else { 0.0 }
}

fn fuse(parts: &[Parts], looking: &SearchInputs, query: &Query) -> Vec<ScoredRow> {
    let weights = looking.weights;
    let best = parts.iter().map(|part| part.exact).fold(0.0, f32::max).max(1e-9);
    let alike = bounds(parts.iter().map(|part| part.alike), ALIKE_ANYWAY);
    let around = bounds(parts.iter().map(|part| part.alike_around), ALIKE_AROUND_ANYWAY);
    let meaning = bounds(parts.iter().filter_map(|part| part.cosine), 0.0);
    let vector = weights.vector * if looking.reads_sentences { SENTENCES } else { TOKENS };
    let mut scored: Vec<ScoredRow> = parts
        .iter()
        .map(|part| {
            let words = part.exact / best
                + LIKE * within(part.alike, alike)
                + LIKE_AROUND * within(part.alike_around, around);
            let vector_part = part.cosine.map_or(0.0, |cosine| within(cosine, meaning));
            let sum =
                weights.lexical * words + vector * vector_part + part.flat + part.recency + part.importance;
            let why = ScoreBreakdown {
                lexical: Some(LexicalWhy { rank: 0, score: part.own / best, terms: Vec::new() }),
                vector: part.cosine.map(|cosine| VectorWhy { rank: 0, cosine }),
                neighbours: Some(NeighbourWhy { score: (part.exact - part.own) / best, ids: Vec::new() }),
                recency: part.recency,
                importance: part.importance,
                validity: 1.0,
            };
            ScoredRow { row: part.row, score: sum, why }
        })
        .collect();
    // Of equal scores, the newer row first.
    scored.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.row.cmp(&a.row)));
    level(&mut scored, parts, weights.lexical * (1.0 + LIKE + LIKE_AROUND) + vector, query);
    scored
}

/// Scales scores to 0..1. The level is how well the best hit answers by itself, so that a query without an answer
/// gets low scores, and scores of two spaces can be compared.
fn level(scored: &mut [ScoredRow], parts: &[Parts], most: f32, query: &Query) {
    let Some(first) = scored.first() else { return };
    let best = parts.iter().find(|part| part.row == first.row);
    let answers = best.map_or(0.0, |part| {
        let vector_part = part.cosine.unwrap_or(0.0).max(0.0);
        if query.words.is_empty() { vector_part } else { part.alike_around.max(vector_part) }
    });
    let most = most.max(first.score).max(1e-6);
    for hit in scored {
        hit.score = (hit.score / most * answers).clamp(0.0, 1.0);
    }
}

fn explain(
    reader: &Reader<'_>,
    hit: &mut ScoredRow,
    query: &Query,
    found: &Candidates,
    texts: &QuickMap<Row, Text>,
    fully: bool,
) -> Result<(), MemoryError> {
    let has = |row: Row| texts.get(&row).is_some_and(|text| text.counts.iter().any(|count| *count > 0.0));
    let terms = texts.get(&hit.row).map(|text| {
        let had = query.words.iter().zip(&text.counts).filter(|(_, count)| **count > 0.0);
        had.map(|(word, _)| word.text.clone()).collect::<Vec<_>>()
    });
    let (terms, rank) = (terms.unwrap_or_default(), found.lexical.get(&hit.row));
    hit.why.lexical = match (&hit.why.lexical, rank) {
        (Some(why), _) if !terms.is_empty() => Some(LexicalWhy {
            rank: rank.copied().unwrap_or(found.lexical.len() + 1),
            score: why.score,
            terms,
        }),
        _ => None,
    };
    if let Some(vector) = &mut hit.why.vector {
        vector.rank = found.nearest.get(&hit.row).map_or(found.nearest.len() + 1, |(rank, _)| *rank);
    }
    hit.why.neighbours = hit.why.neighbours.take().filter(|why| why.score > 0.0);
    if fully && let Some(why) = &mut hit.why.neighbours {
        for row in found.before(hit.row).chain(found.after(hit.row)).filter(|row| has(*row)) {
            why.ids.extend(reader.id_of(row)?);
        }
    }
    Ok(())
}

/// The factor for an entry's validity period.
pub(super) fn validity(entry: &Entry, now_ms: u64) -> f32 {
    let begun = entry.valid_from_ms.is_none_or(|from| from <= now_ms);
    let over = entry.valid_to_ms.is_some_and(|to| to <= now_ms);
    if begun && !over { 1.0 } else { NOT_VALID }
}
