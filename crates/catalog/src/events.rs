//! Events: numbered, kept for a limited time, and followed live.
//!
//! A follower calls [`Catalog::events_since`] with the last number that it has received, then waits on the receiver of
//! [`Catalog::follow_events`] and calls again. However slow it is, it misses no event that is still kept.
//!
//! Events survive the death of this process but are not synced one by one. A power failure may remove the last ones, so the
//! numbers jump after each boot of the host: a number that a follower has received is never used for another event.

use burrow_model::TenantId;
use rusqlite::{Connection, OptionalExtension, Row, params};
use tokio::sync::watch;

use crate::connection::{Columns, integer, json};
use crate::feed::Feed;
use crate::page::PAGE_LIMIT_MAX;
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, EventRow, NewEvent};

/// Events kept; older ones are dropped.
const EVENTS_KEPT: i64 = 100_000;

/// Old events are pruned once per this number of new ones.
const PRUNE_EVERY: i64 = 1000;

/// More events than can be written between two syncs: SQLite syncs at the latest when its log contains 1000 pages, and
/// a page contains fewer than 100 events.
const BOOT_GAP: i64 = 1_000_000;

impl Catalog {
    /// Stores an event, wakes the followers and returns its number. Refused on a full disk, where events would use up the
    /// reserve; the operation that the event reports is not affected.
    pub async fn append_event(&self, event: NewEvent) -> Result<u64, CatalogError> {
        let feed = self.inner.events.clone();
        let work = move |connection: &Connection| append(connection, &event);
        let after = move |seq: &u64| feed.announce(*seq);
        self.inner.writer.write_then(WriteMode::LIGHT_GROWTH, work, after).await
    }

    /// A tenant's events after number `seq`, oldest first, at most `limit` (and at most a thousand).
    pub async fn events_since(
        &self,
        tenant: &TenantId,
        seq: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = "SELECT * FROM events WHERE tenant = ? AND seq > ? ORDER BY seq LIMIT ?";
            let mut statement = connection.prepare_cached(sql)?;
            let limit = limit.clamp(1, PAGE_LIMIT_MAX);
            statement.query_and_then(params![tenant.as_str(), integer(seq), limit], decode)?.collect()
        })
        .await
    }

    /// Changes whenever there are newer events, of any tenant; contains the newest number.
    pub fn follow_events(&self) -> watch::Receiver<u64> {
        self.inner.events.follow()
    }
}

/// The feed of a catalog that is being opened, with its numbers after those of an earlier boot of the host.
pub(crate) fn feed(connection: &Connection, tenant: &TenantId) -> Result<Feed, CatalogError> {
    let host_boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    jump_after_a_boot(connection, tenant, host_boot.trim())?;
    Ok(Feed::new(connection.query_row("SELECT max(seq) FROM events", (), |row| row.get(0))?))
}

fn append(connection: &Connection, event: &NewEvent) -> Result<u64, CatalogError> {
    connection
        .prepare_cached(
            "INSERT INTO events (tenant, at_ms, kind, sandbox, exec, detail) VALUES (?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            event.tenant.as_str(),
            integer(event.at_ms),
            event.kind,
            event.sandbox.as_ref().map(|id| id.as_str()),
            event.exec.as_ref().map(|id| id.as_str()),
            json(&event.detail, "detail")?,
        ])?;
    let seq = connection.last_insert_rowid();
    if seq % PRUNE_EVERY == 0 {
        prune(connection, EVENTS_KEPT)?;
    }
    Ok(u64::try_from(seq).unwrap_or(0))
}

fn prune(connection: &Connection, kept: i64) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "DELETE FROM events WHERE seq <= (SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?)",
        )?
        .execute([kept])?;
    Ok(())
}

fn jump_after_a_boot(
    connection: &Connection,
    tenant: &TenantId,
    host_boot: &str,
) -> Result<(), CatalogError> {
    let known: Option<String> = connection
        .query_row(
            "SELECT value FROM settings WHERE tenant = ? AND key = 'host_boot'",
            [tenant.as_str()],
            |row| row.get(0),
        )
        .optional()?;
    if known.as_deref() == Some(host_boot) {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    transaction.execute(
        "UPDATE sqlite_sequence SET seq = seq + ? WHERE name IN ('events', 'egress_log')",
        [BOOT_GAP],
    )?;
    transaction.execute(
        "INSERT OR REPLACE INTO settings (tenant, key, value) VALUES (?, 'host_boot', ?)",
        [tenant.as_str(), host_boot],
    )?;
    transaction.commit()?;
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<EventRow, CatalogError> {
    Ok(EventRow {
        seq: row.count("seq")?,
        tenant: row.parsed("tenant")?,
        at_ms: row.count("at_ms")?,
        kind: row.text("kind")?,
        sandbox: row.parsed_if_any("sandbox")?,
        exec: row.parsed_if_any("exec")?,
        detail: row.json("detail")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(connection: &Connection) -> Vec<i64> {
        let mut statement = connection.prepare("SELECT seq FROM events ORDER BY seq").unwrap();
        statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    fn event(tenant: &TenantId) -> NewEvent {
        let (kind, detail) = ("tested".to_owned(), serde_json::json!({}));
        NewEvent { tenant: tenant.clone(), at_ms: 1, kind, sandbox: None, exec: None, detail }
    }

    #[test]
    fn only_the_newest_events_are_kept_also_across_a_gap() {
        let connection = Connection::open_in_memory().unwrap();
        let tenant = crate::opening::prepare(&connection).unwrap().default_tenant;
        for _ in 0..5 {
            append(&connection, &event(&tenant)).unwrap();
        }
        jump_after_a_boot(&connection, &tenant, "another boot").unwrap();
        append(&connection, &event(&tenant)).unwrap();
        prune(&connection, 3).unwrap();
        assert_eq!(numbers(&connection), [4, 5, BOOT_GAP + 6]);
    }

    #[test]
    fn numbers_jump_once_per_boot_of_the_host() {
        let connection = Connection::open_in_memory().unwrap();
        let tenant = crate::opening::prepare(&connection).unwrap().default_tenant;
        append(&connection, &event(&tenant)).unwrap();
        for _ in 0..3 {
            jump_after_a_boot(&connection, &tenant, "another boot").unwrap();
        }
        append(&connection, &event(&tenant)).unwrap();
        assert_eq!(numbers(&connection), [1, BOOT_GAP + 2]);
    }
}
