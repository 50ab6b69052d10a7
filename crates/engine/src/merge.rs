//! Brings the work of one sandbox into another: three-way, against the snapshot both came from.
//!
//! ```text
//!   child frozen ─► parent stands still, snapshotted ─► plan, of what each changed since ─► conflicts: nothing was done
//!                                                        └─► journal ─► files ─► on disk ─► commit ─► memory ─► it goes on
//! ```
//!
//! The parent stands still from its snapshot to the commit, so the snapshot is what the plan is made of, what a failure or
//! a crash goes back to (file by file, in place: processes stay), and what `restore` undoes the merge with. Where files are
//! on a disk of the machine's own (see [`crate::disks`]), the snapshot has its RAM too, and going back is a restore. What is
//! remembered comes after the files are final; a merge of memory that was cut short is repeated, which adds nothing twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use burrow_catalog::{MergeRow, MergeState, SandboxRow};
use burrow_memory::merge::{EntryPolicy, KvPolicy, MergeOptions as MemoryOptions, Merged as MemoryMerged};
use burrow_model::{ChangeKind, MergeId, SandboxId, Snapshot, SnapshotId, TenantId};
use burrow_runtime::Runtime;
use burrow_trees::apply::{self, Sources};
use burrow_trees::plan::{
    Action, Changed, Conflict, OtherNames, Plan, Policies, Side, Since, Three, Trees, plan,
};
use burrow_trees::{Root, TreeError, noise};
use burrow_volumes::{ChangedPath, Tree};
use serde::{Deserialize, Serialize};

use crate::actor::{Command, StateCommand};
use crate::diff::{blocking, changed_since};
use crate::disks::{self, Identities, InPart, Parts, Scratch};
use crate::frozen::{Held, TreeOf, common};
use crate::shared::Shared;
use crate::{Engine, EngineError, faults};

/// Paths of a merge that are told one by one; all are counted.
const TOLD_MAX: usize = 10_000;

#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// Tell what would happen, and change nothing.
    pub dry_run: bool,
    pub policies: Policies,
    /// Noise too.
    pub all: bool,
    pub memory: MemoryPolicy,
}

/// What becomes of what the child remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryPolicy {
    /// It stays where it is.
    None,
    /// It comes; where both changed the same, the parent's stays and the contradiction is listed.
    List,
    Ours,
    Theirs,
    /// Of entries both; of keys the parent's.
    Both,
    /// Where both changed the same, nothing is merged at all.
    Fail,
}

impl MemoryPolicy {
    /// How memory is told.
    fn options(self, dry_run: bool) -> MemoryOptions {
        let (entries, kv) = match self {
            Self::None | Self::List | Self::Fail => (None, None),
            Self::Ours => (Some(EntryPolicy::Ours), Some(KvPolicy::Ours)),
            Self::Theirs => (Some(EntryPolicy::Theirs), Some(KvPolicy::Theirs)),
            Self::Both => (Some(EntryPolicy::Both), Some(KvPolicy::Ours)),
        };
        MemoryOptions { dry_run, kv, entries }
    }
}

/// What a merge did, would do, or why it did nothing.
#[derive(Clone, Debug)]
pub struct Merged {
    pub parent: SandboxId,
    pub child: SandboxId,
    /// What both came from.
    pub base: SnapshotId,
    /// Whether anything was done. Not where there are conflicts, on a dry run, or where there was nothing to do.
    pub applied: bool,
    pub id: Option<MergeId>,
    /// What the parent was before; restoring it undoes the merge.
    pub undo: Option<Snapshot>,
    pub changes: MergeChanges,
    pub conflicts: Vec<Conflict>,
    /// Files that were replaced or removed while processes of the parent have them open.
    pub open: Vec<OpenFile>,
    /// What the child changed and was left where it is, by what it is.
    pub noise: BTreeMap<&'static str, u64>,
    pub memory: Option<MemoryMerged>,
    /// How long the parent stood still.
    pub pause_us: u64,
}

/// Paths by what happens to them, in order; the first of many.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MergeChanges {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub deleted: Vec<String>,
    /// Lines of both sides put together.
    pub merged: Vec<String>,
    /// Changed here where they were moved there, or the other way round.
    pub moved: Vec<(String, String)>,
    pub total: u64,
    pub cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    pub path: String,
    pub pid: u32,
    pub program: String,
}

