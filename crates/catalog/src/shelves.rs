//! Volumes that outlive sandboxes: one row each, from the intent to make one until nothing of it is left.
//!
//! What is being done to one is its state, so a row is also the plan that the next start completes or undoes. What must not
//! meet (a writer and another, a removal and a use) is decided here, in the transaction that stores the later of the two.

mod mounts;
mod snapshots;

pub use mounts::ShelfUser;
pub(crate) use mounts::{follow_spec, insert_mounts};
pub use snapshots::ShelfSnapshotRow;

use burrow_model::{Name, SandboxId, Shelf, ShelfId, ShelfSnapshotId, ShelfState, TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::connection::{Columns, integer, word};
use crate::search::{Query, prefixes};
use crate::writer::Manner;
use crate::{Catalog, CatalogError, Page, PageRequest};

/// Most volumes of one tenant: a start, a backup and a sweep go through all of them.
pub const SHELVES_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShelfRow {
    pub tenant: TenantId,
    pub shelf: Shelf,
    /// The snapshot that one in [`ShelfState::Restoring`] goes back to.
    pub goes_to: Option<ShelfSnapshotId>,
}

impl Catalog {
    /// Stores the intent to make a volume. What it is made from stays until it is made.
    pub async fn insert_shelf(&self, tenant: &TenantId, shelf: Shelf) -> Result<(), CatalogError> {
        let tenant = tenant.clone();
        self.write(Manner::GROWTH, move |connection| {
            refuse_too_many(connection, &tenant)?;
            if let Some(taken) = find_by_name(connection, &tenant, shelf.name.as_str())? {
                return Err(CatalogError::ShelfNameTaken { existing: taken.shelf.id });
            }
            if let Some(origin) = &shelf.origin {
                snapshots::find_ready(connection, &tenant, origin)?;
            }
            insert(connection, &tenant, &shelf)
        })
        .await
    }

    /// What was being done to a volume is done.
    pub async fn settle_shelf(&self, id: &ShelfId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(Manner::UPKEEP, move |connection| set_state(connection, &id, ShelfState::Ready, None))
            .await
    }

    /// Stores the intent to remove a volume that no sandbox has. Answers the snapshots that go with it.
    pub async fn begin_shelf_removal(
        &self,
        tenant: &TenantId,
        id: &ShelfId,
        with_snapshots: bool,
    ) -> Result<Vec<ShelfSnapshotId>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(Manner::UPKEEP, move |connection| {
            let row = match find(connection, &tenant, &id)?.ok_or_else(|| unknown(id.as_str()))? {
                // Begun before, and not done: what is left of it.
                row if row.shelf.state == ShelfState::Removing => {
                    let left = snapshots::of_shelf(connection, &id)?;
                    return Ok(left.into_iter().map(|snapshot| snapshot.snapshot.id).collect());
                }
                _ => find_at_rest(connection, &tenant, &id)?,
            };
            let by: Vec<SandboxId> =
                mounts::of_shelf(connection, &id)?.into_iter().map(|user| user.sandbox).collect();
            if !by.is_empty() {
                return Err(CatalogError::ShelfInUse { name: row.shelf.name, by });
            }
            let snapshots = snapshots::of_shelf(connection, &id)?;
            if snapshots.iter().any(|snapshot| !snapshot.ready) {
                return Err(CatalogError::ShelfBusy { name: row.shelf.name });
            }
            if !snapshots.is_empty() && !with_snapshots {
                return Err(CatalogError::ShelfHasSnapshots { name: row.shelf.name, count: snapshots.len() });
            }
            for snapshot in &snapshots {
                snapshots::refuse_needed(connection, &row.shelf.name, &snapshot.snapshot.id)?;
            }
            set_state(connection, &id, ShelfState::Removing, None)?;
            Ok(snapshots.into_iter().map(|snapshot| snapshot.snapshot.id).collect())
        })
        .await
    }

    /// Forgets a volume with its snapshots, of which nothing is left. Of an unknown one: nothing to do.
    pub async fn delete_shelf(&self, id: &ShelfId) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(Manner::UPKEEP, move |connection| {
            connection.prepare_cached("DELETE FROM shelves WHERE id = ?")?.execute([id.as_str()])?;
            Ok(())
        })
        .await
    }

    /// Stores the intent to put a volume back to one of its snapshots. No sandbox that has it may be more than files.
    pub async fn begin_shelf_restore(
        &self,
        tenant: &TenantId,
        id: &ShelfId,
        snapshot: &ShelfSnapshotId,
    ) -> Result<(), CatalogError> {
        let (tenant, id, snapshot) = (tenant.clone(), id.clone(), snapshot.clone());
        self.write(Manner::GROWTH, move |connection| {
            let row = find_at_rest(connection, &tenant, &id)?;
            let found = snapshots::find_ready(connection, &tenant, &snapshot)?;
            if found.shelf != id {
                return Err(CatalogError::Unknown { kind: "volume snapshot", id: snapshot.to_string() });
            }
            let by = mounts::up(connection, &id)?;
            if !by.is_empty() {
                return Err(CatalogError::ShelfInUse { name: row.shelf.name, by });
            }
            set_state(connection, &id, ShelfState::Restoring, Some(&snapshot))
        })
        .await
    }

    pub async fn shelf(&self, tenant: &TenantId, id: &ShelfId) -> Result<Option<ShelfRow>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| find(connection, &tenant, &id)).await
    }

    /// Whose a volume is.
    pub async fn owner_of_shelf(&self, id: &ShelfId) -> Result<Option<TenantId>, CatalogError> {
        let id = id.clone();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached("SELECT tenant FROM shelves WHERE id = ?")?;
            statement.query_row([id.as_str()], |row| Ok(row.parsed("tenant"))).optional()?.transpose()
        })
        .await
    }

    /// Finds a volume by id, by name, or by the beginning of its id, with or without `vol`.
    pub async fn resolve_shelf(
        &self,
        tenant: &TenantId,
        text: &str,
    ) -> Result<Option<ShelfRow>, CatalogError> {
        let (tenant, text) = (tenant.clone(), text.to_owned());
        self.read(move |connection| {
            if let Ok(id) = text.parse::<ShelfId>()
                && let Some(row) = find(connection, &tenant, &id)?
            {
                return Ok(Some(row));
            }
            if let Some(row) = find_by_name(connection, &tenant, &text)? {
                return Ok(Some(row));
            }
            let mut candidates = Vec::new();
            for prefix in prefixes(&text, ShelfId::PREFIX) {
                candidates.extend(starting_with(connection, &tenant, &prefix)?);
            }
            // Several: as good as none, since a longer beginning is always at hand in a list.
            Ok(if candidates.len() == 1 { candidates.pop() } else { None })
        })
        .await
    }

    /// A page of a tenant's volumes, newest first.
    pub async fn list_shelves(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Page<ShelfRow>, CatalogError> {
        let query = Query::of_page::<ShelfId>("SELECT * FROM shelves", tenant, &page)?.newest_first(&page);
        let rows_max = page.rows_max();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(&query.sql)?;
            let rows = statement.query_and_then(params_from_iter(query.values), decode)?;
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            Ok(Page::cut(rows, rows_max, |row| (row.shelf.created_ms, row.shelf.id.as_str())))
        })
        .await
    }

    /// Every volume of every tenant, oldest first: for recovery and backups.
    pub async fn all_shelves(&self) -> Result<Vec<ShelfRow>, CatalogError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT * FROM shelves ORDER BY created_ms, id")?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }
}

