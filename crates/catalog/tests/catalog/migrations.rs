//! Migrations: a catalog of every earlier version is migrated to the current version, completely.
//!
//! `tests/fixtures/vN.sql` is a dump of a catalog of version N with something in every table. A new migration needs
//! one more: when the one of the current version is missing, the test writes it and fails until it is committed. A
//! fixture is never changed afterwards, which also catches a released migration that was edited.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use burrow_catalog::{
    Catalog, Idempotency, SandboxChange, SandboxFilter, SandboxRow, SnapshotFilter, VERSION,
};
use burrow_model::{
    Change, ChangeKind, Changes, DumpId, MountMode, Origin, OriginKind, Scope, Snapshot, SnapshotKind, State,
    VolumeState,
};
use rusqlite::Connection;
use serde_json::json;

use crate::rows::{self, NOW};
use crate::{secrets, ssh_keys, volumes};

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{version}.sql"))
}

#[tokio::test]
async fn a_catalog_of_every_earlier_version_becomes_a_current_one() {
    let fresh = fresh_schema();
    for version in 1..=VERSION {
        let Ok(dump) = fs::read_to_string(fixture(version)) else {
            write_fixture_or_fail(version).await;
            continue;
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("catalog.db");
        Connection::open(&path).unwrap().execute_batch(&dump).unwrap();
        let catalog = Catalog::open(&path).unwrap();
        catalog.integrity_check().await.unwrap();
        check_content(&catalog).await;
        check_snapshots(&catalog).await;
        check_secrets(&catalog).await;
        check_volumes(&catalog).await;
        assert!(catalog.ssh_login("SHA256:login", NOW).await.unwrap().is_some());
        let row = catalog.sandbox_by_name(&catalog.default_tenant(), "web").await.unwrap().unwrap();
        assert_eq!(catalog.token_generation(&row.id), 1, "from version {version}");
        check_former_secrets(&catalog).await;
        drop(catalog);
        assert_eq!(schema(&Connection::open(&path).unwrap()), fresh, "from version {version}");
    }
}

#[test]
fn a_released_migration_never_changes() {
    // The dump of the current version was created by the migrations as they were released.
    let Ok(dump) = fs::read_to_string(fixture(VERSION)) else { return };
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(&dump).unwrap();
    assert_eq!(schema(&connection), fresh_schema());
}

#[test]
fn every_table_names_its_tenant() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    drop(Catalog::open(&path).unwrap());
    let connection = Connection::open(&path).unwrap();
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'tenants'";
    let mut statement = connection.prepare(sql).unwrap();
    let tables: Vec<String> =
        statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(tables.len() > 8);
    for table in tables {
        let sql = "SELECT count(*) FROM pragma_table_info(?) WHERE name = 'tenant' AND \"notnull\" = 1";
        let count: u32 = connection.query_row(sql, [&table], |row| row.get(0)).unwrap();
        assert_eq!(count, 1, "{table}");
    }
}

/// The content of every fixture; a fixture of a later version may contain more.
async fn populate(catalog: &Catalog) {
    let tenant = catalog.default_tenant();
    let mut row = rows::sandbox(&tenant, NOW);
    row.name = Some("web".parse().unwrap());
    row.spec.labels.insert("team".to_owned(), "a".to_owned());
    let operation = rows::operation(&row, "create");
    let key = Some(Idempotency::of("k", b"{}"));
    catalog.insert_sandbox_with_operation(row.clone(), operation, key).await.unwrap();
    let running = SandboxChange {
        state: Some(State::Running),
        machine: Some(Some(json!({ "pid": 1 }))),
        started_ms: Some(Some(NOW + 1)),
        generation: Some(1),
        ..SandboxChange::at(NOW + 1)
    };
    catalog.update_sandbox(&row.id, running, None).await.unwrap();
    let exec = rows::exec(&row, NOW + 2);
    catalog.insert_exec(exec.clone()).await.unwrap();
    catalog.finish_exec(&exec.id, NOW + 3, json!({ "code": 3 })).await.unwrap();
    let key = rows::key(&tenant, Scope::Admin);
    let key = catalog.create_key_with_secret(key, &SECRET.parse().unwrap()).await.unwrap();
    catalog.insert_ssh_key(ssh_keys::row(&key, "SHA256:login")).await.unwrap();
    catalog.insert_image(&tenant, rows::image("base", NOW)).await.unwrap();
    catalog.append_event(rows::event(&tenant, "sandbox.created")).await.unwrap();
    catalog.insert_warm(vec![rows::warm_pool(&tenant, NOW)]).await.unwrap();
    populate_snapshots(catalog, &row).await;
    catalog.insert_space(rows::space(&tenant, "team", NOW)).await.unwrap();
    secrets::put(catalog, &tenant, secrets::spec("openai"), 1).await;
    catalog.keep_authority(secrets::authority(&row)).await.unwrap();
    catalog.keep_placeholder(secrets::placeholder(&row, "openai", 1, "sk-stand-in")).await.unwrap();
    populate_volumes(catalog).await;
    catalog.revoke_tokens(&tenant, &row.id).await.unwrap();
    let data = catalog.resolve_volume(&tenant, "data").await.unwrap().unwrap().volume;
    catalog.revoke_volume_tokens(&tenant, &data.id).await.unwrap();
    secrets::put(catalog, &tenant, secrets::spec("rotated"), 1).await;
    catalog.rotate_secret(&tenant, &"rotated".parse().unwrap(), secrets::sealed(2), NOW + 2).await.unwrap();
}

