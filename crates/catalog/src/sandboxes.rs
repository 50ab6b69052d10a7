//! Sandboxes: one row each, from the intent to create one until everything of it is removed.
//!
//! A change and the journal row that it begins or ends are in one commit, so recovery never sees one without the other.

use burrow_model::{OperationId, SandboxId, SandboxSpec, TenantId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::connection::{Columns, integer, json, word};
use crate::writer::WriteMode;
use crate::{
    Catalog, CatalogError, Idempotency, InsertResult, OperationRow, SandboxChange, SandboxRow, idempotency,
    operations, volumes, warm_pool,
};

/// The most sandboxes that one call of `expired` returns: the caller repeats the call.
const EXPIRED_MAX: u32 = 1000;

impl Catalog {
    /// Stores a sandbox with the operation that will create it, and the idempotency key, in one commit.
    pub async fn insert_sandbox_with_operation(
        &self,
        row: SandboxRow,
        operation: OperationRow,
        idempotency: Option<Idempotency>,
    ) -> Result<InsertResult, CatalogError> {
        let boot = self.inner.boot.clone();
        self.write(WriteMode::GROWTH, move |connection| {
            let inserted = insert_new(connection, &row, idempotency.as_ref(), &boot)?;
            if inserted == InsertResult::New {
                operations::insert(connection, &operation)?;
            }
            Ok(inserted)
        })
        .await
    }

    /// Stores a sandbox that was taken from the warm pool and runs already. Until this commit, its row in `warm_pool` names its
    /// resources; afterwards, its own row does.
    pub async fn insert_running_sandbox(
        &self,
        row: SandboxRow,
        idempotency: Option<Idempotency>,
    ) -> Result<InsertResult, CatalogError> {
        let boot = self.inner.boot.clone();
        self.write(WriteMode::GROWTH, move |connection| {
            insert_new(connection, &row, idempotency.as_ref(), &boot)
        })
        .await
    }

    pub async fn sandbox(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<Option<SandboxRow>, CatalogError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |connection| find(connection, &tenant, &id)).await
    }

    pub async fn sandbox_by_name(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Option<SandboxRow>, CatalogError> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.read(move |connection| find_by_name(connection, &tenant, &name)).await
    }

    /// Every sandbox of every tenant, oldest first: for recovery.
    pub async fn all_sandboxes(&self) -> Result<Vec<SandboxRow>, CatalogError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT * FROM sandboxes ORDER BY created_ms, id")?;
            statement.query_and_then((), decode)?.collect()
        })
        .await
    }

    /// The names of a tenant's sandboxes, of the newest first, at most `max`.
    pub async fn sandbox_names(&self, tenant: &TenantId, max: u32) -> Result<Vec<String>, CatalogError> {
        let tenant = tenant.clone();
        self.read(move |connection| {
            let sql = "SELECT name FROM sandboxes WHERE tenant = ? AND name IS NOT NULL
                       ORDER BY created_ms DESC, id DESC LIMIT ?";
            let mut statement = connection.prepare_cached(sql)?;
            let names = statement.query_map(params![tenant.as_str(), max], |row| row.get(0))?;
            Ok(names.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The sandboxes with a lease of an E2B client, newest first, at most `max`.
    pub async fn newest_leased(&self, max: usize) -> Result<Vec<SandboxId>, CatalogError> {
        self.read(move |connection| {
            let sql = "SELECT id FROM sandboxes WHERE json_extract(spec, '$.lease') IS NOT NULL
                       ORDER BY created_ms DESC, id DESC LIMIT ?";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then([integer(max as u64)], |row| row.parsed("id"))?.collect()
        })
        .await
    }

    /// Changes a sandbox and, in the same commit, ends the operation that changed it.
    pub async fn update_sandbox(
        &self,
        id: &SandboxId,
        change: SandboxChange,
        finish: Option<OperationId>,
    ) -> Result<(), CatalogError> {
        let id = id.clone();
        self.write(WriteMode::UPKEEP, move |connection| {
            apply(connection, &id, &change)?;
            finish.as_ref().map_or(Ok(()), |operation| operations::remove(connection, operation))
        })
        .await
    }

    /// Removes a sandbox and its execs, revokes keys that are limited to it, and ends the operation. For an unknown sandbox, only
    /// ends the operation, so that recovery may repeat it.
    ///
    /// If the sandbox was never started successfully, the idempotency key of its create is removed too: the create was
    /// undone, and may be tried again.
    pub async fn delete_sandbox(
        &self,
        id: &SandboxId,
        finish: Option<OperationId>,
        now_ms: u64,
    ) -> Result<(), CatalogError> {
        let id = id.clone();
        let (keys, ports) = (self.inner.keys.clone(), self.inner.ports.clone());
        let tokens = self.inner.tokens.clone();
        let work = move |connection: &Connection| {
            connection
                .prepare_cached(
                    "DELETE FROM idempotency WHERE sandbox = ?1
                     AND EXISTS (SELECT 1 FROM sandboxes WHERE id = ?1 AND started_ms IS NULL)",
                )?
                .execute([id.as_str()])?;
            connection.prepare_cached("DELETE FROM sandboxes WHERE id = ?")?.execute([id.as_str()])?;
            connection
                .prepare_cached("UPDATE keys SET revoked_ms = ? WHERE sandbox = ? AND revoked_ms IS NULL")?
                .execute(params![integer(now_ms), id.as_str()])?;
            if let Some(operation) = &finish {
                operations::remove(connection, operation)?;
            }
            Ok(id.clone())
        };
        let after = move |id: &SandboxId| {
            keys.revoke_of_sandbox(id);
            ports.forget(id);
            tokens.sandboxes.forget(id);
        };
        self.inner.writer.write_then(WriteMode::UPKEEP, work, after).await?;
        Ok(())
    }

    /// Sandboxes whose lifetime has ended, longest overdue first, at most a thousand at once.
    pub async fn expired(&self, now_ms: u64) -> Result<Vec<SandboxId>, CatalogError> {
        self.read(move |connection| {
            let sql = "SELECT id FROM sandboxes WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_and_then(params![integer(now_ms), EXPIRED_MAX], |row| row.parsed("id"))?.collect()
        })
        .await
    }
}

/// Inserts a sandbox, unless the same idempotency key has created one before. Resources pre-created under its id belong to
/// it from now on.
fn insert_new(
    connection: &Connection,
    row: &SandboxRow,
    idempotency: Option<&Idempotency>,
    boot: &str,
) -> Result<InsertResult, CatalogError> {
    if let Some(given) = idempotency {
        let earlier = idempotency::of_sandbox(connection, &row.tenant, given, boot, row.created_ms)?;
        if let Some(earlier) = earlier {
            return Ok(InsertResult::Existing(earlier));
        }
        idempotency::remember_sandbox(connection, given, row, boot)?;
    }
    insert(connection, row)?;
    warm_pool::take(connection, &row.id)?;
    Ok(InsertResult::New)
}

pub(crate) fn find(
    connection: &Connection,
    tenant: &TenantId,
    id: &SandboxId,
) -> Result<Option<SandboxRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM sandboxes WHERE id = ? AND tenant = ?")?;
    statement.query_row([id.as_str(), tenant.as_str()], |row| Ok(decode(row))).optional()?.transpose()
}

pub(crate) fn find_by_name(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
) -> Result<Option<SandboxRow>, CatalogError> {
    let mut statement = connection.prepare_cached("SELECT * FROM sandboxes WHERE tenant = ? AND name = ?")?;
    statement.query_row([tenant.as_str(), name], |row| Ok(decode(row))).optional()?.transpose()
}

pub(crate) fn decode(row: &Row<'_>) -> Result<SandboxRow, CatalogError> {
    Ok(SandboxRow {
        id: row.parsed("id")?,
        tenant: row.parsed("tenant")?,
        name: row.parsed_if_any("name")?,
        spec: row.json("spec")?,
        state: row.word("state")?,
        stop_reason: row.word_if_any("stop_reason")?,
        image: row.parsed("image")?,
        token: row.text("token")?,
        machine: row.json_if_any("machine")?,
        created_ms: row.count("created_ms")?,
        updated_ms: row.count("updated_ms")?,
        started_ms: row.count_if_any("started_ms")?,
        stopped_ms: row.count_if_any("stopped_ms")?,
        failure: row.get("failure")?,
        generation: row.count("generation")?,
        dump: row.parsed_if_any("dump")?,
        origin: row.json_if_any("origin")?,
        active_ms: row.count_if_any("active_ms")?,
        slept_ms: row.count_if_any("slept_ms")?,
        rotated_ms: row.count_if_any("rotated_ms")?,
        snapshotted_ms: row.count_if_any("snapshotted_ms")?,
        branch: row.json_if_any("memory")?,
    })
}

fn insert(connection: &Connection, row: &SandboxRow) -> Result<(), CatalogError> {
    if let Some(name) = &row.name {
        refuse_taken(connection, &row.tenant, name.as_str(), &row.id)?;
    }
    connection
        .prepare_cached(
            "INSERT INTO sandboxes (id, tenant, name, spec, state, stop_reason, image, token, machine, created_ms,
                 updated_ms, started_ms, stopped_ms, expires_ms, failure, generation, dump, origin, active_ms,
                 slept_ms, rotated_ms, snapshotted_ms, memory)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            row.id.as_str(),
            row.tenant.as_str(),
            row.name.as_ref().map(|name| name.as_str()),
            json(&row.spec, "spec")?,
            word(&row.state, "state")?,
            row.stop_reason.map(|reason| word(&reason, "stop_reason")).transpose()?,
            row.image.as_str(),
            row.token,
            row.machine.as_ref().map(|machine| json(machine, "machine")).transpose()?,
            integer(row.created_ms),
            integer(row.updated_ms),
            row.started_ms.map(integer),
            row.stopped_ms.map(integer),
            row.spec.lifetime.expires_ms().map(integer),
            row.failure,
            integer(row.generation),
            row.dump.as_ref().map(|dump| dump.as_str()),
            row.origin.as_ref().map(|origin| json(origin, "origin")).transpose()?,
            row.active_ms.map(integer),
            row.slept_ms.map(integer),
            row.rotated_ms.map(integer),
            row.snapshotted_ms.map(integer),
            row.branch.as_ref().map(|branch| json(branch, "memory")).transpose()?,
        ])?;
    insert_labels(connection, &row.tenant, &row.id, &row.spec)?;
    volumes::insert_mounts(connection, &row.tenant, &row.id, &row.spec)
}

