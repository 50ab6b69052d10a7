//! Converts statistics, merges, consolidation and checks.

use std::time::Duration;

use burrow_api::memory as api;
use burrow_engine::{MemoryScope, ScopedView};
use burrow_memory::consolidate::{ConsolidateReport, Policy};
use burrow_memory::merge::{
    Contradiction, ContradictionKind, EntryPolicy, KvPolicy, MergeOptions, MergeReport, Side,
};
use burrow_memory::{CheckReport, Stats};

use super::millis;
use super::spaces::access;
use crate::error::ApiError;
use crate::memory::Plan;
use burrow_config::ConsolidateConfig;

/// Limits of one request.
const ENTRIES_MAX: u64 = 1_000_000;
const BUDGET_MS_MAX: u64 = 600_000;

pub fn memory_stats(scope: &MemoryScope, space: &ScopedView, stats: Stats) -> api::MemoryStats {
    let of = space.view.of();
    let own = scope.sandbox.as_ref().is_some_and(|row| row.memory().space == space.space);
    let attached = scope.attached.iter().map(|attached| api::AttachedSpace {
        space: attached.label.clone(),
        access: access(attached.access),
    });
    api::MemoryStats {
        space: space.space.to_string(),
        name: (!own).then(|| space.label.clone()),
        branch: of.branch.to_string(),
        sandbox: scope.sandbox.as_ref().map(|row| row.id.to_string()),
        seq: stats.seq,
        entries: stats.entries,
        by_kind: stats.by_kind,
        cold: stats.cold,
        superseded: stats.superseded,
        sessions: stats.sessions,
        kv_keys: stats.kv_keys,
        skills: stats.skills,
        artifacts: stats.artifacts,
        text_bytes: stats.text_bytes,
        vectors: api::VectorCoverage {
            model: stats.vectors.model,
            covered: stats.vectors.covered,
            pending: stats.vectors.pending,
        },
        attached: attached.collect(),
    }
}

/// Absent fields take the operator's configuration.
pub fn consolidate_plan(
    request: &api::ConsolidateMemory,
    config: &ConsolidateConfig,
) -> Result<Plan, ApiError> {
    let entries = request.entries.unwrap_or(config.entries);
    if !(1..=ENTRIES_MAX).contains(&entries) {
        return Err(ApiError::invalid(format!("`entries` must be from 1 to {ENTRIES_MAX}")));
    }
    let budget_ms = request.budget_ms.unwrap_or(config.budget_ms);
    if !(1..=BUDGET_MS_MAX).contains(&budget_ms) {
        return Err(ApiError::invalid(format!("`budget_ms` must be from 1 to {BUDGET_MS_MAX}")));
    }
    if request.target_share.is_some_and(|share| !(0.01..=1.0).contains(&share)) {
        return Err(ApiError::invalid("`target_share` must be from 0.01 to 1"));
    }
    let older_than_ms = match request.older_than_seconds {
        Some(seconds) => millis("older_than_seconds", seconds)?,
        None => config.older_than_ms,
    };
    Ok(Plan {
        dry_run: request.dry_run,
        policy: Policy { older_than_ms, target_share: request.target_share, ..Policy::usual() },
        entries_max: usize::try_from(entries).unwrap_or(usize::MAX),
        time_max: Duration::from_millis(budget_ms),
    })
}

pub fn consolidated(done: ConsolidateReport, dry_run: bool) -> api::ConsolidatedMemory {
    api::ConsolidatedMemory {
        dry_run,
        examined: done.examined,
        joined: done.joined,
        rolled_up: done.rolled_up,
        cooled: done.cooled,
        summaries: done.summaries.into_iter().map(String::from).collect(),
        fell_back: done.fell_back,
        before: done.warm_before,
        after: done.warm_after,
        more: !done.finished,
    }
}

pub fn memory_check(report: CheckReport, took: Duration) -> api::MemoryCheck {
    let CheckReport { rows, vectors, pending, branches, seq, artifacts, artifact_bytes, findings } = report;
    let part = |part: &str, count: u64| api::MemoryPart { part: part.to_owned(), count };
    api::MemoryCheck {
        ok: findings.is_empty(),
        parts: vec![
            part("versions", rows),
            part("vectors", vectors),
            part("pending", pending),
            part("branches", branches),
            part("log", seq),
            part("artifacts", artifacts),
            part("artifact bytes", artifact_bytes),
        ],
        problems: findings.into_iter().map(|finding| format!("{}: {}", finding.part, finding.why)).collect(),
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    }
}

pub fn merge_options(request: &api::MergeMemory) -> MergeOptions {
    let kv = request.kv.map(|kv| match kv {
        api::KvPolicy::Ours => KvPolicy::Ours,
        api::KvPolicy::Theirs => KvPolicy::Theirs,
        api::KvPolicy::Fail => KvPolicy::Fail,
    });
    let entries = request.entries.map(|entries| match entries {
        api::EntryPolicy::Ours => EntryPolicy::Ours,
        api::EntryPolicy::Theirs => EntryPolicy::Theirs,
        api::EntryPolicy::Both => EntryPolicy::Both,
    });
    MergeOptions { dry_run: request.dry_run, kv, entries }
}

pub fn merged(merged: MergeReport, dry_run: bool) -> api::MergedMemory {
    let (keys, others): (Vec<Contradiction>, Vec<Contradiction>) =
        merged.contradictions.into_iter().partition(|both| both.kind == ContradictionKind::Key);
    api::MergedMemory {
        dry_run,
        added: merged.added,
        joined: merged.joined,
        updated: merged.updated + merged.forgotten,
        contradictions: others.into_iter().map(contradiction).collect(),
        kv: merged.kv.set + merged.kv.removed,
        kv_conflicts: keys.into_iter().map(conflict).collect(),
        skills: merged.skills.set + merged.skills.removed,
        artifacts: merged.artifacts.set + merged.artifacts.removed,
    }
}

fn contradiction(both: Contradiction) -> api::Contradiction {
    let about = match both.kind {
        ContradictionKind::BothChanged => "both changed entry",
        ContradictionKind::ForgottenAndChanged => "one forgot and the other changed entry",
        ContradictionKind::SupersedesChanged => {
            "their version replaces an entry that was changed here, entry"
        }
        ContradictionKind::SameSubject => "two entries contradict each other on the same subject, entry",
        ContradictionKind::Key => "both changed key",
        ContradictionKind::Skill => "both changed skill",
        ContradictionKind::Artifact => "both changed artifact",
    };
    let kept = match both.kept {
        Side::Ours => "our version stays",
        Side::Theirs => "their version was taken",
        Side::Both => "both are kept",
    };
    api::Contradiction {
        ours: both.ours,
        theirs: both.theirs,
        why: format!("{about} `{}`; {kept}", both.what),
    }
}

fn conflict(both: Contradiction) -> api::MergeConflict {
    let text = |text: String| (!text.is_empty()).then_some(text);
    api::MergeConflict {
        key: both.what,
        ours: text(both.ours),
        theirs: text(both.theirs),
        taken: match both.kept {
            Side::Ours | Side::Both => api::KvPolicy::Ours,
            Side::Theirs => api::KvPolicy::Theirs,
        },
    }
}
