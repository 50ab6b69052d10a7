//! Public ports, and the secret that signs links to the others.
//!
//! Every request to a port checks whether it is public, so that is kept in RAM: loaded at open, changed on the writer's
//! thread after each commit and before its answer. So an unpublished port is closed when [`Catalog::unpublish_port`]
//! returns.

use std::collections::BTreeSet;

use burrow_model::{KeyId, SandboxId, TenantId};
use data_encoding::HEXLOWER;
use rusqlite::{Connection, OptionalExtension, params};

use crate::connection::integer;
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, KeyRow};

/// Public ports of one sandbox: a person publishes a handful.
pub const PUBLISHED_MAX: usize = 64;

/// Size of the secret that signs links: that of the hash it is used with.
const SECRET_BYTES: usize = 32;

/// The key of the secret in the catalog's settings.
const SECRET_SETTING: &str = "port_link_secret";

/// The result of [`Catalog::publish_port`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishResult {
    Now,
    Already,
    /// The sandbox has [`PUBLISHED_MAX`] public ports.
    TooMany,
}

impl Catalog {
    /// Makes a port public. [`CatalogError::Unknown`] when the tenant has no such sandbox.
    pub async fn publish_port(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        port: u16,
        now_ms: u64,
    ) -> Result<PublishResult, CatalogError> {
        let cache = self.inner.ports.clone();
        let (owner, id) = (tenant.clone(), sandbox.clone());
        let work = move |connection: &Connection| publish(connection, &owner, &id, port, now_ms);
        let (tenant, sandbox) = (tenant.clone(), sandbox.clone());
        let after = move |published: &PublishResult| match published {
            PublishResult::Now | PublishResult::Already => cache.insert(&tenant, &sandbox, port),
            PublishResult::TooMany => {}
        };
        self.inner.writer.write_then(WriteMode::GROWTH, work, after).await
    }

    /// Makes a port private again. Does nothing if it was not public.
    pub async fn unpublish_port(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        port: u16,
    ) -> Result<(), CatalogError> {
        let cache = self.inner.ports.clone();
        let (owner, id) = (tenant.clone(), sandbox.clone());
        let work = move |connection: &Connection| {
            connection
                .prepare_cached("DELETE FROM published_ports WHERE sandbox = ? AND port = ? AND tenant = ?")?
                .execute(params![id.as_str(), port, owner.as_str()])?;
            Ok(())
        };
        let (tenant, sandbox) = (tenant.clone(), sandbox.clone());
        let after = move |(): &()| cache.remove(&tenant, &sandbox, port);
        self.inner.writer.write_then(WriteMode::UPKEEP, work, after).await
    }

    /// The public ports of a sandbox of this tenant. Answers from RAM.
    pub fn published_ports(&self, tenant: &TenantId, sandbox: &SandboxId) -> BTreeSet<u16> {
        let cache = self.inner.ports.read();
        let found = cache.get(sandbox).filter(|public| public.tenant == *tenant);
        found.map(|public| public.ports.clone()).unwrap_or_default()
    }

    /// The tenant of a sandbox, if this port of it is public. Answers from RAM, for requests without credentials.
    pub fn publisher(&self, sandbox: &SandboxId, port: u16) -> Option<TenantId> {
        let cache = self.inner.ports.read();
        cache.get(sandbox).filter(|public| public.ports.contains(&port)).map(|public| public.tenant.clone())
    }

    /// The key of this id, if it is usable now. Answers from RAM.
    pub fn usable_key(&self, id: &KeyId, now_ms: u64) -> Option<KeyRow> {
        self.inner.keys.find(id).filter(|row| row.is_usable(now_ms))
    }

    /// The secret that signs links to ports: created by the first call, then always the same.
    pub async fn port_link_secret(&self) -> Result<[u8; 32], CatalogError> {
        let tenant = self.default_tenant();
        let text = self.write(WriteMode::GROWTH, move |connection| link_secret(connection, &tenant)).await?;
        let corrupt = || CatalogError::Corrupt { findings: vec![format!("the setting `{SECRET_SETTING}`")] };
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| corrupt())?;
        bytes.try_into().map_err(|_| corrupt())
    }
}

fn publish(
    connection: &Connection,
    tenant: &TenantId,
    sandbox: &SandboxId,
    port: u16,
    now_ms: u64,
) -> Result<PublishResult, CatalogError> {
    if crate::sandboxes::find(connection, tenant, sandbox)?.is_none() {
        return Err(CatalogError::Unknown { kind: "sandbox", id: sandbox.to_string() });
    }
    let sql = "SELECT port FROM published_ports WHERE sandbox = ?";
    let ports = connection
        .prepare_cached(sql)?
        .query_map([sandbox.as_str()], |row| row.get::<_, u16>(0))?
        .collect::<Result<BTreeSet<u16>, _>>()?;
    if ports.contains(&port) {
        return Ok(PublishResult::Already);
    }
    if ports.len() >= PUBLISHED_MAX {
        return Ok(PublishResult::TooMany);
    }
    connection
        .prepare_cached(
            "INSERT INTO published_ports (sandbox, port, tenant, created_ms) VALUES (?, ?, ?, ?)",
        )?
        .execute(params![sandbox.as_str(), port, tenant.as_str(), integer(now_ms)])?;
    Ok(PublishResult::Now)
}

fn link_secret(connection: &Connection, tenant: &TenantId) -> Result<String, CatalogError> {
    let sql = "SELECT value FROM settings WHERE tenant = ? AND key = ?";
    let found = connection
        .prepare_cached(sql)?
        .query_row([tenant.as_str(), SECRET_SETTING], |row| row.get(0))
        .optional()?;
    if let Some(found) = found {
        return Ok(found);
    }
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
    let text = HEXLOWER.encode(&bytes);
    connection.prepare_cached("INSERT INTO settings (tenant, key, value) VALUES (?, ?, ?)")?.execute([
        tenant.as_str(),
        SECRET_SETTING,
        &text,
    ])?;
    Ok(text)
}
