//! What differs between any two of sandboxes, snapshots and images.
//!
//! ```text
//!   both held still ─► where their lines part ─► what each changed since, by the pool ─► these names, looked at in both
//! ```
//!
//! What is on disks of its own is read in a machine first: see [`crate::disks`]. Takes as long as there are changes. Two trees without a common past are compared as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use burrow_model::TenantId;
use burrow_runtime::Runtime;
use burrow_trees::diff::{self, Difference};
use burrow_trees::glob::Glob;
use burrow_trees::text::{self, Unified};
use burrow_trees::{Root, TreeError, noise};
use burrow_volumes::{ChangedPath, Comparison, Times, Tree, VolumeError};

use crate::disks::{self, Parts};
use crate::frozen::{Held, TreeOf, common};
use crate::shared::Shared;
use crate::{Engine, EngineError};

/// Names of a whole tree that are walked, where two have nothing in common.
const WALKED_MAX: usize = 2_000_000;

/// Bytes of hunks of one file, and of all together: a screenful of screens, and what a client can hold.
const HUNKS_BYTES_MAX: usize = 256 << 10;
const HUNKS_BYTES_TOTAL_MAX: usize = 8 << 20;

#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// Only paths that one of these matches; all when empty.
    pub globs: Vec<Glob>,
    /// Noise too, and what the host keeps in a sandbox.
    pub all: bool,
    /// With the lines of text files that differ.
    pub content: bool,
    /// Most entries of the answer; more are only counted.
    pub entries_max: usize,
}

#[derive(Clone, Debug)]
pub struct Diffed {
    /// Where the two part; `None`: they have nothing in common.
    pub base: Option<Tree>,
    /// By path.
    pub entries: Vec<DiffEntry>,
    pub counts: DiffCounts,
    /// What was left out as noise, by what it is.
    pub noise: BTreeMap<&'static str, u64>,
    /// More differs than is in `entries`.
    pub cut: bool,
}

/// Of all that differs, in the entries or not, without noise that is left out.
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
    /// Of a text file whose content differs, where asked for.
    pub lines: Option<Unified>,
}

impl Engine {
    /// What is different in `new` from `old`.
    pub async fn diff(
        &self,
        tenant: &TenantId,
        old: &TreeOf,
        new: &TreeOf,
        options: DiffOptions,
    ) -> Result<Diffed, EngineError> {
        let shared = &self.shared;
        let base = common(shared, tenant, old, new).await?;
        let driver = match disks::driver_of(shared, old)? {
            Some(driver) => Some(driver),
            None => disks::driver_of(shared, new)?,
        };
        if let Some(driver) = driver {
            let compared = diff_disks(shared, tenant, &driver, [old, new], options).await?;
            return Ok(Diffed { base, ..compared });
        }
        let (held_old, held_new) = (Held::hold(shared, old).await?, Held::hold(shared, new).await?);
        let compared = async {
            let names = names(shared, base.as_ref(), &held_old, &held_new).await?;
            look(held_old.path.clone(), held_new.path.clone(), names, options).await
        };
        let compared = compared.await;
        held_old.let_go().await;
        held_new.let_go().await;
        Ok(Diffed { base, ..compared? })
    }
}

/// Two of which one at least is on a disk.
async fn diff_disks(
    shared: &Arc<Shared>,
    tenant: &TenantId,
    driver: &Arc<dyn Runtime>,
    [old, new]: [&TreeOf; 2],
    options: DiffOptions,
) -> Result<Diffed, EngineError> {
    let old = disks::hold(shared, tenant, driver, old).await?;
    let new = disks::hold(shared, tenant, driver, new).await?;
    let wanted = |path: &[u8]| is_wanted(path, &options);
    let parts = disks::parts(shared, driver, &[&old.held.path, &new.held.path], wanted).await;
    old.held.let_go().await;
    new.held.let_go().await;
    let Parts { trees, identities: _, changed, scratch } = parts?;
    let names = changed.into_iter().flatten().map(|one| one.path).collect();
    let compared = look(trees[0].clone(), trees[1].clone(), Some(names), options).await;
    scratch.let_go().await;
    compared
}

/// Names at which two trees may differ; `None`: nobody knows, so all.
async fn names(
    shared: &Arc<Shared>,
    base: Option<&Tree>,
    old: &Held,
    new: &Held,
) -> Result<Option<BTreeSet<Vec<u8>>>, EngineError> {
    let Some(base) = base else {
        // The pool compares what it can; what it cannot is walked.
        return match shared.seams.volumes.compare(&old.tree, &new.tree, Times::Ignored).await {
            Ok(Comparison { paths, more: false }) => {
                Ok(Some(paths.into_iter().map(|path| path.path).collect()))
            }
            Ok(Comparison { more: true, .. }) | Err(VolumeError::Step { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        };
    };
    let base = Held::pinned(shared, base.clone()).await?;
    let mut found = BTreeSet::new();
    for side in [old, new] {
        if side.tree != base.tree {
            found.extend(changed_since(shared, &base, side).await?.into_iter().map(|changed| changed.path));
        }
    }
    base.let_go().await;
    Ok(Some(found))
}

/// What a tree has changed since another that it came from.
pub(crate) async fn changed_since(
    shared: &Shared,
    base: &Held,
    side: &Held,
) -> Result<Vec<ChangedPath>, EngineError> {
    let compared = shared.seams.volumes.compare(&base.tree, &side.tree, Times::Ignored).await?;
    if compared.more {
        return Err(EngineError::TooDifferent { changed: compared.paths.len() });
    }
    Ok(compared.paths)
}

async fn look(
    old: PathBuf,
    new: PathBuf,
    names: Option<BTreeSet<Vec<u8>>>,
    options: DiffOptions,
) -> Result<Diffed, EngineError> {
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
        // Counted as what differs, not as what may.
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
        Ok(Diffed { base: None, entries, counts, noise: noisy, cut })
    })
    .await
}

/// Work on trees, off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TreeError> + Send + 'static,
) -> Result<T, EngineError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        // The work only ends without a result by a panic, which goes on in the caller.
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
) -> Result<Option<Unified>, TreeError> {
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
