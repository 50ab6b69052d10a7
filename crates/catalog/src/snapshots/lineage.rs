//! Origins of sandboxes and snapshots, and which of them are still needed: for removals, and for drawing a tree.

use burrow_model::{BUILD_LABEL, DumpId, SandboxId, SnapshotId, TenantId};
use rusqlite::{Connection, Row, params_from_iter};

use super::{SELECT, decode};
use crate::connection::Columns;
use crate::{Catalog, CatalogError, Lineage, sandboxes};

/// The most sandboxes, and the most snapshots, of a lineage: more would not be readable, and this is a few
/// megabytes.
pub const LINEAGE_MAX: usize = 10_000;

/// The total size of all ready snapshots of all tenants, as measured when each was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotTotals {
    pub count: u64,
    pub ram_bytes: u64,
    pub disk_bytes: u64,
}

impl Catalog {
    /// For metrics.
    pub async fn snapshot_totals(&self) -> Result<SnapshotTotals, CatalogError> {
        self.read(|connection| {
            let sql = "SELECT count(*) AS count,
                       coalesce(sum(json_extract(snapshot, '$.ram_bytes')), 0) AS ram_bytes,
                       coalesce(sum(json_extract(snapshot, '$.disk_bytes')), 0) AS disk_bytes
                       FROM snapshots WHERE state = 'ready'";
            let totals = |row: &Row<'_>| {
                let (count, ram_bytes) = (row.count("count")?, row.count("ram_bytes")?);
                Ok(SnapshotTotals { count, ram_bytes, disk_bytes: row.count("disk_bytes")? })
            };
            connection.prepare_cached(sql)?.query_row((), |row| Ok(totals(row)))?
        })
        .await
    }

    /// Whether a sandbox or a snapshot, ready or not, refers to a dump. If not, the dump may be removed.
    pub async fn dump_in_use(&self, dump: &DumpId) -> Result<bool, CatalogError> {
        let dump = dump.clone();
        self.read(move |connection| {
            let sql = "SELECT EXISTS (SELECT 1 FROM sandboxes WHERE dump = ?1)
                       OR EXISTS (SELECT 1 FROM snapshots WHERE dump = ?1)";
            Ok(connection.prepare_cached(sql)?.query_row([dump.as_str()], |row| row.get(0))?)
        })
        .await
    }

    /// Sandboxes that were created from a snapshot, oldest first. They contain copies: none of them needs it.
    pub async fn children_of_snapshot(&self, id: &SnapshotId) -> Result<Vec<SandboxId>, CatalogError> {
        let sql =
            "SELECT id FROM sandboxes WHERE origin IS NOT NULL AND json_extract(origin, '$.snapshot') = ?
                   ORDER BY created_ms, id";
        self.sandboxes_where(sql, id).await
    }

    /// Sandboxes whose rotation restores a snapshot, oldest first: they need it.
    pub async fn rotating_to(&self, id: &SnapshotId) -> Result<Vec<SandboxId>, CatalogError> {
        let sql = "SELECT id FROM sandboxes WHERE json_extract(spec, '$.rotate.snapshot') = ?
                   ORDER BY created_ms, id";
        self.sandboxes_where(sql, id).await
    }

    /// A tenant's sandboxes, except those of builds, and ready snapshots: for a tree.
    pub async fn lineage(&self, tenant: &TenantId) -> Result<Lineage, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            // Read in one transaction: otherwise a fork between the two reads could show a child without its parent.
            let transaction = connection.unchecked_transaction()?;
            let sandboxes = "SELECT * FROM sandboxes WHERE tenant = ?
                 AND NOT EXISTS (SELECT 1 FROM sandbox_labels l WHERE l.sandbox = id AND l.key = ?)";
            let given = [tenant.as_str(), BUILD_LABEL];
            let (sandboxes, more) = newest(&transaction, sandboxes, &given, sandboxes::decode)?;
            let snapshots = format!("{SELECT} WHERE tenant = ? AND state = 'ready'");
            let decode = |row: &Row<'_>| decode(row).map(|row| row.snapshot);
            let (snapshots, still_more) = newest(&transaction, &snapshots, &[tenant.as_str()], decode)?;
            Ok(Lineage { sandboxes, snapshots, cut: more || still_more })
        })
        .await
    }

    async fn sandboxes_where(
        &self,
        sql: &'static str,
        snapshot: &SnapshotId,
    ) -> Result<Vec<SandboxId>, CatalogError> {
        let snapshot = snapshot.clone();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([snapshot.as_str()], |row| row.parsed("id"))?.collect()
        })
        .await
    }
}

/// The newest rows of a query, sorted from oldest to newest, and whether there are more.
fn newest<T>(
    connection: &Connection,
    sql: &str,
    given: &[&str],
    decode: impl Fn(&Row<'_>) -> Result<T, CatalogError>,
) -> Result<(Vec<T>, bool), CatalogError> {
    let sql = format!("{sql} ORDER BY created_ms DESC, id DESC LIMIT {}", LINEAGE_MAX + 1);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_and_then(params_from_iter(given), decode)?;
    let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
    let more = rows.len() > LINEAGE_MAX;
    rows.truncate(LINEAGE_MAX);
    rows.reverse();
    Ok((rows, more))
}
