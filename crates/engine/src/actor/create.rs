//! Creates a sandbox: from an image, from a pre-created sandbox, or from a snapshot.

use std::sync::Arc;

use burrow_catalog::{CatalogError, Idempotency, InsertResult, SandboxChange, SandboxRow};
use burrow_model::{OperationId, State};

use super::command::{Creation, Reply, SnapshotSource, Source};
use super::live_machine::LiveMachine;
use super::{Actor, SandboxFate};
use crate::images::starting_points;
use crate::images::starting_points::Start;
use crate::operations::journal::{Detail, Operation};
use crate::operations::{StartOptions, bring_up, bring_up_warm, restore_machine, unwind};
use crate::warm_pool::pool::WarmSandbox;
use crate::{EngineError, faults, warm_pool};

impl Actor {
    pub(super) async fn create(
        &mut self,
        idempotency: Option<Idempotency>,
        source: Source,
        reply: Reply<Creation>,
    ) -> SandboxFate {
        let (created, base) = match source {
            Source::Ready(ready) => (self.create_from_warm(*ready, idempotency.as_ref()).await, None),
            Source::Snapshot(base) => (None, Some(*base)),
            Source::Image => (None, None),
        };
        let created = match created {
            Some(created) => created,
            None => self.create_new(idempotency, base.as_ref()).await,
        };
        let (created, fate) = match created {
            Ok(Creation::Fresh(_)) => {
                self.event("sandbox.created", serde_json::json!({ "image": self.row.spec.image }));
                (created, SandboxFate::Stays)
            }
            Ok(Creation::Repeated(_) | Creation::NameTaken(_)) => (created, SandboxFate::Gone),
            // If it could not be undone, it remains, for a delete or the next start to finish.
            Err(_) if self.row.state == State::Failed => (created, SandboxFate::Stays),
            Err(_) => (created, SandboxFate::Gone),
        };
        let _ = reply.send(created);
        fate
    }

    /// Journals the create, then creates all resources of the sandbox.
    async fn create_new(
        &mut self,
        idempotency: Option<Idempotency>,
        base: Option<&SnapshotSource>,
    ) -> Result<Creation, EngineError> {
        let detail = Detail::default();
        let operation = Operation::Create.row(&self.row.tenant, &self.row.id, &detail, self.row.created_ms);
        let row = SandboxRow::clone(&self.row);
        let catalog = &self.shared.seams.catalog;
        match catalog.insert_sandbox_with_operation(row, operation.clone(), idempotency).await {
            Ok(InsertResult::New) => {}
            Ok(InsertResult::Existing(existing)) => return Ok(Creation::Repeated(existing)),
            Err(CatalogError::NameTaken { existing }) => return Ok(Creation::NameTaken(existing)),
            Err(error) => return Err(error.into()),
        }
        let made = match base {
            Some(base) => self.try_create_from(&operation.id, base).await,
            None => self.try_create(&operation.id).await,
        };
        match made {
            Ok(()) => Ok(self.fresh()),
            Err(error) => {
                self.undo_create(Some(&operation.id), &error).await;
                Err(error)
            }
        }
    }

