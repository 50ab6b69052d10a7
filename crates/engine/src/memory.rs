//! The memory of sandboxes: their spaces and branches, and when these are removed.
//!
//! A sandbox's own memory is part of its state. A snapshot records the present number in the log, a fork and a restore continue
//! from there on a new branch, and a space is removed with the last sandbox and snapshot that can see it. A named space is attached
//! to sandboxes: it outlives them and is never restored.
//!
//! None of this writes to the memory itself. The catalog records which branches exist. So a crash at any step leaves nothing to
//! undo, only data that no sandbox or snapshot can see, which the next sweep removes.

use std::collections::BTreeMap;

use burrow_catalog::{CatalogError, Page, PageRequest, SandboxRow, SpaceChange, SpaceRow};
use burrow_memory::{AsOf, KeptReference, Memory, View};
use burrow_model::{
    ATTACHED_MAX, MemoryRef, MemorySpec, Name, NamedPoint, Snapshot, SnapshotMemory, SpaceAccess, SpaceId,
    TenantId,
};

use crate::shared::Shared;
use crate::{Engine, EngineError, Maximum, ObjectKind};

/// The memory that a name refers to: of a sandbox, with all its attached spaces, or of one space.
#[derive(Clone, Debug)]
pub struct MemoryScope {
    /// The name by which it was requested.
    pub label: String,
    pub sandbox: Option<SandboxRow>,
    /// Written to unless another space is named.
    pub primary: ScopedView,
    /// Searched too.
    pub attached: Vec<ScopedView>,
}

/// One space, with the access that was granted to it.
#[derive(Clone, Debug)]
pub struct ScopedView {
    /// The space's name, or the sandbox that owns it.
    pub label: String,
    pub space: SpaceId,
    pub access: SpaceAccess,
    pub view: View,
}

impl MemoryScope {
    /// All spaces that are searched, the primary one first.
    pub fn views(&self) -> impl Iterator<Item = &ScopedView> {
        std::iter::once(&self.primary).chain(&self.attached)
    }

    /// One of the views by the space's name or id.
    pub fn find(&self, space: &str) -> Option<&ScopedView> {
        self.views().find(|scoped| scoped.label == space || scoped.space.as_str() == space)
    }
}

impl Engine {
    /// All memory on this host.
    pub fn memory(&self) -> &Memory {
        &self.shared.seams.memory
    }

    /// The memory of a sandbox or a space, by id or name. The prefix `sandbox:` or `space:` selects one; without it, a sandbox of that
    /// name is preferred.
    pub async fn memory_of(&self, tenant: &TenantId, text: &str) -> Result<MemoryScope, EngineError> {
        let unknown =
            || EngineError::NotFound { kind: ObjectKind::SandboxOrSpace, what: crate::shown::shown(text) };
        if let Some(name) = text.strip_prefix("space:") {
            return self.find_space(tenant, name).await.map(|row| self.memory_of_space(row));
        }
        let (name, only_sandbox) = match text.strip_prefix("sandbox:") {
            Some(name) => (name, true),
            None => (text, false),
        };
        if let Some(row) = self.shared.seams.catalog.resolve_sandbox(tenant, name).await? {
            return self.memory_of_sandbox(row).await;
        }
        if only_sandbox {
            return Err(unknown());
        }
        let row = self.shared.seams.catalog.resolve_space(tenant, name).await?.ok_or_else(unknown)?;
        Ok(self.memory_of_space(row))
    }

    /// All memory that a sandbox can access.
    pub async fn memory_of_sandbox(&self, row: SandboxRow) -> Result<MemoryScope, EngineError> {
        let label = row.name.as_ref().map_or_else(|| row.id.to_string(), ToString::to_string);
        let primary = match &row.spec.memory.space {
            Some(space) => self.named(&row.tenant, space, SpaceAccess::ReadWrite).await?,
            None => None,
        };
        let primary = primary.unwrap_or_else(|| {
            let own = row.memory();
            let view = self.memory().view(&own).with_quota(u64::from(row.spec.limits.disk_mib) << 20);
            ScopedView { label: label.clone(), space: own.space, access: SpaceAccess::ReadWrite, view }
        });
        let mut attached = Vec::with_capacity(row.spec.memory.attached.len());
        for given in &row.spec.memory.attached {
            attached.extend(self.named(&row.tenant, &given.space, given.access).await?);
        }
        Ok(MemoryScope { label, sandbox: Some(row), primary, attached })
    }

    fn memory_of_space(&self, row: SpaceRow) -> MemoryScope {
        let label = row.name.to_string();
        let primary = self.scoped(row, SpaceAccess::ReadWrite);
        MemoryScope { label, sandbox: None, primary, attached: Vec::new() }
    }

