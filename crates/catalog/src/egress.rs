//! The egress log: each sandbox's requests to the network, numbered, kept for a limited time, and followed live.
//!
//! Written in batches, after the traffic, and as durable as events: a row survives the death of this process but is not
//! synced individually. The rows of a sandbox are removed with it.

use std::str::FromStr;

use burrow_model::{SandboxId, TenantId};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::connection::{Columns, integer, word};
use crate::feed::Feed;
use crate::page::PAGE_LIMIT_MAX;
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, Page, PageRequest};

/// Rows kept per sandbox; older ones are pruned. A few megabytes for the most talkative of sandboxes.
pub const EGRESS_KEPT: u32 = 10_000;

/// How long rows are kept.
pub const EGRESS_KEPT_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// One request of a sandbox to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRow {
    /// Assigned when the row is stored; grows over time, across all sandboxes, with gaps.
    pub seq: u64,
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    pub at_ms: u64,
    pub kind: EgressKind,
    pub verdict: EgressVerdict,
    pub host: String,
    pub port: Option<u16>,
    pub rule: Option<String>,
    pub reason: Option<String>,
    pub address: Option<String>,
    pub sent_bytes: Option<u64>,
    pub received_bytes: Option<u64>,
    pub duration_ms: Option<u64>,
    /// How many identical requests this row represents.
    pub times: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressKind {
    Dns,
    Tls,
    Http,
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressVerdict {
    Allowed,
    Denied,
    Failed,
    Closed,
}

/// Which rows a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressFilter {
    All,
    Denied,
}

impl Catalog {
    /// Stores a batch and wakes the followers. Rows of deleted sandboxes are left out.
    pub async fn append_egress(&self, rows: Vec<EgressRow>) -> Result<(), CatalogError> {
        let feed = self.inner.egress.clone();
        let work = move |connection: &Connection| {
            let mut newest = 0;
            for row in &rows {
                newest = insert(connection, row)?.max(newest);
            }
            Ok(newest)
        };
        let after = move |seq: &u64| feed.announce(*seq);
        self.inner.writer.write_then(WriteMode::LIGHT_GROWTH, work, after).await?;
        Ok(())
    }

    /// A page of a sandbox's log, newest first.
    pub async fn list_egress(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        filter: EgressFilter,
        page: PageRequest,
    ) -> Result<Page<EgressRow>, CatalogError> {
        let (tenant, sandbox) = (tenant.clone(), sandbox.clone());
        let rows_max = page.rows_max();
        let before = page.after::<EgressCursor>()?.map_or(i64::MAX, |(seq, EgressCursor)| seq);
        self.read(move |connection| {
            let sql = match filter {
                EgressFilter::All => {
                    "SELECT * FROM egress_log WHERE sandbox = ? AND seq < ? AND tenant = ? ORDER BY seq DESC LIMIT ?"
                }
                EgressFilter::Denied => {
                    "SELECT * FROM egress_log WHERE sandbox = ? AND seq < ? AND tenant = ? AND verdict = 'denied'
                     ORDER BY seq DESC LIMIT ?"
                }
            };
            let limit = integer(rows_max as u64 + 1);
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement
                .query_and_then(params![sandbox.as_str(), before, tenant.as_str(), limit], decode)?
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Page::cut(rows, rows_max, |row| (row.seq, CURSOR_WORD)))
        })
        .await
    }

    /// A sandbox's rows after number `seq`, oldest first, at most `limit` (and at most a thousand).
    pub async fn egress_since(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        seq: u64,
        limit: u32,
    ) -> Result<Vec<EgressRow>, CatalogError> {
        let (tenant, sandbox) = (tenant.clone(), sandbox.clone());
        self.read(move |connection| {
            let sql =
                "SELECT * FROM egress_log WHERE sandbox = ? AND seq > ? AND tenant = ? ORDER BY seq LIMIT ?";
            let mut statement = connection.prepare_cached(sql)?;
            let limit = limit.clamp(1, PAGE_LIMIT_MAX);
            statement
                .query_and_then(params![sandbox.as_str(), integer(seq), tenant.as_str(), limit], decode)?
                .collect()
        })
        .await
    }

    /// The denied requests of a sandbox within a span of time, both ends included, oldest first.
    pub async fn egress_denied(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        from_ms: u64,
        to_ms: u64,
        limit: u32,
    ) -> Result<Vec<EgressRow>, CatalogError> {
        let (tenant, sandbox) = (tenant.clone(), sandbox.clone());
        self.read(move |connection| {
            let sql =
                "SELECT * FROM egress_log WHERE sandbox = ? AND verdict = 'denied' AND at_ms BETWEEN ? AND ?
                       AND tenant = ? ORDER BY seq LIMIT ?";
            let mut statement = connection.prepare_cached(sql)?;
            let (from, to) = (integer(from_ms), integer(to_ms));
            let limit = limit.clamp(1, PAGE_LIMIT_MAX);
            statement
                .query_and_then(params![sandbox.as_str(), from, to, tenant.as_str(), limit], decode)?
                .collect()
        })
        .await
    }

    /// Changes whenever there are newer rows, of any sandbox; contains the newest number.
    pub fn follow_egress(&self) -> watch::Receiver<u64> {
        self.inner.egress.follow()
    }

    /// Removes the oldest rows of one sandbox beyond [`EGRESS_KEPT`].
    pub async fn prune_egress_of(&self, sandbox: &SandboxId) -> Result<(), CatalogError> {
        let sandbox = sandbox.clone();
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| prune(connection, sandbox.as_str())).await
    }

    /// Removes rows that are too old, and the oldest rows of sandboxes that have too many.
    pub async fn prune_egress(&self, now_ms: u64) -> Result<(), CatalogError> {
        let before = integer(now_ms.saturating_sub(EGRESS_KEPT_MS));
        self.write(WriteMode::LIGHT_UPKEEP, move |connection| {
            connection.prepare_cached("DELETE FROM egress_log WHERE at_ms < ?")?.execute([before])?;
            let sql = "SELECT sandbox FROM egress_log GROUP BY sandbox HAVING count(*) > ?";
            let mut statement = connection.prepare_cached(sql)?;
            let large = statement.query_map([EGRESS_KEPT], |row| row.get::<_, String>(0))?;
            let large = large.collect::<Result<Vec<_>, _>>()?;
            large.iter().try_for_each(|sandbox| prune(connection, sandbox))
        })
        .await
    }
}

