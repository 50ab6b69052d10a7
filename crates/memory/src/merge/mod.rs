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
mod merged;
mod named;
mod open;
mod options;
mod pairs;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::OptionalExtension;

use crate::space::load::{integer, unsigned};
use crate::space::writer::{LogKind, Writer};
use crate::{MemoryError, SpaceId, View};
use incoming::{IncomingChanges, ParentKnowledge};
use open::Decisions;

pub use incoming::MERGE_ROWS_MAX;
pub use merged::{Contradiction, ContradictionKind, MergeCounts, MergeReport, Side};
pub use options::{EntryPolicy, KvPolicy, MergeOptions};

/// How often a merge is retried after a concurrent merge.
const TRIES_MAX: usize = 4;

impl View {
    /// Merges the changes of `child` into this branch, in one transaction.
    pub async fn merge(&self, child: &View, options: MergeOptions) -> Result<MergeReport, MemoryError> {
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        if self.of() == child.of() && !child.is_read_only() {
            return Err(MemoryError::SameBranch);
        }
        // Content that is about to be referred to must not be swept.
        let _placing = self.shared.artifacts.placing().await;
        for _ in 0..TRIES_MAX {
            let known = ParentKnowledge::of(self, &child.of().space).await?;
            let incoming = Arc::new(IncomingChanges::of(child, self, known).await?);
            if incoming.is_empty() {
                return Ok(MergeReport::default());
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
    DryRun(Box<MergeReport>),
    /// A concurrent merge came in between, so the comparison is outdated.
    Outdated,
}

/// `None` if a concurrent merge came in between.
async fn bring(
    view: &View,
    incoming: Arc<IncomingChanges>,
    options: MergeOptions,
) -> Result<Option<MergeReport>, MemoryError> {
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
            let (mut merged, mut decisions) = (MergeReport::default(), Decisions::default());
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

fn remember_merge(writer: &mut Writer<'_>, incoming: &IncomingChanges) -> Result<Option<u64>, MemoryError> {
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
