//! Background work: computes missing vectors and closes idle spaces.
//!
//! Rows are written even if the embedder does not answer. Rows without a vector of the current model, because the embedder was
//! slow, down, or another one before, are embedded here, a limited number at a time.

use std::sync::{Arc, PoisonError};

use crate::embed::{self, ModelId};
use crate::entries::put::vectors;
use crate::memory::Memory;
use crate::space::arena::{ERASED, Row};
use crate::space::load::number;
use crate::space::{Retry, Space, queue, signs};
use crate::{MemoryError, blocking};

/// After a failure, the embedder is not used for this long; the pause doubles with each further failure, up to the maximum.
const RETRY_MS_FIRST: u64 = 1000;
const RETRY_MS_MAX: u64 = 5 * 60 * 1000;

/// The limits of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Rows that may be embedded.
    pub rows: usize,
}

/// The result of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkReport {
    pub embedded: u64,
    /// Rows of open spaces that still have no vector.
    pub pending: u64,
    /// Spaces that were closed.
    pub closed: u64,
    /// The embedder's error, if it failed.
    pub failed: Option<String>,
    /// When there is work again, unless new rows arrive.
    pub retry_in_ms: Option<u64>,
}

impl Memory {
    /// One round over the open spaces. The owner of this memory calls it repeatedly.
    pub async fn work(&self, budget: Budget) -> WorkReport {
        let mut worked = WorkReport::default();
        let mut left = budget.rows;
        for space in self.shared.slots.opened().await {
            while left > 0 && space.arena().pending > 0 {
                match self.fill(&space, left).await {
                    Ok(Some(filled)) if filled > 0 => {
                        worked.embedded += filled as u64;
                        left = left.saturating_sub(filled);
                    }
                    Ok(_) => break,
                    Err(error) => {
                        worked.failed = Some(error.to_string());
                        break;
                    }
                }
            }
            let pending = space.arena().pending;
            worked.pending += pending;
            if pending > 0 {
                let wait = self.wait_ms(&space);
                worked.retry_in_ms = Some(worked.retry_in_ms.map_or(wait, |known: u64| known.min(wait)));
            }
        }
        worked.closed = self.shared.slots.close_idle().await as u64;
        worked
    }

    /// Returns when rows were written without vectors, or a space with such rows was opened.
    pub async fn wait_for_work(&self) {
        self.shared.slots.pending.notified().await;
    }

    fn wait_ms(&self, space: &Space) -> u64 {
        let retry = *space.retry.lock().unwrap_or_else(PoisonError::into_inner);
        retry.not_before_ms.saturating_sub(self.shared.clock.now_ms())
    }

    /// Embeds one batch. `None` while the embedder is paused after a failure.
    async fn fill(&self, space: &Arc<Space>, at_most: usize) -> Result<Option<usize>, MemoryError> {
        if space.path.is_none() || self.wait_ms(space) > 0 {
            return Ok(None);
        }
        let (reading, embedder) = (Arc::clone(space), Arc::clone(&self.shared.embedder));
        let model = embedder.model().clone();
        let made = blocking(move || {
            let (rows, texts) = missing(&reading, at_most.min(embed::BATCH_MAX))?;
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let model = embedder.model();
            let failed = |why: String| MemoryError::Embed { model: model.to_string(), why };
            let vectors = embedder.embed(&texts).map_err(|error| failed(error.to_string()))?;
            if vectors.len() != rows.len() || vectors.iter().any(|vector| vector.len() != model.dims) {
                return Err(failed("it returned a wrong number of vectors or dimensions".to_owned()));
            }
            Ok(rows.into_iter().zip(vectors).collect::<Vec<_>>())
        })
        .await;
        self.note(space, made.is_ok());
        let made = made?;
        let filled = made.len();
        queue::upkeep(space, filled, move |writer| store(writer, &model, &made)).await?;
        Ok(Some(filled))
    }

    fn note(&self, space: &Space, answered: bool) {
        let mut retry = space.retry.lock().unwrap_or_else(PoisonError::into_inner);
        *retry = if answered {
            Retry::default()
        } else {
            let wait = RETRY_MS_FIRST.saturating_mul(1 << retry.failures.min(20)).min(RETRY_MS_MAX);
            Retry { failures: retry.failures + 1, not_before_ms: self.shared.clock.now_ms() + wait }
        };
    }
}

/// The newest rows without a vector: recent entries are searched for most.
fn missing(space: &Space, at_most: usize) -> Result<(Vec<u32>, Vec<String>), MemoryError> {
    let arena = space.arena();
    let lacks = |row: &Row| {
        arena.place(*row).is_some_and(|(chunk, slot)| !chunk.covered[slot] && chunk.flags(slot) & ERASED == 0)
    };
    let wanted: Vec<Row> = arena.rows_down().filter(lacks).take(at_most).collect();
    space.with_reader(|side| {
        let mut statement = side.connection.prepare_cached("SELECT row, text FROM texts WHERE row = ?")?;
        let (mut rows, mut texts) = (Vec::new(), Vec::new());
        for row in wanted {
            let mut found = statement.query([row.number()])?;
            if let Some(found) = found.next()? {
                rows.push(number(found, 0)?);
                texts.push(found.get(1)?);
            }
        }
        Ok((rows, texts))
    })
}

fn store(
    writer: &mut crate::Writer<'_>,
    model: &ModelId,
    made: &[(u32, Vec<f32>)],
) -> Result<(), MemoryError> {
    let no = writer.model(model)?;
    for (row, vector) in made {
        let signs = signs::of(vector);
        // It was erased meanwhile, so it needs no vector.
        let changed = writer
            .connection()
            .prepare_cached("UPDATE entries SET model = ?, signs = ? WHERE row = ? AND erased = 0")?
            .execute((no, signs::to_bytes(&signs), row))?;
        if changed == 1 {
            vectors(writer, *row, model, vector)?;
            writer.effects().covered.push((*row, signs));
        }
    }
    Ok(())
}
