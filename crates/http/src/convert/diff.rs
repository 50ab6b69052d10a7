//! Converts differences of trees.

use burrow_api as api;
use burrow_disks::{Tree, UID_SHIFT};
use burrow_engine::{DiffEntry, DiffOptions, DiffResult, TreeSource};
use burrow_trees::diff::DifferenceKinds;
use burrow_trees::glob::Glob;
use burrow_trees::{Kind, Node};

use crate::error::ApiError;

/// Maximum number of patterns in one request.
const GLOBS_MAX: usize = 100;

/// Entries of a response: the default, and the maximum.
const ENTRIES: u32 = 10_000;
const ENTRIES_MAX: u32 = 100_000;

pub fn diff_options(request: &api::DiffRequest) -> Result<DiffOptions, ApiError> {
    let limit = request.limit.unwrap_or(ENTRIES);
    if !(1..=ENTRIES_MAX).contains(&limit) {
        return Err(ApiError::invalid(format!("`limit` must be from 1 to {ENTRIES_MAX}, not {limit}")));
    }
    Ok(DiffOptions {
        globs: globs("globs", &request.globs)?,
        all: request.all,
        content: request.content,
        entries_max: limit as usize,
    })
}

pub(super) fn globs(field: &str, patterns: &[String]) -> Result<Vec<Glob>, ApiError> {
    if patterns.len() > GLOBS_MAX {
        return Err(ApiError::invalid(format!("`{field}` has at most {GLOBS_MAX} patterns")));
    }
    let parse = |pattern: &String| {
        pattern.parse().map_err(|error| ApiError::invalid(format!("invalid `{field}`: {error}")))
    };
    patterns.iter().map(parse).collect()
}

pub fn diff(old: &TreeSource, new: &TreeSource, diffed: DiffResult) -> api::Diff {
    api::Diff {
        from: diff_side(old),
        to: diff_side(new),
        base: diffed.base.as_ref().map(tree_side),
        entries: diffed.entries.into_iter().map(entry).collect(),
        added: diffed.counts.added,
        changed: diffed.counts.changed,
        deleted: diffed.counts.deleted,
        old_bytes: diffed.counts.old_bytes,
        new_bytes: diffed.counts.new_bytes,
        noise: noise(diffed.noise),
        cut: diffed.cut,
    }
}

pub(super) fn noise(noise: std::collections::BTreeMap<&'static str, u64>) -> Vec<api::DiffNoise> {
    noise.into_iter().map(|(what, count)| api::DiffNoise { what: what.to_owned(), count }).collect()
}

fn diff_side(of: &TreeSource) -> api::DiffSide {
    let kind = match of {
        TreeSource::Sandbox(_) => api::DiffSideKind::Sandbox,
        TreeSource::Snapshot(_) => api::DiffSideKind::Snapshot,
        TreeSource::Image(_) => api::DiffSideKind::Image,
    };
    api::DiffSide { kind, id: of.id().to_owned() }
}

pub(super) fn tree_side(tree: &Tree) -> api::DiffSide {
    let (kind, id) = match tree {
        Tree::Image(id) => (api::DiffSideKind::Image, id.to_string()),
        Tree::Snapshot(id) | Tree::Frozen(id) => (api::DiffSideKind::Snapshot, id.to_string()),
    };
    api::DiffSide { kind, id }
}

fn entry(entry: DiffEntry) -> api::DiffEntry {
    let difference = entry.difference;
    let change = match (&difference.old, &difference.new) {
        (None, _) => api::ChangeKind::Added,
        (Some(_), None) => api::ChangeKind::Deleted,
        (Some(_), Some(_)) => api::ChangeKind::Changed,
    };
    let is_link = matches!(&difference.new, Some(Node { kind: Kind::Link { .. }, .. }));
    api::DiffEntry {
        path: path(&difference.path),
        change,
        what: aspects(difference.what, is_link),
        old: difference.old.as_ref().map(diff_node),
        new: difference.new.as_ref().map(diff_node),
        lines: entry.lines.map(|lines| api::DiffLines {
            added: lines.added,
            removed: lines.removed,
            hunks: lines.hunks,
            cut: lines.cut,
        }),
    }
}

/// A path as text; bytes that are not UTF-8 are replaced.
pub(super) fn path(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn aspects(what: DifferenceKinds, is_link: bool) -> Vec<api::DiffAspect> {
    let target = if is_link { api::DiffAspect::Link } else { api::DiffAspect::Device };
    [
        (what.content, api::DiffAspect::Content),
        (what.kind, api::DiffAspect::Kind),
        (what.mode, api::DiffAspect::Mode),
        (what.owner, api::DiffAspect::Owner),
        (what.target, target),
        (what.attributes, api::DiffAspect::Xattr),
    ]
    .into_iter()
    .filter(|(differs, _)| *differs)
    .map(|(_, aspect)| aspect)
    .collect()
}

pub(super) fn diff_node(node: &Node) -> api::DiffNode {
    let (kind, target) = match &node.kind {
        Kind::File { .. } => (api::FileKind::File, None),
        Kind::Directory => (api::FileKind::Directory, None),
        Kind::Link { target } => (api::FileKind::Symlink, Some(path(target))),
        Kind::Pipe | Kind::Socket | Kind::Block { .. } | Kind::Character { .. } => {
            (api::FileKind::Other, None)
        }
    };
    api::DiffNode {
        kind,
        size: node.bytes(),
        mode: format!("{:04o}", node.mode),
        // As seen inside the sandbox.
        uid: node.uid.saturating_sub(UID_SHIFT),
        gid: node.gid.saturating_sub(UID_SHIFT),
        target,
        xattrs: node.attributes.keys().map(|name| path(name)).collect(),
    }
}
