//! Restores a sandbox to a snapshot, in place: the same sandbox, with the snapshot's state.
//!
//! ```text
//!   snapshot verified, tried ─► present state kept as a snapshot, tried ─► journal ─► machine and network removed ─► disk replaced
//!                                                   ─► commit: hibernated with the snapshot's processes, or stopped ─► woken
//! ```
//!
//! Invariant 14: id, name, network policy, limits, keys, public ports and volumes keep their present values. Files, processes and
//! their environment are restored, and so is the memory, on a new branch. Streams end, and the execs are those of the snapshot.

use std::collections::BTreeSet;

use burrow_catalog::{SandboxChange, SandboxRow};
use burrow_model::{
    MountPath, OperationId, Request, SandboxSpec, Snapshot, State, StopReason, VolumeId, VolumeMount,
};
use burrow_runtime::RuntimeError;

use super::Actor;
use super::trial::{self, UntriedDump};
use crate::operations::journal::{Detail, Operation, Resource, Trial};
use crate::operations::unwind;
use crate::sleep::activity::CutReason;
use crate::snapshots::dump;
use crate::snapshots::dump_description::OpenedDump;
use crate::{
    EngineError, RestoreFailure, RestoreResult, SnapshotOptions, VolumeRefusal, faults, memory, volumes,
};

impl Actor {
    /// `untried`: also where neither the snapshot's processes nor the present ones can be tried.
    pub(super) async fn restore(
        &mut self,
        snapshot: Snapshot,
        files_only: bool,
        untried: bool,
        undo: SnapshotOptions,
    ) -> Result<RestoreResult, EngineError> {
        self.admit(Request::Restore, "restore")?;
        let was_up = matches!(self.row.state, State::Running | State::Paused | State::Hibernated);
        let dump = snapshot.dump.clone().filter(|_| !files_only);
        let target = self.check_restorable(&snapshot, dump.as_ref()).await?;
        let undo = self.snapshot_present_state(&snapshot, target, untried, undo).await?;
        let detail = Detail { snapshot: Some(snapshot.id.clone()), dump: dump.clone(), ..Detail::default() };
        let (generation, before) = (self.row.generation, self.row.dump.clone());
        let operation = match self.begin_with(Operation::Restore, State::Restoring, &detail).await {
            Ok(operation) => operation,
            Err(error) => {
                self.resume_after_dump().await?;
                return Err(error);
            }
        };
        self.unwatch();
        if let Some(live) = self.live.take() {
            live.cut.now(CutReason::Restored);
        }
        if let Err(error) = self.replace(&snapshot, &detail, &operation.id).await {
            self.return_to_previous(&undo, operation.id).await?;
            return Err(error);
        }
        faults::hit("restore.settled")?;
        let now = self.shared.now_ms();
        self.shared.seams.catalog.mark_execs_lost(&self.row.id, generation, now).await?;
        if let Some(before) = before {
            dump::remove_if_unused(&self.shared, &before).await;
        }
        self.event("sandbox.restored", serde_json::json!({ "snapshot": snapshot.id, "undo": undo.id }));
        if (self.row.state == State::Hibernated || was_up)
            && let Err(error) = self.start().await
        {
            let returned = self.return_to(&undo, was_up).await;
            let (id, snapshot, undo_id) = (self.row.id.clone(), snapshot.id, undo.id);
            let EngineError::Wake { reason, .. } = error else { return Err(error) };
            let reason = reason.to_string();
            return Err(if !returned {
                EngineError::Restore(RestoreFailure::NotUndone { id, snapshot, undo: undo_id, reason })
            } else if undo.dump.is_some() || !was_up {
                EngineError::Restore(RestoreFailure::Undone { id, snapshot, reason })
            } else {
                EngineError::Restore(RestoreFailure::UndoneInFiles { id, snapshot, reason })
            });
        }
        Ok(RestoreResult { row: SandboxRow::clone(&self.row), undo })
    }

