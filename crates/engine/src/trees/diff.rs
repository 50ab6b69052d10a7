//! Differences between any two of sandboxes, snapshots and images.
//!
//! ```text
//!   both held ─► their common ancestor ─► paths that each changed since, from the pool ─► these paths, compared in both
//! ```
//!
//! Trees on disks of their own are first read in a machine: see [`crate::trees::disks`]. The time grows with the number of changes. Two
//! trees without a common ancestor are compared completely.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use burrow_disks::{ChangedPath, Comparison, DiskError, TimeComparison, Tree};
use burrow_model::TenantId;
use burrow_runtime::Runtime;
use burrow_trees::diff::{self, Difference};
use burrow_trees::glob::Glob;
use burrow_trees::text::{self, UnifiedDiff};
use burrow_trees::{Root, TreeError, noise};

use super::disks::{self, DiskParts};
use super::held_tree::HeldTree;
use super::held_trees::{self, TreeSource, common};
use crate::shared::Shared;
use crate::{Engine, EngineError};

/// Paths that are walked in a whole tree, if two have no common ancestor.
const WALKED_MAX: usize = 2_000_000;

/// Bytes of hunks of one file, and of all together: as much as a person reads, and as much as a client can hold.
const HUNKS_BYTES_MAX: usize = 256 << 10;
const HUNKS_BYTES_TOTAL_MAX: usize = 8 << 20;

#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// Only paths that match one of these; all if empty.
    pub globs: Vec<Glob>,
    /// Include noise, and files that the host keeps in a sandbox.
    pub all: bool,
    /// Include the lines of text files that differ.
    pub content: bool,
    /// Maximum number of entries in the answer; more are only counted.
    pub entries_max: usize,
}

#[derive(Clone, Debug)]
pub struct DiffResult {
    /// The common ancestor; `None` if there is none.
    pub base: Option<Tree>,
    /// Sorted by path.
    pub entries: Vec<DiffEntry>,
    pub counts: DiffCounts,
    /// Paths omitted as noise, by kind.
    pub noise: BTreeMap<&'static str, u64>,
    /// More differs than `entries` holds.
    pub cut: bool,
}

/// Counts of all differences, including those not in the entries, without noise that is omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffCounts {
    pub added: u64,
    pub changed: u64,
    pub deleted: u64,
    /// Bytes of files on each side.
    pub old_bytes: u64,
    pub new_bytes: u64,
}

#[derive(Clone, Debug)]
pub struct DiffEntry {
    pub difference: Difference,
    /// For a text file whose content differs, if requested.
    pub lines: Option<UnifiedDiff>,
}

impl Engine {
    /// The differences of `new` from `old`.
    pub async fn diff(
        &self,
        tenant: &TenantId,
        old: &TreeSource,
        new: &TreeSource,
        options: DiffOptions,
    ) -> Result<DiffResult, EngineError> {
        let shared = &self.shared;
        let base = common(shared, tenant, old, new).await?;
        let driver = match disks::driver_of(shared, old)? {
            Some(driver) => Some(driver),
            None => disks::driver_of(shared, new)?,
        };
        if let Some(driver) = driver {
            let compared = diff_disks(shared, tenant, &driver, [old, new], options).await?;
            return Ok(DiffResult { base, ..compared });
        }
        let (held_old, held_new) =
            (held_trees::hold(shared, old).await?, held_trees::hold(shared, new).await?);
        let compared = async {
            let names = names(shared, base.as_ref(), &held_old, &held_new).await?;
            compare_trees(held_old.path.clone(), held_new.path.clone(), names, options).await
        };
        let compared = compared.await;
        held_old.release().await;
        held_new.release().await;
        Ok(DiffResult { base, ..compared? })
    }
}

/// Two trees of which at least one is on a disk.
async fn diff_disks(
    shared: &Arc<Shared>,
    tenant: &TenantId,
    driver: &Arc<dyn Runtime>,
    [old, new]: [&TreeSource; 2],
    options: DiffOptions,
) -> Result<DiffResult, EngineError> {
    let old = disks::hold(shared, tenant, driver, old).await?;
    let new = disks::hold(shared, tenant, driver, new).await?;
    let wanted = |path: &[u8]| is_wanted(path, &options);
    let parts = disks::parts(shared, driver, &[&old.held.path, &new.held.path], wanted).await;
    old.held.release().await;
    new.held.release().await;
    let DiskParts { trees, identities: _, changed, scratch } = parts?;
    let names = changed.into_iter().flatten().map(|one| one.path).collect();
    let compared = compare_trees(trees[0].clone(), trees[1].clone(), Some(names), options).await;
    scratch.release().await;
    compared
}

