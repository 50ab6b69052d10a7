//! The parent's side of a merge. See [`crate::trees::merge`].

use std::collections::BTreeMap;
use std::sync::Arc;

use burrow_catalog::{MergeRow, MergeState, SandboxChange, SandboxRow};
use burrow_disks::{ChangedPath, Tree};
use burrow_model::{MergeId, Request, Snapshot, SnapshotKind, State};
use burrow_runtime::Runtime;
use burrow_trees::Root;
use burrow_trees::plan::Action;
use tokio::time::Instant;

use super::{Actor, restored};
use crate::images::starting_points;
use crate::operations::journal::{Detail, Operation};
use crate::operations::unwind;
use crate::shared::Shared;
use crate::sleep::activity::CutReason;
use crate::snapshots::removal::remove_snapshot;
use crate::trees::diff::changed_since;
use crate::trees::disks;
use crate::trees::held_trees;
use crate::trees::merge::{MergePlan, apply_plan, memory_merge, planned, restore_files, sides};
use crate::trees::merge_work::{MemoryPolicy, MergeRecord, MergeReport, MergeWork, OpenFile};
use crate::{EngineError, SnapshotOptions, faults};

/// Open files that are reported; a longer list would not help the user.
const OPEN_MAX: usize = 1_000;

impl Actor {
    pub(super) async fn merge(&mut self, work: MergeWork) -> Result<MergeReport, EngineError> {
        self.admit(Request::Snapshot, "merge into")?;
        // Dumped processes expect their files unchanged, so the sandbox is woken first.
        if self.row.state == State::Hibernated {
            self.start().await?;
        }
        let since = Instant::now();
        let shared = self.shared.clone();
        let driver = disks::with_disks(&shared, &self.row.spec.driver)?;
        // A disk that the machine has mounted can only be restored together with the machine.
        let files_only = driver.is_none();
        let options = SnapshotOptions {
            description: format!("before merging {}", work.child.id),
            ..SnapshotOptions::automatic(SnapshotKind::BeforeMerge, files_only)
        };
        // The child's changes are determined concurrently: the child's copy does not change.
        let by_theirs = async {
            match driver {
                Some(_) => Ok(None),
                None => changed_since(&shared, &work.base, &work.theirs).await.map(Some),
            }
        };
        let (undo, by_theirs) = tokio::join!(self.snapshot_and_stay_paused(&options, None), by_theirs);
        let undo = undo?;
        let merged = match by_theirs {
            Ok(by_theirs) => self.merge_paused(&work, &undo, driver.as_ref(), by_theirs).await,
            Err(error) => Err(error),
        };
        let went_on = self.resume_after_dump().await;
        // Removed after the answer.
        drop(work.theirs);
        // If nothing was changed, nothing needs to be undone.
        let applied = merged.as_ref().is_ok_and(|merged| merged.applied);
        if !applied && let Err(error) = remove_snapshot(&self.shared, &undo).await {
            tracing::warn!(
                snapshot = %undo.id, error = &error as &dyn std::error::Error,
                "could not remove the snapshot of a merge that changed nothing"
            );
        }
        went_on?;
        let mut merged = merged?;
        merged.pause_us = match self.live {
            Some(_) => u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX),
            None => 0,
        };
        if merged.applied {
            let detail = serde_json::json!({
                "child": merged.child, "merge": merged.id, "undo": undo.id, "paths": merged.changes.total,
            });
            self.event("sandbox.merged", detail);
        }
        Ok(merged)
    }

    async fn merge_paused(
        &mut self,
        work: &MergeWork,
        undo: &Snapshot,
        driver: Option<&Arc<dyn Runtime>>,
        by_theirs: Option<Vec<ChangedPath>>,
    ) -> Result<MergeReport, EngineError> {
        let shared = self.shared.clone();
        let ours = held_trees::pinned(&shared, Tree::Snapshot(undo.id.clone())).await?;
        // Both sides are read before anything is changed: a conflict is reported while nothing has changed.
        let plan = async {
            let sides = sides(&shared, driver, &work.base, &ours, &work.theirs, by_theirs).await?;
            planned(sides, &work.options).await
        };
        let (planned, memory) = tokio::try_join!(
            plan,
            memory_merge(&shared, &self.row, &work.child, work.options.memory, true),
        )?;
        let mut merged = MergeReport {
            parent: self.row.id.clone(),
            child: work.child.id.clone(),
            base: work.base_id.clone(),
            applied: false,
            id: None,
            undo: None,
            changes: planned.changes.clone(),
            conflicts: planned.plan.conflicts.clone(),
            open: Vec::new(),
            noise: planned.noise.clone(),
            memory,
            pause_us: 0,
        };
        let brings = merged.memory.as_ref().is_some_and(|memory| *memory != Default::default());
        if !merged.conflicts.is_empty() || (planned.plan.actions.is_empty() && !brings) {
            return Ok(merged);
        }
        merged.open = self.open_files(&planned).await;
        let id = self.carry_out(work, undo, driver, planned).await?;
        merged.memory = self.remember(work, &id).await?;
        merged.applied = true;
        merged.id = Some(id);
        merged.undo = Some(undo.clone());
        Ok(merged)
    }

    /// Changes the files, from the journal entry to the commit.
    async fn carry_out(
        &mut self,
        work: &MergeWork,
        undo: &Snapshot,
        driver: Option<&Arc<dyn Runtime>>,
        planned: MergePlan,
    ) -> Result<MergeId, EngineError> {
        let catalog = self.shared.seams.catalog.clone();
        let id = MergeId::generate();
        let record = MergeRecord {
            base: work.base_id.clone(),
            undo: undo.id.clone(),
            memory: work.options.memory,
            changes: planned.changes,
        };
        let record = serde_json::to_value(&record).expect("ids and paths are JSON");
        let detail = Detail {
            snapshot: Some(undo.id.clone()),
            merge: Some(id.clone()),
            paused: self.row.state == State::Paused,
            ..Detail::default()
        };
        let now_ms = self.shared.now_ms();
        let operation = Operation::Merge.row(&self.row.tenant, &self.row.id, &detail, now_ms);
        let row = MergeRow {
            id: id.clone(),
            tenant: self.row.tenant.clone(),
            sandbox: self.row.id.clone(),
            child: work.child.id.clone(),
            state: MergeState::Applying,
            created_ms: now_ms,
            merge: record.clone(),
        };
        catalog.begin_merge(row, operation.clone()).await?;
        let done = async {
            faults::hit("merge.begun")?;
            let (trees, actions) = (planned.trees, planned.plan.actions);
            match driver {
                Some(driver) => {
                    let lives = self.live.is_some();
                    disks::change(&self.shared, driver, &self.row.id, lives, trees, actions).await?;
                }
                None => apply_plan(&self.shared, &self.row.id, trees, actions).await?,
            }
            faults::hit("merge.applied")?;
            catalog.settle_merge(&id, record, operation.id.clone()).await?;
            Ok::<_, EngineError>(())
        };
        if let Err(error) = done.await {
            // If it cannot be undone now, it stays in the journal, for the next start.
            match driver {
                Some(_) => self.roll_back(undo).await?,
                None => restore_files(&self.shared, &self.row, &undo.id).await?,
            }
            catalog.drop_merge(&id, operation.id).await?;
            // It is hibernated in its previous state. If it cannot be woken now, its next use wakes it.
            if self.row.state == State::Hibernated
                && !detail.paused
                && let Err(error) = self.start().await
            {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a sandbox stays hibernated after a failed merge"
                );
            }
            return Err(error);
        }
        faults::hit("merge.settled")?;
        Ok(id)
    }

    /// Restores the whole machine from its snapshot: its disk cannot be restored under a running machine. Streams end.
    async fn roll_back(&mut self, undo: &Snapshot) -> Result<(), EngineError> {
        self.unwatch();
        if let Some(live) = self.live.take() {
            live.cut.now(CutReason::Restored);
        }
        let generation = self.row.generation;
        let change = restore_disk(&self.shared, &self.row, undo).await?;
        self.store(change, None).await?;
        let now_ms = self.shared.now_ms();
        self.shared.seams.catalog.mark_execs_lost(&self.row.id, generation, now_ms).await?;
        Ok(())
    }

    async fn remember(
        &self,
        work: &MergeWork,
        id: &MergeId,
    ) -> Result<Option<burrow_memory::merge::MergeReport>, EngineError> {
        // The dry run may have found fewer contradictions than there are now; new ones are listed.
        let policy = match work.options.memory {
            MemoryPolicy::Fail => MemoryPolicy::List,
            policy @ (MemoryPolicy::None
            | MemoryPolicy::List
            | MemoryPolicy::Ours
            | MemoryPolicy::Theirs
            | MemoryPolicy::Both) => policy,
        };
        let merged = memory_merge(&self.shared, &self.row, &work.child, policy, false).await?;
        self.shared.seams.catalog.finish_merge(id, None).await?;
        faults::hit("merge.remembered")?;
        Ok(merged)
    }

    /// Files about to be replaced or removed that processes of the parent have open. Only reported, so files that cannot be determined
    /// are omitted.
    async fn open_files(&self, planned: &MergePlan) -> Vec<OpenFile> {
        let (Some(live), Ok(root)) = (&self.live, self.root().await) else { return Vec::new() };
        let Ok(open) = live.runtime.open_files(&self.row.id).await else { return Vec::new() };
        let Ok(root) = Root::open(&root) else { return Vec::new() };
        let Ok(Some((device, _))) = root.identity(b"/") else { return Vec::new() };
        let replaced = planned.plan.actions.iter().filter(|action| {
            matches!(
                action,
                Action::Put { .. } | Action::Remove { directory: false, .. } | Action::Link { .. }
            )
        });
        let mut found = Vec::new();
        let mut by_file: BTreeMap<(u64, u64), Vec<&burrow_runtime::OpenFile>> = BTreeMap::new();
        // Most open descriptors are pipes, sockets and devices.
        for file in open.iter().filter(|file| file.file.0 == device) {
            by_file.entry(file.file).or_default().push(file);
        }
        if by_file.is_empty() {
            return found;
        }
        for action in replaced {
            let Ok(Some(file)) = root.identity(action.path()) else { continue };
            for holder in by_file.get(&file).into_iter().flatten() {
                if found.len() >= OPEN_MAX {
                    return found;
                }
                let path = String::from_utf8_lossy(action.path()).into_owned();
                found.push(OpenFile { path, pid: holder.pid, program: holder.program.clone() });
            }
        }
        found
    }
}