fn refuse_taken(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
    except: &SandboxId,
) -> Result<(), CatalogError> {
    let existing = connection
        .prepare_cached("SELECT id FROM sandboxes WHERE tenant = ? AND name = ? AND id <> ?")?
        .query_row([tenant.as_str(), name, except.as_str()], |row| Ok(row.parsed("id")))
        .optional()?
        .transpose()?;
    existing.map_or(Ok(()), |existing| Err(CatalogError::NameTaken { existing }))
}

fn insert_labels(
    connection: &Connection,
    tenant: &TenantId,
    id: &SandboxId,
    spec: &SandboxSpec,
) -> Result<(), CatalogError> {
    let sql = "INSERT INTO sandbox_labels (sandbox, key, value, tenant) VALUES (?, ?, ?, ?)";
    let mut statement = connection.prepare_cached(sql)?;
    for (key, value) in &spec.labels {
        statement.execute([id.as_str(), key, value, tenant.as_str()])?;
    }
    Ok(())
}

pub(crate) fn apply(
    connection: &Connection,
    id: &SandboxId,
    change: &SandboxChange,
) -> Result<(), CatalogError> {
    let tenant: TenantId = connection
        .prepare_cached("SELECT tenant FROM sandboxes WHERE id = ?")?
        .query_row([id.as_str()], |row| Ok(row.parsed("tenant")))
        .optional()?
        .ok_or_else(|| CatalogError::unknown_sandbox(id))??;
    if let Some(Some(name)) = &change.name {
        refuse_taken(connection, &tenant, name.as_str(), id)?;
    }
    let (mut columns, mut values) = (String::new(), Vec::new());
    for (column, value) in assignments(change)? {
        if !columns.is_empty() {
            columns.push_str(", ");
        }
        columns.push_str(column);
        columns.push_str(" = ?");
        values.push(value);
    }
    values.push(Sql::Text(id.to_string()));
    let sql = format!("UPDATE sandboxes SET {columns} WHERE id = ?");
    connection.prepare_cached(&sql)?.execute(params_from_iter(values))?;
    if let Some(spec) = &change.spec {
        connection.prepare_cached("DELETE FROM sandbox_labels WHERE sandbox = ?")?.execute([id.as_str()])?;
        insert_labels(connection, &tenant, id, spec)?;
        volumes::follow_spec(connection, &tenant, id, spec)?;
    }
    Ok(())
}

