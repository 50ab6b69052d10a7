//! Converts a snapshot's description to the header of a file, and back.

use std::collections::BTreeMap;

use burrow_catalog::Catalog;
use burrow_model::{
    ImageConfig, ImageId, Name, Snapshot, SnapshotId, TenantId, check_description, check_env_name,
};
use burrow_model::{MemorySpec, NetworkPolicy, SandboxSpec};
use burrow_portable::{Ancestor, Base, Header, HostRequirements, Image, Lineage, PortableError, Processes};

use crate::EngineError;
use crate::shared::Shared;

/// Ancestors of the snapshot that are named in the file.
const ANCESTORS_MAX: usize = 64;

/// Labels of one snapshot, and characters of one; the same limits as in the API.
const LABELS_MAX: usize = 64;
const LABEL_CHARACTERS_MAX: usize = 256;

/// Variables of one sandbox's environment.
const ENV_MAX: usize = 1024;

/// The parts of a snapshot beside its files.
pub(super) struct SnapshotParts {
    /// The driver's description of its processes.
    pub(super) about: Option<String>,
    pub(super) remembers: bool,
    pub(super) base: Option<Snapshot>,
}

pub(super) async fn of_snapshot(
    shared: &Shared,
    tenant: &TenantId,
    snapshot: &Snapshot,
    parts: SnapshotParts,
) -> Result<Header, EngineError> {
    let catalog = &shared.seams.catalog;
    let base = match parts.base {
        Some(base) => Some(base_of(catalog, &base).await?),
        None => None,
    };
    let key = shared.policy.moving.key.as_ref().map(|key| key.public().to_string());
    let config = shared.image_config(tenant, &snapshot.image).await?;
    Ok(Header {
        made_by: format!("burrow {}", env!("CARGO_PKG_VERSION")),
        needs: HostRequirements {
            features: Vec::new(),
            driver: snapshot.spec.driver.clone(),
            processes: parts.about.map(|about| Processes { about, signer: key }),
            memory: parts.remembers.then_some(burrow_memory::FORMAT_VERSION),
            base,
        },
        lineage: Lineage {
            snapshot: snapshot.id.to_string(),
            name: snapshot.name.as_ref().map(ToString::to_string),
            description: snapshot.description.clone(),
            labels: snapshot.labels.clone(),
            kind: snapshot.kind.as_str().to_owned(),
            created_ms: snapshot.created_ms,
            sandbox: snapshot.sandbox.to_string(),
            sandbox_name: snapshot.sandbox_name.as_ref().map(ToString::to_string),
            ancestors: ancestors(catalog, tenant, snapshot).await?,
        },
        spec: spec_to_carry(&snapshot.spec),
        image: Image {
            id: snapshot.image.to_string(),
            config: serde_json::to_value(config).expect("a configuration is JSON"),
        },
        content_bytes: 0,
    })
}

/// The specification without the network policy (never restored), without references to other things on this host, and without names
/// of secrets, which are in the request rules only.
fn spec_to_carry(spec: &SandboxSpec) -> serde_json::Value {
    let memory = MemorySpec { remember: spec.memory.remember, ..MemorySpec::quiet() };
    let carried = SandboxSpec {
        network: NetworkPolicy::closed(),
        snapshots: None,
        rotate: None,
        memory,
        volumes: Vec::new(),
        ..spec.clone().unleased()
    };
    let mut value = serde_json::to_value(carried).expect("a specification is JSON");
    if let Some(fields) = value.as_object_mut() {
        fields.remove("network");
    }
    value
}

async fn base_of(catalog: &Catalog, base: &Snapshot) -> Result<Base, EngineError> {
    let identities = catalog.identities_of(&base.id).await?;
    if identities.is_empty() {
        return Err(EngineError::NeverMoved { id: base.id.clone() });
    }
    let name = base.name.as_ref().map(ToString::to_string);
    Ok(Base { snapshot: base.id.to_string(), name, identities })
}

async fn ancestors(
    catalog: &Catalog,
    tenant: &TenantId,
    snapshot: &Snapshot,
) -> Result<Vec<Ancestor>, EngineError> {
    let mut found = Vec::new();
    let mut next: Option<SnapshotId> = snapshot.parent.clone();
    while let Some(id) = next.filter(|_| found.len() < ANCESTORS_MAX) {
        let Some(before) = catalog.snapshot(tenant, &id).await? else { break };
        let name = before.name.as_ref().map(ToString::to_string);
        found.push(Ancestor { snapshot: before.id.to_string(), name, created_ms: before.created_ms });
        next = before.parent;
    }
    Ok(found)
}

/// The contents of an untrusted header, as far as they are supported here.
pub(super) struct ImportedHeader {
    pub(super) spec: SandboxSpec,
    pub(super) image: Option<ImageId>,
    pub(super) config: ImageConfig,
    pub(super) name: Option<Name>,
    pub(super) sandbox_name: Option<Name>,
    pub(super) description: String,
    pub(super) labels: BTreeMap<String, String>,
}

pub(super) fn read(header: &Header) -> Result<ImportedHeader, EngineError> {
    let refuse = |reason: &str| EngineError::Moving(PortableError::Refused { reason: reason.to_owned() });
    let spec: SandboxSpec = serde_json::from_value(header.spec.clone())
        .map_err(|_| refuse("its configuration cannot be read"))?;
    let config: ImageConfig = serde_json::from_value(header.image.config.clone())
        .map_err(|_| refuse("the configuration of its image cannot be read"))?;
    let variables = spec.env.iter().chain(&config.env);
    if spec.env.len() > ENV_MAX || config.env.len() > ENV_MAX {
        return Err(refuse("its environment is too large"));
    }
    for (name, value) in variables {
        check_env_name(name, value).map_err(|_| refuse("a variable of its environment is invalid"))?;
    }
    check_description(&header.lineage.description).map_err(|_| refuse("its description is invalid"))?;
    check_labels(&header.lineage.labels).ok_or_else(|| refuse("its labels are invalid"))?;
    check_labels(&spec.labels).ok_or_else(|| refuse("its labels are invalid"))?;
    spec.limits.check()?;
    spec.rates.check()?;
    spec.sleep.check()?;
    let memory = MemorySpec { remember: spec.memory.remember, ..MemorySpec::quiet() };
    let network = NetworkPolicy::closed();
    Ok(ImportedHeader {
        spec: SandboxSpec {
            network,
            memory,
            snapshots: None,
            rotate: None,
            volumes: Vec::new(),
            ..spec.unleased()
        },
        image: header.image.id.parse().ok(),
        config,
        name: header.lineage.name.as_ref().and_then(|name| name.parse().ok()),
        sandbox_name: header.lineage.sandbox_name.as_ref().and_then(|name| name.parse().ok()),
        description: header.lineage.description.clone(),
        labels: header.lineage.labels.clone(),
    })
}

fn check_labels(labels: &BTreeMap<String, String>) -> Option<()> {
    let fits =
        |text: &String| text.chars().count() <= LABEL_CHARACTERS_MAX && !text.chars().any(char::is_control);
    let good = labels.len() <= LABELS_MAX
        && labels.iter().all(|(key, value)| !key.is_empty() && fits(key) && fits(value))
        && !labels.contains_key(burrow_model::BUILD_LABEL);
    good.then_some(())
}
