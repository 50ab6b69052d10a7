//! How often the tokens of each sandbox were revoked.
//!
//! Tokens are not stored: each is an HMAC of the sandbox's id and its generation. Every request with a token needs the
//! generation, so it is kept in RAM: loaded at open, changed on the writer's thread after each commit and before its answer.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use burrow_model::{SandboxId, TenantId};
use rusqlite::{Connection, params};

use crate::connection::{Columns, integer};
use crate::writer::Manner;
use crate::{Catalog, CatalogError};

impl Catalog {
    /// Invalidates every token of a sandbox: tokens created from now on differ. [`CatalogError::Unknown`] when the
    /// tenant has no such sandbox.
    pub async fn revoke_tokens(&self, tenant: &TenantId, sandbox: &SandboxId) -> Result<(), CatalogError> {
        let cache = self.inner.tokens.clone();
        let (owner, id) = (tenant.clone(), sandbox.clone());
        let work = move |connection: &Connection| next_generation(connection, &owner, &id);
        let sandbox = sandbox.clone();
        let after = move |generation: &u64| cache.set(&sandbox, *generation);
        self.inner.writer.write_then(Manner::UPKEEP, work, after).await.map(drop)
    }

    /// The same for every sandbox, at this time. Generations become times in milliseconds, so no generation is one that a sandbox
    /// had before: a catalog that is older than some tokens does not know how often they were revoked.
    ///
    /// Only for a catalog that no engine has opened yet.
    pub async fn revoke_all_tokens(&self, now_ms: u64) -> Result<(), CatalogError> {
        let cache = self.inner.tokens.clone();
        let work = move |connection: &Connection| {
            connection.execute(REVOKE_ALL, [integer(now_ms)])?;
            read(connection)
        };
        let after = move |generations: &HashMap<SandboxId, u64>| {
            cache.by_sandbox.write().unwrap_or_else(PoisonError::into_inner).clone_from(generations);
        };
        self.inner.writer.write_then(Manner::UPKEEP, work, after).await.map(drop)
    }

    /// How often the tokens of a sandbox were revoked, or a time if all were. Answers from RAM.
    pub fn token_generation(&self, sandbox: &SandboxId) -> u64 {
        let cache = self.inner.tokens.by_sandbox.read().unwrap_or_else(PoisonError::into_inner);
        cache.get(sandbox).copied().unwrap_or(0)
    }
}

/// Generations of the few sandboxes whose tokens were revoked.
pub(crate) struct TokenGenerations {
    by_sandbox: RwLock<HashMap<SandboxId, u64>>,
}

impl TokenGenerations {
    pub(crate) fn load(connection: &Connection) -> Result<Self, CatalogError> {
        Ok(Self { by_sandbox: RwLock::new(read(connection)?) })
    }

    /// Removes a deleted sandbox.
    pub(crate) fn forget(&self, sandbox: &SandboxId) {
        // Most sandboxes are not in it; deleting them needs no exclusive lock.
        let known = self.by_sandbox.read().unwrap_or_else(PoisonError::into_inner).contains_key(sandbox);
        if known {
            self.by_sandbox.write().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
        }
    }

    fn set(&self, sandbox: &SandboxId, generation: u64) {
        let mut cache = self.by_sandbox.write().unwrap_or_else(PoisonError::into_inner);
        cache.insert(sandbox.clone(), generation);
    }
}

fn read(connection: &Connection) -> Result<HashMap<SandboxId, u64>, CatalogError> {
    let mut statement = connection.prepare("SELECT sandbox, generation FROM token_generations")?;
    let rows = statement.query_and_then((), |row| {
        Ok::<_, CatalogError>((row.parsed("sandbox")?, row.count("generation")?))
    })?;
    rows.collect()
}

/// `WHERE true`, because otherwise the parser would read `ON` as part of a join.
const REVOKE_ALL: &str = "
    INSERT INTO token_generations (sandbox, tenant, generation) SELECT id, tenant, ?1 FROM sandboxes WHERE true
    ON CONFLICT (sandbox) DO UPDATE SET generation = max(generation + 1, excluded.generation)";

fn next_generation(
    connection: &Connection,
    tenant: &TenantId,
    sandbox: &SandboxId,
) -> Result<u64, CatalogError> {
    if crate::sandboxes::find(connection, tenant, sandbox)?.is_none() {
        return Err(CatalogError::Unknown { kind: "sandbox", id: sandbox.to_string() });
    }
    let sql = "INSERT INTO token_generations (sandbox, tenant, generation) VALUES (?, ?, 1)
               ON CONFLICT (sandbox) DO UPDATE SET generation = generation + 1
               RETURNING generation";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement
        .query_and_then(params![sandbox.as_str(), tenant.as_str()], |row| row.count("generation"))?;
    rows.next().unwrap_or_else(|| Err(CatalogError::Unknown { kind: "sandbox", id: sandbox.to_string() }))
}
