//! Merges the work of one sandbox into another: three-way, against the snapshot that both came from.
//!
//! ```text
//!   child copied ─► parent paused, snapshotted ─► plan, from the changes of each ─► conflicts: nothing is changed
//!                                                  └─► journal ─► files ─► synced to disk ─► commit ─► memory ─► parent resumes
//! ```
//!
//! The parent is paused from its snapshot to the commit. So the plan is made from the snapshot, a failure or a crash restores it
//! (file by file, in place: processes stay), and `restore` undoes the merge with it. If files are on the machine's own disk (see
//! [`crate::trees::disks`]), the snapshot includes its RAM, and undoing is a restore. Memory is merged after the files are final; an
//! interrupted merge of memory is repeated, which adds nothing twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use burrow_catalog::{MergeRow, MergeState, SandboxRow};
use burrow_disks::{ChangedPath, Tree};
use burrow_memory::merge::MergeReport as MemoryMergeReport;
use burrow_model::{ChangeKind, MergeId, SandboxId, SnapshotId, TenantId};
use burrow_runtime::Runtime;
use burrow_trees::apply::{self, Sources};
use burrow_trees::plan::{
    Action, ChangeSinceBase, ChangedPaths, OtherNames, Plan, Side, ThreeWay, Trees, plan,
};
use burrow_trees::{Root, TreeError, noise};

use super::diff::{blocking, changed_since};
use super::disks::{self, DiskParts, Identities, PartialTreeNames, PoolScratch};
use super::held_tree::HeldTree;
use super::held_trees::{self, TreeSource, common};
use super::merge_work::{MemoryPolicy, MergeChanges, MergeOptions, MergeRecord, MergeReport, MergeWork};
use crate::actor::command::{Command, StateCommand};
use crate::shared::Shared;
use crate::{Engine, EngineError, faults};

/// Paths of a merge that are listed; all are counted.
const TOLD_MAX: usize = 10_000;

/// A plan, with the data for its report.
#[derive(Debug)]
pub(crate) struct MergePlan {
    pub(crate) plan: Plan,
    pub(crate) trees: Trees,
    pub(crate) changes: MergeChanges,
    pub(crate) noise: BTreeMap<&'static str, u64>,
    /// Temporary trees that the plan refers to; removed when this is dropped.
    pub(crate) _scratch: Option<PoolScratch>,
}

impl Engine {
    /// Merges `child` into `parent`.
    pub async fn merge(
        &self,
        tenant: &TenantId,
        parent: &SandboxId,
        child: &SandboxId,
        options: MergeOptions,
    ) -> Result<MergeReport, EngineError> {
        let (parent, child) = (self.get(tenant, parent).await?, self.get(tenant, child).await?);
        if parent.id == child.id {
            return Err(EngineError::MergeWithItself { id: parent.id });
        }
        let (ours, theirs) =
            (TreeSource::Sandbox(Box::new(parent.clone())), TreeSource::Sandbox(Box::new(child.clone())));
        let unrelated = || EngineError::NoCommonSnapshot { one: child.id.clone(), other: parent.id.clone() };
        let Some(Tree::Snapshot(base_id)) = common(&self.shared, tenant, &theirs, &ours).await? else {
            return Err(unrelated());
        };
        let base = held_trees::pinned(&self.shared, Tree::Snapshot(base_id.clone())).await?;
        let held = held_trees::hold(&self.shared, &theirs).await?;
        if options.dry_run {
            let ours = held_trees::hold(&self.shared, &ours).await?;
            let result = self.dry_run_result(&parent, &child, &ours, &held, &base, base_id, &options).await;
            ours.release().await;
            held.release().await;
            return result;
        }
        let work = Box::new(MergeWork { child, theirs: held, base, base_id, options });
        let id = parent.id.clone();
        self.ask(tenant, &id, |reply| Command::State(StateCommand::Merge { work, reply })).await
    }