fn insert(connection: &Connection, tenant: &TenantId, shelf: &Shelf) -> Result<(), CatalogError> {
    connection
        .prepare_cached(
            "INSERT INTO shelves (id, tenant, name, disk_mib, state, origin, created_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            shelf.id.as_str(),
            tenant.as_str(),
            shelf.name.as_str(),
            shelf.disk_mib,
            word(&shelf.state, "state")?,
            shelf.origin.as_ref().map(ShelfSnapshotId::as_str),
            integer(shelf.created_ms),
        ])?;
    Ok(())
}

fn set_state(
    connection: &Connection,
    id: &ShelfId,
    state: ShelfState,
    goes_to: Option<&ShelfSnapshotId>,
) -> Result<(), CatalogError> {
    let changed = connection
        .prepare_cached("UPDATE shelves SET state = ?, goes_to = ? WHERE id = ?")?
        .execute(params![word(&state, "state")?, goes_to.map(ShelfSnapshotId::as_str), id.as_str()])?;
    if changed == 0 { Err(unknown(id.as_str())) } else { Ok(()) }
}

fn find(connection: &Connection, tenant: &TenantId, id: &ShelfId) -> Result<Option<ShelfRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM shelves WHERE id = ? AND tenant = ?")?;
    statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
}

/// One that nothing is being done to.
fn find_at_rest(connection: &Connection, tenant: &TenantId, id: &ShelfId) -> Result<ShelfRow, CatalogError> {
    let row = find(connection, tenant, id)?.ok_or_else(|| unknown(id.as_str()))?;
    match row.shelf.state {
        ShelfState::Ready => Ok(row),
        ShelfState::Making | ShelfState::Restoring | ShelfState::Removing => {
            Err(CatalogError::ShelfBusy { name: row.shelf.name })
        }
    }
}

fn find_by_name(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
) -> Result<Option<ShelfRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM shelves WHERE tenant = ? AND name = ?")?;
    statement.query_row([tenant.as_str(), name], |row| Ok(decode(row))).optional()?.transpose()
}

fn starting_with(
    connection: &Connection,
    tenant: &TenantId,
    prefix: &str,
) -> Result<Vec<ShelfRow>, CatalogError> {
    // `~` sorts after every character of an id.
    let sql = "SELECT * FROM shelves WHERE id >= ?1 AND id < ?1 || '~' AND tenant = ?2 ORDER BY id LIMIT 2";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_and_then([prefix, tenant.as_str()], decode)?.collect()
}

fn refuse_too_many(connection: &Connection, tenant: &TenantId) -> Result<(), CatalogError> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM shelves WHERE tenant = ?")?;
    let count: i64 = statement.query_row([tenant.as_str()], |row| row.get(0))?;
    if count >= integer(SHELVES_MAX as u64) { Err(CatalogError::TooManyShelves) } else { Ok(()) }
}

fn unknown(what: &str) -> CatalogError {
    CatalogError::Unknown { kind: "volume", id: what.to_owned() }
}

fn decode(row: &Row<'_>) -> Result<ShelfRow, CatalogError> {
    let shelf = Shelf {
        id: row.parsed("id")?,
        name: row.parsed::<Name>("name")?,
        disk_mib: u32::try_from(row.count("disk_mib")?).unwrap_or(u32::MAX),
        state: row.word("state")?,
        origin: row.parsed_if_any("origin")?,
        created_ms: row.count("created_ms")?,
    };
    Ok(ShelfRow { tenant: row.parsed("tenant")?, shelf, goes_to: row.parsed_if_any("goes_to")? })
}
