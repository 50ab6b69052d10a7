//! Whose memory is whose: spaces and branches of sandboxes, and what becomes of them.
//!
//! A sandbox's own memory is part of what it is. A snapshot takes the number it had come to, a fork and a restore go on from
//! there on a branch of their own, and it goes with the last sandbox and snapshot that can see it. A space under a name
//! is given to sandboxes: it outlives them and never goes back.
//!
//! None of this writes to the memory itself. Which branches there are, the catalog says; so a crash at any step leaves
//! nothing to undo, only what nobody sees, and that is removed by the next sweep.

use std::collections::BTreeMap;

use burrow_catalog::{CatalogError, Page, PageRequest, SandboxRow, SpaceChange, SpaceRow};
use burrow_memory::{AsOf, Kept, Memory, View};
use burrow_model::{
    ATTACHED_MAX, MemoryRef, MemorySpec, Name, NamedPoint, Snapshot, SnapshotMemory, SpaceAccess, SpaceId,
    TenantId,
};

use crate::shared::Shared;
use crate::{Engine, EngineError};

/// The memory that a name stands for: of a sandbox, with all it was given, or of one space.
#[derive(Clone, Debug)]
pub struct MemoryScope {
    /// What it was asked for by, as people know it.
    pub label: String,
    pub sandbox: Option<SandboxRow>,
    /// Where is written unless another is named.
    pub primary: ScopedView,
    /// Searched as well.
    pub attached: Vec<ScopedView>,
}

/// One space as somebody may use it.
#[derive(Clone, Debug)]
pub struct ScopedView {
    /// The space's name, or the sandbox's whose own it is.
    pub label: String,
    pub space: SpaceId,
    pub access: SpaceAccess,
    pub view: View,
}

impl MemoryScope {
    /// All that is searched, the primary first.
    pub fn views(&self) -> impl Iterator<Item = &ScopedView> {
        std::iter::once(&self.primary).chain(&self.attached)
    }

    /// One of the views by the space's name or id.
    pub fn find(&self, space: &str) -> Option<&ScopedView> {
        self.views().find(|scoped| scoped.label == space || scoped.space.as_str() == space)
    }
}

impl Engine {
    /// All that agents on this host remember.
    pub fn memory(&self) -> &Memory {
        &self.shared.seams.memory
    }