    /// The result that a merge would have.
    #[expect(clippy::too_many_arguments, reason = "the three sides, and their identities")]
    async fn dry_run_result(
        &self,
        parent: &SandboxRow,
        child: &SandboxRow,
        ours: &HeldTree,
        theirs: &HeldTree,
        base: &HeldTree,
        base_id: SnapshotId,
        options: &MergeOptions,
    ) -> Result<MergeReport, EngineError> {
        let driver = disks::with_disks(&self.shared, &parent.spec.driver)?;
        let sides = sides(&self.shared, driver.as_ref(), base, ours, theirs, None).await?;
        let planned = planned(sides, options).await?;
        let memory = memory_merge(&self.shared, parent, child, options.memory, true).await?;
        Ok(MergeReport {
            parent: parent.id.clone(),
            child: child.id.clone(),
            base: base_id,
            applied: false,
            id: None,
            undo: None,
            changes: planned.changes,
            conflicts: planned.plan.conflicts,
            open: Vec::new(),
            noise: planned.noise,
            memory,
            pause_us: 0,
        })
    }

    /// Merges into a sandbox, newest first.
    pub async fn merges(&self, tenant: &TenantId, id: &SandboxId) -> Result<Vec<PastMerge>, EngineError> {
        let rows = self.shared.seams.catalog.merges_into(tenant, id).await?;
        Ok(rows.into_iter().filter_map(PastMerge::of).collect())
    }
}

/// A completed merge.
#[derive(Clone, Debug)]
pub struct PastMerge {
    pub id: MergeId,
    pub child: SandboxId,
    pub base: SnapshotId,
    pub undo: SnapshotId,
    pub total: u64,
    pub created_ms: u64,
}

impl PastMerge {
    fn of(row: MergeRow) -> Option<Self> {
        // The result of a merge in progress is not known yet.
        let done = row.state != MergeState::Applying;
        let MergeRecord { base, undo, changes, .. } = serde_json::from_value(row.merge).ok()?;
        let MergeRow { id, child, created_ms, .. } = row;
        done.then_some(Self { id, child, base, undo, total: changes.total, created_ms })
    }
}

/// The three sides of a merge, as far as they are needed.
pub(crate) struct MergeSides {
    base: PathBuf,
    ours: PathBuf,
    theirs: PathBuf,
    by_ours: Vec<ChangedPath>,
    by_theirs: Vec<ChangedPath>,
    names: Box<dyn OtherNames + Send>,
    on_disks: Option<DiskSides>,
}

/// For sides that are on disks.
struct DiskSides {
    /// The identities of files in base, ours and theirs.
    identities: [Identities; 3],
    /// The location of their partial trees.
    scratch: PoolScratch,
}

/// Determines the changes of each side; `by_theirs` if known already. `driver`: they are on its disks.
pub(crate) async fn sides(
    shared: &Arc<Shared>,
    driver: Option<&Arc<dyn Runtime>>,
    base: &HeldTree,
    ours: &HeldTree,
    theirs: &HeldTree,
    by_theirs: Option<Vec<ChangedPath>>,
) -> Result<MergeSides, EngineError> {
    if let Some(driver) = driver {
        let roots = [&*base.path, &*ours.path, &*theirs.path];
        let parts = disks::parts(shared, driver, &roots, |path| !noise::is_hosts(path)).await?;
        let DiskParts { trees, identities, changed, scratch } = parts;
        let mut identities: [Identities; 3] = identities.try_into().expect("one list for each disk");
        for (tree, identities) in trees.iter().zip(&mut identities) {
            PartialTreeNames::read(tree.clone()).await?.complete(identities);
        }
        let ([base, ours, theirs], [by_ours, by_theirs]) = (
            trees.try_into().expect("a tree for each disk"),
            changed.try_into().expect("a list for each side"),
        );
        let names = Box::new(PartialTreeNames::read(PathBuf::clone(&theirs)).await?);
        let on_disks = Some(DiskSides { identities, scratch });
        return Ok(MergeSides { base, ours, theirs, by_ours, by_theirs, names, on_disks });
    }
    let by_theirs = match by_theirs {
        Some(by_theirs) => by_theirs,
        None => changed_since(shared, base, theirs).await?,
    };
    let by_ours = changed_since(shared, base, ours).await?;
    let runtime = tokio::runtime::Handle::current();
    let names = Box::new(TheirNames { shared: shared.clone(), tree: theirs.tree.clone(), runtime });
    let (base, ours, theirs) = (base.path.clone(), ours.path.clone(), theirs.path.clone());
    Ok(MergeSides { base, ours, theirs, by_ours, by_theirs, names, on_disks: None })
}

