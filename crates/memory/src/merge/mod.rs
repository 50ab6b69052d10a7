//! Merges the changes of a child branch into its parent.
//!
//! ```text
//!  parent   1 ─ 2 ─ 3 ──────── 6 ─ 7 ─ 8'  9'        8' and 9' are 4 and 5, copied as rows of the parent
//!               └─ child  4 ─ 5 ──────┘
//! ```
//!
//! For every object that the child changed, three states are compared: the common one (*base*), the child's, and the
//! parent's. Changed by the child alone: copied. Changed by both in the same way: joined. Changed by both differently: the
//! parent's state stays and the contradiction is listed. The merge itself is a row of the log that records the point up to which the
//! child was merged. So a second merge adds nothing, and a merge after further changes of the child adds only those. A parent
//! that is restored to before a merge does not see that row, and can merge again. Listed contradictions stay open until a merge
//! with a policy decides them (see [`open`]).
//!
//! A merge is one transaction. Between two spaces it works the same, with an empty base for the first merge.

mod entries;
mod incoming;
mod named;
mod open;
mod pairs;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::OptionalExtension;
use serde::{Deserialize, Serialize};

use crate::space::load::{integer, unsigned};
use crate::space::writer::{LogKind, Writer};
use crate::{MemoryError, MemoryPoint, Reader, SpaceId, View};
use incoming::{Incoming, Known};
use open::Decisions;

/// Rows of a child that one merge copies: they are one transaction, and other writers wait for it.
pub const MERGE_ROWS_MAX: usize = 100_000;

/// Contradictions that are reported; the count includes all.
const CONTRADICTIONS_SHOWN_MAX: usize = 1_000;

/// How often a merge is retried after a concurrent merge.
const TRIES_MAX: usize = 4;

/// The side that wins if both changed the same entry, or added contradicting ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryPolicy {
    /// The parent's state is kept.
    Ours,
    /// The child's state is taken.
    Theirs,
    /// The parent's state is kept, and the child's is added as a separate entry.
    Both,
}

/// The side that wins if both changed the same key, skill or artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvPolicy {
    /// The parent's state is kept.
    Ours,
    /// The child's state is taken.
    Theirs,
    /// Nothing is merged at all.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeOptions {
    /// Report what would happen, and change nothing.
    pub dry_run: bool,
    /// Without a policy, the parent's state is kept, and the contradiction is listed and stays open.
    pub kv: Option<KvPolicy>,
    pub entries: Option<EntryPolicy>,
}

/// The result of a merge or a dry run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// Entries that were added here.
    pub added: u64,
    /// Entries that were updated here.
    pub updated: u64,
    /// Entries that existed here already, by id, key or text.
    pub joined: u64,
    /// Entries that the child forgot and that were unchanged here.
    pub forgotten: u64,
    pub kv: MergeCounts,
    pub skills: MergeCounts,
    pub artifacts: MergeCounts,
    /// Outcomes of skills.
    pub outcomes: u64,
    pub contradictions: Vec<Contradiction>,
    /// The number of all contradictions; the list ends at a thousand.
    pub contradiction_count: u64,
}

/// Counts of keys, skills or artifacts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeCounts {
    pub set: u64,
    pub removed: u64,
    /// Changed on both sides; the policy decided.
    pub contested: u64,
}

/// Two states that contradict each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contradiction {
    pub kind: ContradictionKind,
    /// The entry's id, the key or the name.
    pub what: String,
    /// The state here, as text; empty if there is none.
    pub ours: String,
    pub theirs: String,
    /// Which of the two states is here now.
    pub kept: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContradictionKind {
    /// Both sides changed an entry, differently.
    BothChanged,
    /// One side forgot an entry that the other changed.
    ForgottenAndChanged,
    /// The child superseded an entry that this side changed or forgot.
    SupersedesChanged,
    /// Two entries have the same subject and different content.
    SameSubject,
    Key,
    Skill,
    Artifact,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Ours,
    Theirs,
    Both,
}

impl Merged {
    fn contradict(&mut self, kind: ContradictionKind, what: &str, ours: &str, theirs: &str, kept: Side) {
        self.contradiction_count += 1;
        if self.contradictions.len() < CONTRADICTIONS_SHOWN_MAX {
            let shown = |text: &str| crate::remember::cut(text, 400);
            let (what, ours, theirs) = (shown(what), shown(ours), shown(theirs));
            self.contradictions.push(Contradiction { kind, what, ours, theirs, kept });
        }
    }
}

