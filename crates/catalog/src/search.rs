//! Finding sandboxes: by a text that users type, and in pages by a filter.

use std::str::FromStr;

use burrow_model::{BUILD_LABEL, SandboxId, TenantId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, params_from_iter};

use crate::connection::{Columns, integer, word};
use crate::{Catalog, CatalogError, Page, PageRequest, SandboxFilter, SandboxRow, sandboxes};

/// How many candidates an error about an ambiguous prefix lists: enough to see how the ids differ.
pub(crate) const CANDIDATES_MAX: usize = 5;

/// The shortest prefix of an id without its three letters: a shorter one is more likely a mistyped name.
const BARE_PREFIX_MIN: usize = 4;

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

/// The prefixes of ids of one kind that a text may stand for.
pub(crate) fn prefixes(text: &str, kind: &str) -> Vec<String> {
    // A text that cannot be a prefix of an id is not searched for; it would only cause a scan.
    if text.len() > 23 || !text.bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b)) {
        return Vec::new();
    }
    let mut prefixes = Vec::new();
    if text.len() > kind.len() && text.starts_with(kind) {
        prefixes.push(text.to_owned());
    }
    if text.len() >= BARE_PREFIX_MIN {
        prefixes.push(format!("{kind}{text}"));
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

/// A query for one tenant's rows, built condition by condition.
pub(crate) struct Query {
    pub(crate) sql: String,
    pub(crate) values: Vec<Sql>,
}

impl Query {
    fn new(tenant: &TenantId, filter: &SandboxFilter, page: &PageRequest) -> Result<Self, CatalogError> {
        let mut query = Self::of_page::<SandboxId>("SELECT * FROM sandboxes", tenant, page)?;
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

    /// All of a tenant's rows after the page's cursor, which names ids of the kind `I`.
    pub(crate) fn of_page<I: FromStr + ToString>(
        select: &str,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Self, CatalogError> {
        let values = vec![Sql::Text(tenant.to_string())];
        let mut query = Self { sql: format!("{select} WHERE tenant = ?"), values };
        if let Some((created_ms, id)) = page.after::<I>()? {
            query.and("(created_ms, id) < (?, ?)", [Sql::Integer(created_ms), Sql::Text(id.to_string())]);
        }
        Ok(query)
    }

    /// Reads one more than the page contains, which shows whether another page follows.
    pub(crate) fn newest_first(mut self, page: &PageRequest) -> Self {
        self.sql.push_str(" ORDER BY created_ms DESC, id DESC LIMIT ?");
        self.values.push(Sql::Integer(integer(page.rows_max() as u64 + 1)));
        self
    }

    pub(crate) fn and(&mut self, condition: &str, values: impl IntoIterator<Item = Sql>) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.extend(values);
    }
}
