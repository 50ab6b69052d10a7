//! How often the tokens of each sandbox and of each volume were revoked.
//!
//! Tokens are not stored: each is an HMAC of the id of its sandbox or volume and of the generation. Every request with a
//! token needs the generation, so it is kept in RAM: loaded at open, changed on the writer's thread after each commit and
//! before its answer.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

use burrow_model::{SandboxId, TenantId, VolumeId};
use rusqlite::{Connection, params};

use crate::connection::{Columns, integer};
use crate::token_cache::{Generations, TokenGenerations};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError};

impl Catalog {
    /// Invalidates every token of a sandbox: tokens created from now on differ. [`CatalogError::Unknown`] when the
    /// tenant has no such sandbox.
    pub async fn revoke_tokens(&self, tenant: &TenantId, sandbox: &SandboxId) -> Result<(), CatalogError> {
        let cache = self.inner.tokens.clone();
        let (owner, id) = (tenant.clone(), sandbox.clone());
        let work = move |connection: &Connection| next_generation(connection, &SANDBOXES, &owner, &id);
        let sandbox = sandbox.clone();
        let after = move |generation: &u64| cache.sandboxes.set(&sandbox, *generation);
        self.inner.writer.write_then(WriteMode::UPKEEP, work, after).await.map(drop)
    }

    /// The same for the tokens of a volume.
    pub async fn revoke_volume_tokens(
        &self,
        tenant: &TenantId,
        volume: &VolumeId,
    ) -> Result<(), CatalogError> {
        let cache = self.inner.tokens.clone();
        let (owner, id) = (tenant.clone(), volume.clone());
        let work = move |connection: &Connection| next_generation(connection, &VOLUMES, &owner, &id);
        let volume = volume.clone();
        let after = move |generation: &u64| cache.volumes.set(&volume, *generation);
        self.inner.writer.write_then(WriteMode::UPKEEP, work, after).await.map(drop)
    }

    /// The same for every sandbox and every volume, at this time. Generations become times in milliseconds, so no generation is
    /// one that a sandbox or volume had before: a catalog that is older than some tokens does not know how often they were revoked.
    ///
    /// Only for a catalog that no engine has opened yet.
    pub async fn revoke_all_tokens(&self, now_ms: u64) -> Result<(), CatalogError> {
        let cache = self.inner.tokens.clone();
        let work = move |connection: &Connection| {
            for owners in [&SANDBOXES, &VOLUMES] {
                connection.execute(&owners.revoke_all(), [integer(now_ms)])?;
            }
            Ok((read(connection, &SANDBOXES)?, read(connection, &VOLUMES)?))
        };
        let after = move |(sandboxes, volumes): &(HashMap<_, _>, HashMap<_, _>)| {
            cache.sandboxes.set_all(sandboxes);
            cache.volumes.set_all(volumes);
        };
        self.inner.writer.write_then(WriteMode::UPKEEP, work, after).await.map(drop)
    }

    /// How often the tokens of a sandbox were revoked, or a time if all were. Answers from RAM.
    pub fn token_generation(&self, sandbox: &SandboxId) -> u64 {
        self.inner.tokens.sandboxes.get(sandbox)
    }

    /// The same for a volume.
    pub fn volume_token_generation(&self, volume: &VolumeId) -> u64 {
        self.inner.tokens.volumes.get(volume)
    }
}

/// The generations of a catalog that is being opened.
pub(crate) fn cached(connection: &Connection) -> Result<TokenGenerations, CatalogError> {
    Ok(TokenGenerations {
        sandboxes: Generations::new(read(connection, &SANDBOXES)?),
        volumes: Generations::new(read(connection, &VOLUMES)?),
    })
}

/// The tables of one kind of object that has tokens.
struct TokenOwners {
    kind: &'static str,
    /// The table of the objects, by `id` and `tenant`.
    objects: &'static str,
    /// The table of their generations, and its column with the object's id.
    generations: &'static str,
    column: &'static str,
}

const SANDBOXES: TokenOwners = TokenOwners {
    kind: "sandbox",
    objects: "sandboxes",
    generations: "token_generations",
    column: "sandbox",
};

const VOLUMES: TokenOwners = TokenOwners {
    kind: "volume",
    objects: "volumes",
    generations: "volume_token_generations",
    column: "volume",
};

impl TokenOwners {
    /// `WHERE true`, because otherwise the parser would read `ON` as part of a join.
    fn revoke_all(&self) -> String {
        let Self { objects, generations, column, .. } = self;
        format!(
            "INSERT INTO {generations} ({column}, tenant, generation) SELECT id, tenant, ?1 FROM {objects} WHERE true
             ON CONFLICT ({column}) DO UPDATE SET generation = max(generation + 1, excluded.generation)"
        )
    }

    /// Changes nothing, and returns no row, if the tenant has no such object.
    fn revoke(&self) -> String {
        let Self { objects, generations, column, .. } = self;
        format!(
            "INSERT INTO {generations} ({column}, tenant, generation)
             SELECT id, tenant, 1 FROM {objects} WHERE id = ? AND tenant = ?
             ON CONFLICT ({column}) DO UPDATE SET generation = generation + 1
             RETURNING generation"
        )
    }
}

fn read<Id>(connection: &Connection, owners: &TokenOwners) -> Result<HashMap<Id, u64>, CatalogError>
where
    Id: FromStr<Err: std::error::Error + Send + Sync + 'static> + Eq + Hash,
{
    let TokenOwners { generations, column, .. } = owners;
    let mut statement = connection.prepare(&format!("SELECT {column}, generation FROM {generations}"))?;
    let rows = statement
        .query_and_then((), |row| Ok::<_, CatalogError>((row.parsed(column)?, row.count("generation")?)))?;
    rows.collect()
}

fn next_generation(
    connection: &Connection,
    owners: &TokenOwners,
    tenant: &TenantId,
    id: &impl Display,
) -> Result<u64, CatalogError> {
    let mut statement = connection.prepare_cached(&owners.revoke())?;
    let mut rows =
        statement.query_and_then(params![id.to_string(), tenant.as_str()], |row| row.count("generation"))?;
    rows.next().unwrap_or_else(|| Err(CatalogError::Unknown { kind: owners.kind, id: id.to_string() }))
}