/// Plans the changes to `ours`.
pub(crate) async fn planned(sides: MergeSides, options: &MergeOptions) -> Result<MergePlan, EngineError> {
    let MergeSides { base, ours, theirs, by_ours, by_theirs, names, on_disks } = sides;
    let (policies, all) = (options.policies.clone(), options.all);
    blocking(move || {
        let trees =
            Trees { base: Root::open(&base)?, ours: Root::open(&ours)?, theirs: Root::open(&theirs)? };
        let (by_theirs, noise) = without_noise(by_theirs, all);
        // Paths that only ours has changed need no action, except in directories that theirs has changed, and for moved files.
        let [by_ours, by_theirs] = [by_ours, by_theirs].map(since_base);
        let mut gathered = trees.gather(&by_ours, &by_theirs)?;
        if let Some(DiskSides { identities: [base, ours, theirs], .. }) = &on_disks {
            gathered.identify(&|side, path| match side {
                Side::Base => base.get(path).copied(),
                Side::Ours => ours.get(path).copied(),
                Side::Theirs => theirs.get(path).copied(),
            });
        }
        let missing = |three: &ThreeWay| three.ours.is_none();
        let added =
            gathered.names.iter().filter(|(_, three)| missing(three)).map(|(path, _)| path.clone()).collect();
        let plan = plan(gathered, &trees, &*names, &policies)?;
        let changes = report_changes(&added, &plan);
        Ok(MergePlan { plan, trees, changes, noise, _scratch: on_disks.map(|on_disks| on_disks.scratch) })
    })
    .await
}

