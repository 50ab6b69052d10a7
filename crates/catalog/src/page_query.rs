//! Queries for a page of rows, built condition by condition.

use std::str::FromStr;

use burrow_model::TenantId;
use rusqlite::types::Value as Sql;

use crate::connection::integer;
use crate::{CatalogError, PageRequest};

/// A query for one tenant's rows.
pub(crate) struct PageQuery {
    pub(crate) sql: String,
    pub(crate) values: Vec<Sql>,
}

impl PageQuery {
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
