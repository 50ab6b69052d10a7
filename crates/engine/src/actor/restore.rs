//! Back to a snapshot, in place: the same sandbox, with what it was then.
//!
//! ```text
//!   snapshot checked ─► what is now kept as a snapshot ─► journal ─► machine, network gone ─► disk replaced
//!                                                   ─► commit: asleep with the snapshot's processes, or stopped ─► woken
//! ```
//!
//! Invariant 3: id, name, network policy, limits, keys, public ports and volumes stay as they are now; files, processes and what
//! they were started with come back, and so does what was remembered, on a branch of its own. Streams end, and execs are the snapshot's.

use std::collections::BTreeSet;

use burrow_catalog::{SandboxChange, SandboxRow};
use burrow_model::{
    MountPath, OperationId, Request, SandboxSpec, ShelfId, ShelfMount, Snapshot, State, StopReason,
};

use super::Actor;
use crate::activity::CutReason;
use crate::journal::{Detail, Operation, Resource};
use crate::operations::unwind;
use crate::{EngineError, Restored, SnapshotOptions, dump, faults, memory};

impl Actor {
    pub(super) async fn restore(
        &mut self,
        snapshot: Snapshot,
        files_only: bool,
        undo: SnapshotOptions,
    ) -> Result<Restored, EngineError> {
        self.admit(Request::Restore, "restore")?;
        let was_up = matches!(self.row.state, State::Running | State::Paused | State::Hibernated);
        let dump = snapshot.dump.clone().filter(|_| !files_only);
        self.check_restorable(&snapshot, dump.as_ref()).await?;
        let undo = self.keep_present(undo).await?;
        let detail = Detail { snapshot: Some(snapshot.id.clone()), dump: dump.clone(), ..Detail::default() };
        let (generation, before) = (self.row.generation, self.row.dump.clone());
        let operation = self.begin_with(Operation::Restore, State::Restoring, &detail).await?;
        self.unwatch();
        if let Some(live) = self.live.take() {
            live.cut.now(CutReason::Restored);
        }
        if let Err(error) = self.replace(&snapshot, &detail, &operation.id).await {
            self.take_back(&undo, operation.id).await?;
            return Err(error);
        }
        faults::hit("restore.settled")?;
        let now = self.shared.now_ms();
        self.shared.seams.catalog.mark_execs_lost(&self.row.id, generation, now).await?;
        if let Some(before) = before {
            dump::let_go(&self.shared, &before).await;
        }
        self.event("sandbox.restored", serde_json::json!({ "snapshot": snapshot.id, "undo": undo.id }));
        if (self.row.state == State::Hibernated || was_up)
            && let Err(error) = self.start().await
        {
            self.return_to(&undo).await;
            return Err(error);
        }
        Ok(Restored { row: SandboxRow::clone(&self.row), undo })
    }

    /// The snapshot's processes did not come up: better what it was than neither.
    async fn return_to(&mut self, undo: &Snapshot) {
        let detail = Detail { snapshot: Some(undo.id.clone()), dump: undo.dump.clone(), ..Detail::default() };
        let returned = async {
            let operation = self.begin_with(Operation::Restore, State::Restoring, &detail).await?;
            self.replace(undo, &detail, &operation.id).await?;
            self.start().await
        };
        if let Err(error) = returned.await {
            tracing::error!(
                undo = %undo.id, error = &error as &dyn std::error::Error,
                "could not return to what the sandbox was before a restore"
            );
        }
    }

    /// Ends the machine, and puts the snapshot's disk in the place of the sandbox's.
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
            Resource::Volume => Ok(()),
        })
        .await?;
        let volumes = &self.shared.seams.volumes;
        volumes.replace_from_snapshot(&self.row.id, &snapshot.id, self.disk_bytes()).await?;
        faults::hit("restore.volume")?;
        self.store(settled(&self.row, snapshot, detail, self.shared.now_ms()), Some(operation.clone())).await
    }

    /// A restore that failed: the sandbox sleeps as what it was, which the snapshot before the restore holds.
    async fn take_back(&mut self, undo: &Snapshot, operation: OperationId) -> Result<(), EngineError> {
        unwind(&self.shared, &self.row, Operation::Restore, &mut |_| Ok(())).await?;
        let volumes = &self.shared.seams.volumes;
        volumes.replace_from_snapshot(&self.row.id, &undo.id, self.disk_bytes()).await?;
        let detail = Detail { snapshot: None, dump: undo.dump.clone(), ..Detail::default() };
        self.store(settled(&self.row, undo, &detail, self.shared.now_ms()), Some(operation)).await
    }

    /// Nothing is replaced by what turns out to be damaged or missing.
    async fn check_restorable(
        &self,
        snapshot: &Snapshot,
        dump: Option<&burrow_model::DumpId>,
    ) -> Result<(), EngineError> {
        self.shared.seams.volumes.locate_snapshot(&snapshot.id).await?;
        if let Some(dump) = dump {
            // Its processes know files at these places, and at no others.
            if places(&snapshot.spec) != places(&self.row.spec) {
                return Err(EngineError::OtherVolumes { snapshot: snapshot.id.clone() });
            }
            dump::open(&self.shared, dump).await?;
        }
        Ok(())
    }

    /// What the sandbox is now, as a snapshot. Processes that cannot be written down are not worth refusing for: they were
    /// going to end, and the files are kept.
    async fn keep_present(&mut self, undo: SnapshotOptions) -> Result<Snapshot, EngineError> {
        match self.snapshot_standing_still(&undo).await {
            Err(
                EngineError::Runtime(burrow_runtime::RuntimeError::Obstacles { .. })
                | EngineError::NoHibernate { .. },
            ) => self.snapshot_standing_still(&SnapshotOptions { files_only: true, ..undo }).await,
            kept => kept,
        }
    }
}

/// Which volumes are where, in no order.
fn places(spec: &SandboxSpec) -> BTreeSet<(&ShelfId, &MountPath)> {
    spec.volumes.iter().map(ShelfMount::place).collect()
}

/// What a restore makes of the row, now or at the start after a crash.
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
