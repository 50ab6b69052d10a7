//! A catalog that was brought back from a backup: what the backup does not hold must not be named.

use std::collections::BTreeSet;

use burrow_model::SnapshotId;
use rusqlite::{Connection, params_from_iter};

use super::{SELECT, decode, remove};
use crate::writer::Manner;
use crate::{Catalog, CatalogError};

impl Catalog {
    /// Brings the rows in line with a backup, which holds volumes and no processes, in one commit. Of snapshots only
    /// `kept` stay, as files; whatever slept or was on its way to it is stopped; operations of the kinds `given_up`
    /// end where they were. Answers how many snapshots went.
    ///
    /// Only for a catalog that no engine has taken up yet.
    pub async fn settle_backup(
        &self,
        kept: BTreeSet<SnapshotId>,
        given_up: Vec<&'static str>,
    ) -> Result<usize, CatalogError> {
        self.write(Manner::UPKEEP, move |connection| {
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

/// Dumps are not in a backup: they fit only the kernel and processor that made them. A rotation to a snapshot that
/// went would only fail again and again. The pool it comes to has no epoch yet, so it has none either.
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
        // One that was not ready is half of one.
        if !row.ready || !kept.contains(&row.snapshot.id) {
            gone.push(row.snapshot.id);
        }
    }
    Ok(gone)
}