    /// The memory of a sandbox or a space, by id or name. `sandbox:` or `space:` before it says which; else a sandbox of
    /// that name comes first.
    pub async fn memory_of(&self, tenant: &TenantId, text: &str) -> Result<MemoryScope, EngineError> {
        let unknown = || EngineError::MemoryNotFound { what: crate::engine::shown(text) };
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

    /// All that a sandbox may remember with.
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

    /// A named space, unless it was removed although sandboxes have it.
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

    /// The same memory as a snapshot of it saw it. Spaces the snapshot knows no number of are seen as they were when it
    /// was taken.
    pub async fn memory_at_snapshot(
        &self,
        tenant: &TenantId,
        scope: MemoryScope,
        snapshot: &str,
    ) -> Result<MemoryScope, EngineError> {
        let snapshot = self.find_snapshot(tenant, snapshot).await?;
        let MemoryScope { label, sandbox, primary, attached } = scope;
        let primary = look_back(primary, &snapshot).await?;
        let mut back = Vec::with_capacity(attached.len());
        for scoped in attached {
            back.push(look_back(scoped, &snapshot).await?);
        }
        Ok(MemoryScope { label, sandbox, primary, attached: back })
    }

    /// The same memory as it was then.
    pub async fn memory_at(&self, scope: MemoryScope, as_of: &AsOf) -> Result<MemoryScope, EngineError> {
        let MemoryScope { label, sandbox, primary, attached } = scope;
        let primary = ScopedView { view: primary.view.at(as_of).await?, ..primary };
        let mut back = Vec::with_capacity(attached.len());
        for scoped in attached {
            // A number is one of the primary space; the others are seen as they were when it was given.
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

    /// The space of that name, which is made if there is none: for sandboxes that are given one.
    pub async fn space_named(&self, tenant: &TenantId, text: &str) -> Result<SpaceRow, EngineError> {
        if let Some(row) = self.shared.seams.catalog.resolve_space(tenant, text).await? {
            return Ok(row);
        }
        let unknown = || EngineError::SpaceNotFound { what: crate::engine::shown(text) };
        if text.parse::<SpaceId>().is_ok() {
            return Err(unknown());
        }
        let name: Name = text.parse().map_err(|_| unknown())?;
        match self.create_space(tenant, name, String::new(), BTreeMap::new()).await {
            // Two sandboxes that are given it at once: one made it.
            Err(EngineError::Catalog(CatalogError::SpaceNameTaken { .. })) => {
                self.find_space(tenant, text).await
            }
            made => made,
        }
    }

    /// By id, unique beginning of an id, or name.
    pub async fn find_space(&self, tenant: &TenantId, text: &str) -> Result<SpaceRow, EngineError> {
        let found = self.shared.seams.catalog.resolve_space(tenant, text).await?;
        found.ok_or_else(|| EngineError::SpaceNotFound { what: crate::engine::shown(text) })
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

    /// Removes a named space with all it holds. `force`: although sandboxes have it, which then go back to their own.
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
        let_go(&self.shared, &row.id).await;
        self.shared.event(
            tenant,
            "space.deleted",
            None,
            serde_json::json!({ "space": row.id, "name": row.name }),
        );
        Ok(())
    }

    /// What a sandbox is to be given must be this tenant's.
    pub(crate) async fn check_memory(
        &self,
        tenant: &TenantId,
        memory: &MemorySpec,
    ) -> Result<(), EngineError> {
        if memory.attached.len() > ATTACHED_MAX {
            return Err(EngineError::AttachedMax { max: ATTACHED_MAX });
        }
        let attached = memory.attached.iter().map(|attached| &attached.space);
        for space in memory.space.iter().chain(attached) {
            self.find_space(tenant, space.as_str()).await?;
        }
        Ok(())
    }
}

async fn look_back(scoped: ScopedView, snapshot: &Snapshot) -> Result<ScopedView, EngineError> {
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

/// How far a sandbox's memory has come, for a snapshot. To be called while nothing in it runs.
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

/// The branch that goes on from a snapshot. One from before there was memory had remembered nothing.
pub(crate) fn branch_from(snapshot: &Snapshot) -> MemoryRef {
    match &snapshot.memory {
        Some(memory) => MemoryRef::branched(&memory.space, memory.point.clone()),
        None => MemoryRef::branched(&SpaceId::of(&snapshot.sandbox), None),
    }
}

/// Something that saw into a space is gone: the space goes with the last.
pub(crate) async fn let_go(shared: &Shared, space: &SpaceId) {
    let gone = async {
        let sight = shared.seams.catalog.sight_of(space).await?;
        // What others still see into loses rows with the next sweep.
        if sight.is_blind() {
            shared.seams.memory.remove(space).await?;
        }
        Ok::<_, EngineError>(())
    };
    if let Err(error) = gone.await {
        tracing::warn!(%space, error = &error as &dyn std::error::Error, "could not remove what nobody remembers any more");
    }
}

/// Removes what no sandbox and no snapshot can see any more: whole spaces, and branches of those that lost one.
pub(crate) async fn sweep(shared: &Shared) -> Result<(), EngineError> {
    // Listed before what is in use is asked for: a space that comes up in between is not taken for a stranger.
    let found = shared.seams.memory.spaces().await?;
    let used = shared.seams.catalog.spaces_in_use().await?;
    for space in found.iter().filter(|space| !used.contains(space)) {
        tracing::info!(%space, "removing memory that nobody can see");
        shared.seams.memory.remove(space).await?;
    }
    // All of them each time: what is dead may have been too young last time, and a forgotten artifact leaves no other trace.
    // Where there is nothing to do that shows at a glance.
    for space in found.iter().filter(|space| used.contains(space)) {
        let sight = shared.seams.catalog.sight_of(space).await?;
        if sight.is_blind() {
            continue;
        }
        let main = sight.named.then(|| Kept::Branch(MemoryRef::main(space)));
        let branches = sight.branches.into_iter().map(Kept::Branch).chain(main);
        let kept: Vec<Kept> = branches.chain(sight.points.into_iter().map(Kept::Point)).collect();
        // One that is damaged, or of a newer release, holds up neither the others nor a start.
        if let Err(error) = shared.seams.memory.collect(space, &kept, false).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(%space, error, "could not remove what nobody sees of a space");
        }
    }
    Ok(())
}
