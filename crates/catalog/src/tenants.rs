//! Tenants: each row of the catalog belongs to one.

use burrow_model::TenantId;
use rusqlite::{Connection, OptionalExtension, params};

use crate::connection::{Columns, integer};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError};

impl Catalog {
    /// Adds a tenant. The name is free text, unique.
    pub async fn create_tenant(&self, name: &str, created_ms: u64) -> Result<TenantId, CatalogError> {
        let name = name.to_owned();
        let tenant = TenantId::generate();
        self.write(WriteMode::GROWTH, move |connection| {
            insert_tenant(connection, &tenant, &name, created_ms)?;
            Ok(tenant.clone())
        })
        .await
    }
}

/// Finds the tenant of a catalog that is being opened, or creates it.
pub(crate) fn settle_default_tenant(connection: &Connection) -> Result<TenantId, CatalogError> {
    let found = connection
        .query_row("SELECT id FROM tenants WHERE name = 'default'", (), |row| Ok(row.parsed("id")))
        .optional()?;
    match found {
        Some(tenant) => tenant,
        None => {
            let tenant = TenantId::generate();
            insert_tenant(connection, &tenant, "default", 0)?;
            Ok(tenant)
        }
    }
}

fn insert_tenant(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
    at_ms: u64,
) -> Result<(), CatalogError> {
    connection.execute(
        "INSERT INTO tenants (id, name, created_ms) VALUES (?, ?, ?)",
        params![tenant.as_str(), name, integer(at_ms)],
    )?;
    Ok(())
}
