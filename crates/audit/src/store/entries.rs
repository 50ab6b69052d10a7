//! Reads the log: lists, and the lines of an export.

use burrow_model::{SandboxId, TenantId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use super::{Store, StoreError, as_stored};
use crate::note::Checkpoint;
use crate::tree::{Hash, empty_hash};
use crate::{Event, Outcome};

/// One event of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position: from 0, without gaps.
    pub index: u64,
    pub event: Event,
}

/// The exact bytes of an event, or its hash if retention removed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outline {
    Body { index: u64, bytes: Vec<u8> },
    Hash { index: u64, hash: Hash },
}

impl Outline {
    pub fn index(&self) -> u64 {
        match self {
            Self::Body { index, .. } | Self::Hash { index, .. } => *index,
        }
    }
}

/// Selects events; fields that are `None` match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub sandbox: Option<SandboxId>,
    /// A complete action, or its first word: `egress` matches all of `egress.…`.
    pub action: Option<String>,
    pub outcome: Option<Outcome>,
    /// A key's id or name, or the complete actor.
    pub actor: Option<String>,
    pub secret: Option<String>,
    pub since_ms: Option<u64>,
    pub until_ms: Option<u64>,
}

/// The direction and the start of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// Newest first, before this index.
    Back(Option<u64>),
    /// Oldest first, from this index.
    On(u64),
}

impl Store {
    /// Events before `before`, newest first, at most `limit`.
    pub async fn newest(
        &self,
        tenant: &TenantId,
        filter: Filter,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |connection| list(connection, &tenant, &filter, Direction::Back(before), limit)).await
    }

    /// Events starting at `from`, oldest first, at most `limit`; and the index at which to continue.
    pub async fn since(
        &self,
        tenant: &TenantId,
        filter: Filter,
        from: u64,
        limit: u32,
    ) -> Result<(Vec<Entry>, u64), StoreError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let size = size_of(connection, &tenant)?;
            let entries = list(connection, &tenant, &filter, Direction::On(from), limit)?;
            // After a full page there may be more; otherwise all events were checked.
            let next = match entries.last() {
                Some(last) if entries.len() >= limit as usize => last.index + 1,
                Some(_) | None => size.max(from),
            };
            Ok((entries, next))
        })
        .await
    }

    /// The number of events in the log.
    pub async fn size(&self, tenant: &TenantId) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.read(move |connection| size_of(connection, &tenant)).await
    }

    /// The newest checkpoint, signed.
    pub async fn checkpoint(&self, tenant: &TenantId) -> Result<String, StoreError> {
        let tenant = tenant.clone();
        let key = self.inner.key.clone();
        self.read_synced(move |connection| {
            let sql = "SELECT note FROM trees WHERE tenant = ?";
            let found = connection.query_row(sql, [tenant.as_str()], |row| row.get(0)).optional()?;
            Ok(found.unwrap_or_else(|| key.sign(&Checkpoint { tenant, size: 0, root: empty_hash() })))
        })
        .await
    }

    /// The lines `from..to` of an export. Missing events are omitted here; the verifier detects that.
    pub async fn outlines(&self, tenant: &TenantId, from: u64, to: u64) -> Result<Vec<Outline>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = "SELECT place, body, hash FROM leaves \
                       WHERE tree = (SELECT number FROM trees WHERE tenant = ?) AND place >= ? AND place < ? \
                       ORDER BY place";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query((tenant.as_str(), as_stored(from), as_stored(to)))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let (index, bytes): (u64, Option<Vec<u8>>) = (row.get(0)?, row.get(1)?);
                found.push(match bytes {
                    Some(bytes) => Outline::Body { index, bytes },
                    None => {
                        let hash = Hash::from_slice(&row.get::<_, Vec<u8>>(2)?);
                        let what = "it contains an invalid hash";
                        let tenant = tenant.clone();
                        Outline::Hash { index, hash: hash.ok_or(StoreError::Tampered { tenant, what })? }
                    }
                });
            }
            Ok(found)
        })
        .await
    }
}

pub(super) fn size_of(connection: &Connection, tenant: &TenantId) -> Result<u64, StoreError> {
    let sql = "SELECT size FROM trees WHERE tenant = ?";
    Ok(connection.query_row(sql, [tenant.as_str()], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn list(
    connection: &Connection,
    tenant: &TenantId,
    filter: &Filter,
    way: Direction,
    limit: u32,
) -> Result<Vec<Entry>, StoreError> {
    let mut sql = "SELECT place, body FROM leaves WHERE tree = (SELECT number FROM trees WHERE tenant = ?) \
                   AND body IS NOT NULL"
        .to_owned();
    let mut values: Vec<Value> = vec![tenant.as_str().to_owned().into()];
    let mut and = |clause: &str, given: Vec<Value>| {
        sql.push_str(" AND ");
        sql.push_str(clause);
        values.extend(given);
    };
    if let Some(sandbox) = &filter.sandbox {
        and("sandbox = ?", vec![sandbox.as_str().to_owned().into()]);
    }
    if let Some(action) = &filter.action {
        // All actions with this prefix: `/` follows `.` in ASCII.
        let (from, to) = (format!("{action}."), format!("{action}/"));
        and(
            "(action = ? OR (action >= ? AND action < ?))",
            vec![action.clone().into(), from.into(), to.into()],
        );
    }
    if let Some(outcome) = filter.outcome {
        and("outcome = ?", vec![outcome.as_str().to_owned().into()]);
    }
    if let Some(actor) = &filter.actor {
        // An actor is `<id> <name>`, or one word.
        let any = "(actor = ?1_ OR substr(actor, 1, instr(actor, ' ') - 1) = ?1_ OR substr(actor, instr(actor, ' ') + 1) = ?1_)";
        and(&any.replace("?1_", "?"), vec![actor.clone().into(), actor.clone().into(), actor.clone().into()]);
    }
    if let Some(secret) = &filter.secret {
        and("secret = ?", vec![secret.clone().into()]);
    }
    if let Some(since) = filter.since_ms {
        and("at_ms >= ?", vec![as_stored(since).into()]);
    }
    if let Some(until) = filter.until_ms {
        and("at_ms < ?", vec![as_stored(until).into()]);
    }
    let order = match way {
        Direction::Back(before) => {
            if let Some(before) = before {
                and("place < ?", vec![as_stored(before).into()]);
            }
            "DESC"
        }
        Direction::On(from) => {
            and("place >= ?", vec![as_stored(from).into()]);
            "ASC"
        }
    };
    sql.push_str(&format!(" ORDER BY place {order} LIMIT {limit}"));
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let bytes: Vec<u8> = row.get(1)?;
        let what = "it contains an unreadable event";
        let event = Event::from_bytes(&bytes);
        let event = event.map_err(|_| StoreError::Tampered { tenant: tenant.clone(), what })?;
        entries.push(Entry { index: row.get(0)?, event });
    }
    Ok(entries)
}
