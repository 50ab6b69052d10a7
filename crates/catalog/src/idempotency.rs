//! Idempotency keys: a request that arrives twice is executed once, and gets the same answer.
//!
//! ```text
//!  begin ─► Fresh ─► (the caller executes it) ─► finish ─► Done for a day
//!             └────► abandon, or the daemon dies ─► forgotten, may be tried again
//! ```
//!
//! Creating a sandbox needs no second step: its row is the reply, stored in the commit that inserts it. Nor do requests
//! whose result can be found after a crash, such as execs: they are looked up first, and recorded when they are done.

use burrow_model::{RANDOM_BYTES, SandboxId, TenantId};
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};

use crate::connection::{Columns, integer};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, SandboxRow};

/// How long a key is kept: longer than any client retries.
pub const IDEMPOTENCY_KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// The route under which creates of sandboxes are stored.
const SANDBOXES: &str = "sandboxes";

/// The key and the hash that identify a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    pub key: String,
    /// SHA-256 of the request's body: the same key with another body is a mistake of the client.
    pub body_hash: [u8; 32],
}

impl Idempotency {
    pub fn of(key: &str, body: &[u8]) -> Self {
        Self { key: key.to_owned(), body_hash: Sha256::digest(body).into() }
    }

    /// Bytes for an id that identify this request: the same request gives the same bytes. `about` are further inputs of
    /// the digest.
    pub fn digest(&self, about: &[&str]) -> [u8; RANDOM_BYTES] {
        let mut hash = Sha256::new_with_prefix(self.body_hash);
        for text in about.iter().copied().chain([self.key.as_str()]) {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        let mut bytes = [0; RANDOM_BYTES];
        bytes.copy_from_slice(&hash.finalize()[..RANDOM_BYTES]);
        bytes
    }
}

/// The result of `idempotency_begin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdempotencyState {
    /// A new key: execute the request, then finish or abandon.
    Fresh,
    /// Executed before, with this reply.
    Done { status: u16, body: Vec<u8> },
    /// A request with the same key is in progress.
    InFlight,
    /// The key was used for another request.
    Mismatch,
}

impl Catalog {
    pub async fn idempotency_begin(
        &self,
        tenant: &TenantId,
        idempotency: Idempotency,
        route: &str,
        now_ms: u64,
    ) -> Result<IdempotencyState, CatalogError> {
        let (tenant, route, boot) = (tenant.clone(), route.to_owned(), self.inner.boot.clone());
        // Allowed on a full disk, as execs are; the request itself is refused if necessary.
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| {
            let found = look_up(connection, &tenant, &idempotency, &route, &boot, now_ms)?;
            if found == IdempotencyState::Fresh {
                let (state, sandbox) = ("begun", None);
                let begun =
                    NewEntry { idempotency: &idempotency, route: &route, state, sandbox, boot: &boot };
                insert(connection, &tenant, &begun, now_ms)?;
            }
            Ok(found)
        })
        .await
    }

    /// Looks up a request that was not started with `begin`.
    pub async fn idempotency_find(
        &self,
        tenant: &TenantId,
        idempotency: Idempotency,
        route: &str,
        now_ms: u64,
    ) -> Result<IdempotencyState, CatalogError> {
        let (tenant, route, boot) = (tenant.clone(), route.to_owned(), self.inner.boot.clone());
        self.read(move |connection| look_up(connection, &tenant, &idempotency, &route, &boot, now_ms)).await
    }

    /// Stores a request that was not started with `begin`, with its reply. It survives the daemon, but not a power failure.
    pub async fn idempotency_record(
        &self,
        tenant: &TenantId,
        idempotency: Idempotency,
        route: &str,
        reply: (u16, Vec<u8>),
        now_ms: u64,
    ) -> Result<(), CatalogError> {
        let (tenant, route, boot) = (tenant.clone(), route.to_owned(), self.inner.boot.clone());
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| {
            let (state, sandbox) = ("begun", None);
            let entry = NewEntry { idempotency: &idempotency, route: &route, state, sandbox, boot: &boot };
            insert(connection, &tenant, &entry, now_ms)?;
            finish(connection, &tenant, &idempotency.key, reply.0, &reply.1)
        })
        .await
    }

    /// Stores the reply, unencrypted: the body must not contain a secret.
    pub async fn idempotency_finish(
        &self,
        tenant: &TenantId,
        key: &str,
        status: u16,
        body: Vec<u8>,
    ) -> Result<(), CatalogError> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.write(WriteMode::UPKEEP, move |connection| finish(connection, &tenant, &key, status, &body))
            .await
    }

    /// Removes a request that was started and not executed.
    pub async fn idempotency_abandon(&self, tenant: &TenantId, key: &str) -> Result<(), CatalogError> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| {
            connection
                .prepare_cached("DELETE FROM idempotency WHERE tenant = ? AND key = ? AND state = 'begun'")?
                .execute([tenant.as_str(), &key])?;
            Ok(())
        })
        .await
    }

    /// Removes entries older than a day. Returns their number.
    pub async fn purge_idempotency(&self, now_ms: u64) -> Result<u64, CatalogError> {
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| {
            let purged = connection
                .prepare_cached("DELETE FROM idempotency WHERE created_ms <= ?")?
                .execute([integer(now_ms.saturating_sub(IDEMPOTENCY_KEPT_MS))])?;
            Ok(purged as u64)
        })
        .await
    }
}

