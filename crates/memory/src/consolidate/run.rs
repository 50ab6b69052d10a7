//! Executes a plan, one transaction per step.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::Policy;
use super::digest::{SENTENCES_CHARACTERS, Source, Summariser, compose, extract};
use super::plan::{Plan, RollUp, plan};
use super::reach::KIND_SUMMARY;
use super::twins::DuplicateGroup;
use crate::entries::{add, embed_now, update};
use crate::limits::{LINKS_MAX, TEXT_BYTES_MAX};
use crate::space::marks::Mark;
use crate::space::writer::Writer;
use crate::{Entry, EntryChange, IMPORTANCE_USUAL, MemoryError, MemoryId, NewEntry, View};

/// The options of one run.
#[derive(Clone, Copy, Debug)]
pub struct ConsolidateOptions<'a> {
    /// Report what would be done, and change nothing.
    pub dry_run: bool,
    pub policy: &'a Policy,
    /// Warm entries that are read, oldest first: the limit of RAM for one run.
    pub entries_max: usize,
    /// No step begins after this time.
    pub time_max: Duration,
    /// Writes summaries; if it is `None` or fails, an extract of the sources is used.
    pub summariser: Option<&'a dyn Summariser>,
}

/// The result of a run or a dry run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ConsolidateReport {
    pub examined: u64,
    /// Entries that became cold because another has the same text.
    pub joined: u64,
    /// Groups that were summarised, and their entries that became cold.
    pub rolled_up: u64,
    pub cooled: u64,
    pub summaries: Vec<MemoryId>,
    /// Summaries that the model failed to write, and that are extracts of the sources instead.
    pub fell_back: u64,
    /// Entries that a search covers by default.
    pub warm_before: u64,
    pub warm_after: u64,
    /// Whether all planned steps were done (or would be).
    pub finished: bool,
    pub plan: Plan,
}

impl View {
    /// One run of consolidation. If it is interrupted, the next one continues.
    pub async fn consolidate(
        &self,
        options: ConsolidateOptions<'_>,
    ) -> Result<ConsolidateReport, MemoryError> {
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        let begun = Instant::now();
        let (entries, warm_before) = warm(self, options.entries_max).await?;
        let now_ms = self.now_ms();
        let policy = options.policy.clone();
        let (entries, plan) = crate::blocking(move || {
            let plan = plan(&entries, &policy, now_ms);
            Ok((entries, plan))
        })
        .await?;
        let mut done = ConsolidateReport {
            examined: entries.len() as u64,
            joined: 0,
            rolled_up: 0,
            cooled: 0,
            summaries: Vec::new(),
            fell_back: 0,
            warm_before,
            warm_after: warm_before,
            finished: true,
            plan,
        };
        if options.dry_run {
            count_planned_steps(&mut done);
            return Ok(done);
        }
        let by_id: HashMap<&MemoryId, &Entry> = entries.iter().map(|entry| (&entry.id, entry)).collect();
        for join in &done.plan.joins.clone() {
            if begun.elapsed() > options.time_max {
                done.finished = false;
                break;
            }
            done.joined += carry_out_join(self, join).await?;
        }
        for roll_up in &done.plan.roll_ups.clone() {
            if begun.elapsed() > options.time_max {
                done.finished = false;
                break;
            }
            carry_out_roll_up(self, roll_up, &by_id, options.summariser, &mut done).await?;
        }
        done.warm_after = warm_before + done.summaries.len() as u64 - done.joined - done.cooled;
        Ok(done)
    }
}

fn count_planned_steps(done: &mut ConsolidateReport) {
    done.joined = done.plan.joins.iter().map(|join| join.gone.len() as u64).sum();
    done.rolled_up = done.plan.roll_ups.len() as u64;
    done.cooled = done.plan.roll_ups.iter().map(|roll_up| roll_up.sources.len() as u64).sum();
    done.warm_after = done.warm_before + done.rolled_up - done.joined - done.cooled;
}

/// The oldest warm entries, and the number of all of them.
async fn warm(view: &View, entries_max: usize) -> Result<(Vec<Entry>, u64), MemoryError> {
    view.read(move |reader| {
        let mut rows: Vec<_> =
            reader.rows().filter(|row| !reader.cold(*row) && reader.superseded_by(*row).is_none()).collect();
        let count = rows.len() as u64;
        rows.reverse();
        rows.truncate(entries_max);
        Ok((reader.entries(&rows)?, count))
    })
    .await
}