    /// Turns a pre-created sandbox into a sandbox. One commit is enough: before it, the resources are named by a row of the warm pool,
    /// and recovery after a crash removes them; after it, by the sandbox's row, whose state is `running`. `None`: the pre-created
    /// sandbox could not be used, and was removed.
    pub(super) async fn create_from_warm(
        &mut self,
        ready: WarmSandbox,
        idempotency: Option<&Idempotency>,
    ) -> Option<Result<Creation, EngineError>> {
        let taken = async {
            let live = bring_up_warm(&self.shared, &self.row, ready).await?;
            faults::hit("create.taken")?;
            Ok::<_, EngineError>(live)
        };
        let live = match taken.await {
            Ok(live) => live,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a pre-created sandbox could not be used"
                );
                warm_pool::discard_id(&self.shared, &self.row.id).await;
                return None;
            }
        };
        let change = self.running(&live);
        let mut row = SandboxRow::clone(&self.row);
        change.apply(&mut row);
        let catalog = &self.shared.seams.catalog;
        let refused = match catalog.insert_running_sandbox(row.clone(), idempotency.cloned()).await {
            Ok(InsertResult::New) => {
                self.row = Arc::new(row);
                self.activity.follow(&self.row);
                self.watch(live);
                return Some(self.claimed().await);
            }
            Ok(InsertResult::Existing(existing)) => Ok(Creation::Repeated(existing)),
            Err(CatalogError::NameTaken { existing }) => Ok(Creation::NameTaken(existing)),
            Err(error) => Err(error.into()),
        };
        warm_pool::discard_id(&self.shared, &self.row.id).await;
        Some(refused)
    }

    pub(super) async fn claimed(&mut self) -> Result<Creation, EngineError> {
        match faults::hit("create.claimed") {
            Ok(()) => Ok(self.fresh()),
            Err(error) => {
                self.undo_create(None, &error).await;
                Err(error)
            }
        }
    }

    pub(super) fn fresh(&self) -> Creation {
        Creation::Fresh(Box::new(SandboxRow::clone(&self.row)))
    }

    async fn try_create(&mut self, operation: &OperationId) -> Result<(), EngineError> {
        faults::hit("create.begun")?;
        let (shared, row) = (&self.shared, &self.row);
        let runtime = shared.runtime(&row.spec.driver)?;
        let start =
            starting_points::start_of(shared, &row.tenant, &row.image, &runtime, &row.spec.limits).await?;
        let live = match self.begin_from(&start).await {
            Err(error) if start.template.is_some() => {
                starting_points::report_cold_start(shared, &row.tenant, &row.image, &error);
                unwind(shared, row, Operation::Create, &mut |_| Ok(())).await?;
                let cold = starting_points::cold_start_of(shared, &row.tenant, &row.image, &runtime).await?;
                self.begin_from(&cold).await?
            }
            begun => begun?,
        };
        self.settle_running(operation, live).await?;
        faults::hit("create.settled")
    }

    async fn begin_from(&self, start: &Start) -> Result<LiveMachine, EngineError> {
        let disks = &self.shared.seams.disks;
        let root = disks.create((&self.row.id).into(), Some((&start.disk).into()), self.disk_bytes()).await?;
        faults::hit("create.disk")?;
        let beginning = StartOptions { renew: false, template: start.template.clone() };
        bring_up(&self.shared, &self.row, root, Operation::Create, beginning).await
    }

    /// Creates a child of a fork, or a sandbox from a snapshot. None of its restored processes runs before its row says so.
    async fn try_create_from(
        &mut self,
        operation: &OperationId,
        base: &SnapshotSource,
    ) -> Result<(), EngineError> {
        faults::hit("fork.begun")?;
        let disks = &self.shared.seams.disks;
        let root =
            disks.create((&self.row.id).into(), Some((&base.snapshot).into()), self.disk_bytes()).await?;
        faults::hit("fork.disk")?;
        let Some(kept) = &base.kept else {
            let beginning = StartOptions { renew: true, template: None };
            let live = bring_up(&self.shared, &self.row, root, Operation::Create, beginning).await?;
            self.settle_running(operation, live).await?;
            return faults::hit("fork.settled");
        };
        let live = restore_machine(&self.shared, &self.row, root, kept, &self.activity).await?;
        self.settle_running(operation, live).await?;
        faults::hit("fork.settled")?;
        self.resume_machine(&kept.about).await
    }

    /// Undoes a create. Leaves the sandbox `failed` if that does not succeed.
    pub(super) async fn undo_create(&mut self, operation: Option<&OperationId>, error: &EngineError) {
        tracing::warn!(error = error as &dyn std::error::Error, "could not create the sandbox; undoing");
        self.unwatch();
        let undone = async {
            unwind(&self.shared, &self.row, Operation::Create, &mut |_| Ok(())).await?;
            Ok::<_, EngineError>(
                self.shared
                    .seams
                    .catalog
                    .delete_sandbox(&self.row.id, operation.cloned(), self.shared.now_ms())
                    .await?,
            )
        };
        if let Err(undo_error) = undone.await {
            // The operation stays in the journal: a delete, or the next start, finishes undoing it.
            tracing::error!(error = &undo_error as &dyn std::error::Error, "could not undo a failed create");
            self.note(SandboxChange { state: Some(State::Failed), ..self.change() });
        }
    }
}