/// After a crash during a merge: restores the files, then resumes the processes.
pub(crate) async fn unmerge(
    shared: &std::sync::Arc<crate::shared::Shared>,
    row: &SandboxRow,
    operation: &burrow_catalog::OperationRow,
    detail: &Detail,
) -> Result<(), EngineError> {
    if disks::with_disks(shared, &row.spec.driver)?.is_some() {
        return unmerge_disk(shared, row, operation, detail).await;
    }
    let machine: Option<burrow_runtime::Machine> =
        row.machine.clone().and_then(|machine| serde_json::from_value(machine).ok());
    let runtime = shared.runtime(&row.spec.driver).ok();
    let live = match (&machine, &runtime) {
        (Some(machine), Some(runtime)) => runtime.adopt(&row.id, machine).await?,
        _ => false,
    };
    if let (Some(runtime), true) = (&runtime, live) {
        // It is paused already; paused again to be safe, since nothing may be written until the files are restored.
        runtime.pause(&row.id).await?;
    }
    if let Some(undo) = &detail.snapshot {
        restore_files(shared, row, undo).await?;
    }
    if let Some(merge) = &detail.merge {
        shared.seams.catalog.drop_merge(merge, operation.id.clone()).await?;
    } else {
        shared.seams.catalog.finish_operation(&operation.id).await?;
    }
    if let (Some(runtime), Some(machine), true) = (&runtime, &machine, live) {
        runtime.recover(&row.id, machine, detail.paused).await?;
    }
    if let Some(undo) = &detail.snapshot
        && let Some(snapshot) = shared.seams.catalog.snapshot(&row.tenant, undo).await?
    {
        remove_snapshot(shared, &snapshot).await?;
    }
    Ok(())
}

