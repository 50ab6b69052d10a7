//! Recall after memory was consolidated to half its size, with the conversations of the file in `LOCOMO`.
//!
//! A turn counts as found if it is among the first ten hits, or, in a second figure, if one of the hits cites it.

use std::collections::HashMap;

use burrow_api::memory::{ConsolidateMemory, SearchMemory};
use burrow_client::{Client, Memory, MemorySelection};

use super::conversations::{Question, read};
use super::recall::{mean, store};
use crate::daemon::BenchSetup;
use crate::error::BenchError;
use crate::report::{Figure, Target};
use crate::samples::Samples;

/// Number of entries that should stay warm.
const SHARE: f32 = 0.5;
const HITS: u32 = 10;
/// One batch for a whole conversation.
const BUDGET_MS: u64 = 600_000;
const KEPT: Target = Target::RatioAtLeast { limit: 0.98 };

/// Shares of the turns that answer a question.
#[derive(Clone, Copy, Debug)]
struct Shares {
    found: f64,
    cited: f64,
}

pub(super) async fn measure(client: &Client, prepared: &BenchSetup) -> Result<Vec<Figure>, BenchError> {
    let Some(path) = &prepared.locomo else { return Ok(Vec::new()) };
    let (mut before, mut after, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for (number, conversation) in read(path)?.iter().enumerate() {
        let space = format!("consolidated-{number}");
        let ids = store(client, &space, conversation).await?;
        let memory = client.memory(MemorySelection::now(&format!("space:{space}")));
        for question in &conversation.questions {
            before.push(ask(&memory, question, &ids).await?);
        }
        left.push(consolidate(&memory).await?);
        for question in &conversation.questions {
            after.push(ask(&memory, question, &ids).await?);
        }
        client.delete_space(&space, false).await.map_err(BenchError::api("delete a space"))?;
    }
    let mut first = Samples::default();
    first.push(mean(before.iter().map(|shares| shares.found)));
    let figure = |name, share: fn(&Shares) -> f64, note| {
        Figure::new(name, mean(after.iter().map(share)), "share", note).against("before", &first).target(KEPT)
    };
    Ok(vec![
        figure(
            "memory.consolidated.recall",
            |shares| shares.found,
            "recall@10 after consolidation to half the size",
        ),
        figure("memory.consolidated.cited", |shares| shares.cited, "the same, or cited by one of the ten"),
        Figure::new(
            "memory.consolidated.size",
            mean(left.into_iter()),
            "share",
            "of the entries stayed warm",
        ),
    ])
}

/// The share of entries that remained.
#[expect(clippy::cast_precision_loss, reason = "counts of entries are small")]
async fn consolidate(memory: &Memory) -> Result<f64, BenchError> {
    let request = ConsolidateMemory {
        dry_run: false,
        older_than_seconds: Some(0),
        entries: Some(1_000_000),
        budget_ms: Some(BUDGET_MS),
        target_share: Some(SHARE),
    };
    let done = memory.consolidate(&request).await.map_err(BenchError::api("consolidate memory"))?;
    Ok(done.after as f64 / (done.before.max(1)) as f64)
}

async fn ask(
    memory: &Memory,
    question: &Question,
    ids: &HashMap<String, String>,
) -> Result<Shares, BenchError> {
    let search = SearchMemory { query: question.text.clone(), limit: Some(HITS), ..SearchMemory::default() };
    let answer = memory.search(&search).await.map_err(BenchError::api("search"))?;
    let is_wanted = |id: &String| ids.get(id).is_some_and(|turn| question.answered_by.contains(turn));
    let (mut found, mut cited) = (Vec::new(), Vec::new());
    for hit in &answer.hits {
        found.extend(Some(&hit.entry.id).filter(|id| is_wanted(id)));
        cited.extend(std::iter::once(&hit.entry.id).chain(&hit.entry.links).filter(|id| is_wanted(id)));
    }
    for list in [&mut found, &mut cited] {
        list.sort_unstable();
        list.dedup();
    }
    #[expect(clippy::cast_precision_loss, reason = "a few turns")]
    let share = |list: &[&String]| list.len() as f64 / question.answered_by.len().max(1) as f64;
    Ok(Shares { found: share(&found), cited: share(&cited) })
}
