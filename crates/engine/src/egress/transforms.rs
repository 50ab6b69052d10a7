//! Headers that are set on sandboxes' requests: encrypted in a sandbox's policy, decrypted on their way to the egress process.
//!
//! ```text
//!   given by a client ─► checked ─► encrypted (tenant, `headers`) ─► `NetworkPolicy::transforms` of the row
//!   the row of a sandbox ─► decrypted here ─► directives of its egress policy, dropped when handed over
//! ```
//!
//! The encryption is bound to the tenant, not to a sandbox: forks and sandboxes created from snapshots keep the headers.

use burrow_catalog::{Catalog, SandboxRow};
use burrow_model::network::{HeaderTransform, SealedTransforms, TRANSFORMS_BYTES_MAX, check_transforms};
use burrow_model::{SecretBytes, TenantId};
use burrow_vault::{Kind, Label, Vault, VaultError};

use crate::shared::Shared;
use crate::{Engine, EngineError};

const LABEL: &str = "network";

impl Engine {
    /// Checks and encrypts headers for a policy; `None` if there are none.
    pub async fn seal_transforms(
        &self,
        tenant: &TenantId,
        transforms: &[HeaderTransform],
    ) -> Result<Option<SealedTransforms>, EngineError> {
        if transforms.is_empty() {
            return Ok(None);
        }
        check_transforms(transforms).map_err(|source| EngineError::Transforms { source })?;
        // Allocated in full: a vector that grows leaves copies in freed memory.
        let mut plain = Vec::with_capacity(4 * TRANSFORMS_BYTES_MAX);
        serde_json::to_writer(&mut plain, transforms).expect("they are lists of texts");
        let hosts = transforms.iter().map(|transform| transform.host.clone()).collect();
        let (sealed, sealed_by) = seal(&self.shared.seams.vault, tenant, &SecretBytes::new(plain)).await?;
        Ok(Some(SealedTransforms { hosts, sealed, sealed_by }))
    }

    /// The decrypted headers of a sandbox's policy. For a client that may set them.
    pub async fn transforms(&self, row: &SandboxRow) -> Result<Vec<HeaderTransform>, EngineError> {
        open(&self.shared, row).await
    }
}

/// Decrypts the headers of a sandbox's policy.
pub(crate) async fn open(shared: &Shared, row: &SandboxRow) -> Result<Vec<HeaderTransform>, EngineError> {
    let Some(transforms) = &row.spec.network.transforms else { return Ok(Vec::new()) };
    let plain = decrypt(&shared.seams.vault, &row.tenant, transforms).await?;
    // The cause is not reported: it could quote a value.
    let damaged = |_| VaultError::Damaged { label: label(&row.tenant).to_string() };
    Ok(serde_json::from_slice(plain.expose()).map_err(damaged)?)
}

/// Encrypts with the current key what another key encrypted. Returns how many headers were found and how many of them failed.
pub(crate) async fn reseal(vault: &Vault, catalog: &Catalog) -> Result<(usize, usize), EngineError> {
    let rows = catalog.transforms_sealed_otherwise(&vault.key_id()).await?;
    let (found, mut lost) = (rows.len(), 0);
    for row in rows {
        let Ok(plain) = decrypt(vault, &row.tenant, &row.transforms).await else {
            lost += 1;
            continue;
        };
        let (sealed, sealed_by) = seal(vault, &row.tenant, &plain).await?;
        let resealed = SealedTransforms { sealed, sealed_by, ..row.transforms.clone() };
        catalog.reseal_transforms(&row.sandbox, &row.transforms.sealed, resealed).await?;
    }
    Ok((found, lost))
}

async fn decrypt(
    vault: &Vault,
    tenant: &TenantId,
    transforms: &SealedTransforms,
) -> Result<SecretBytes, EngineError> {
    let label = label(tenant);
    Ok(vault.open(&label, &label.parse(&transforms.sealed)?).await?)
}

async fn seal(
    vault: &Vault,
    tenant: &TenantId,
    plain: &SecretBytes,
) -> Result<(String, String), EngineError> {
    let sealed = vault.seal(&label(tenant), plain).await?;
    Ok((sealed.to_text(), sealed.key))
}

fn label(tenant: &TenantId) -> Label<'_> {
    Label { tenant, kind: Kind::Headers, name: LABEL, version: 1 }
}
