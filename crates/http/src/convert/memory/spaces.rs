//! Converts spaces, and the memory settings of sandboxes.

use burrow_api::memory as api;
use burrow_catalog::{SandboxRow, SpaceRow};
use burrow_engine::{Engine, MemoryChange};
use burrow_model::{ATTACHED_MAX, MemorySpec, Name, RememberMode, SandboxId, SpaceAccess, SpaceId, TenantId};

use super::super::checks::{check_text, label, name};
use super::super::requests::{PAIRS_MAX, check_count};
use crate::error::ApiError;

/// Descriptions are short texts for people; long texts belong in entries.
const DESCRIPTION_BYTES_MAX: usize = 4096;

/// The name of a sandbox's own space, so no other space can have it.
const OWN: &str = "own";

pub fn space_name(text: &str) -> Result<Name, ApiError> {
    if matches!(text, OWN | "self") {
        return Err(ApiError::invalid(format!("`name` must not be `{text}`, which is reserved")));
    }
    name("name", text)
}

pub fn check_description(text: &str) -> Result<(), ApiError> {
    if text.len() > DESCRIPTION_BYTES_MAX {
        let message = format!("`description` must be at most {DESCRIPTION_BYTES_MAX} bytes long");
        return Err(ApiError::invalid(message));
    }
    check_text("description", text)
}

pub fn check_labels<'l>(
    labels: impl Iterator<Item = (&'l String, Option<&'l String>)>,
) -> Result<(), ApiError> {
    let mut count = 0;
    for (key, value) in labels {
        count += 1;
        check_count("labels", count, PAIRS_MAX)?;
        label(key, value.map_or("", String::as_str))?;
    }
    Ok(())
}

pub fn space(row: SpaceRow, users: Vec<SandboxId>) -> api::Space {
    api::Space {
        id: row.id.into(),
        name: row.name.into(),
        description: row.description,
        labels: row.labels,
        created_ms: row.created_ms,
        used_by: users.into_iter().map(String::from).collect(),
    }
}

/// The memory settings of a new sandbox. Named spaces that do not exist are created.
pub async fn memory_spec(
    engine: &Engine,
    tenant: &TenantId,
    request: Option<api::MemoryRequest>,
    default: RememberMode,
) -> Result<MemorySpec, ApiError> {
    let base = MemorySpec { space: None, attached: Vec::new(), remember: default };
    match request {
        None => Ok(base),
        Some(request) => Ok(memory_change(engine, tenant, request).await?.apply(&base)),
    }
}

pub async fn memory_change(
    engine: &Engine,
    tenant: &TenantId,
    request: api::MemoryRequest,
) -> Result<MemoryChange, ApiError> {
    let api::MemoryRequest { space, attached, remember } = request;
    if attached.as_ref().is_some_and(|attached| attached.len() > ATTACHED_MAX) {
        return Err(ApiError::invalid(format!("`memory.attached` has more than {ATTACHED_MAX} entries")));
    }
    let space = match space.as_deref() {
        None => None,
        Some(OWN) => Some(None),
        Some(text) => Some(Some(given(engine, tenant, "memory.space", text).await?)),
    };
    let attached = match attached {
        None => None,
        Some(asked) => {
            let mut attached: Vec<burrow_model::AttachedSpace> = Vec::with_capacity(asked.len());
            for api::AttachedSpace { space, access } in asked {
                let space = given(engine, tenant, "memory.attached", &space).await?;
                if attached.iter().any(|known| known.space == space) {
                    return Err(ApiError::invalid(format!("`memory.attached` names space `{space}` twice")));
                }
                attached.push(burrow_model::AttachedSpace { space, access: access_of(access) });
            }
            Some(attached)
        }
    };
    Ok(MemoryChange { space, attached, remember: remember.map(remember_of) })
}

async fn given(engine: &Engine, tenant: &TenantId, field: &str, text: &str) -> Result<SpaceId, ApiError> {
    if text == "self" || text == OWN {
        return Err(ApiError::invalid(format!("`{field}` must name a space, not `{text}`")));
    }
    name(field, text)?;
    Ok(engine.space_named(tenant, text).await?.id)
}

fn access_of(access: api::SpaceAccess) -> SpaceAccess {
    match access {
        api::SpaceAccess::Read => SpaceAccess::Read,
        api::SpaceAccess::ReadWrite => SpaceAccess::ReadWrite,
    }
}

pub(super) fn access(access: SpaceAccess) -> api::SpaceAccess {
    match access {
        SpaceAccess::Read => api::SpaceAccess::Read,
        SpaceAccess::ReadWrite => api::SpaceAccess::ReadWrite,
    }
}

fn remember_of(remember: api::RememberMode) -> RememberMode {
    match remember {
        api::RememberMode::Off => RememberMode::Off,
        api::RememberMode::Errors => RememberMode::Errors,
        api::RememberMode::All => RememberMode::All,
    }
}

fn remember(remember: RememberMode) -> api::RememberMode {
    match remember {
        RememberMode::Off => api::RememberMode::Off,
        RememberMode::Errors => api::RememberMode::Errors,
        RememberMode::All => api::RememberMode::All,
    }
}

pub(in crate::convert) fn sandbox_memory(row: &SandboxRow) -> api::SandboxMemory {
    let spec = &row.spec.memory;
    let memory = match &spec.space {
        Some(space) => burrow_model::MemoryRef::main(space),
        None => row.memory(),
    };
    let attached = spec.attached.iter().map(|attached| api::AttachedSpace {
        space: attached.space.to_string(),
        access: access(attached.access),
    });
    api::SandboxMemory {
        space: memory.space.into(),
        own: spec.space.is_none(),
        branch: memory.branch.into(),
        attached: attached.collect(),
        remember: remember(spec.remember),
    }
}
