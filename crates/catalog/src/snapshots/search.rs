//! Finding snapshots: by a text that users type, and in pages by a filter.

use burrow_model::{Snapshot, SnapshotId, TenantId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::{SELECT, SELECT_WHOLE, decode, find};

use crate::connection::{Columns, integer, word};
use crate::id_prefix::{CANDIDATES_MAX, prefixes};
use crate::page_query::PageQuery;
use crate::{Catalog, CatalogError, Page, PageRequest, SnapshotFilter};

impl Catalog {
    /// Finds a ready snapshot by id, by name, or by a prefix of its id, with or without `snp`. As for sandboxes, a name has
    /// priority. With the paths of its changes.
    pub async fn resolve_snapshot(
        &self,
        tenant: &TenantId,
        text: &str,
    ) -> Result<Option<Snapshot>, CatalogError> {
        let (tenant, text) = (tenant.clone(), text.to_owned());
        self.read(move |connection| {
            if let Ok(id) = text.parse::<SnapshotId>() {
                return find(connection, &tenant, &id);
            }
            if let Some(snapshot) = find_by_name(connection, &tenant, &text)? {
                return Ok(Some(snapshot));
            }
            let mut candidates = Vec::new();
            for prefix in prefixes(&text, SnapshotId::PREFIX) {
                candidates.extend(starting_with(connection, &tenant, &prefix)?);
            }
            match candidates.as_slice() {
                [] => Ok(None),
                [id] => find(connection, &tenant, id),
                [..] => {
                    candidates.truncate(CANDIDATES_MAX);
                    Err(CatalogError::AmbiguousSnapshot { candidates })
                }
            }
        })
        .await
    }

    /// A page of a tenant's ready snapshots, newest first, without the paths of their changes.
    pub async fn list_snapshots(
        &self,
        tenant: &TenantId,
        filter: SnapshotFilter,
        page: PageRequest,
    ) -> Result<Page<Snapshot>, CatalogError> {
        let query = query(tenant, &filter, &page)?;
        let rows_max = page.rows_max();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(&query.sql)?;
            let rows = statement.query_and_then(params_from_iter(query.values), decode)?;
            let rows = rows.map(|row| row.map(|row| row.snapshot)).collect::<Result<Vec<_>, _>>()?;
            Ok(Page::cut(rows, rows_max, |snapshot| (snapshot.created_ms, snapshot.id.as_str())))
        })
        .await
    }
}

fn query(tenant: &TenantId, filter: &SnapshotFilter, page: &PageRequest) -> Result<PageQuery, CatalogError> {
    let mut query = PageQuery::of_page::<SnapshotId>(SELECT, tenant, page)?;
    query.and("state = 'ready'", []);
    if let Some(sandbox) = &filter.sandbox {
        query.and("sandbox = ?", [Sql::Text(sandbox.to_string())]);
    }
    for label in &filter.labels {
        let holds =
            "EXISTS (SELECT 1 FROM snapshot_labels l WHERE l.snapshot = id AND l.key = ? AND l.value = ?)";
        query.and(holds, [Sql::Text(label.key.clone()), Sql::Text(label.value.clone())]);
    }
    if !filter.kinds.is_empty() {
        let places = vec!["?"; filter.kinds.len()].join(", ");
        let kinds = filter.kinds.iter().map(|kind| word(kind, "kind").map(Sql::Text));
        query.and(&format!("kind IN ({places})"), kinds.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(query.newest_first(page))
}

fn find_by_name(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
) -> Result<Option<Snapshot>, CatalogError> {
    let sql = format!("{SELECT_WHOLE} WHERE tenant = ? AND name = ? AND state = 'ready'");
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row([tenant.as_str(), name], |row| Ok(decode(row)));
    Ok(found.optional()?.transpose()?.map(|row| row.snapshot))
}

fn starting_with(
    connection: &Connection,
    tenant: &TenantId,
    prefix: &str,
) -> Result<Vec<SnapshotId>, CatalogError> {
    // `~` sorts after every character of an id.
    let sql = "SELECT id FROM snapshots
               WHERE id >= ?1 AND id < ?1 || '~' AND tenant = ?2 AND state = 'ready' ORDER BY id LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let limit = integer(CANDIDATES_MAX as u64);
    statement.query_and_then((prefix, tenant.as_str(), limit), |row| row.parsed("id"))?.collect()
}
