//! Named spaces, and which parts of all spaces are still in use.
//!
//! This module does not store memories, only who may see how much of them: a sandbox's row contains its branch, a snapshot
//! contains its point. Data that no row refers to may be removed; rows are written before any data of a space.

use std::collections::{BTreeMap, BTreeSet};

use burrow_model::{MemoryPoint, MemoryRef, Name, SandboxId, SnapshotMemory, SpaceId, TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::connection::{Columns, integer, json};
use crate::id_prefix::prefixes;
use crate::limits::SPACES_MAX;
use crate::page_query::PageQuery;
use crate::writer::WriteMode;
use crate::{Catalog, CatalogError, Page, PageRequest};

/// A space that outlives sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRow {
    pub id: SpaceId,
    pub tenant: TenantId,
    pub name: Name,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    pub created_ms: u64,
}

/// A change of a space; `None` leaves a value unchanged.
#[derive(Clone, Debug)]
pub struct SpaceChange {
    pub name: Option<Name>,
    pub description: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
}

/// The references to a space: its data that must be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceUsers {
    /// Branches of sandboxes.
    pub branches: Vec<MemoryRef>,
    /// Points of snapshots.
    pub points: Vec<MemoryPoint>,
    /// Whether it is a named space, whose only branch is always kept.
    pub named: bool,
}

impl SpaceUsers {
    /// Whether the space is unused and can be removed.
    pub fn is_unused(&self) -> bool {
        self.branches.is_empty() && self.points.is_empty() && !self.named
    }
}

impl Catalog {
    pub async fn insert_space(&self, row: SpaceRow) -> Result<(), CatalogError> {
        self.write(WriteMode::GROWTH, move |connection| {
            refuse_too_many(connection, &row.tenant)?;
            refuse_taken(connection, &row.tenant, row.name.as_str(), &row.id)?;
            connection
                .prepare_cached(
                    "INSERT INTO spaces (id, tenant, name, description, labels, created_ms) VALUES (?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![
                    row.id.as_str(),
                    row.tenant.as_str(),
                    row.name.as_str(),
                    row.description,
                    json(&row.labels, "labels")?,
                    integer(row.created_ms),
                ])?;
            Ok(())
        })
        .await
    }

    /// [`CatalogError::Unknown`] when the tenant has no such space.
    pub async fn update_space(
        &self,
        tenant: &TenantId,
        id: &SpaceId,
        change: SpaceChange,
    ) -> Result<SpaceRow, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(WriteMode::GROWTH, move |connection| {
            let unknown = || CatalogError::Unknown { kind: "space", id: id.to_string() };
            let mut row = find(connection, &tenant, &id)?.ok_or_else(unknown)?;
            if let Some(name) = &change.name {
                refuse_taken(connection, &tenant, name.as_str(), &id)?;
                row.name = name.clone();
            }
            row.description = change.description.clone().unwrap_or(row.description);
            row.labels = change.labels.clone().unwrap_or(row.labels);
            connection
                .prepare_cached("UPDATE spaces SET name = ?, description = ?, labels = ? WHERE id = ?")?
                .execute(params![
                    row.name.as_str(),
                    row.description,
                    json(&row.labels, "labels")?,
                    id.as_str()
                ])?;
            Ok(row)
        })
        .await
    }

    /// Does nothing if the space does not exist.
    pub async fn delete_space(&self, tenant: &TenantId, id: &SpaceId) -> Result<(), CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(WriteMode::UPKEEP, move |connection| {
            let sql = "DELETE FROM spaces WHERE id = ? AND tenant = ?";
            connection.prepare_cached(sql)?.execute([id.as_str(), tenant.as_str()])?;
            Ok(())
        })
        .await
    }

    /// Finds a named space by id, by name, or by a prefix of its id, with or without `spc`.
    pub async fn resolve_space(
        &self,
        tenant: &TenantId,
        text: &str,
    ) -> Result<Option<SpaceRow>, CatalogError> {
        let (tenant, text) = (tenant.clone(), text.to_owned());
        self.read(move |connection| {
            if let Ok(id) = text.parse::<SpaceId>() {
                return find(connection, &tenant, &id);
            }
            if let Some(row) = find_by_name(connection, &tenant, &text)? {
                return Ok(Some(row));
            }
            let mut candidates = Vec::new();
            for prefix in prefixes(&text, SpaceId::PREFIX) {
                candidates.extend(starting_with(connection, &tenant, &prefix)?);
            }
            // Several matches count as none, because a list shows longer prefixes.
            Ok(if candidates.len() == 1 { candidates.pop() } else { None })
        })
        .await
    }

    /// A page of a tenant's named spaces, newest first.
    pub async fn list_spaces(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Page<SpaceRow>, CatalogError> {
        let query = PageQuery::of_page::<SpaceId>("SELECT * FROM spaces", tenant, &page)?.newest_first(&page);
        let rows_max = page.rows_max();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(&query.sql)?;
            let rows = statement.query_and_then(params_from_iter(query.values), decode)?;
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            Ok(Page::cut(rows, rows_max, |row| (row.created_ms, row.id.as_str())))
        })
        .await
    }

    /// Sandboxes with a named space, as their own or attached, oldest first.
    pub async fn users_of_space(&self, id: &SpaceId) -> Result<Vec<SandboxId>, CatalogError> {
        let id = id.clone();
        self.read(move |connection| {
            let sql = "SELECT id FROM sandboxes WHERE json_extract(spec, '$.memory.space') = ?1
                       OR EXISTS (SELECT 1 FROM json_each(spec, '$.memory.attached') a
                                  WHERE json_extract(a.value, '$.space') = ?1)
                       ORDER BY created_ms, id";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([id.as_str()], |row| row.parsed("id"))?.collect()
        })
        .await
    }

    /// Who sees into a space, of all tenants, read in one transaction.
    pub async fn space_users(&self, id: &SpaceId) -> Result<SpaceUsers, CatalogError> {
        let id = id.clone();
        self.read(move |connection| {
            let transaction = connection.unchecked_transaction()?;
            let named = transaction
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM spaces WHERE id = ?)")?
                .query_row([id.as_str()], |row| row.get(0))?;
            Ok(SpaceUsers {
                branches: branches(&transaction, &id)?,
                points: points(&transaction, &id)?,
                named,
            })
        })
        .await
    }

    /// Every space in use, of all tenants.
    pub async fn spaces_in_use(&self) -> Result<BTreeSet<SpaceId>, CatalogError> {
        self.read(|connection| {
            let transaction = connection.unchecked_transaction()?;
            // A sandbox without a branch in its row uses the one named after it.
            let sql = "SELECT id AS space FROM spaces
                       UNION SELECT coalesce(json_extract(memory, '$.space'), 'spc' || substr(id, 4)) FROM sandboxes
                       UNION SELECT json_extract(snapshot, '$.memory.space') FROM snapshots
                             WHERE json_extract(snapshot, '$.memory.space') IS NOT NULL";
            let mut statement = transaction.prepare_cached(sql)?;
            statement.query_and_then((), |row| row.parsed("space"))?.collect()
        })
        .await
    }
}

