//! Converts merges of sandboxes.

use std::collections::BTreeMap;

use burrow_api as api;
use burrow_engine::{MemoryPolicy, MergeOptions, MergeReport, PastMerge};
use burrow_trees::plan::{Conflict, ConflictKind, Policies, Policy};

use super::diff::{diff_node, globs, noise, path};
use crate::convert;
use crate::error::ApiError;

pub fn merge_sandbox_options(request: &api::MergeSandbox) -> Result<MergeOptions, ApiError> {
    let patterns: Vec<String> = request.policies.iter().map(|rule| rule.glob.clone()).collect();
    let policies = request.policies.iter().map(|rule| policy(rule.policy));
    Ok(MergeOptions {
        dry_run: request.dry_run,
        policies: Policies {
            rules: globs("policies", &patterns)?.into_iter().zip(policies).collect(),
            otherwise: policy(request.policy),
        },
        all: request.all,
        memory: match request.memory {
            api::MergeMemoryPolicy::None => MemoryPolicy::None,
            api::MergeMemoryPolicy::List => MemoryPolicy::List,
            api::MergeMemoryPolicy::Ours => MemoryPolicy::Ours,
            api::MergeMemoryPolicy::Theirs => MemoryPolicy::Theirs,
            api::MergeMemoryPolicy::Both => MemoryPolicy::Both,
            api::MergeMemoryPolicy::Fail => MemoryPolicy::Fail,
        },
    })
}

fn policy(policy: api::MergePolicy) -> Policy {
    match policy {
        api::MergePolicy::Fail => Policy::Fail,
        api::MergePolicy::Ours => Policy::Ours,
        api::MergePolicy::Theirs => Policy::Theirs,
        api::MergePolicy::Union => Policy::Union,
        api::MergePolicy::Text => Policy::Text,
    }
}

pub fn merged_sandbox(merged: MergeReport, dry_run: bool) -> api::MergeReport {
    let changes = merged.changes;
    let lists = [
        ("added", changes.added),
        ("changed", changes.changed),
        ("deleted", changes.deleted),
        ("merged", changes.merged),
    ];
    let lists: BTreeMap<String, Vec<String>> =
        lists.into_iter().map(|(what, paths)| (what.to_owned(), paths)).collect();
    api::MergeReport {
        id: merged.id.map(String::from),
        parent: merged.parent.into(),
        child: merged.child.into(),
        base: merged.base.into(),
        dry_run,
        applied: merged.applied,
        undo: merged.undo.map(convert::snapshot),
        changes: lists,
        moved: changes.moved.into_iter().map(|(from, to)| api::MovedFile { from, to }).collect(),
        total: changes.total,
        cut: changes.cut,
        conflicts: merged.conflicts.into_iter().map(conflict).collect(),
        open: merged
            .open
            .into_iter()
            .map(|open| api::MergeOpenFile { path: open.path, pid: open.pid, program: open.program })
            .collect(),
        noise: noise(merged.noise),
        memory: merged.memory.map(|memory| convert::merged(memory, dry_run)),
        pause_us: merged.pause_us,
    }
}

fn conflict(conflict: Conflict) -> api::FileConflict {
    api::FileConflict {
        path: path(&conflict.path),
        kind: match conflict.kind {
            ConflictKind::BothChanged => api::MergeConflictKind::BothChanged,
            ConflictKind::BothAdded => api::MergeConflictKind::BothAdded,
            ConflictKind::DeletedByOurs => api::MergeConflictKind::DeletedByOurs,
            ConflictKind::DeletedByTheirs => api::MergeConflictKind::DeletedByTheirs,
            ConflictKind::Kind => api::MergeConflictKind::Kind,
            ConflictKind::Attributes => api::MergeConflictKind::Attributes,
            ConflictKind::Directory => api::MergeConflictKind::Directory,
        },
        base: conflict.base.as_ref().map(diff_node),
        ours: conflict.ours.as_ref().map(diff_node),
        theirs: conflict.theirs.as_ref().map(diff_node),
    }
}

pub fn past_merge(past: PastMerge) -> api::PastMerge {
    api::PastMerge {
        id: past.id.into(),
        child: past.child.into(),
        base: past.base.into(),
        undo: past.undo.into(),
        total: past.total,
        created_ms: past.created_ms,
    }
}
