//! Searches memory: combines words, meaning and neighbours into one ranking.
//!
//! ```text
//!  question ──► words, names, times ─┬─► text index ──┐
//!           └─► vector ──────────────┴─► signs ───────┴─► candidates + their neighbours
//!                                                           └─► read, compared, weighted ──► hits with explanations
//! ```
//!
//! Needs no LLM. Everything is read in one read transaction of a view, so rows that a branch cannot see have no effect,
//! neither as hits nor as neighbours.

use tokio::time::Instant;

use crate::context::alike::TextFeatures;
use crate::embed::{Embedder, head};
use crate::{MemoryError, Reader, blocking};

mod candidates;
mod columns;
mod evidence;
mod query;
mod quick_map;
mod rank;
mod stem;
#[cfg(test)]
mod tests;
mod types;
mod when;
mod words;

use rank::{ScoredRow, SearchInputs, rank, validity};
pub use types::{
    Arm, ArmReport, ArmState, HITS_MAX, Hit, LabelledView, LexicalWhy, NeighbourWhy, ScoreBreakdown, Search,
    SearchOutcome, VectorWhy, Weights,
};

/// Hits that are more similar than this are shown as one.
const ALIKE: f32 = 0.9;

/// Bytes of a query that are passed to the embedder.
const EMBEDDED_BYTES_MAX: usize = 4096;

/// Views of one search.
const VIEWS_MAX: usize = 64;

/// Searches several views as if they were one.
pub async fn search(views: &[LabelledView], query: &Search) -> Result<SearchOutcome, MemoryError> {
    query.check()?;
    if views.len() > VIEWS_MAX {
        return Err(MemoryError::invalid("the search", format!("it names more than {VIEWS_MAX} spaces")));
    }
    let began = Instant::now();
    let weights = query.weights.unwrap_or(Weights::usual());
    let Some(first) = views.first() else {
        return Ok(SearchOutcome {
            hits: Vec::new(),
            arms: arms(&weights, ArmState::Off),
            searched: 0,
            took_us: 0,
        });
    };
    let embedder = std::sync::Arc::clone(&first.view.shared.embedder);
    let reads_sentences = !embedder.is_immediate();
    let (vector, mut state) = embed(embedder, query, &weights).await?;
    let looking = SearchInputs { search: query.clone(), weights, vector, reads_sentences };
    let mut all = Vec::new();
    let (mut searched, mut covered) = (0, 0);
    for labelled in views {
        let looking = looking.clone();
        let part = labelled.view.read(move |reader| look(reader, &looking)).await?;
        searched += part.searched;
        covered += part.covered;
        all.extend(part.hits.into_iter().map(|hit| Hit { space: labelled.label.clone(), ..hit }));
    }
    if state == ArmState::Took && covered < searched {
        #[expect(clippy::cast_precision_loss, reason = "a share of two counts")]
        let covered = covered as f32 / searched as f32;
        state = ArmState::Partial { covered };
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut hits = collapse(all, query.limit);
    hits.retain(|hit| query.min_score.is_none_or(|least| hit.score >= least));
    let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(SearchOutcome { hits, arms: arms(&weights, state), searched, took_us })
}

fn arms(weights: &Weights, vector: ArmState) -> Vec<ArmReport> {
    let took = |weight: f32| if weight > 0.0 { ArmState::Took } else { ArmState::Off };
    vec![
        ArmReport { arm: Arm::Lexical, state: took(weights.lexical) },
        ArmReport { arm: Arm::Vector, state: vector },
        ArmReport { arm: Arm::Neighbours, state: took(weights.neighbours) },
    ]
}

/// The vector of the query. If it fails, the search continues without it and reports that.
async fn embed(
    embedder: std::sync::Arc<dyn Embedder>,
    query: &Search,
    weights: &Weights,
) -> Result<(Option<Vec<f32>>, ArmState), MemoryError> {
    if weights.vector <= 0.0 || query.text.trim().is_empty() {
        return Ok((None, ArmState::Off));
    }
    let text = head(&query.text, EMBEDDED_BYTES_MAX).to_owned();
    // An immediate embedder takes microseconds, less than passing the work to another thread.
    let immediate = embedder.is_immediate();
    let work = move || Ok(embedder.embed(&[&text]));
    let made = if immediate { work()? } else { blocking(work).await? };
    match made {
        Ok(mut vectors) => match vectors.pop().filter(|vector| vector.iter().any(|x| *x != 0.0)) {
            Some(vector) => Ok((Some(vector), ArmState::Took)),
            None => Ok((None, ArmState::Off)),
        },
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "could not embed a question");
            Ok((None, ArmState::Down { reason: error.to_string() }))
        }
    }
}

/// The result of one view.
struct ViewResult {
    hits: Vec<Hit>,
    searched: u64,
    covered: u64,
}

fn look(reader: &Reader<'_>, looking: &SearchInputs) -> Result<ViewResult, MemoryError> {
    let mut hits = Vec::new();
    for ScoredRow { row, score, mut why } in rank(reader, looking)? {
        if let Some(entry) = reader.entry(row)? {
            why.validity = validity(&entry, reader.now_ms());
            let score = score * why.validity;
            hits.push(Hit { entry, space: String::new(), score, why, collapsed: Vec::new() });
        }
    }
    let (searched, covered) = reader.counts();
    Ok(ViewResult { hits, searched, covered })
}

/// Keeps the best of hits that are nearly the same.
fn collapse(all: Vec<Hit>, limit: usize) -> Vec<Hit> {
    let mut kept: Vec<(TextFeatures, Hit)> = Vec::new();
    for hit in all {
        let likeness = TextFeatures::of(&hit.entry.text);
        let same = kept.iter().position(|(known, first)| {
            first.entry.kind == hit.entry.kind && known.likeness_to(&likeness) >= ALIKE
        });
        match same {
            Some(first) => kept[first].1.collapsed.push(hit.entry.id),
            None if kept.len() < limit => kept.push((likeness, hit)),
            None => {}
        }
    }
    kept.into_iter().map(|(_, hit)| hit).collect()
}