/// The sandbox that the same create request produced before.
pub(crate) fn of_sandbox(
    connection: &Connection,
    tenant: &TenantId,
    given: &Idempotency,
    boot: &str,
    now_ms: u64,
) -> Result<Option<SandboxId>, CatalogError> {
    let Some(entry) = find(connection, tenant, &given.key, boot, now_ms)? else { return Ok(None) };
    if entry.route != SANDBOXES || entry.body_hash != given.body_hash {
        return Err(CatalogError::IdempotencyMismatch);
    }
    Ok(entry.sandbox)
}

pub(crate) fn remember_sandbox(
    connection: &Connection,
    given: &Idempotency,
    row: &SandboxRow,
    boot: &str,
) -> Result<(), CatalogError> {
    let sandbox = Some(&row.id);
    let entry = NewEntry { idempotency: given, route: SANDBOXES, state: "done", sandbox, boot };
    insert(connection, &row.tenant, &entry, row.created_ms)
}

struct Entry {
    route: String,
    body_hash: Vec<u8>,
    reply: Option<(u16, Vec<u8>)>,
    sandbox: Option<SandboxId>,
}

struct NewEntry<'a> {
    idempotency: &'a Idempotency,
    route: &'a str,
    state: &'static str,
    sandbox: Option<&'a SandboxId>,
    boot: &'a str,
}

fn look_up(
    connection: &Connection,
    tenant: &TenantId,
    given: &Idempotency,
    route: &str,
    boot: &str,
    now_ms: u64,
) -> Result<IdempotencyState, CatalogError> {
    let Some(entry) = find(connection, tenant, &given.key, boot, now_ms)? else {
        return Ok(IdempotencyState::Fresh);
    };
    if entry.route != route || entry.body_hash != given.body_hash {
        return Ok(IdempotencyState::Mismatch);
    }
    Ok(entry
        .reply
        .map_or(IdempotencyState::InFlight, |(status, body)| IdempotencyState::Done { status, body }))
}

fn finish(
    connection: &Connection,
    tenant: &TenantId,
    key: &str,
    status: u16,
    body: &[u8],
) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "UPDATE idempotency SET state = 'done', status = ?, body = ?
             WHERE tenant = ? AND key = ? AND state = 'begun'",
        )?
        .execute(params![status, body, tenant.as_str(), key])?;
    Ok(())
}

/// A valid entry: not too old, and not started by an earlier daemon, which can never finish it.
fn find(
    connection: &Connection,
    tenant: &TenantId,
    key: &str,
    boot: &str,
    now_ms: u64,
) -> Result<Option<Entry>, CatalogError> {
    let oldest = integer(now_ms.saturating_sub(IDEMPOTENCY_KEPT_MS));
    let mut statement = connection.prepare_cached(
        "SELECT route, body_hash, status, body, sandbox FROM idempotency
         WHERE tenant = ? AND key = ? AND created_ms > ? AND (state = 'done' OR boot = ?)",
    )?;
    let mut rows = statement.query(params![tenant.as_str(), key, oldest, boot])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (status, body): (Option<u16>, Option<Vec<u8>>) = (row.get("status")?, row.get("body")?);
    Ok(Some(Entry {
        route: row.text("route")?,
        body_hash: row.get("body_hash")?,
        reply: status.zip(body),
        sandbox: row.parsed_if_any("sandbox")?,
    }))
}

fn insert(
    connection: &Connection,
    tenant: &TenantId,
    entry: &NewEntry<'_>,
    now_ms: u64,
) -> Result<(), CatalogError> {
    // It may replace an expired entry that was not purged yet.
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO idempotency (tenant, key, route, body_hash, state, sandbox, boot, created_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            tenant.as_str(),
            entry.idempotency.key,
            entry.route,
            entry.idempotency.body_hash.as_slice(),
            entry.state,
            entry.sandbox.map(SandboxId::as_str),
            entry.boot,
            integer(now_ms),
        ])?;
    Ok(())
}