/// The kept entry counts the others and cites them; the others become cold.
async fn carry_out_join(view: &View, join: &DuplicateGroup) -> Result<u64, MemoryError> {
    let join = join.clone();
    let keep = match view.get(&join.keep).await {
        // It was forgotten since the plan was made.
        Err(MemoryError::NotFound { .. }) => return Ok(0),
        found => found?,
    };
    let mut gone = Vec::new();
    for id in &join.gone {
        match view.get(id).await {
            Ok(entry) if !entry.cold => gone.push(entry),
            Ok(_) | Err(MemoryError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if gone.is_empty() {
        return Ok(0);
    }
    let times: u64 = gone.iter().map(|entry| entry.count).sum();
    let importance = gone.iter().map(|entry| entry.importance).fold(keep.importance, f32::max);
    let mut links = keep.links.clone();
    links.extend(gone.iter().map(|entry| entry.id.clone()).filter(|id| !keep.links.contains(id)));
    links.truncate(LINKS_MAX);
    let changed = links != keep.links || importance > keep.importance;
    let model = view.shared.embedder.model().clone();
    view.write_weighed(gone.len() + 2, move |writer| {
        let Some(current) = writer.find(&keep.id)? else { return Ok(0) };
        if changed && current.seq == keep.seq {
            let change = EntryChange {
                importance: Some(importance),
                links: Some(links.clone()),
                ..EntryChange::nothing()
            };
            update(writer, &keep.id, &change, None, &model, None)?;
        }
        writer.mark(current.entity, Mark::Repeated(times))?;
        cool(writer, gone.iter().map(|entry| (&entry.id, entry.seq)))
    })
    .await
}

/// Marks entries as cold if they are unchanged since the plan was made; changed entries stay warm.
fn cool<'a>(
    writer: &mut Writer<'_>,
    entries: impl Iterator<Item = (&'a MemoryId, u64)>,
) -> Result<u64, MemoryError> {
    let mut cooled = 0;
    for (id, seq) in entries {
        if let Some(current) = writer.find(id)?
            && current.seq == seq
        {
            writer.mark(current.entity, Mark::Cooled)?;
            cooled += 1;
        }
    }
    Ok(cooled)
}

async fn carry_out_roll_up(
    view: &View,
    roll_up: &RollUp,
    by_id: &HashMap<&MemoryId, &Entry>,
    summariser: Option<&dyn Summariser>,
    done: &mut ConsolidateReport,
) -> Result<(), MemoryError> {
    let entries: Vec<&Entry> = roll_up.sources.iter().filter_map(|id| by_id.get(id).copied()).collect();
    let sources: Vec<Source> = entries
        .iter()
        .map(|entry| Source { at_ms: entry.at_ms, kind: entry.kind.clone(), text: entry.text.clone() })
        .collect();
    let sentences = match summariser {
        None => extract(&sources, SENTENCES_CHARACTERS),
        Some(summariser) => match summariser.summarise(&sources, SENTENCES_CHARACTERS).await {
            Ok(said) => crate::remember::cut(&said, SENTENCES_CHARACTERS * 2),
            Err(error) => {
                tracing::warn!(%error, "could not get a summary from the model; using an extract of the sources");
                done.fell_back += 1;
                extract(&sources, SENTENCES_CHARACTERS)
            }
        },
    };
    let summary = summary_entry(roll_up, &entries, &compose(&roll_up.title, &sources, &sentences));
    let (embedder, text) = (Arc::clone(&view.shared.embedder), summary.text.clone());
    let model = embedder.model().clone();
    let vector =
        embed_now(embedder, text.len(), move |each| each(&text)).await.and_then(|mut vectors| vectors.pop());
    let id = MemoryId::generate();
    let cited: Vec<(MemoryId, u64)> = entries.iter().map(|entry| (entry.id.clone(), entry.seq)).collect();
    let (id, cooled) = view
        .write_weighed(cited.len() + 1, move |writer| {
            let added = add(writer, &id, &summary, vector.as_deref().map(|vector| (&model, vector)))?;
            Ok((added.id, cool(writer, cited.iter().map(|(id, seq)| (id, *seq)))?))
        })
        .await?;
    done.summaries.push(id);
    done.rolled_up += 1;
    done.cooled += cooled;
    Ok(())
}

fn summary_entry(roll_up: &RollUp, entries: &[&Entry], text: &str) -> NewEntry {
    let mut hash = blake3::Hasher::new();
    entries.iter().for_each(|entry| {
        hash.update(entry.id.as_str().as_bytes());
        hash.update(&entry.seq.to_le_bytes());
    });
    let mut metadata = Map::new();
    let (first, last) =
        (entries.first().map_or(0, |entry| entry.at_ms), entries.last().map_or(0, |entry| entry.at_ms));
    metadata.insert("sources".to_owned(), json!(entries.len()));
    metadata.insert("from_ms".to_owned(), Value::from(first));
    metadata.insert("to_ms".to_owned(), Value::from(last));
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    NewEntry {
        // The same sources are summarised only once, even if the step is repeated.
        key: Some(format!("summary:{}", &hash.finalize().to_hex().as_str()[..40])),
        kind: KIND_SUMMARY.to_owned(),
        metadata,
        importance: IMPORTANCE_USUAL,
        source: Some("consolidation".to_owned()),
        session: roll_up.session.clone(),
        user: roll_up.user.clone(),
        agent: roll_up.agent.clone(),
        at_ms: Some(last),
        links: entries.iter().map(|entry| entry.id.clone()).take(LINKS_MAX).collect(),
        ..NewEntry::note(&text[..end])
    }
}