    /// A named space, unless it was removed although it is attached to sandboxes.
    async fn named(
        &self,
        tenant: &TenantId,
        space: &SpaceId,
        access: SpaceAccess,
    ) -> Result<Option<ScopedView>, EngineError> {
        let row = self.shared.seams.catalog.resolve_space(tenant, space.as_str()).await?;
        Ok(row.map(|row| self.scoped(row, access)))
    }

    fn scoped(&self, row: SpaceRow, access: SpaceAccess) -> ScopedView {
        let view = self.memory().view(&MemoryRef::main(&row.id));
        ScopedView { label: row.name.to_string(), space: row.id, access, view }
    }

    /// The same memory as at a snapshot of it. Spaces of which the snapshot has no number are seen as at its creation.
    pub async fn memory_at_snapshot(
        &self,
        tenant: &TenantId,
        scope: MemoryScope,
        snapshot: &str,
    ) -> Result<MemoryScope, EngineError> {
        let snapshot = self.find_snapshot(tenant, snapshot).await?;
        let MemoryScope { label, sandbox, primary, attached } = scope;
        let primary = view_at_snapshot(primary, &snapshot).await?;
        let mut back = Vec::with_capacity(attached.len());
        for scoped in attached {
            back.push(view_at_snapshot(scoped, &snapshot).await?);
        }
        Ok(MemoryScope { label, sandbox, primary, attached: back })
    }

    /// The same memory as at an earlier time.
    pub async fn memory_at(&self, scope: MemoryScope, as_of: &AsOf) -> Result<MemoryScope, EngineError> {
        let MemoryScope { label, sandbox, primary, attached } = scope;
        let primary = ScopedView { view: primary.view.at(as_of).await?, ..primary };
        let mut back = Vec::with_capacity(attached.len());
        for scoped in attached {
            // A number refers to the primary space; the others are seen as at the time of that number.
            let as_of = match as_of {
                AsOf::Now | AsOf::TimeMs(_) => as_of.clone(),
                AsOf::Seq(_) | AsOf::Point(_) => AsOf::TimeMs(primary.view.time_ms().await?),
            };
            back.push(ScopedView { view: scoped.view.at(&as_of).await?, ..scoped });
        }
        Ok(MemoryScope { label, sandbox, primary, attached: back })
    }

    // === Named spaces ===

    pub async fn create_space(
        &self,
        tenant: &TenantId,
        name: Name,
        description: String,
        labels: BTreeMap<String, String>,
    ) -> Result<SpaceRow, EngineError> {
        let (id, created_ms) = (SpaceId::generate(), self.shared.now_ms());
        let row = SpaceRow { id, tenant: tenant.clone(), name, description, labels, created_ms };
        self.shared.seams.catalog.insert_space(row.clone()).await?;
        self.shared.event(
            tenant,
            "space.created",
            None,
            serde_json::json!({ "space": row.id, "name": row.name }),
        );
        Ok(row)
    }

    /// The space of that name, created if it does not exist: for spaces attached to sandboxes.
    pub async fn space_named(&self, tenant: &TenantId, text: &str) -> Result<SpaceRow, EngineError> {
        if let Some(row) = self.shared.seams.catalog.resolve_space(tenant, text).await? {
            return Ok(row);
        }
        let unknown = || EngineError::NotFound { kind: ObjectKind::Space, what: crate::shown::shown(text) };
        if text.parse::<SpaceId>().is_ok() {
            return Err(unknown());
        }
        let name: Name = text.parse().map_err(|_| unknown())?;
        match self.create_space(tenant, name, String::new(), BTreeMap::new()).await {
            // Two sandboxes requested it at once: one of them created it.
            Err(EngineError::Catalog(CatalogError::SpaceNameTaken { .. })) => {
                self.find_space(tenant, text).await
            }
            made => made,
        }
    }

    /// By id, unique prefix of an id, or name.
    pub async fn find_space(&self, tenant: &TenantId, text: &str) -> Result<SpaceRow, EngineError> {
        let found = self.shared.seams.catalog.resolve_space(tenant, text).await?;
        found
            .ok_or_else(|| EngineError::NotFound { kind: ObjectKind::Space, what: crate::shown::shown(text) })
    }

    pub async fn spaces(&self, tenant: &TenantId, page: PageRequest) -> Result<Page<SpaceRow>, EngineError> {
        Ok(self.shared.seams.catalog.list_spaces(tenant, page).await?)
    }

    pub async fn update_space(
        &self,
        tenant: &TenantId,
        id: &SpaceId,
        change: SpaceChange,
    ) -> Result<SpaceRow, EngineError> {
        Ok(self.shared.seams.catalog.update_space(tenant, id, change).await?)
    }

