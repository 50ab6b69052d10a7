//! Former values of secrets: decrypted to be passed to the egress process, which scrubs responses of them and never inserts them.
//!
//! The catalog stores the last few values of each secret for a limited time, see `burrow_catalog::FORMER_MAX` and `FORMER_KEPT_MS`.

use burrow_catalog::{Catalog, CatalogError, FormerSecretRow, SecretRow};
use burrow_model::SecretBytes;
use burrow_vault::{Kind, Label, Vault};

use super::secrets::seal;
use crate::EngineError;
use crate::shared::Shared;

/// Maximum size of the former values that are passed on for one sandbox. Values of usual length are far below it, and all
/// directives of a sandbox must fit into one message.
const FORMER_BYTES_MAX: usize = 256 * 1024;

/// The size of former values that one sandbox can still have.
pub(crate) struct FormerBudget(usize);

impl FormerBudget {
    pub(crate) fn of_a_sandbox() -> Self {
        Self(FORMER_BYTES_MAX)
    }
}

/// The former values of a secret, newest first, without its present value. A value that cannot be decrypted is omitted.
pub(crate) async fn open(
    shared: &Shared,
    row: &SecretRow,
    present: &SecretBytes,
    budget: &mut FormerBudget,
) -> Result<Vec<SecretBytes>, EngineError> {
    let (tenant, name) = (&row.tenant, &row.spec.name);
    let mut values: Vec<SecretBytes> = Vec::new();
    for former in shared.seams.catalog.former_secrets(tenant, name, shared.now_ms()).await? {
        let value = match decrypt(&shared.seams.vault, &former).await {
            Ok(value) => value,
            Err(error) => {
                let (version, error) = (former.version, &error as &dyn std::error::Error);
                tracing::warn!(secret = %name, version, error, "a former value of a secret cannot be decrypted; responses are not scrubbed of it");
                continue;
            }
        };
        if value == *present || values.contains(&value) {
            continue;
        }
        let length = value.expose().len();
        if length > budget.0 {
            let version = former.version;
            tracing::warn!(secret = %name, version, "a sandbox has too many long secrets: responses are not scrubbed of a former value");
            continue;
        }
        budget.0 -= length;
        values.push(value);
    }
    Ok(values)
}

/// Removes expired values. Policies with one are applied again, so that the egress process drops it.
pub(crate) async fn forget_expired(shared: &Shared) -> Result<(), CatalogError> {
    for (tenant, name) in shared.seams.catalog.forget_former_secrets(shared.now_ms()).await? {
        shared.secrets.tell(&tenant, &name);
    }
    Ok(())
}

/// Encrypts with the current key what another key encrypted. Returns how many values were found and how many of them failed.
pub(crate) async fn reseal(vault: &Vault, catalog: &Catalog) -> Result<(usize, usize), EngineError> {
    let rows = catalog.former_sealed_otherwise(&vault.key_id()).await?;
    let (found, mut lost) = (rows.len(), 0);
    for row in rows {
        let Ok(value) = decrypt(vault, &row).await else {
            lost += 1;
            continue;
        };
        let resealed = seal(vault, &row.tenant, &row.secret, row.version, &value).await?;
        catalog.reseal_former_secret(&row.tenant, &row.secret, resealed).await?;
    }
    Ok((found, lost))
}

async fn decrypt(vault: &Vault, row: &FormerSecretRow) -> Result<SecretBytes, EngineError> {
    let name = row.secret.as_str();
    let label = Label { tenant: &row.tenant, kind: Kind::Secret, name, version: row.version };
    Ok(vault.open(&label, &label.parse(&row.sealed)?).await?)
}