/// A volume with a snapshot, and a sandbox that mounts it.
async fn populate_volumes(catalog: &Catalog) {
    let data = volumes::stored(catalog, "data").await;
    let snapshot = volumes::snapshot(&data, Some("first"));
    catalog.insert_volume_snapshot(&catalog.default_tenant(), snapshot.clone()).await.unwrap();
    catalog.settle_volume_snapshot(&snapshot.id).await.unwrap();
    let reader = volumes::sandbox(catalog, vec![volumes::mount(&data, MountMode::Ro)]);
    // Older than the other one, which the checks expect to be the newest.
    rows::store(catalog, &SandboxRow { created_ms: NOW - 2, ..reader }).await;
}

/// A snapshot with its processes, and a hibernated sandbox with the same dump.
async fn populate_snapshots(catalog: &Catalog, row: &SandboxRow) {
    let changes = Changes {
        paths: vec![Change { path: "/etc/hosts".to_owned(), kind: ChangeKind::Changed }],
        total: 1,
        more: false,
        since: None,
    };
    let snapshot = Snapshot {
        name: Some("base".parse().unwrap()),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        dump: Some(DumpId::generate()),
        changes,
        ..rows::snapshot(row, NOW + 4)
    };
    rows::take(catalog, row, &snapshot).await;
    let origin = Origin { snapshot: snapshot.id.clone(), sandbox: row.id.clone(), kind: OriginKind::Fork };
    // Older than the other one, which the checks expect to be the newest.
    let asleep = SandboxRow {
        name: Some("asleep".parse().unwrap()),
        state: State::Hibernated,
        dump: snapshot.dump.clone(),
        origin: Some(origin),
        active_ms: Some(NOW + 5),
        slept_ms: Some(NOW + 6),
        rotated_ms: Some(NOW + 7),
        snapshotted_ms: Some(NOW + 8),
        ..rows::sandbox(&row.tenant, NOW - 1)
    };
    rows::store(catalog, &asleep).await;
}

/// The secret of the fixtures' key, which is valid nowhere else.
const SECRET: &str = "e2b_00112233445566778899aabbccddeeff00112233";

async fn check_content(catalog: &Catalog) {
    let tenant = catalog.default_tenant();
    let listed = catalog.list_sandboxes(&tenant, SandboxFilter::default(), rows::page(10)).await.unwrap();
    let row = &listed.rows[0];
    assert_eq!((row.name.as_ref().unwrap().as_str(), row.state, row.generation), ("web", State::Running, 1));
    assert_eq!(row.spec.labels["team"], "a");
    let filter = SandboxFilter { labels: vec!["team=a".parse().unwrap()], ..SandboxFilter::default() };
    assert_eq!(catalog.list_sandboxes(&tenant, filter, rows::page(10)).await.unwrap().rows.len(), 1);
    let execs = catalog.list_execs(&tenant, &row.id, rows::page(10)).await.unwrap();
    assert_eq!(execs.rows[0].outcome, Some(json!({ "code": 3 })));
    assert_eq!(catalog.open_operations().await.unwrap()[0].sandbox, row.id);
    assert_eq!(catalog.authenticate(SECRET, NOW).unwrap().scope, Scope::Admin);
    assert!(catalog.image_by_name(&tenant, &"base".parse().unwrap()).await.unwrap().is_some());
    assert_eq!(catalog.events_since(&tenant, 0, 10).await.unwrap()[0].kind, "sandbox.created");
}

async fn check_snapshots(catalog: &Catalog) {
    let tenant = catalog.default_tenant();
    let snapshot = catalog.resolve_snapshot(&tenant, "base").await.unwrap().unwrap();
    assert_eq!(snapshot.changes.paths[0].path, "/etc/hosts");
    assert_eq!((snapshot.kind, snapshot.created_ms), (SnapshotKind::Manual, NOW + 4));
    let filter = SnapshotFilter { labels: vec!["team=a".parse().unwrap()], ..SnapshotFilter::default() };
    assert_eq!(catalog.list_snapshots(&tenant, filter, rows::page(10)).await.unwrap().rows.len(), 1);
    let asleep = catalog.sandbox_by_name(&tenant, "asleep").await.unwrap().unwrap();
    assert_eq!((asleep.state, &asleep.dump), (State::Hibernated, &snapshot.dump));
    assert_eq!((asleep.active_ms, asleep.slept_ms), (Some(NOW + 5), Some(NOW + 6)));
    assert_eq!((asleep.rotated_ms, asleep.snapshotted_ms), (Some(NOW + 7), Some(NOW + 8)));
    assert_eq!(catalog.children_of_snapshot(&snapshot.id).await.unwrap(), [asleep.id]);
    let lineage = catalog.lineage(&tenant).await.unwrap();
    let with_volumes = lineage.sandboxes.iter().filter(|row| !row.spec.volumes.is_empty()).count();
    assert_eq!((lineage.sandboxes.len() - with_volumes, lineage.snapshots.len()), (2, 1));
}

