//! Snapshots, restores and forks: the part of the engine's interface for them.

pub(crate) mod dump;
pub(crate) mod dump_description;
mod options;
pub(crate) mod pins;
pub(crate) mod removal;
pub(crate) mod restored_kinds;
mod tree;

use std::collections::BTreeMap;

use burrow_catalog::{Idempotency, Page, PageRequest, SandboxRow, SnapshotFilter};
use burrow_model::{
    Lifetime, Origin, OriginKind, SandboxId, SandboxSpec, Snapshot, SnapshotId, SnapshotKind, TenantId,
};
use futures_util::{StreamExt as _, stream};

use crate::actor::command::{Command, Creation, ForkBase, Reply, SnapshotSource, Source, StateCommand};
use crate::actor::{self, apply_update};
use crate::checks::{check_limits, check_policies};
use crate::egress::rates;
use crate::new_row::new_row;
use crate::shown::shown;
use crate::{CreateResult, Engine, EngineError, Maximum, ObjectKind, memory};
use pins::{Pin, Pins};
use removal::remove_snapshot;
use tree::build_tree;

pub use options::{FORK_MAX, ForkOptions, ForkResult, FromSnapshot, RestoreResult, SnapshotOptions};
pub use tree::{TreeItem, TreeNode};

/// Children brought up concurrently: more would compete for the same cores, and need RAM for their page tables at the same time.
const FORKS_AT_ONCE: usize = 4;

/// How long the deletion of a sandbox waits for a snapshot that another task is removing: two seconds. The snapshot's row is removed
/// first, within milliseconds.
const GOING_LOOKS_MAX: u32 = 200;
const GOING_PACE: std::time::Duration = std::time::Duration::from_millis(10);

