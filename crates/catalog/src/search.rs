//! Finding sandboxes: by what people type, and in pages by what they filter for.

use burrow_model::{BUILD_LABEL, SandboxId, TenantId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, params_from_iter};

use crate::connection::{Columns, integer, word};
use crate::{Catalog, CatalogError, Page, PageRequest, SandboxFilter, SandboxRow, sandboxes};

/// Candidates an ambiguous prefix is answered with: enough to see how the ids differ.
const CANDIDATES_MAX: usize = 5;

/// Fewest characters of an id without its `sbx`: fewer are more likely a mistyped name.
const BARE_PREFIX_MIN: usize = 4;

impl Catalog {
    /// Finds a sandbox by id, by name, or by the beginning of its id, with or without `sbx`.
    ///
    /// A name comes first: it was chosen, while whether a prefix is unique changes with every create.
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
            for prefix in prefixes(&text) {
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
        let query = Query::new(tenant, &filter, &page)?;
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

/// The beginnings of ids that a text may stand for.
fn prefixes(text: &str) -> Vec<String> {
    // What is no beginning of an id is not looked for; it would only cost a scan.
    if text.len() > 23 || !text.bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b)) {
        return Vec::new();
    }
    let mut prefixes = Vec::new();
    if text.len() > SandboxId::PREFIX.len() && text.starts_with(SandboxId::PREFIX) {
        prefixes.push(text.to_owned());
    }
    if text.len() >= BARE_PREFIX_MIN {
        prefixes.push(format!("{}{text}", SandboxId::PREFIX));
    }
    prefixes
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

struct Query {
    sql: String,
    values: Vec<Sql>,
}

impl Query {
    fn new(tenant: &TenantId, filter: &SandboxFilter, page: &PageRequest) -> Result<Self, CatalogError> {
        let mut query =
            Self { sql: "SELECT * FROM sandboxes WHERE tenant = ?".to_owned(), values: Vec::new() };
        query.values.push(Sql::Text(tenant.to_string()));
        if let Some((created_ms, id)) = page.after::<SandboxId>()? {
            query.and("(created_ms, id) < (?, ?)", [Sql::Integer(created_ms), Sql::Text(id.to_string())]);
        }
        // Sandboxes of builds are the daemon's own.
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
        query.sql.push_str(" ORDER BY created_ms DESC, id DESC LIMIT ?");
        query.values.push(Sql::Integer(integer(page.rows_max() as u64 + 1)));
        Ok(query)
    }

    fn and(&mut self, condition: &str, values: impl IntoIterator<Item = Sql>) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.extend(values);
    }
}