    /// Removes a named space with its contents. `force`: even if sandboxes use it, which then use their own again.
    pub async fn delete_space(
        &self,
        tenant: &TenantId,
        id: &SpaceId,
        force: bool,
    ) -> Result<(), EngineError> {
        let row = self.find_space(tenant, id.as_str()).await?;
        let catalog = &self.shared.seams.catalog;
        if !force && let Some(by) = catalog.users_of_space(&row.id).await?.into_iter().next() {
            return Err(EngineError::SpaceInUse { name: row.name.to_string(), by });
        }
        catalog.delete_space(tenant, &row.id).await?;
        remove_if_unused(&self.shared, &row.id).await;
        self.shared.event(
            tenant,
            "space.deleted",
            None,
            serde_json::json!({ "space": row.id, "name": row.name }),
        );
        Ok(())
    }

    /// Checks that the spaces requested for a sandbox belong to this tenant.
    pub(crate) async fn check_memory(
        &self,
        tenant: &TenantId,
        memory: &MemorySpec,
    ) -> Result<(), EngineError> {
        if memory.attached.len() > ATTACHED_MAX {
            return Err(EngineError::Maximum(Maximum::AttachedSpaces { max: ATTACHED_MAX }));
        }
        let attached = memory.attached.iter().map(|attached| &attached.space);
        for space in memory.space.iter().chain(attached) {
            self.find_space(tenant, space.as_str()).await?;
        }
        Ok(())
    }
}

async fn view_at_snapshot(scoped: ScopedView, snapshot: &Snapshot) -> Result<ScopedView, EngineError> {
    let known = snapshot.memory.as_ref();
    let own = known.filter(|memory| memory.space == scoped.space).map(|memory| memory.point.clone());
    let named = known.and_then(|memory| memory.named.as_ref()).filter(|named| named.space == scoped.space);
    let as_of = match (own, named) {
        (Some(point), _) => AsOf::Point(point),
        (None, Some(named)) => AsOf::Point(named.point.clone()),
        (None, None) => AsOf::TimeMs(snapshot.created_ms),
    };
    Ok(ScopedView { view: scoped.view.at(&as_of).await?, ..scoped })
}

/// The present point of a sandbox's memory, for a snapshot. Call this while no process in the sandbox runs.
pub(crate) async fn point_of(shared: &Shared, row: &SandboxRow) -> Result<SnapshotMemory, EngineError> {
    let memory = &shared.seams.memory;
    let own = row.memory();
    let point = memory.view(&own).point().await?;
    let named = match &row.spec.memory.space {
        Some(space) => {
            let point = memory.view(&MemoryRef::main(space)).point().await?;
            Some(NamedPoint { space: space.clone(), point })
        }
        None => None,
    };
    Ok(SnapshotMemory { space: own.space, point, named })
}

/// The branch that continues from a snapshot. A snapshot from before memory existed has none.
pub(crate) fn branch_from(snapshot: &Snapshot) -> MemoryRef {
    match &snapshot.memory {
        Some(memory) => MemoryRef::branched(&memory.space, memory.point.clone()),
        None => MemoryRef::branched(&SpaceId::of(&snapshot.sandbox), None),
    }
}

/// A sandbox or snapshot that could see a space is gone: the space is removed with the last of them.
pub(crate) async fn remove_if_unused(shared: &Shared, space: &SpaceId) {
    let gone = async {
        let sight = shared.seams.catalog.space_users(space).await?;
        // What others can still see is cleaned up by the next sweep.
        if sight.is_unused() {
            shared.seams.memory.remove(space).await?;
        }
        Ok::<_, EngineError>(())
    };
    if let Err(error) = gone.await {
        tracing::warn!(%space, error = &error as &dyn std::error::Error, "could not remove an unused memory space");
    }
}

/// Removes memory that no sandbox and no snapshot can see any more: whole spaces, and branches of spaces that lost one.
pub(crate) async fn sweep(shared: &Shared) -> Result<(), EngineError> {
    // Listed before the used spaces are read: a space that is created in between is then not taken for an unused one.
    let found = shared.seams.memory.spaces().await?;
    let used = shared.seams.catalog.spaces_in_use().await?;
    for space in found.iter().filter(|space| !used.contains(space)) {
        tracing::info!(%space, "removing an unused memory space");
        shared.seams.memory.remove(space).await?;
    }
    // All spaces each time: data may have been too recent to remove last time, and a forgotten artifact leaves no other trace. A space
    // with nothing to remove is detected quickly.
    for space in found.iter().filter(|space| used.contains(space)) {
        let sight = shared.seams.catalog.space_users(space).await?;
        if sight.is_unused() {
            continue;
        }
        let main = sight.named.then(|| KeptReference::Branch(MemoryRef::main(space)));
        let branches = sight.branches.into_iter().map(KeptReference::Branch).chain(main);
        let kept: Vec<KeptReference> =
            branches.chain(sight.points.into_iter().map(KeptReference::Point)).collect();
        // A space that is damaged, or of a newer release, delays neither the others nor a start.
        if let Err(error) = shared.seams.memory.collect(space, &kept, false).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(%space, error, "could not remove unused data of a memory space");
        }
    }
    Ok(())
}
