//! Every public port, in RAM, for the check of every request to a port.

use std::collections::{BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use burrow_model::{SandboxId, TenantId};
use rusqlite::Connection;

use crate::CatalogError;
use crate::connection::Columns;

/// The public ports of one sandbox.
pub(crate) struct PublicPorts {
    pub(crate) tenant: TenantId,
    pub(crate) ports: BTreeSet<u16>,
}

/// Every public port.
pub(crate) struct PortCache {
    by_sandbox: RwLock<HashMap<SandboxId, PublicPorts>>,
}

impl PortCache {
    pub(crate) fn load(connection: &Connection) -> Result<Self, CatalogError> {
        let cache = Self { by_sandbox: RwLock::new(HashMap::new()) };
        let mut statement = connection.prepare("SELECT * FROM published_ports")?;
        let rows = statement.query_and_then((), |row| {
            let port = u16::try_from(row.count("port")?).unwrap_or(0);
            Ok::<_, CatalogError>((row.parsed("tenant")?, row.parsed("sandbox")?, port))
        })?;
        for row in rows {
            let (tenant, sandbox, port) = row?;
            cache.insert(&tenant, &sandbox, port);
        }
        Ok(cache)
    }

    /// Removes a deleted sandbox.
    pub(crate) fn forget(&self, sandbox: &SandboxId) {
        // Most sandboxes have no public ports; deleting them needs no exclusive lock.
        if self.read().contains_key(sandbox) {
            self.write().remove(sandbox);
        }
    }

    pub(crate) fn insert(&self, tenant: &TenantId, sandbox: &SandboxId, port: u16) {
        let mut cache = self.write();
        let public = cache
            .entry(sandbox.clone())
            .or_insert_with(|| PublicPorts { tenant: tenant.clone(), ports: BTreeSet::new() });
        public.ports.insert(port);
    }

    pub(crate) fn remove(&self, tenant: &TenantId, sandbox: &SandboxId, port: u16) {
        let mut cache = self.write();
        let Some(public) = cache.get_mut(sandbox).filter(|public| public.tenant == *tenant) else { return };
        public.ports.remove(&port);
        if public.ports.is_empty() {
            cache.remove(sandbox);
        }
    }

    // A panic while the lock was held cannot have left the map half-changed in a way that opens a port.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, HashMap<SandboxId, PublicPorts>> {
        self.by_sandbox.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<SandboxId, PublicPorts>> {
        self.by_sandbox.write().unwrap_or_else(PoisonError::into_inner)
    }
}