/// Paths at which two trees may differ; `None` if unknown, which means all.
async fn names(
    shared: &Arc<Shared>,
    base: Option<&Tree>,
    old: &HeldTree,
    new: &HeldTree,
) -> Result<Option<BTreeSet<Vec<u8>>>, EngineError> {
    let Some(base) = base else {
        // The pool compares them if it can; otherwise they are walked.
        return match shared.seams.disks.compare(&old.tree, &new.tree, TimeComparison::Ignored).await {
            Ok(Comparison { paths, more: false }) => {
                Ok(Some(paths.into_iter().map(|path| path.path).collect()))
            }
            Ok(Comparison { more: true, .. }) | Err(DiskError::Step { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        };
    };
    let base = held_trees::pinned(shared, base.clone()).await?;
    let mut found = BTreeSet::new();
    for side in [old, new] {
        if side.tree != base.tree {
            found.extend(changed_since(shared, &base, side).await?.into_iter().map(|changed| changed.path));
        }
    }
    base.release().await;
    Ok(Some(found))
}

/// The paths that a tree has changed since an ancestor.
pub(crate) async fn changed_since(
    shared: &Shared,
    base: &HeldTree,
    side: &HeldTree,
) -> Result<Vec<ChangedPath>, EngineError> {
    let compared = shared.seams.disks.compare(&base.tree, &side.tree, TimeComparison::Ignored).await?;
    if compared.more {
        return Err(EngineError::TooDifferent { changed: compared.paths.len() });
    }
    Ok(compared.paths)
}

async fn compare_trees(
    old: PathBuf,
    new: PathBuf,
    names: Option<BTreeSet<Vec<u8>>>,
    options: DiffOptions,
) -> Result<DiffResult, EngineError> {
    blocking(move || {
        let (old, new) = (Root::open(&old)?, Root::open(&new)?);
        let names = match names {
            Some(names) => names,
            None => old.walk(WALKED_MAX)?.into_iter().chain(new.walk(WALKED_MAX)?).collect(),
        };
        let mut noisy = BTreeMap::new();
        let wanted = names.into_iter().filter(|path| is_wanted(path, &options));
        let wanted: BTreeSet<_> = wanted.collect();
        let (quiet, loud) = wanted.into_iter().partition(|path| !options.all && noise::of(path).is_some());
        // Counts actual differences, not paths that may differ.
        for difference in diff::compare(&old, &new, &quiet)? {
            *noisy.entry(noise::of(&difference.path).unwrap_or_default()).or_default() += 1;
        }
        let differences = diff::compare(&old, &new, &loud)?;
        let counts = count(&differences);
        let cut = differences.len() > options.entries_max;
        let mut room = HUNKS_BYTES_TOTAL_MAX;
        let mut entries = Vec::new();
        for difference in differences.into_iter().take(options.entries_max) {
            let lines = match options.content {
                true => lines_of(&old, &new, &difference, &mut room)?,
                false => None,
            };
            entries.push(DiffEntry { difference, lines });
        }
        Ok(DiffResult { base: None, entries, counts, noise: noisy, cut })
    })
    .await
}

/// Runs work on trees outside the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TreeError> + Send + 'static,
) -> Result<T, EngineError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        // The task only ends without a result by a panic, which continues in the caller.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn is_wanted(path: &[u8], options: &DiffOptions) -> bool {
    let ours = !options.all && noise::is_hosts(path);
    !ours && (options.globs.is_empty() || options.globs.iter().any(|glob| glob.matches(path)))
}

fn count(differences: &[Difference]) -> DiffCounts {
    let mut counts = DiffCounts::default();
    for difference in differences {
        match (&difference.old, &difference.new) {
            (None, _) => counts.added += 1,
            (Some(_), None) => counts.deleted += 1,
            (Some(_), Some(_)) => counts.changed += 1,
        }
        counts.old_bytes += difference.old.as_ref().map_or(0, burrow_trees::Node::bytes);
        counts.new_bytes += difference.new.as_ref().map_or(0, burrow_trees::Node::bytes);
    }
    counts
}

fn lines_of(
    old: &Root,
    new: &Root,
    difference: &Difference,
    room: &mut usize,
) -> Result<Option<UnifiedDiff>, TreeError> {
    let is_file = |node: &Option<burrow_trees::Node>| node.as_ref().is_none_or(burrow_trees::Node::is_file);
    let one_side = difference.old.is_none() || difference.new.is_none();
    if !(difference.what.content || one_side) || !is_file(&difference.old) || !is_file(&difference.new) {
        return Ok(None);
    }
    let read = |root: &Root, node: &Option<burrow_trees::Node>| match node {
        Some(_) => root.read(&difference.path, text::TEXT_BYTES_MAX),
        None => Ok(Some(Vec::new())),
    };
    let (Some(before), Some(after)) = (read(old, &difference.old)?, read(new, &difference.new)?) else {
        return Ok(None);
    };
    if !text::is_text(&before) || !text::is_text(&after) {
        return Ok(None);
    }
    let lines = text::unified(&before, &after, HUNKS_BYTES_MAX.min(*room));
    *room = room.saturating_sub(lines.hunks.len());
    Ok(Some(lines))
}