async fn check_secrets(catalog: &Catalog) {
    let tenant = catalog.default_tenant();
    let row = catalog.secrets(&tenant).await.unwrap().remove(0);
    assert_eq!((&row.spec, row.version, row.epoch), (&secrets::spec("openai"), 1, 1));
    let sandbox = catalog.sandbox_by_name(&tenant, "web").await.unwrap().unwrap();
    let lineage = sandbox.memory().space;
    assert_eq!(catalog.authority(&tenant, &lineage).await.unwrap(), Some(secrets::authority(&sandbox)));
    let placeholder = catalog.placeholder(&tenant, &row.spec.name, &lineage, 1).await.unwrap();
    assert_eq!(placeholder.as_deref(), Some("sk-stand-in"));
}

async fn check_volumes(catalog: &Catalog) {
    let tenant = catalog.default_tenant();
    let data = catalog.resolve_volume(&tenant, "data").await.unwrap().unwrap().volume;
    assert_eq!((data.disk_mib, data.state), (64, VolumeState::Ready));
    assert_eq!(catalog.volume_token_generation(&data.id), 1);
    assert_eq!(catalog.snapshots_of_volume(&data.id).await.unwrap().len(), 1);
    let users = catalog.users_of_volume(&data.id).await.unwrap();
    let row = catalog.sandbox(&tenant, &users[0].sandbox).await.unwrap().unwrap();
    assert_eq!(row.spec.volumes, [volumes::mount(&data, MountMode::Ro)]);
}

async fn check_former_secrets(catalog: &Catalog) {
    let tenant = catalog.default_tenant();
    let former = catalog.former_secrets(&tenant, &"rotated".parse().unwrap(), NOW + 3).await.unwrap();
    assert_eq!((former.len(), former[0].version, former[0].replaced_ms), (1, 1, NOW + 2));
}

async fn write_fixture_or_fail(version: u32) {
    assert_eq!(
        version, VERSION,
        "the fixture of version {version} is missing, and only its release could write it"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    populate(&catalog).await;
    drop(catalog);
    fs::write(fixture(version), dump(&Connection::open(&path).unwrap())).unwrap();
    panic!("`tests/fixtures/v{version}.sql` was missing and has been written: commit it");
}

fn fresh_schema() -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    drop(Catalog::open(&path).unwrap());
    schema(&Connection::open(&path).unwrap())
}

/// Every table and index, without its comments and spacing.
fn schema(connection: &Connection) -> Vec<String> {
    let sql = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type, name";
    let mut statement = connection.prepare(sql).unwrap();
    let plain = |sql: String| {
        let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    };
    statement.query_map((), |row| row.get(0)).unwrap().map(|sql| plain(sql.unwrap())).collect()
}

/// The database as SQL, as the `sqlite3` program's `.dump` would write it.
fn dump(connection: &Connection) -> String {
    let version: u32 = connection.query_row("PRAGMA user_version", (), |row| row.get(0)).unwrap();
    let mut text = format!("-- A catalog of version {version}, written by tests/catalog/migrations.rs.\n");
    let _ = writeln!(text, "PRAGMA foreign_keys = OFF;\nBEGIN;");
    let objects = |kind: &str| -> Vec<(String, String)> {
        let sql = "SELECT name, sql FROM sqlite_master WHERE type = ? AND sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
                   ORDER BY rowid";
        let mut statement = connection.prepare(sql).unwrap();
        statement
            .query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    };
    for (table, sql) in objects("table") {
        let _ = writeln!(text, "{sql};");
        for row in values(connection, &table) {
            let _ = writeln!(text, "INSERT INTO {table} VALUES ({row});");
        }
    }
    for (_, sql) in objects("index") {
        let _ = writeln!(text, "{sql};");
    }
    let _ = writeln!(text, "PRAGMA user_version = {version};\nCOMMIT;");
    text
}

fn values(connection: &Connection, table: &str) -> Vec<String> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?)").unwrap();
    let columns: Vec<String> = statement
        .query_map([table], |row| row.get::<_, String>(0))
        .unwrap()
        .map(|name| format!("quote({})", name.unwrap()))
        .collect();
    let sql = format!("SELECT {} FROM {table}", columns.join(" || ', ' || "));
    let mut statement = connection.prepare(&sql).unwrap();
    statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}