    /// The snapshot's processes could not be restored: returns to the state before the restore. If that fails too, its processes stay in
    /// the dump of `undo`, from which it can be woken.
    async fn return_to(&mut self, undo: &Snapshot, was_up: bool) -> bool {
        let detail = Detail { snapshot: Some(undo.id.clone()), dump: undo.dump.clone(), ..Detail::default() };
        let returned = async {
            let operation = self.begin_with(Operation::Restore, State::Restoring, &detail).await?;
            self.replace(undo, &detail, &operation.id).await?;
            if was_up { self.start().await } else { Ok(()) }
        };
        if let Err(error) = returned.await {
            tracing::error!(
                undo = %undo.id, error = &error as &dyn std::error::Error,
                "could not return a sandbox to its state before a restore"
            );
            let detail = serde_json::json!({ "undo": undo.id, "reason": error.to_string() });
            self.event("sandbox.restore-not-undone", detail);
            return false;
        }
        true
    }

    /// Ends the machine, and replaces the sandbox's disk with the snapshot's.
    async fn replace(
        &mut self,
        snapshot: &Snapshot,
        detail: &Detail,
        operation: &OperationId,
    ) -> Result<(), EngineError> {
        faults::hit("restore.begun")?;
        unwind(&self.shared, &self.row, Operation::Restore, &mut |resource| match resource {
            Resource::Machine => faults::hit("restore.machine"),
            Resource::Network => faults::hit("restore.network"),
            Resource::Disk => Ok(()),
        })
        .await?;
        let disks = &self.shared.seams.disks;
        disks.replace((&self.row.id).into(), (&snapshot.id).into(), self.disk_bytes()).await?;
        faults::hit("restore.disk")?;
        self.store(settled(&self.row, snapshot, detail, self.shared.now_ms()), Some(operation.clone())).await
    }

    /// After a failed restore: the sandbox is hibernated in its previous state, which the snapshot before the restore holds.
    async fn return_to_previous(
        &mut self,
        undo: &Snapshot,
        operation: OperationId,
    ) -> Result<(), EngineError> {
        unwind(&self.shared, &self.row, Operation::Restore, &mut |_| Ok(())).await?;
        let disks = &self.shared.seams.disks;
        disks.replace((&self.row.id).into(), (&undo.id).into(), self.disk_bytes()).await?;
        let detail = Detail { snapshot: None, dump: undo.dump.clone(), ..Detail::default() };
        self.store(settled(&self.row, undo, &detail, self.shared.now_ms()), Some(operation)).await
    }

    /// Verifies the snapshot, so that a damaged or incomplete one replaces nothing.
    async fn check_restorable(
        &self,
        snapshot: &Snapshot,
        dump: Option<&burrow_model::DumpId>,
    ) -> Result<Option<OpenedDump>, EngineError> {
        self.shared.seams.disks.locate((&snapshot.id).into()).await?;
        let Some(dump) = dump else { return Ok(None) };
        // Its processes have files open at these mount points, and at no others.
        if mount_points(&snapshot.spec) != mount_points(&self.row.spec) {
            return Err(EngineError::Volumes(VolumeRefusal::Other { snapshot: snapshot.id.clone() }));
        }
        dump::open(&self.shared, dump).await.map(Some)
    }

    /// Keeps the present state as a snapshot, `undo`. Unless the restore is of files only, running processes are ended only for
    /// processes that are expected to be restored: they hold kinds that were restored on this host before, or a trial has restored them.
    ///
    /// If the present processes cannot be dumped or restored, `undo` holds their files only. If it cannot be found out for either of the
    /// two, the restore is refused, unless `untried` is set: then `undo` holds the present processes.
    async fn snapshot_present_state(
        &mut self,
        snapshot: &Snapshot,
        target: Option<OpenedDump>,
        untried: bool,
        undo: SnapshotOptions,
    ) -> Result<Snapshot, EngineError> {
        if self.live.is_none() {
            return self.snapshot_and_stay_paused(&undo, None).await;
        }
        let doubt = match &target {
            Some(target) => match self.try_to_restore(snapshot, target, false).await {
                Ok(()) => None,
                Err(error) if trial::is_doubt(&error) => Some(error),
                Err(error) => return Err(self.not_tried(snapshot, error)),
            },
            None => None,
        };
        let error = match self.snapshot_and_stay_paused(&undo, Some(Trial::new(&self.row.spec))).await {
            Err(error) if trial::is_doubt(&error) || is_unrestorable(&error) => error,
            kept => return kept,
        };
        let in_doubt = trial::is_doubt(&error);
        if let Some(doubt) = doubt {
            // Neither of the two is known to be restorable.
            if !(untried && in_doubt) {
                return Err(doubt);
            }
            tracing::warn!(
                snapshot = %snapshot.id, error = &doubt as &dyn std::error::Error,
                "restoring a snapshot without a trial restore"
            );
        }
        let detail = serde_json::json!({ "reason": error.to_string() });
        if in_doubt {
            self.event("sandbox.undo-untried", detail);
            return self.snapshot_and_stay_paused(&undo, None).await;
        }
        if let Some(target) = &target
            && let Err(error) = self.try_to_restore(snapshot, target, true).await
        {
            return Err(self.not_tried(snapshot, error));
        }
        self.event("sandbox.undo-without-processes", detail);
        self.snapshot_and_stay_paused(&SnapshotOptions { files_only: true, ..undo }, None).await
    }