impl View {
    /// Merges the changes of `child` into this branch, in one transaction.
    pub async fn merge(&self, child: &View, options: MergeOptions) -> Result<Merged, MemoryError> {
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        if self.of() == child.of() && !child.is_read_only() {
            return Err(MemoryError::SameBranch);
        }
        // Content that is about to be referred to must not be swept.
        let _placing = self.shared.artifacts.placing().await;
        for _ in 0..TRIES_MAX {
            let known = Known::of(self, &child.of().space).await?;
            let incoming = Arc::new(Incoming::of(child, self, known).await?);
            if incoming.is_empty() {
                return Ok(Merged::default());
            }
            if let Some(merged) = bring(self, incoming, options).await? {
                return Ok(merged);
            }
        }
        Err(MemoryError::Busy { space: self.of().space.clone() })
    }
}

/// Why a job is rolled back without an error.
enum RollbackReason {
    DryRun(Box<Merged>),
    /// A concurrent merge came in between, so the comparison is outdated.
    Outdated,
}

/// `None` if a concurrent merge came in between.
async fn bring(
    view: &View,
    incoming: Arc<Incoming>,
    options: MergeOptions,
) -> Result<Option<Merged>, MemoryError> {
    let vectors = incoming.vectors(view).await;
    let subjects = incoming.subjects(view).await?;
    // A job that fails is rolled back; this passes out the result of a dry run.
    let taken_back: Arc<Mutex<Option<RollbackReason>>> = Arc::default();
    let reason = Arc::clone(&taken_back);
    let model = view.shared.embedder.model().clone();
    let result = view
        .write_weighed(incoming.weight(), move |writer| {
            let set_reason = |what| *reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
            *reason.lock().unwrap_or_else(PoisonError::into_inner) = None;
            if merges_seen(writer, &incoming.space)? != incoming.merges {
                set_reason(RollbackReason::Outdated);
                return Err(MemoryError::Closed);
            }
            let (mut merged, mut decisions) = (Merged::default(), Decisions::default());
            let with = entries::MergeContext {
                model: &model,
                vectors: vectors.as_deref(),
                ours: &subjects,
                options,
            };
            let joined = entries::bring(writer, &incoming, with, &mut merged, &mut decisions)?;
            named::bring(writer, &incoming, options, &mut merged, &mut decisions)?;
            // Contradictions that are only listed again change nothing, and are no merge.
            let only_listed = incoming.is_only_reopened() && !decisions.settle_any(&incoming.open);
            if options.dry_run || only_listed {
                set_reason(RollbackReason::DryRun(Box::new(merged)));
                return Err(MemoryError::Closed);
            }
            if let Some(seq) = remember_merge(writer, &incoming)? {
                entries::remember_joins(writer, seq, &joined)?;
                open::remember(writer, seq, &decisions, &incoming.open)?;
            }
            Ok(merged)
        })
        .await;
    let taken_back = taken_back.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (result, taken_back) {
        (Ok(merged), _) => {
            view.shared.slots.pending.notify_one();
            Ok(Some(merged))
        }
        (Err(MemoryError::Closed), Some(RollbackReason::DryRun(merged))) => Ok(Some(*merged)),
        (Err(MemoryError::Closed), Some(RollbackReason::Outdated)) => Ok(None),
        (Err(error), _) => Err(error),
    }
}

fn remember_merge(writer: &mut Writer<'_>, incoming: &Incoming) -> Result<Option<u64>, MemoryError> {
    let Some(point) = &incoming.upto else { return Ok(None) };
    let seq = writer.next_seq(LogKind::Merge)?;
    writer
        .connection()
        .prepare_cached(
            "INSERT INTO merges (seq, branch, from_space, from_branch, upto) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute((
            integer(seq),
            writer.branch(),
            incoming.space.as_str(),
            point.branch.as_str(),
            integer(point.seq),
        ))?;
    Ok(Some(seq))
}

/// The number of merges from a space that this branch has seen, to detect concurrent merges.
fn merges_seen(writer: &Writer<'_>, space: &SpaceId) -> Result<u64, MemoryError> {
    let sql = "SELECT count(*) FROM merges WHERE from_space = ? AND sees(branch, seq)";
    let count = writer.connection().prepare_cached(sql)?.query_row([space.as_str()], |row| unsigned(row, 0));
    Ok(count.optional()?.unwrap_or(0))
}

/// The points up to which other branches of a space were merged into this one.
fn merged_points(reader: &Reader<'_>, space: &SpaceId) -> Result<Vec<MemoryPoint>, MemoryError> {
    let sql = "SELECT from_branch, upto FROM merges WHERE from_space = ? AND sees(branch, seq)";
    let mut statement = reader.connection().prepare_cached(sql)?;
    let mut rows = statement.query([space.as_str()])?;
    let mut points = Vec::new();
    while let Some(row) = rows.next()? {
        let branch: String = row.get(0)?;
        let branch = branch.parse().map_err(|error: burrow_model::IdError| {
            crate::space::load::damaged(format!("the row of a merge has an invalid branch: {error}"))
        })?;
        points.push(MemoryPoint { branch, seq: unsigned(row, 1)? });
    }
    Ok(points)
}