/// Changes of theirs to be merged, and how many of the others are noise.
type FilteredChanges = (Vec<ChangedPath>, BTreeMap<&'static str, u64>);

fn without_noise(mut changed: Vec<ChangedPath>, all: bool) -> FilteredChanges {
    changed.sort();
    let (mut noisy, mut left) = (BTreeMap::new(), Vec::new());
    let mut gone: Option<Vec<u8>> = None;
    for one in changed {
        // What is in a directory that theirs removed is removed with it, noise or not.
        let goes = gone.as_ref().is_some_and(|gone| one.path.starts_with(gone));
        if !goes && one.kind == ChangeKind::Deleted {
            gone = Some([&one.path[..], b"/"].concat());
        }
        match noise::of(&one.path).filter(|_| !all && !goes) {
            Some(what) if !noise::is_hosts(&one.path) => *noisy.entry(what).or_default() += 1,
            Some(_) => {}
            None => left.push(one),
        }
    }
    (left, noisy)
}

/// Converts changes to the form of a plan. Files that the host puts into every sandbox are not merged.
fn since_base(changed: Vec<ChangedPath>) -> ChangedPaths {
    let since =
        |one: &ChangedPath| if one.written { ChangeSinceBase::Written } else { ChangeSinceBase::Something };
    let merged = changed.into_iter().filter(|one| !noise::is_hosts(&one.path));
    merged.map(|one| (one.path.clone(), since(&one))).collect()
}

/// Asks the pool for all names of a file of theirs.
struct TheirNames {
    shared: Arc<Shared>,
    tree: Tree,
    runtime: tokio::runtime::Handle,
}

impl OtherNames for TheirNames {
    fn names_of(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, TreeError> {
        let asked = self.runtime.block_on(self.shared.seams.disks.names_of(&self.tree, path));
        asked.map_err(|error| TreeError::Step {
            step: "find the other names of",
            path: path.to_vec(),
            source: std::io::Error::other(error),
        })
    }
}

/// `added`: paths that ours does not have.
fn report_changes(added: &BTreeSet<Vec<u8>>, plan: &Plan) -> MergeChanges {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let mut changes = MergeChanges { total: plan.actions.len() as u64, ..MergeChanges::default() };
    let merged: BTreeSet<&Vec<u8>> = plan.merged.iter().collect();
    let mut removed = BTreeSet::new();
    for action in &plan.actions {
        let path = action.path().to_vec();
        let list = match action {
            Action::Remove { .. } => {
                removed.insert(path);
                continue;
            }
            Action::Put { path, .. } if merged.contains(path) => &mut changes.merged,
            Action::Put { .. } | Action::Link { .. } if added.contains(&path) => &mut changes.added,
            Action::Put { .. } | Action::Link { .. } | Action::Attributes { .. } => &mut changes.changed,
        };
        // Removed to make room for another kind of file: counted as changed.
        if removed.remove(&path) {
            changes.total -= 1;
        }
        list.push(text(&path));
    }
    changes.deleted = removed.iter().map(|path| text(path)).collect();
    changes.moved = plan.moved.iter().map(|(from, to)| (text(from), text(to))).collect();
    for list in [&mut changes.added, &mut changes.changed, &mut changes.deleted, &mut changes.merged] {
        changes.cut |= list.len() > TOLD_MAX;
        list.truncate(TOLD_MAX);
    }
    changes.cut |= changes.moved.len() > TOLD_MAX;
    changes.moved.truncate(TOLD_MAX);
    changes
}

/// Applies the plan to the files of the parent, which is paused; afterwards they are synced to disk.
pub(crate) async fn apply_plan(
    shared: &Shared,
    parent: &SandboxId,
    trees: Trees,
    actions: Vec<Action>,
) -> Result<(), EngineError> {
    let live = shared.seams.disks.locate(parent.into()).await?;
    blocking(move || {
        let live = Root::open(&live)?;
        let sources = Sources { ours: &trees.ours, theirs: &trees.theirs };
        let half = actions.len() / 2;
        apply::apply(&live, sources, &actions, &mut |number| {
            let hit = if number == half { faults::hit("merge.half") } else { Ok(()) };
            hit.map_err(|error| TreeError::Step {
                step: "continue with",
                path: b"/".to_vec(),
                source: std::io::Error::other(error),
            })
        })
    })
    .await?;
    Ok(shared.seams.disks.sync(parent).await?)
}

/// Restores the files of the paused parent from its snapshot, one by one, so that its processes stay.
pub(crate) async fn restore_files(
    shared: &Arc<Shared>,
    parent: &SandboxRow,
    undo: &SnapshotId,
) -> Result<(), EngineError> {
    let before = held_trees::pinned(shared, Tree::Snapshot(undo.clone())).await?;
    let now = held_trees::freeze(shared, parent).await?;
    let changed = changed_since(shared, &before, &now).await;
    now.release().await;
    let changed: BTreeSet<Vec<u8>> = changed?.into_iter().map(|changed| changed.path).collect();
    let live = shared.seams.disks.locate((&parent.id).into()).await?;
    let source = before.path.clone();
    blocking(move || {
        let (live, source) = (Root::open(&live)?, Root::open(&source)?);
        let actions = apply::mirror(&live, &source, &changed)?;
        let sources = Sources { ours: &source, theirs: &source };
        apply::apply(&live, sources, &actions, &mut |_| Ok(()))
    })
    .await?;
    Ok(shared.seams.disks.sync(&parent.id).await?)
}

/// Merges the child's memory into the parent's.
pub(crate) async fn memory_merge(
    shared: &Shared,
    parent: &SandboxRow,
    child: &SandboxRow,
    policy: MemoryPolicy,
    dry_run: bool,
) -> Result<Option<MemoryMergeReport>, EngineError> {
    let (into, from) = (parent.memory(), child.memory());
    // Two that share a named space have no memory of their own to merge.
    if policy == MemoryPolicy::None || into == from {
        return Ok(None);
    }
    let memory = &shared.seams.memory;
    let merged = memory.view(&into).merge(&memory.view(&from), policy.options(dry_run)).await?;
    if policy == MemoryPolicy::Fail && merged.contradiction_count > 0 {
        return Err(EngineError::MemoryContradicts { count: merged.contradiction_count });
    }
    Ok(Some(merged))
}

/// After a crash: merges the memory of merges whose files are final.
pub(crate) async fn complete(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    for row in catalog.merges_remembering().await? {
        let (parent, child) = (
            catalog.sandbox(&row.tenant, &row.sandbox).await?,
            catalog.sandbox(&row.tenant, &row.child).await?,
        );
        let record: Option<MergeRecord> = serde_json::from_value(row.merge.clone()).ok();
        if let (Some(parent), Some(child), Some(record)) = (parent, child, record) {
            // Contradictions that are listed stay listed; they were checked before the files were merged.
            let policy = if record.memory == MemoryPolicy::Fail { MemoryPolicy::List } else { record.memory };
            memory_merge(shared, &parent, &child, policy, false).await?;
        }
        catalog.finish_merge(&row.id, None).await?;
    }
    Ok(())
}
