//! Headers that the egress process sets on sandboxes' requests. Specifications contain them encrypted; the engine encrypts
//! and decrypts them.
//! decrypts them.

use burrow_model::network::SealedTransforms;
use burrow_model::{SandboxId, TenantId};
use rusqlite::params;

use crate::connection::{Columns, json};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError};

/// The headers of one sandbox's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransformsRow {
    pub sandbox: SandboxId,
    pub tenant: TenantId,
    pub transforms: SealedTransforms,
}

impl Catalog {
    /// The headers of all tenants' sandboxes that were encrypted with another key than this one. Those of snapshots are left out:
    /// restoring a snapshot does not restore a network policy.
    pub async fn transforms_sealed_otherwise(&self, key: &str) -> Result<Vec<TransformsRow>, CatalogError> {
        let key = key.to_owned();
        self.read(move |connection| {
            let sql = "SELECT id, tenant, json_extract(spec, '$.network.transforms') AS transforms
                       FROM sandboxes WHERE json_extract(spec, '$.network.transforms.sealed_by') <> ?";
            connection
                .prepare_cached(sql)?
                .query_and_then([&key], |row| {
                    Ok(TransformsRow {
                        sandbox: row.parsed("id")?,
                        tenant: row.parsed("tenant")?,
                        transforms: row.json("transforms")?,
                    })
                })?
                .collect()
        })
        .await
    }

    /// Stores the same headers, encrypted with another key. Does nothing if they have changed in the meantime.
    pub async fn reseal_transforms(
        &self,
        sandbox: &SandboxId,
        before: &str,
        resealed: SealedTransforms,
    ) -> Result<(), CatalogError> {
        let (sandbox, before) = (sandbox.clone(), before.to_owned());
        self.write(WriteMode::UPKEEP, move |connection| {
            let sql = "UPDATE sandboxes SET spec = json_set(spec, '$.network.transforms', json(?))
                       WHERE id = ? AND json_extract(spec, '$.network.transforms.sealed') = ?";
            let resealed = json(&resealed, "spec")?;
            connection.prepare_cached(sql)?.execute(params![resealed, sandbox.as_str(), before])?;
            Ok(())
        })
        .await
    }
}
