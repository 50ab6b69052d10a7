//! A sandbox and its forks, with their forks: what a key with `forks` reaches.
//!
//! A fork refers to the sandbox that it was forked from, so descent is followed through sandboxes that exist. Sandboxes that
//! were created from a snapshot by another request are no forks, and do not belong to the family.

use burrow_model::{SandboxId, TenantId};
use rusqlite::params;

use crate::connection::integer;
use crate::{Catalog, CatalogError, SandboxRow, sandboxes};

/// The largest number of sandboxes in a family; others are not found.
pub const FAMILY_MAX: usize = 256;

/// `UNION` removes duplicates, so the recursion ends whatever the rows contain.
const FAMILY: &str = "
    WITH RECURSIVE family (id) AS (
        VALUES (?1)
        UNION
        SELECT sandboxes.id FROM sandboxes JOIN family ON json_extract(sandboxes.origin, '$.sandbox') = family.id
        WHERE sandboxes.origin IS NOT NULL AND json_extract(sandboxes.origin, '$.kind') = 'fork' AND sandboxes.tenant = ?2
        LIMIT ?3
    )
    SELECT * FROM sandboxes WHERE id IN (SELECT id FROM family) AND tenant = ?2 ORDER BY created_ms DESC, id DESC";

impl Catalog {
    /// A sandbox and its forks, with their forks, newest first. Contains the forks of a sandbox that was deleted.
    pub async fn family(&self, tenant: &TenantId, root: &SandboxId) -> Result<Vec<SandboxRow>, CatalogError> {
        let (tenant, root) = (tenant.clone(), root.clone());
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(FAMILY)?;
            let limit = integer(FAMILY_MAX as u64);
            statement
                .query_and_then(params![root.as_str(), tenant.as_str(), limit], sandboxes::decode)?
                .collect()
        })
        .await
    }
}