/// What is kept of a merge in the catalog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) base: SnapshotId,
    pub(crate) undo: SnapshotId,
    pub(crate) memory: MemoryPolicy,
    pub(crate) changes: MergeChanges,
}

/// What the parent's actor is handed.
#[derive(Debug)]
pub(crate) struct MergeWork {
    pub(crate) child: SandboxRow,
    /// Held until the work is done.
    pub(crate) theirs: Held,
    pub(crate) base: Held,
    pub(crate) base_id: SnapshotId,
    pub(crate) options: MergeOptions,
}

/// A plan with what its report needs.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) trees: Trees,
    pub(crate) changes: MergeChanges,
    pub(crate) noise: BTreeMap<&'static str, u64>,
    /// Where the trees are, if not where they always are; goes with this.
    pub(crate) _scratch: Option<Scratch>,
}

impl Engine {
    /// Merges `child` into `parent`.
    pub async fn merge(
        &self,
        tenant: &TenantId,
        parent: &SandboxId,
        child: &SandboxId,
        options: MergeOptions,
    ) -> Result<Merged, EngineError> {
        let (parent, child) = (self.get(tenant, parent).await?, self.get(tenant, child).await?);
        if parent.id == child.id {
            return Err(EngineError::MergeWithItself { id: parent.id });
        }
        let (ours, theirs) =
            (TreeOf::Sandbox(Box::new(parent.clone())), TreeOf::Sandbox(Box::new(child.clone())));
        let unrelated = || EngineError::NoCommonSnapshot { one: child.id.clone(), other: parent.id.clone() };
        let Some(Tree::Snapshot(base_id)) = common(&self.shared, tenant, &theirs, &ours).await? else {
            return Err(unrelated());
        };
        let base = Held::pinned(&self.shared, Tree::Snapshot(base_id.clone())).await?;
        let held = Held::hold(&self.shared, &theirs).await?;
        if options.dry_run {
            let ours = Held::hold(&self.shared, &ours).await?;
            let told = self.foresee(&parent, &child, &ours, &held, &base, base_id, &options).await;
            ours.let_go().await;
            held.let_go().await;
            return told;
        }
        let work = Box::new(MergeWork { child, theirs: held, base, base_id, options });
        let id = parent.id.clone();
        self.ask(tenant, &id, |reply| Command::State(StateCommand::Merge { work, reply })).await
    }