    /// Tries to restore a snapshot's processes beside the machine. `always`: also kinds that were restored before.
    async fn try_to_restore(
        &self,
        snapshot: &Snapshot,
        target: &OpenedDump,
        always: bool,
    ) -> Result<(), EngineError> {
        let (catalog, runtime) = (&self.shared.seams.catalog, &self.live()?.runtime);
        let dump = UntriedDump {
            images: target.images.clone(),
            about: &target.about.runtime,
            mounts: volumes::mounts_of(&self.shared, &self.row).await?,
            files: Some(&snapshot.id),
            always,
        };
        // Most dumps need no trial, and so no entry in the journal.
        if !trial::is_needed(&self.row, &**runtime, &dump).await? {
            return Ok(());
        }
        let trial = Trial::new(&self.row.spec);
        let paused = self.row.state == State::Paused;
        let detail = Detail { paused, trial: Some(trial.clone()), ..Detail::default() };
        let operation = Operation::Trial.row(&self.row.tenant, &self.row.id, &detail, self.shared.now_ms());
        catalog.begin_operation(operation.clone(), None).await?;
        let tried = trial::run(&self.shared, &self.row, runtime, &trial, dump).await;
        if let Err(error) = catalog.finish_operation(&operation.id).await {
            // The next start removes the entry, and what is left of the trial.
            tracing::error!(
                operation = %operation.id, error = &error as &dyn std::error::Error,
                "could not remove a trial restore from the journal"
            );
        }
        tried
    }

    /// The error of a restore that was refused because of its trial. A doubt is returned as it is: its hint says what helps.
    fn not_tried(&self, snapshot: &Snapshot, error: EngineError) -> EngineError {
        let EngineError::Runtime(RuntimeError::TrialFailed { reason, .. }) = &error else { return error };
        EngineError::Restore(RestoreFailure::Refused {
            id: self.row.id.clone(),
            snapshot: snapshot.id.clone(),
            reason: format!("a trial showed that the processes of the snapshot cannot be restored: {reason}"),
        })
    }
}

/// Whether processes cannot be dumped, or their dump cannot be restored.
fn is_unrestorable(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Runtime(RuntimeError::Obstacles { .. } | RuntimeError::TrialFailed { .. })
            | EngineError::NoHibernate { .. }
    )
}

/// Which volumes are mounted where, in no order.
fn mount_points(spec: &SandboxSpec) -> BTreeSet<(&VolumeId, &MountPath)> {
    spec.volumes.iter().map(VolumeMount::place).collect()
}

/// The row after a restore, at the restore itself or at the start after a crash.
pub(crate) fn settled(row: &SandboxRow, snapshot: &Snapshot, detail: &Detail, now_ms: u64) -> SandboxChange {
    let state = if detail.dump.is_some() { State::Hibernated } else { State::Stopped };
    let spec = SandboxSpec {
        env: snapshot.spec.env.clone(),
        services: snapshot.spec.services.clone(),
        workdir: snapshot.spec.workdir.clone(),
        user: snapshot.spec.user.clone(),
        ..row.spec.clone()
    };
    SandboxChange {
        state: Some(state),
        stop_reason: Some((state == State::Stopped).then_some(StopReason::Requested)),
        machine: Some(None),
        failure: Some(None),
        spec: Some(spec),
        image: Some(snapshot.image.clone()),
        dump: Some(detail.dump.clone()),
        stopped_ms: Some(Some(now_ms)),
        slept_ms: Some(detail.dump.is_some().then_some(now_ms)),
        generation: Some(row.generation + 1),
        branch: Some(Some(memory::branch_from(snapshot))),
        ..SandboxChange::at(now_ms)
    }
}