/// The same if files are on a disk: the sandbox is hibernated in its previous state, and wakes at its next use.
async fn unmerge_disk(
    shared: &Arc<Shared>,
    row: &SandboxRow,
    operation: &burrow_catalog::OperationRow,
    detail: &Detail,
) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    let undo = match &detail.snapshot {
        Some(undo) => catalog.snapshot(&row.tenant, undo).await?,
        None => None,
    };
    if let Some(undo) = &undo {
        let change = restore_disk(shared, row, undo).await?;
        catalog.update_sandbox(&row.id, change, None).await?;
        catalog.mark_execs_lost(&row.id, row.generation, shared.now_ms()).await?;
    }
    match &detail.merge {
        Some(merge) => catalog.drop_merge(merge, operation.id.clone()).await?,
        None => catalog.finish_operation(&operation.id).await?,
    }
    match &undo {
        Some(undo) => remove_snapshot(shared, undo).await,
        None => Ok(()),
    }
}

/// Ends the machine and restores the disk; returns the change of the row. Can be repeated.
async fn restore_disk(
    shared: &Arc<Shared>,
    row: &SandboxRow,
    undo: &Snapshot,
) -> Result<SandboxChange, EngineError> {
    unwind(shared, row, Operation::Restore, &mut |_| Ok(())).await?;
    let bytes = starting_points::disk_bytes(shared, &row.spec);
    shared.seams.disks.replace((&row.id).into(), (&undo.id).into(), bytes).await?;
    let detail = Detail { dump: undo.dump.clone(), ..Detail::default() };
    Ok(restored(row, undo, &detail, shared.now_ms()))
}
