//! Finding sandboxes: by a text that users type, and in pages by a filter.

use burrow_model::{BUILD_LABEL, SandboxId, TenantId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, params_from_iter};

use crate::connection::{Columns, integer, word};
use crate::id_prefix::{CANDIDATES_MAX, prefixes};
use crate::page_query::PageQuery;
use crate::{Catalog, CatalogError, Page, PageRequest, SandboxFilter, SandboxRow, sandboxes};

impl Catalog {
    /// Finds a sandbox by id, by name, or by a prefix of its id, with or without `sbx`.
    ///
    /// A name has priority, because it was chosen, while every create can make a prefix ambiguous.
    pub async fn resolve_sandbox(
        &self,
        tenant: &TenantId,
        text: &str,
    ) -> Result<Option<SandboxRow>, CatalogError> {
        let (tenant, text) = (tenant.clone(), text.to_owned());
        self.read(move |connection| {
            if let Ok(id) = text.parse::<SandboxId>() {
                return sandboxes::find(connection, &tenant, &id);
            }
            if let Some(row) = sandboxes::find_by_name(connection, &tenant, &text)? {
                return Ok(Some(row));
            }
            let mut candidates = Vec::new();
            for prefix in prefixes(&text, SandboxId::PREFIX) {
                candidates.extend(starting_with(connection, &tenant, &prefix)?);
            }
            match candidates.as_slice() {
                [] => Ok(None),
                [id] => sandboxes::find(connection, &tenant, id),
                [..] => {
                    candidates.truncate(CANDIDATES_MAX);
                    Err(CatalogError::Ambiguous { candidates })
                }
            }
        })
        .await
    }

    /// A page of a tenant's sandboxes, newest first.
    pub async fn list_sandboxes(
        &self,
        tenant: &TenantId,
        filter: SandboxFilter,
        page: PageRequest,
    ) -> Result<Page<SandboxRow>, CatalogError> {
        let query = of_filter(tenant, &filter, &page)?;
        let rows_max = page.rows_max();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(&query.sql)?;
            let rows = statement
                .query_and_then(params_from_iter(query.values), sandboxes::decode)?
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Page::cut(rows, rows_max, |row| (row.created_ms, row.id.as_str())))
        })
        .await
    }
}

fn starting_with(
    connection: &Connection,
    tenant: &TenantId,
    prefix: &str,
) -> Result<Vec<SandboxId>, CatalogError> {
    // `~` sorts after every character of an id.
    let sql =
        "SELECT id FROM sandboxes WHERE id >= ?1 AND id < ?1 || '~' AND tenant = ?2 ORDER BY id LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let limit = integer(CANDIDATES_MAX as u64);
    statement.query_and_then((prefix, tenant.as_str(), limit), |row| row.parsed("id"))?.collect()
}

/// All of a tenant's sandboxes that a filter selects, after the page's cursor.
fn of_filter(
    tenant: &TenantId,
    filter: &SandboxFilter,
    page: &PageRequest,
) -> Result<PageQuery, CatalogError> {
    let mut query = PageQuery::of_page::<SandboxId>("SELECT * FROM sandboxes", tenant, page)?;
    // Sandboxes of builds belong to the daemon.
    if !filter.labels.iter().any(|label| label.key == BUILD_LABEL) {
        let built = "NOT EXISTS (SELECT 1 FROM sandbox_labels l WHERE l.sandbox = id AND l.key = ?)";
        query.and(built, [Sql::Text(BUILD_LABEL.to_owned())]);
    }
    for label in &filter.labels {
        let holds =
            "EXISTS (SELECT 1 FROM sandbox_labels l WHERE l.sandbox = id AND l.key = ? AND l.value = ?)";
        query.and(holds, [Sql::Text(label.key.clone()), Sql::Text(label.value.clone())]);
    }
    if !filter.states.is_empty() {
        let places = vec!["?"; filter.states.len()].join(", ");
        let states = filter.states.iter().map(|state| word(state, "state").map(Sql::Text));
        query.and(&format!("state IN ({places})"), states.collect::<Result<Vec<_>, _>>()?);
    }
    if let Some(prefix) = &filter.name_prefix {
        let prefix = Sql::Text(prefix.clone());
        query.and("substr(name, 1, length(?)) = ?", [prefix.clone(), prefix]);
    }
    Ok(query.newest_first(page))
}