impl Engine {
    /// Dumps its processes to disk and frees its RAM. Does nothing if it is hibernated already.
    pub async fn hibernate(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxRow, EngineError> {
        self.ask(tenant, id, |reply| Command::Hibernate { untried: false, reply }).await
    }

    /// As [`Self::hibernate`], also where it cannot be tried whether the dump can be restored.
    pub async fn hibernate_untried(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<SandboxRow, EngineError> {
        self.ask(tenant, id, |reply| Command::Hibernate { untried: true, reply }).await
    }

    /// Brings a sleeping sandbox to `running`.
    pub async fn wake(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxRow, EngineError> {
        self.start_sandbox(tenant, id).await
    }

    /// Boots from the files; dumped processes are discarded.
    pub async fn start_fresh(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxRow, EngineError> {
        self.ask(tenant, id, |reply| Command::Start { fresh: true, reply }).await
    }

    pub async fn snapshot(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        options: SnapshotOptions,
    ) -> Result<Snapshot, EngineError> {
        dump::check_room(&self.shared, 0).await?;
        let snapshot = self
            .ask_state(tenant, id, |reply| StateCommand::Snapshot { options: Box::new(options), reply })
            .await?;
        let detail = serde_json::json!({
            "snapshot": snapshot.id, "name": snapshot.name, "kind": snapshot.kind, "pause_us": snapshot.pause_us,
        });
        self.shared.event(tenant, "snapshot.created", Some(id), detail);
        Ok(snapshot)
    }

    /// By id, unique prefix of an id, or name.
    pub async fn find_snapshot(&self, tenant: &TenantId, text: &str) -> Result<Snapshot, EngineError> {
        let found = self.shared.seams.catalog.resolve_snapshot(tenant, text).await?;
        found.ok_or_else(|| EngineError::NotFound { kind: ObjectKind::Snapshot, what: shown(text) })
    }

    pub async fn snapshots(
        &self,
        tenant: &TenantId,
        filter: SnapshotFilter,
        page: PageRequest,
    ) -> Result<Page<Snapshot>, EngineError> {
        Ok(self.shared.seams.catalog.list_snapshots(tenant, filter, page).await?)
    }

    /// Removes a snapshot with all that only it holds. The common snapshot of a fork's children is kept as long as they exist.
    pub async fn delete_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<(), EngineError> {
        let catalog = &self.shared.seams.catalog;
        let snapshot = catalog.snapshot(tenant, id).await?;
        let snapshot = snapshot
            .ok_or_else(|| EngineError::NotFound { kind: ObjectKind::Snapshot, what: id.to_string() })?;
        remove_snapshot(&self.shared, &snapshot).await?;
        let detail = serde_json::json!({ "snapshot": snapshot.id, "name": snapshot.name });
        self.shared.event(tenant, "snapshot.deleted", Some(&snapshot.sandbox), detail);
        Ok(())
    }

    /// A snapshot that is not removed while the pin is held.
    pub(crate) async fn pinned(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<(Snapshot, Pin), EngineError> {
        let pin = Pins::pin(&self.shared.pins, id).await;
        let found = self.shared.seams.catalog.snapshot(tenant, id).await?;
        let unknown = || EngineError::NotFound { kind: ObjectKind::Snapshot, what: id.to_string() };
        Ok((found.ok_or_else(unknown)?, pin))
    }

    /// Restores a sandbox to a snapshot. Its present state is kept as another snapshot.
    pub async fn restore(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        snapshot: &SnapshotId,
        files_only: bool,
    ) -> Result<RestoreResult, EngineError> {
        self.restore_keeping(tenant, id, snapshot, files_only, false, SnapshotKind::BeforeRestore).await
    }

    /// Restores files and processes, even if it cannot be tried whether the snapshot's processes or the present ones can be
    /// restored. The present ones are kept in any case.
    pub async fn restore_untried(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<RestoreResult, EngineError> {
        self.restore_keeping(tenant, id, snapshot, false, true, SnapshotKind::BeforeRestore).await
    }

    pub(crate) async fn restore_keeping(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        snapshot: &SnapshotId,
        files_only: bool,
        untried: bool,
        kind: SnapshotKind,
    ) -> Result<RestoreResult, EngineError> {
        let (found, _pin) = self.pinned(tenant, snapshot).await?;
        let row = self.get(tenant, id).await?;
        if found.spec.driver != row.spec.driver {
            return Err(EngineError::OtherDriver { snapshot: found.id, driver: found.spec.driver });
        }
        let undo = SnapshotOptions {
            description: format!("before restoring {}", found.id),
            ..SnapshotOptions::automatic(kind, false)
        };
        let (snapshot, undo) = (Box::new(found), Box::new(undo));
        let restore = |reply| StateCommand::Restore { snapshot, files_only, untried, undo, reply };
        self.ask_state(tenant, id, restore).await
    }

    /// Creates a new sandbox from a snapshot.
    pub async fn create_from_snapshot(
        &self,
        tenant: &TenantId,
        snapshot: &SnapshotId,
        options: FromSnapshot,
    ) -> Result<CreateResult, EngineError> {
        let (found, _pin) = self.pinned(tenant, snapshot).await?;
        self.admit_children(1).await?;
        let kept = match found.dump.as_ref().filter(|_| !options.files_only) {
            Some(dump) => Some(dump::open(&self.shared, dump).await?),
            None => None,
        };
        // A policy is never restored: the present policy of the snapshot's sandbox applies, or else the host's default.
        let source = self.shared.seams.catalog.sandbox(tenant, &found.sandbox).await?;
        let mut row = self.child_row(tenant, &found, OriginKind::Restore);
        row.spec.network = match source {
            Some(source) => source.spec.network,
            None => self.default_network().clone(),
        };
        row.name.clone_from(&options.name);
        row.spec.volumes = self.mounts_left(tenant, row.spec.volumes, kept.is_some()).await?;
        adjust(&mut row, options.labels, options.lifetime);
        if let Some(change) = &options.change {
            apply_update(&mut row, change)?;
            check_policies(&row.spec.sleep, row.spec.snapshots.as_ref(), row.spec.rotate.as_ref())?;
        }
        self.check_child(&row)?;
        let base = SnapshotSource { snapshot: found.id.clone(), kept };
        self.create_child(tenant, row, base, options.idempotency).await
    }

    /// Creates children of a sandbox in its present state. It is paused only while that state is captured.
    pub async fn fork(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        options: ForkOptions,
    ) -> Result<ForkResult, EngineError> {
        if options.count == 0 || options.count > FORK_MAX {
            return Err(EngineError::ForkCount { given: options.count, max: FORK_MAX });
        }
        self.admit_children(options.count).await?;
        for name in &options.names {
            // Checked before the parent is paused.
            if let Some(taken) = self.shared.seams.catalog.sandbox_by_name(tenant, name.as_str()).await? {
                return Err(EngineError::NameTaken { name: name.to_string(), existing: taken.id });
            }
        }
        let files_only = options.files_only;
        let base = self.ask_state(tenant, id, |reply| StateCommand::ForkBase { files_only, reply }).await?;
        let pin = Pins::pin(&self.shared.pins, &base.snapshot.id).await;
        let forked = self.bring_up_children(tenant, &base, &options).await;
        drop(pin);
        self.give_up_processes(&base).await?;
        if forked.children.iter().all(Result::is_err) {
            remove_snapshot(&self.shared, &base.snapshot).await?;
        }
        let made: Vec<_> = forked.children.iter().flatten().map(|row| row.id.clone()).collect();
        let detail = serde_json::json!({ "children": made, "pause_us": forked.pause_us });
        self.shared.event(tenant, "sandbox.forked", Some(id), detail);
        Ok(forked)
    }

    /// Discards the dump of a fork: the children have their own processes by now, and only share files.
    async fn give_up_processes(&self, base: &ForkBase) -> Result<(), EngineError> {
        if let Some(dump) = &base.snapshot.dump {
            let files = Snapshot { dump: None, ..base.snapshot.clone() };
            self.shared.seams.catalog.finish_snapshot(files, None).await?;
            dump::remove_if_unused(&self.shared, dump).await;
        }
        if let Some(dump) = &base.passing_dump {
            dump::remove_if_unused(&self.shared, dump).await;
        }
        Ok(())
    }

    async fn bring_up_children(
        &self,
        tenant: &TenantId,
        base: &ForkBase,
        options: &ForkOptions,
    ) -> ForkResult {
        let made = (0..options.count).map(|index| {
            let mut row = self.child_row(tenant, &base.snapshot, OriginKind::Fork);
            // The children get the present permissions of the parent.
            row.spec = SandboxSpec { rotate: None, ..base.row.spec.clone() }.reading_volumes();
            row.name = options.names.get(index).cloned();
            adjust(&mut row, options.labels.clone(), options.lifetime);
            let from = SnapshotSource { snapshot: base.snapshot.id.clone(), kept: base.kept.clone() };
            async move {
                self.check_child(&row)?;
                Ok(self.create_child(tenant, row, from, None).await?.row)
            }
        });
        let children = stream::iter(made).buffered(FORKS_AT_ONCE).collect().await;
        ForkResult { children, base: base.snapshot.id.clone(), pause_us: base.snapshot.pause_us }
    }

    async fn ask_state<T>(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        command: impl FnOnce(Reply<T>) -> StateCommand,
    ) -> Result<T, EngineError> {
        self.ask(tenant, id, |reply| Command::State(command(reply))).await
    }

    async fn create_child(
        &self,
        tenant: &TenantId,
        row: SandboxRow,
        base: SnapshotSource,
        idempotency: Option<Idempotency>,
    ) -> Result<CreateResult, EngineError> {
        let name = row.name.clone();
        let actor = actor::add(&self.shared, row);
        let source = Source::Snapshot(Box::new(base));
        match actor.ask(|reply| Command::Create { idempotency, source, reply }).await? {
            Creation::Fresh(row) => Ok(CreateResult { row: *row, fresh: true }),
            Creation::Repeated(existing) => {
                let row = self.ask(tenant, &existing, |reply| Command::Settled { reply }).await?;
                Ok(CreateResult { row, fresh: false })
            }
            Creation::NameTaken(existing) => {
                let name = name.map_or_else(String::new, String::from);
                Err(EngineError::NameTaken { name, existing })
            }
        }
    }

    async fn admit_children(&self, count: usize) -> Result<(), EngineError> {
        let max = self.shared.policy.sandboxes_max;
        if self.shared.sandboxes().saturating_add(count) > max {
            return Err(EngineError::Maximum(Maximum::Sandboxes { max }));
        }
        dump::check_room(&self.shared, 0).await
    }

    fn check_child(&self, row: &SandboxRow) -> Result<(), EngineError> {
        check_limits(&row.spec.limits, &self.shared.policy.limits_max)?;
        rates::check(&row.spec.rates, &*self.shared.runtime(&row.spec.driver)?)?;
        self.shared.policy.egress.check(&row.spec.network)
    }

    fn child_row(&self, tenant: &TenantId, snapshot: &Snapshot, kind: OriginKind) -> SandboxRow {
        // A child of a sandbox with a rotation policy has none itself, unless requested. It also has no lease, public ports or expiry:
        // those belong to the other sandbox, and are never restored. And it writes to no volume, since a volume has at most one writer.
        let spec = SandboxSpec { rotate: None, ..snapshot.spec.clone().unleased() }.reading_volumes();
        let row = new_row(SandboxId::generate(), tenant, spec, snapshot.image.clone(), self.shared.now_ms());
        SandboxRow {
            origin: Some(Origin { snapshot: snapshot.id.clone(), sandbox: snapshot.sandbox.clone(), kind }),
            branch: Some(memory::branch_from(snapshot)),
            ..row
        }
    }

    /// Removes a sandbox and its snapshots, except those from which others were created and that they still need.
    pub async fn delete_with_snapshots(&self, tenant: &TenantId, id: &SandboxId) -> Result<(), EngineError> {
        self.delete(tenant, id).await?;
        let mut left = None;
        for snapshot in self.shared.seams.catalog.snapshots_of(id).await? {
            match remove_snapshot(&self.shared, &snapshot).await {
                Ok(()) | Err(EngineError::SnapshotInUse { .. }) => {}
                // The last child of a fork is removed together with the snapshot it was created from, possibly at this moment.
                Err(EngineError::SnapshotBusy { .. })
                    if self.wait_until_removed(tenant, &snapshot.id).await? => {}
                Err(error) => {
                    tracing::warn!(
                        snapshot = %snapshot.id, error = &error as &dyn std::error::Error,
                        "could not remove a snapshot with its sandbox"
                    );
                    left = Some(snapshot.id);
                }
            }
        }
        left.map_or(Ok(()), |snapshot| Err(EngineError::SnapshotsLeft { id: id.clone(), snapshot }))
    }

    /// Waits until a busy snapshot is removed; false if it still exists after a while.
    async fn wait_until_removed(&self, tenant: &TenantId, id: &SnapshotId) -> Result<bool, EngineError> {
        for _ in 0..GOING_LOOKS_MAX {
            if self.shared.seams.catalog.snapshot(tenant, id).await?.is_none() {
                return Ok(true);
            }
            tokio::time::sleep(GOING_PACE).await;
        }
        Ok(false)
    }

    /// Sandboxes and snapshots with what they came from, parents first, oldest first.
    pub async fn tree(&self, tenant: &TenantId) -> Result<Vec<TreeNode>, EngineError> {
        let lineage = self.shared.seams.catalog.lineage(tenant).await?;
        Ok(build_tree(lineage.sandboxes, lineage.snapshots))
    }
}

/// Applies the options of a child.
fn adjust(row: &mut SandboxRow, labels: Option<BTreeMap<String, String>>, lifetime: Option<Lifetime>) {
    if let Some(labels) = labels {
        row.spec.labels = labels;
    }
    if let Some(lifetime) = lifetime {
        row.spec.lifetime = lifetime;
    }
}