/// Rows have numbers and no ids: in a cursor, this word replaces the id, so that a cursor is valid only for its own list.
const CURSOR_WORD: &str = "egress";

struct EgressCursor;

impl FromStr for EgressCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == CURSOR_WORD { Ok(Self) } else { Err(()) }
    }
}

/// The feed of a catalog that is being opened.
pub(crate) fn feed(connection: &Connection) -> Result<Feed, CatalogError> {
    Ok(Feed::new(connection.query_row("SELECT max(seq) FROM egress_log", (), |row| row.get(0))?))
}

/// Returns the row's number; 0 if its sandbox does not exist any more.
fn insert(connection: &Connection, row: &EgressRow) -> Result<u64, CatalogError> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO egress_log (tenant, sandbox, at_ms, kind, verdict, host, port, rule, reason, address,
                                     sent_bytes, received_bytes, duration_ms, times)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14
             WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = ?2 AND tenant = ?1)",
        )?
        .execute(params![
            row.tenant.as_str(),
            row.sandbox.as_str(),
            integer(row.at_ms),
            word(&row.kind, "kind")?,
            word(&row.verdict, "verdict")?,
            row.host,
            row.port,
            row.rule,
            row.reason,
            row.address,
            row.sent_bytes.map(integer),
            row.received_bytes.map(integer),
            row.duration_ms.map(integer),
            integer(row.times),
        ])?;
    if inserted == 0 {
        return Ok(0);
    }
    Ok(u64::try_from(connection.last_insert_rowid()).unwrap_or(0))
}

fn prune(connection: &Connection, sandbox: &str) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "DELETE FROM egress_log WHERE sandbox = ?1 AND seq <=
                 (SELECT seq FROM egress_log WHERE sandbox = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
        )?
        .execute(params![sandbox, EGRESS_KEPT])?;
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<EgressRow, CatalogError> {
    Ok(EgressRow {
        seq: row.count("seq")?,
        tenant: row.parsed("tenant")?,
        sandbox: row.parsed("sandbox")?,
        at_ms: row.count("at_ms")?,
        kind: row.word("kind")?,
        verdict: row.word("verdict")?,
        host: row.text("host")?,
        port: row.get("port")?,
        rule: row.get("rule")?,
        reason: row.get("reason")?,
        address: row.get("address")?,
        sent_bytes: row.count_if_any("sent_bytes")?,
        received_bytes: row.count_if_any("received_bytes")?,
        duration_ms: row.count_if_any("duration_ms")?,
        times: row.count("times")?,
    })
}