    /// What a merge would do.
    #[expect(clippy::too_many_arguments, reason = "the three sides, and who they are")]
    async fn foresee(
        &self,
        parent: &SandboxRow,
        child: &SandboxRow,
        ours: &Held,
        theirs: &Held,
        base: &Held,
        base_id: SnapshotId,
        options: &MergeOptions,
    ) -> Result<Merged, EngineError> {
        let driver = disks::with_disks(&self.shared, &parent.spec.driver)?;
        let sides = sides(&self.shared, driver.as_ref(), base, ours, theirs, None).await?;
        let planned = planned(sides, options).await?;
        let memory = memory_merge(&self.shared, parent, child, options.memory, true).await?;
        Ok(Merged {
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

/// A merge that was done.
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
        // Of one under way nobody knows yet whether it comes to be.
        let done = row.state != MergeState::Applying;
        let Record { base, undo, changes, .. } = serde_json::from_value(row.merge).ok()?;
        let MergeRow { id, child, created_ms, .. } = row;
        done.then_some(Self { id, child, base, undo, total: changes.total, created_ms })
    }
}

/// The three sides of a merge, as far as they are needed.
pub(crate) struct Sides {
    base: PathBuf,
    ours: PathBuf,
    theirs: PathBuf,
    by_ours: Vec<ChangedPath>,
    by_theirs: Vec<ChangedPath>,
    names: Box<dyn OtherNames + Send>,
    on_disks: Option<OnDisks>,
}

/// Of sides that are on disks.
struct OnDisks {
    /// How files of base, ours and theirs are told apart.
    identities: [Identities; 3],
    /// Where the parts of them are.
    scratch: Scratch,
}

/// Looks for what each side changed; `by_theirs`, where somebody did already. `driver`: they are on its disks.
pub(crate) async fn sides(
    shared: &Arc<Shared>,
    driver: Option<&Arc<dyn Runtime>>,
    base: &Held,
    ours: &Held,
    theirs: &Held,
    by_theirs: Option<Vec<ChangedPath>>,
) -> Result<Sides, EngineError> {
    if let Some(driver) = driver {
        let roots = [&*base.path, &*ours.path, &*theirs.path];
        let parts = disks::parts(shared, driver, &roots, |path| !noise::is_hosts(path)).await?;
        let Parts { trees, identities, changed, scratch } = parts;
        let mut identities: [Identities; 3] = identities.try_into().expect("one list for each disk");
        for (tree, identities) in trees.iter().zip(&mut identities) {
            InPart::read(tree.clone()).await?.complete(identities);
        }
        let ([base, ours, theirs], [by_ours, by_theirs]) = (
            trees.try_into().expect("a tree for each disk"),
            changed.try_into().expect("a list for each side"),
        );
        let names = Box::new(InPart::read(PathBuf::clone(&theirs)).await?);
        let on_disks = Some(OnDisks { identities, scratch });
        return Ok(Sides { base, ours, theirs, by_ours, by_theirs, names, on_disks });
    }
    let by_theirs = match by_theirs {
        Some(by_theirs) => by_theirs,
        None => changed_since(shared, base, theirs).await?,
    };
    let by_ours = changed_since(shared, base, ours).await?;
    let runtime = tokio::runtime::Handle::current();
    let names = Box::new(OfTheirs { shared: shared.clone(), tree: theirs.tree.clone(), runtime });
    let (base, ours, theirs) = (base.path.clone(), ours.path.clone(), theirs.path.clone());
    Ok(Sides { base, ours, theirs, by_ours, by_theirs, names, on_disks: None })
}

/// What is to be done to `ours`.
pub(crate) async fn planned(sides: Sides, options: &MergeOptions) -> Result<Planned, EngineError> {
    let Sides { base, ours, theirs, by_ours, by_theirs, names, on_disks } = sides;
    let (policies, all) = (options.policies.clone(), options.all);
    blocking(move || {
        let trees =
            Trees { base: Root::open(&base)?, ours: Root::open(&ours)?, theirs: Root::open(&theirs)? };
        let (by_theirs, noise) = without_noise(by_theirs, all);
        // Where ours alone has changed something, nothing comes of it, but for what is in directories that theirs has
        // changed, and what was moved.
        let [by_ours, by_theirs] = [by_ours, by_theirs].map(since_base);
        let mut gathered = trees.gather(&by_ours, &by_theirs)?;
        if let Some(OnDisks { identities: [base, ours, theirs], .. }) = &on_disks {
            gathered.identify(&|side, path| match side {
                Side::Base => base.get(path).copied(),
                Side::Ours => ours.get(path).copied(),
                Side::Theirs => theirs.get(path).copied(),
            });
        }
        let missing = |three: &Three| three.ours.is_none();
        let added =
            gathered.names.iter().filter(|(_, three)| missing(three)).map(|(path, _)| path.clone()).collect();
        let plan = plan(gathered, &trees, &*names, &policies)?;
        let changes = told(&added, &plan);
        Ok(Planned { plan, trees, changes, noise, _scratch: on_disks.map(|on_disks| on_disks.scratch) })
    })
    .await
}

/// What theirs changed that is to be merged, and what of the rest is noise.
type Sifted = (Vec<ChangedPath>, BTreeMap<&'static str, u64>);

fn without_noise(mut changed: Vec<ChangedPath>, all: bool) -> Sifted {
    changed.sort();
    let (mut noisy, mut left) = (BTreeMap::new(), Vec::new());
    let mut gone: Option<Vec<u8>> = None;
    for one in changed {
        // What is in a directory that theirs removed goes with it, noise or not.
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

/// As a plan takes it. What the host puts into every sandbox is nobody's work.
fn since_base(changed: Vec<ChangedPath>) -> Changed {
    let since = |one: &ChangedPath| if one.written { Since::Written } else { Since::Something };
    let merged = changed.into_iter().filter(|one| !noise::is_hosts(&one.path));
    merged.map(|one| (one.path.clone(), since(&one))).collect()
}

/// Asks the pool for all names of a file of theirs.
struct OfTheirs {
    shared: Arc<Shared>,
    tree: Tree,
    runtime: tokio::runtime::Handle,
}

impl OtherNames for OfTheirs {
    fn names_of(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, TreeError> {
        let asked = self.runtime.block_on(self.shared.seams.volumes.names_of(&self.tree, path));
        asked.map_err(|error| TreeError::Step {
            step: "find the other names of",
            path: path.to_vec(),
            source: std::io::Error::other(error),
        })
    }
}

/// `added`: what ours does not have.
fn told(added: &BTreeSet<Vec<u8>>, plan: &Plan) -> MergeChanges {
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
        // Removed to make room is changed.
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

/// Does to the parent's files what was planned. It stands still; after this they are on disk.
pub(crate) async fn apply_plan(
    shared: &Shared,
    parent: &SandboxId,
    trees: Trees,
    actions: Vec<Action>,
) -> Result<(), EngineError> {
    let live = shared.seams.volumes.locate(parent).await?;
    blocking(move || {
        let live = Root::open(&live)?;
        let sources = Sources { ours: &trees.ours, theirs: &trees.theirs };
        let half = actions.len() / 2;
        apply::apply(&live, sources, &actions, &mut |number| {
            let hit = if number == half { faults::hit("merge.half") } else { Ok(()) };
            hit.map_err(|error| TreeError::Step {
                step: "go on with",
                path: b"/".to_vec(),
                source: std::io::Error::other(error),
            })
        })
    })
    .await?;
    Ok(shared.seams.volumes.sync(parent).await?)
}

/// Puts the parent's files back to what its snapshot holds, file by file, so that what runs in it stays. It stands still.
pub(crate) async fn take_back(
    shared: &Arc<Shared>,
    parent: &SandboxRow,
    undo: &SnapshotId,
) -> Result<(), EngineError> {
    let before = Held::pinned(shared, Tree::Snapshot(undo.clone())).await?;
    let now = Held::freeze(shared, parent).await?;
    let changed = changed_since(shared, &before, &now).await;
    now.let_go().await;
    let changed: BTreeSet<Vec<u8>> = changed?.into_iter().map(|changed| changed.path).collect();
    let live = shared.seams.volumes.locate(&parent.id).await?;
    let source = before.path.clone();
    blocking(move || {
        let (live, source) = (Root::open(&live)?, Root::open(&source)?);
        let actions = apply::mirror(&live, &source, &changed)?;
        let sources = Sources { ours: &source, theirs: &source };
        apply::apply(&live, sources, &actions, &mut |_| Ok(()))
    })
    .await?;
    Ok(shared.seams.volumes.sync(&parent.id).await?)
}

/// Has what the child remembers come to the parent.
pub(crate) async fn memory_merge(
    shared: &Shared,
    parent: &SandboxRow,
    child: &SandboxRow,
    policy: MemoryPolicy,
    dry_run: bool,
) -> Result<Option<MemoryMerged>, EngineError> {
    let (into, from) = (parent.memory(), child.memory());
    // Two that share a named space have nothing of their own to bring.
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

/// After a crash: what is remembered comes where the files have come already.
pub(crate) async fn complete(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    for row in catalog.merges_remembering().await? {
        let (parent, child) = (
            catalog.sandbox(&row.tenant, &row.sandbox).await?,
            catalog.sandbox(&row.tenant, &row.child).await?,
        );
        let record: Option<Record> = serde_json::from_value(row.merge.clone()).ok();
        if let (Some(parent), Some(child), Some(record)) = (parent, child, record) {
            // What is listed as a contradiction stays listed; it was looked at before the files came.
            let policy = if record.memory == MemoryPolicy::Fail { MemoryPolicy::List } else { record.memory };
            memory_merge(shared, &parent, &child, policy, false).await?;
        }
        catalog.finish_merge(&row.id, None).await?;
    }
    Ok(())
}