fn branches(connection: &Connection, space: &SpaceId) -> Result<Vec<MemoryRef>, CatalogError> {
    let sql = "SELECT id, memory FROM sandboxes
               WHERE (memory IS NOT NULL AND json_extract(memory, '$.space') = ?1)
               OR (memory IS NULL AND id = 'sbx' || substr(?1, 4))";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_and_then([space.as_str()], |row| {
        let born: SandboxId = row.parsed("id")?;
        Ok(row.json_if_any("memory")?.unwrap_or_else(|| MemoryRef::own(&born)))
    })?;
    rows.collect()
}

fn points(connection: &Connection, space: &SpaceId) -> Result<Vec<MemoryPoint>, CatalogError> {
    let sql = "SELECT json_extract(snapshot, '$.memory') AS memory FROM snapshots
               WHERE json_extract(snapshot, '$.memory.space') = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_and_then([space.as_str()], |row| {
        Ok(row.json_if_any::<SnapshotMemory>("memory")?.and_then(|memory| memory.point))
    })?;
    rows.filter_map(Result::transpose).collect()
}

pub(crate) fn find(
    connection: &Connection,
    tenant: &TenantId,
    id: &SpaceId,
) -> Result<Option<SpaceRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM spaces WHERE id = ? AND tenant = ?")?;
    statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
}

fn find_by_name(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
) -> Result<Option<SpaceRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM spaces WHERE tenant = ? AND name = ?")?;
    statement.query_row([tenant.as_str(), name], |row| Ok(decode(row))).optional()?.transpose()
}

fn starting_with(
    connection: &Connection,
    tenant: &TenantId,
    prefix: &str,
) -> Result<Vec<SpaceRow>, CatalogError> {
    // `~` sorts after every character of an id.
    let sql = "SELECT * FROM spaces WHERE id >= ?1 AND id < ?1 || '~' AND tenant = ?2 ORDER BY id LIMIT 2";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_and_then([prefix, tenant.as_str()], decode)?.collect()
}

fn refuse_taken(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
    except: &SpaceId,
) -> Result<(), CatalogError> {
    match find_by_name(connection, tenant, name)?.filter(|row| row.id != *except) {
        Some(row) => Err(CatalogError::SpaceNameTaken { existing: row.id }),
        None => Ok(()),
    }
}

fn refuse_too_many(connection: &Connection, tenant: &TenantId) -> Result<(), CatalogError> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM spaces WHERE tenant = ?")?;
    let count: i64 = statement.query_row([tenant.as_str()], |row| row.get(0))?;
    if count >= integer(SPACES_MAX as u64) { Err(CatalogError::TooManySpaces) } else { Ok(()) }
}

fn decode(row: &Row<'_>) -> Result<SpaceRow, CatalogError> {
    Ok(SpaceRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        name: row.parsed("name")?,
        description: row.text("description")?,
        labels: row.json("labels")?,
        created_ms: row.count("created_ms")?,
    })
}