/// The changed columns with their new values.
fn assignments(change: &SandboxChange) -> Result<Vec<(&'static str, Sql)>, CatalogError> {
    let text = |value: Option<String>| value.map_or(Sql::Null, Sql::Text);
    let time = |value: Option<u64>| value.map_or(Sql::Null, |value| Sql::Integer(integer(value)));
    let mut set = vec![("updated_ms", Sql::Integer(integer(change.updated_ms)))];
    if let Some(state) = change.state {
        set.push(("state", Sql::Text(word(&state, "state")?)));
    }
    if let Some(reason) = change.stop_reason {
        set.push(("stop_reason", text(reason.map(|reason| word(&reason, "stop_reason")).transpose()?)));
    }
    if let Some(name) = &change.name {
        set.push(("name", text(name.as_ref().map(ToString::to_string))));
    }
    if let Some(spec) = &change.spec {
        set.push(("spec", Sql::Text(json(spec, "spec")?)));
        set.push(("expires_ms", time(spec.lifetime.expires_ms())));
    }
    if let Some(image) = &change.image {
        set.push(("image", Sql::Text(image.to_string())));
    }
    if let Some(token) = &change.token {
        set.push(("token", Sql::Text(token.clone())));
    }
    if let Some(machine) = &change.machine {
        set.push(("machine", text(machine.as_ref().map(|machine| json(machine, "machine")).transpose()?)));
    }
    if let Some(started_ms) = change.started_ms {
        set.push(("started_ms", time(started_ms)));
    }
    if let Some(stopped_ms) = change.stopped_ms {
        set.push(("stopped_ms", time(stopped_ms)));
    }
    if let Some(failure) = &change.failure {
        set.push(("failure", text(failure.clone())));
    }
    if let Some(generation) = change.generation {
        set.push(("generation", Sql::Integer(integer(generation))));
    }
    if let Some(dump) = &change.dump {
        set.push(("dump", text(dump.as_ref().map(ToString::to_string))));
    }
    if let Some(origin) = &change.origin {
        set.push(("origin", text(origin.as_ref().map(|origin| json(origin, "origin")).transpose()?)));
    }
    if let Some(branch) = &change.branch {
        set.push(("memory", text(branch.as_ref().map(|branch| json(branch, "memory")).transpose()?)));
    }
    let times = [
        ("active_ms", change.active_ms),
        ("slept_ms", change.slept_ms),
        ("rotated_ms", change.rotated_ms),
        ("snapshotted_ms", change.snapshotted_ms),
    ];
    set.extend(times.into_iter().filter_map(|(column, changed)| changed.map(|at_ms| (column, time(at_ms)))));
    Ok(set)
}
