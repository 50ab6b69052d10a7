//! A catalog that was restored from a backup must not name anything that the backup does not contain.

use std::collections::BTreeSet;

use burrow_model::SnapshotId;
use rusqlite::{Connection, params_from_iter};

use super::{SELECT, decode, remove};
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError};

impl Catalog {
    /// Adapts the rows to a backup, which contains disks and no processes, in one commit. Only the snapshots in `kept` stay, with
    /// files only; sandboxes that slept or were being put to sleep are stopped; operations of the kinds `given_up` end without
    /// being completed. Returns how many snapshots were removed.
    ///
    /// Only for a catalog that no engine has opened yet.
    pub async fn settle_backup(
        &self,
        kept: BTreeSet<SnapshotId>,
        given_up: Vec<&'static str>,
    ) -> Result<usize, CatalogError> {
        self.write(WriteMode::UPKEEP, move |connection| {
            let places = vec!["?"; given_up.len()].join(", ");
            let sql = format!("DELETE FROM operations WHERE kind IN ({places})");
            connection.prepare(&sql)?.execute(params_from_iter(&given_up))?;
            let gone = not_kept(connection, &kept)?;
            for id in &gone {
                remove(connection, id)?;
            }
            connection.execute_batch(FILES_ONLY)?;
            Ok(gone.len())
        })
        .await
    }
}

/// Dumps are not in a backup: they fit only the kernel and processor that created them. A rotation to a missing snapshot
/// would fail again and again. The new pool has no epoch yet, so the catalog gets none either.
const FILES_ONLY: &str = "
    DELETE FROM settings WHERE key = 'epoch';
    UPDATE snapshots SET dump = NULL,
        snapshot = json_set(snapshot, '$.dump', json('null'), '$.ram_bytes', 0) WHERE dump IS NOT NULL;
    UPDATE sandboxes SET state = 'stopped', stop_reason = 'host-restarted', machine = NULL,
        stopped_ms = coalesce(slept_ms, updated_ms), slept_ms = NULL
        WHERE state IN ('hibernating', 'hibernated', 'waking', 'restoring');
    UPDATE sandboxes SET dump = NULL WHERE dump IS NOT NULL;
    UPDATE sandboxes SET spec = json_set(spec, '$.rotate', json('null'))
        WHERE json_extract(spec, '$.rotate.snapshot') IS NOT NULL
        AND json_extract(spec, '$.rotate.snapshot') NOT IN (SELECT id FROM snapshots);
";

fn not_kept(connection: &Connection, kept: &BTreeSet<SnapshotId>) -> Result<Vec<SnapshotId>, CatalogError> {
    let mut statement = connection.prepare(&format!("{SELECT} ORDER BY created_ms DESC, id DESC"))?;
    let mut gone = Vec::new();
    for row in statement.query_and_then((), decode)? {
        let row = row?;
        // A snapshot that was not ready is incomplete.
        if !row.ready || !kept.contains(&row.snapshot.id) {
            gone.push(row.snapshot.id);
        }
    }
    Ok(gone)
}
