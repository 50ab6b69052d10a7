//! Brings what a child learned back to its parent.
//!
//! ```text
//!  parent   1 ─ 2 ─ 3 ──────── 6 ─ 7 ─ 8'  9'        8' and 9' are 4 and 5 again, as rows of the parent's own
//!               └─ child  4 ─ 5 ──────┘
//! ```
//!
//! Three states of every thing the child changed are compared: what both knew (*base*), what the child has, what the
//! parent has. Changed by the child alone: brought. By both, alike: joined. By both, differently: the parent's stays and
//! the contradiction is listed. The merge itself is a row of the log that says up to where the child was brought, so a
//! second one adds nothing, and one after the child went on adds only what is new. A parent that went back to before a
//! merge does not see that row, and can merge again. What was listed stays open until a merge with a policy decides it
//! (see [`open`]).
//!
//! One transaction. Between two spaces it works the same, with nothing as the first base.

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

/// Rows of a child that one merge brings: they are one transaction, and others wait behind it.
pub const MERGE_ROWS_MAX: usize = 100_000;

/// Contradictions that are told; the count goes on.
const CONTRADICTIONS_SHOWN_MAX: usize = 1_000;

/// How often a merge is tried again when another one came in between.
const TRIES_MAX: usize = 4;

/// Who wins where both sides changed the same entry, or learned what does not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryPolicy {
    /// The parent's stays.
    Ours,
    /// The child's is taken.
    Theirs,
    /// The parent's stays, and the child's comes beside it as an entry of its own.
    Both,
}

/// Who wins where both sides changed the same key, skill or artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvPolicy {
    /// The parent's stays.
    Ours,
    /// The child's is taken.
    Theirs,
    /// Nothing is merged at all.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeOptions {
    /// Tell what would happen, and change nothing.
    pub dry_run: bool,
    /// Without one the parent's stays, and the contradiction is listed and stays open.
    pub kv: Option<KvPolicy>,
    pub entries: Option<EntryPolicy>,
}

/// What a merge did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// Entries that are new here.
    pub added: u64,
    /// Entries that have a new version here.
    pub updated: u64,
    /// Entries that were here already, by id, key or text.
    pub joined: u64,
    /// Entries that the child forgot and nobody here had changed.
    pub forgotten: u64,
    pub kv: Brought,
    pub skills: Brought,
    pub artifacts: Brought,
    /// Outcomes of skills.
    pub outcomes: u64,
    pub contradictions: Vec<Contradiction>,
    /// All of them; the list ends at a thousand.
    pub contradiction_count: u64,
}

/// Of keys, skills or artifacts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    pub set: u64,
    pub removed: u64,
    /// Changed on both sides; the policy decided.
    pub contested: u64,
}

/// Two sides that do not agree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contradiction {
    pub kind: ContradictionKind,
    /// The entry's id, the key or the name.
    pub what: String,
    /// What is here, as text; empty for nothing.
    pub ours: String,
    pub theirs: String,
    /// Which of the two is here now.
    pub kept: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContradictionKind {
    /// Both sides changed an entry, differently.
    BothChanged,
    /// One side forgot an entry that the other changed.
    ForgottenAndChanged,
    /// The child replaced an entry as the truth that this side changed or forgot.
    SupersedesChanged,
    /// Two entries speak of the same subject and do not say the same.
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
    /// Brings what `child` has and this branch does not into this branch, in one transaction.
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

/// Why a job is taken back although nothing went wrong.
enum TakenBack {
    DryRun(Box<Merged>),
    /// Another merge came in between: what was compared is no longer so.
    Outdated,
}

/// `None` where another merge came in between.
async fn bring(
    view: &View,
    incoming: Arc<Incoming>,
    options: MergeOptions,
) -> Result<Option<Merged>, MemoryError> {
    let vectors = incoming.vectors(view).await;
    let subjects = incoming.subjects(view).await?;
    // A job that fails is rolled back; what a dry run learned leaves through here.
    let taken_back: Arc<Mutex<Option<TakenBack>>> = Arc::default();
    let told = Arc::clone(&taken_back);
    let model = view.shared.embedder.model().clone();
    let result = view
        .write_weighed(incoming.weight(), move |writer| {
            let tell = |what| *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
            *told.lock().unwrap_or_else(PoisonError::into_inner) = None;
            if merges_seen(writer, &incoming.space)? != incoming.merges {
                tell(TakenBack::Outdated);
                return Err(MemoryError::Closed);
            }
            let (mut merged, mut decisions) = (Merged::default(), Decisions::default());
            let with = entries::With { model: &model, vectors: vectors.as_deref(), ours: &subjects, options };
            let joined = entries::bring(writer, &incoming, with, &mut merged, &mut decisions)?;
            named::bring(writer, &incoming, options, &mut merged, &mut decisions)?;
            // What is only told once more changes nothing, and is no merge.
            let only_told = incoming.is_only_reopened() && !decisions.settle_any(&incoming.open);
            if options.dry_run || only_told {
                tell(TakenBack::DryRun(Box::new(merged)));
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
        (Err(MemoryError::Closed), Some(TakenBack::DryRun(merged))) => Ok(Some(*merged)),
        (Err(MemoryError::Closed), Some(TakenBack::Outdated)) => Ok(None),
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

/// How many merges from a space this branch has seen: whether another came in between.
fn merges_seen(writer: &Writer<'_>, space: &SpaceId) -> Result<u64, MemoryError> {
    let sql = "SELECT count(*) FROM merges WHERE from_space = ? AND sees(branch, seq)";
    let count = writer.connection().prepare_cached(sql)?.query_row([space.as_str()], |row| unsigned(row, 0));
    Ok(count.optional()?.unwrap_or(0))
}

/// Up to where other branches of a space were brought into this one.
fn merged_points(reader: &Reader<'_>, space: &SpaceId) -> Result<Vec<MemoryPoint>, MemoryError> {
    let sql = "SELECT from_branch, upto FROM merges WHERE from_space = ? AND sees(branch, seq)";
    let mut statement = reader.connection().prepare_cached(sql)?;
    let mut rows = statement.query([space.as_str()])?;
    let mut points = Vec::new();
    while let Some(row) = rows.next()? {
        let branch: String = row.get(0)?;
        let branch = branch.parse().map_err(|error: burrow_model::IdError| {
            crate::space::load::damaged(format!("a merge names no branch: {error}"))
        })?;
        points.push(MemoryPoint { branch, seq: unsigned(row, 1)? });
    }
    Ok(points)
}
