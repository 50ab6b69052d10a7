//! Snapshots: taken in two commits, found again, kept after their sandboxes, and never removed while they are in use.

use std::collections::BTreeMap;

use burrow_catalog::{
    Catalog, CatalogError, PageRequest, SandboxChange, SandboxRow, SnapshotFilter, SnapshotRow,
};
use burrow_model::{
    CHANGES_MAX, Change, ChangeKind, Changes, DumpId, Label, Name, Origin, OriginKind, RotatePolicy,
    SNAPSHOTS_MAX, Snapshot, SnapshotId, SnapshotKind, State, StopReason,
};

use crate::rows::{self, NOW};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

async fn sandbox(catalog: &Catalog) -> SandboxRow {
    let row = SandboxRow { state: State::Running, ..rows::sandbox(&catalog.default_tenant(), NOW) };
    rows::store(catalog, &row).await;
    row
}

fn change(number: usize) -> Change {
    Change { path: format!("/home/user/{number}"), kind: ChangeKind::Added }
}

#[tokio::test]
async fn a_snapshot_is_seen_once_it_is_ready_and_not_before() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let mut snapshot = Snapshot { name: Some(name("one")), ..rows::snapshot(&row, NOW) };
    let operation = rows::begin(&catalog, &row, &snapshot).await;
    assert_eq!(catalog.open_operations().await.unwrap()[0].id, operation);
    assert_eq!(catalog.snapshot(&row.tenant, &snapshot.id).await.unwrap(), None);
    assert_eq!(catalog.resolve_snapshot(&row.tenant, "one").await.unwrap(), None);
    assert_eq!(catalog.resolve_snapshot(&row.tenant, &snapshot.id.as_str()[..10]).await.unwrap(), None);
    assert_eq!(catalog.latest_snapshot_of(&row.id).await.unwrap(), None);
    assert!(list(&catalog, &row, SnapshotFilter::default()).await.is_empty());
    assert!(catalog.lineage(&row.tenant).await.unwrap().snapshots.is_empty());
    let making = SnapshotRow { tenant: row.tenant.clone(), snapshot: snapshot.clone(), ready: false };
    assert_eq!(catalog.all_snapshots().await.unwrap(), [making]);

    snapshot.dump = Some(DumpId::generate());
    snapshot.ram_bytes = 1 << 20;
    snapshot.pause_us = 2000;
    snapshot.changes = Changes { paths: vec![change(1), change(2)], total: 2, more: false, since: None };
    catalog.finish_snapshot(snapshot.clone(), Some(operation)).await.unwrap();
    assert_eq!(catalog.open_operations().await.unwrap(), []);
    assert_eq!(catalog.snapshot(&row.tenant, &snapshot.id).await.unwrap(), Some(snapshot.clone()));
    assert_eq!(catalog.resolve_snapshot(&row.tenant, "one").await.unwrap(), Some(snapshot.clone()));
    let light = Snapshot {
        changes: Changes { paths: vec![], total: 2, more: false, since: None },
        ..snapshot.clone()
    };
    assert_eq!(list(&catalog, &row, SnapshotFilter::default()).await, std::slice::from_ref(&light));
    assert_eq!(catalog.latest_snapshot_of(&row.id).await.unwrap(), Some(light.clone()));
    assert_eq!(catalog.snapshots_of(&row.id).await.unwrap(), std::slice::from_ref(&light));
    let ready = SnapshotRow { tenant: row.tenant.clone(), snapshot: light, ready: true };
    assert_eq!(catalog.all_snapshots().await.unwrap(), [ready]);
}

#[tokio::test]
async fn finishing_a_snapshot_that_was_taken_back_is_refused() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let snapshot = rows::snapshot(&row, NOW);
    let operation = rows::begin(&catalog, &row, &snapshot).await;
    catalog.delete_snapshot(&snapshot.id, Some(operation)).await.unwrap();
    assert_eq!(catalog.open_operations().await.unwrap(), []);
    let error = catalog.finish_snapshot(snapshot.clone(), None).await.unwrap_err();
    assert!(matches!(error, CatalogError::Unknown { kind: "snapshot", .. }), "{error}");
    // Recovery may repeat it.
    let again = rows::operation(&row, "snapshot-delete");
    catalog.begin_operation(again.clone(), None).await.unwrap();
    catalog.delete_snapshot(&snapshot.id, Some(again.id)).await.unwrap();
    assert_eq!(catalog.open_operations().await.unwrap(), []);
}

#[tokio::test]
async fn a_name_is_taken_once_per_tenant_also_while_the_snapshot_is_being_made() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let first = Snapshot { name: Some(name("one")), ..rows::snapshot(&row, NOW) };
    rows::begin(&catalog, &row, &first).await;
    let second = Snapshot { id: SnapshotId::generate(), ..first.clone() };
    let stored = SnapshotRow { tenant: row.tenant.clone(), snapshot: second.clone(), ready: false };
    let operation = rows::operation(&row, "snapshot");
    let error = catalog.begin_snapshot(stored.clone(), operation).await.unwrap_err();
    assert!(
        matches!(&error, CatalogError::SnapshotNameTaken { existing } if *existing == first.id),
        "{error}"
    );
    assert_eq!(catalog.open_operations().await.unwrap().len(), 1, "the journal holds nothing of the refused");

    let tenant = rows::stranger(&catalog).await;
    let theirs = SnapshotRow { tenant: tenant.clone(), ..stored };
    let operation = rows::operation(&SandboxRow { tenant, ..row.clone() }, "snapshot");
    catalog.begin_snapshot(theirs, operation).await.unwrap();
    catalog.delete_snapshot(&first.id, None).await.unwrap();
    rows::take(&catalog, &row, &Snapshot { name: Some(name("one")), ..rows::snapshot(&row, NOW) }).await;
}

#[tokio::test]
async fn a_foreign_snapshot_answers_as_an_unknown_one() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let snapshot = Snapshot { name: Some(name("one")), ..rows::snapshot(&row, NOW) };
    rows::take(&catalog, &row, &snapshot).await;
    let stranger = rows::stranger(&catalog).await;
    assert_eq!(catalog.snapshot(&stranger, &snapshot.id).await.unwrap(), None);
    for text in [snapshot.id.as_str(), &snapshot.id.as_str()[..8], "one"] {
        assert_eq!(catalog.resolve_snapshot(&stranger, text).await.unwrap(), None, "{text}");
    }
    let page = catalog.list_snapshots(&stranger, SnapshotFilter::default(), rows::page(10)).await.unwrap();
    assert!(page.rows.is_empty());
    let lineage = catalog.lineage(&stranger).await.unwrap();
    assert!(lineage.sandboxes.is_empty() && lineage.snapshots.is_empty());
}

#[tokio::test]
async fn a_snapshot_is_found_by_id_name_and_unique_beginnings() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let store = async |id: &str, text: Option<&str>| {
        let snapshot =
            Snapshot { id: id.parse().unwrap(), name: text.map(name), ..rows::snapshot(&row, NOW) };
        rows::take(&catalog, &row, &snapshot).await;
        snapshot.id
    };
    let one = store("snpaaaabbbbccccddddeeee", Some("base")).await;
    let two = store("snpaaaacbbbccccddddeeee", Some("aaaab")).await;
    for (text, expected) in [
        (one.as_str(), Some(&one)),
        ("base", Some(&one)),
        ("snpaaaab", Some(&one)),
        ("aaaac", Some(&two)),
        ("aaaab", Some(&two)),
        ("snp", None),
        ("aaa", None),
        ("sbxaaaa", None),
        ("snp%", None),
    ] {
        let found = catalog.resolve_snapshot(&row.tenant, text).await.unwrap().map(|snapshot| snapshot.id);
        assert_eq!(found.as_ref(), expected, "{text:?}");
    }
    let error = catalog.resolve_snapshot(&row.tenant, "snpaaaa").await.unwrap_err();
    assert!(matches!(&error, CatalogError::AmbiguousSnapshot { candidates } if candidates.len() == 2));
    assert!(error.to_string().contains("several snapshots: snpaaaabbbbccccddddeeee, snpaaaac"), "{error}");
}

async fn list(catalog: &Catalog, row: &SandboxRow, filter: SnapshotFilter) -> Vec<Snapshot> {
    catalog.list_snapshots(&row.tenant, filter, rows::page(100)).await.unwrap().rows
}

#[tokio::test]
async fn a_list_shows_what_fulfils_all_of_the_filter() {
    let catalog = Catalog::in_memory().unwrap();
    let (one, two) = (sandbox(&catalog).await, sandbox(&catalog).await);
    let kinds = [
        ("a", &one, SnapshotKind::Manual, vec![("team", "a"), ("tier", "front")]),
        ("b", &one, SnapshotKind::Policy, vec![("team", "a")]),
        ("c", &two, SnapshotKind::BeforeRestore, vec![("team", "b")]),
    ];
    for (number, (text, of, kind, labels)) in (0..).zip(kinds) {
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let snapshot = Snapshot { name: Some(name(text)), kind, labels, ..rows::snapshot(of, NOW + number) };
        rows::take(&catalog, of, &snapshot).await;
    }
    let label = |key: &str, value: &str| Label::new(key, value).unwrap();
    let all = SnapshotFilter::default;
    for (filter, expected) in [
        (all(), vec!["c", "b", "a"]),
        (SnapshotFilter { sandbox: Some(one.id.clone()), ..all() }, vec!["b", "a"]),
        (SnapshotFilter { labels: vec![label("team", "a")], ..all() }, vec!["b", "a"]),
        (SnapshotFilter { labels: vec![label("team", "a"), label("tier", "front")], ..all() }, vec!["a"]),
        (SnapshotFilter { labels: vec![label("team", "front")], ..all() }, vec![]),
        (SnapshotFilter { kinds: vec![SnapshotKind::BeforeRestore], ..all() }, vec!["c"]),
        (SnapshotFilter { kinds: vec![SnapshotKind::Manual, SnapshotKind::Policy], ..all() }, vec!["b", "a"]),
        (
            SnapshotFilter {
                sandbox: Some(two.id.clone()),
                labels: vec![label("team", "b")],
                kinds: vec![SnapshotKind::Exec],
            },
            vec![],
        ),
    ] {
        let shown = list(&catalog, &one, filter.clone()).await;
        let names: Vec<_> = shown.iter().map(|row| row.name.as_ref().unwrap().as_str()).collect();
        assert_eq!(names, expected, "{filter:?}");
    }
}

#[tokio::test]
async fn pages_follow_each_other_and_nothing_is_shown_twice() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let mut expected = Vec::new();
    for number in 0..7 {
        // Two with each time: the id decides their order.
        let snapshot = rows::snapshot(&row, NOW + number / 2);
        rows::take(&catalog, &row, &snapshot).await;
        expected.push((snapshot.created_ms, snapshot.id));
    }
    expected.sort();
    expected.reverse();
    let (mut shown, mut cursor) = (Vec::new(), None);
    loop {
        let request = PageRequest { cursor, limit: 3 };
        let page = catalog.list_snapshots(&row.tenant, SnapshotFilter::default(), request).await.unwrap();
        shown.extend(page.rows.into_iter().map(|snapshot| (snapshot.created_ms, snapshot.id)));
        // Newer than the page, so no later page shows it.
        rows::take(&catalog, &row, &rows::snapshot(&row, NOW + 100)).await;
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(shown, expected);
    let sandboxes = catalog.list_sandboxes(&row.tenant, Default::default(), rows::page(1)).await.unwrap();
    assert_eq!(sandboxes.next_cursor, None);
    let foreign = PageRequest { cursor: Some("MTcuc2J4".to_owned()), limit: 1 };
    let error = catalog.list_snapshots(&row.tenant, SnapshotFilter::default(), foreign).await.unwrap_err();
    assert!(matches!(error, CatalogError::BadCursor));
}

#[tokio::test]
async fn a_sandbox_has_no_more_snapshots_than_it_may() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let mut first = None;
    for number in 0..SNAPSHOTS_MAX as u64 {
        let snapshot = rows::snapshot(&row, NOW + number);
        rows::begin(&catalog, &row, &snapshot).await;
        first.get_or_insert(snapshot.id);
    }
    let more = || SnapshotRow {
        tenant: row.tenant.clone(),
        snapshot: rows::snapshot(&row, NOW + 5000),
        ready: false,
    };
    let error = catalog.begin_snapshot(more(), rows::operation(&row, "snapshot")).await.unwrap_err();
    assert!(matches!(&error, CatalogError::TooManySnapshots { sandbox } if *sandbox == row.id));
    assert!(error.to_string().contains("1000 snapshots") && error.hint().is_some(), "{error}");
    let other = sandbox(&catalog).await;
    rows::begin(&catalog, &other, &rows::snapshot(&other, NOW)).await;
    catalog.delete_snapshot(&first.unwrap(), None).await.unwrap();
    catalog.begin_snapshot(more(), rows::operation(&row, "snapshot")).await.unwrap();
}

#[tokio::test]
async fn more_changes_than_a_snapshot_lists_are_only_counted() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let paths: Vec<Change> = (0..CHANGES_MAX + 5).map(change).collect();
    let total = paths.len() as u64;
    let changes = Changes { paths, total, more: false, since: Some(SnapshotId::generate()) };
    let snapshot = Snapshot { changes, ..rows::snapshot(&row, NOW) };
    rows::take(&catalog, &row, &snapshot).await;
    let found = catalog.snapshot(&row.tenant, &snapshot.id).await.unwrap().unwrap().changes;
    assert_eq!((found.paths.len(), found.total, &found.since), (CHANGES_MAX, total, &snapshot.changes.since));
    assert_eq!(found.paths[..], snapshot.changes.paths[..CHANGES_MAX]);
}

#[tokio::test]
async fn children_of_a_deleted_snapshot_move_up_to_its_parent() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let root = rows::snapshot(&row, NOW);
    let middle = Snapshot { parent: Some(root.id.clone()), ..rows::snapshot(&row, NOW + 1) };
    let leaf = Snapshot { parent: Some(middle.id.clone()), ..rows::snapshot(&row, NOW + 2) };
    for snapshot in [&root, &middle] {
        rows::take(&catalog, &row, snapshot).await;
    }
    // The middle one is removed while the leaf is being taken.
    let operation = rows::begin(&catalog, &row, &leaf).await;
    catalog.delete_snapshot(&middle.id, None).await.unwrap();
    catalog.finish_snapshot(leaf.clone(), Some(operation)).await.unwrap();
    let parent = async |id: &SnapshotId| catalog.snapshot(&row.tenant, id).await.unwrap().unwrap().parent;
    assert_eq!(parent(&leaf.id).await, Some(root.id.clone()));
    catalog.delete_snapshot(&root.id, None).await.unwrap();
    assert_eq!(parent(&leaf.id).await, None);

    let late = Snapshot { parent: Some(root.id), ..rows::snapshot(&row, NOW + 3) };
    rows::take(&catalog, &row, &late).await;
    assert_eq!(parent(&late.id).await, None, "a parent that is gone is left out");
}

#[tokio::test]
async fn a_snapshot_outlives_its_sandbox() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let snapshot = rows::snapshot(&row, NOW);
    rows::take(&catalog, &row, &snapshot).await;
    catalog.delete_sandbox(&row.id, None, NOW).await.unwrap();
    assert_eq!(catalog.snapshot(&row.tenant, &snapshot.id).await.unwrap(), Some(snapshot.clone()));
    let of = SnapshotFilter { sandbox: Some(row.id.clone()), ..SnapshotFilter::default() };
    assert_eq!(list(&catalog, &row, of).await.len(), 1);
    catalog.integrity_check().await.unwrap();
}

#[tokio::test]
async fn a_removed_image_is_remembered_for_snapshots_too() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let image = rows::image("base", NOW);
    catalog.insert_image(&tenant, image.clone()).await.unwrap();
    let row = SandboxRow { image: image.id.clone(), ..rows::sandbox(&tenant, NOW) };
    rows::store(&catalog, &row).await;
    let snapshot = rows::snapshot(&row, NOW);
    rows::take(&catalog, &row, &snapshot).await;
    catalog.delete_sandbox(&row.id, None, NOW).await.unwrap();
    catalog.untag_image(&tenant, &image.names[0]).await.unwrap();
    assert_eq!(catalog.unused_images(&tenant).await.unwrap(), [], "a clean-up leaves it");

    assert!(catalog.remove_image(&tenant, &image.id, NOW).await.unwrap());
    assert_eq!(catalog.forget_removed_images().await.unwrap(), 0);
    assert!(catalog.image_record(&tenant, &image.id).await.unwrap().is_some());
    catalog.delete_snapshot(&snapshot.id, None).await.unwrap();
    assert_eq!(catalog.forget_removed_images().await.unwrap(), 1);
}

#[tokio::test]
async fn expired_snapshots_are_listed_longest_overdue_first() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let until = |expires_ms| Snapshot { expires_ms, ..rows::snapshot(&row, NOW) };
    let (late, soon, never, later) =
        (until(Some(NOW + 5)), until(Some(NOW + 2)), until(None), until(Some(NOW + 100)));
    for snapshot in [&late, &soon, &never, &later] {
        rows::take(&catalog, &row, snapshot).await;
    }
    // A snapshot in progress is removed by its operation.
    rows::begin(&catalog, &row, &until(Some(NOW))).await;
    let due = catalog.expired_snapshots(NOW + 5).await.unwrap();
    assert_eq!(due.iter().map(|row| &row.snapshot.id).collect::<Vec<_>>(), [&soon.id, &late.id]);
    assert_eq!(due[0].tenant, row.tenant);

    let mut rotating = rows::sandbox(&row.tenant, NOW);
    rotating.spec.rotate = Some(RotatePolicy { every_ms: 60_000, snapshot: soon.id.clone() });
    rows::store(&catalog, &rotating).await;
    let due = catalog.expired_snapshots(NOW + 5).await.unwrap();
    assert_eq!(due.iter().map(|row| &row.snapshot.id).collect::<Vec<_>>(), [&late.id], "one is needed");
}

#[tokio::test]
async fn a_dump_is_in_use_while_a_sandbox_or_a_snapshot_names_it() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let dump = DumpId::generate();
    assert!(!catalog.dump_in_use(&dump).await.unwrap());
    let hibernated = SandboxChange {
        state: Some(State::Hibernated),
        machine: Some(None),
        dump: Some(Some(dump.clone())),
        slept_ms: Some(Some(NOW + 7)),
        ..SandboxChange::at(NOW + 7)
    };
    catalog.update_sandbox(&row.id, hibernated, None).await.unwrap();
    assert!(catalog.dump_in_use(&dump).await.unwrap());
    let snapshot = Snapshot { dump: Some(dump.clone()), ..rows::snapshot(&row, NOW) };
    let operation = rows::begin(&catalog, &row, &snapshot).await;
    let running = SandboxChange {
        state: Some(State::Running),
        dump: Some(None),
        slept_ms: Some(None),
        ..SandboxChange::at(NOW + 8)
    };
    catalog.update_sandbox(&row.id, running, None).await.unwrap();
    assert!(catalog.dump_in_use(&dump).await.unwrap(), "also by a snapshot that is being made");
    catalog.finish_snapshot(snapshot.clone(), Some(operation)).await.unwrap();
    assert!(catalog.dump_in_use(&dump).await.unwrap());
    catalog.delete_snapshot(&snapshot.id, None).await.unwrap();
    assert!(!catalog.dump_in_use(&dump).await.unwrap());
}

#[tokio::test]
async fn sleep_origin_and_what_policies_did_last_are_stored_and_changed() {
    let catalog = Catalog::in_memory().unwrap();
    let parent = sandbox(&catalog).await;
    let snapshot = rows::snapshot(&parent, NOW);
    rows::take(&catalog, &parent, &snapshot).await;
    let origin = Origin { snapshot: snapshot.id.clone(), sandbox: parent.id.clone(), kind: OriginKind::Fork };
    let mut child = SandboxRow {
        state: State::Hibernated,
        dump: Some(DumpId::generate()),
        origin: Some(origin),
        active_ms: Some(NOW + 1),
        slept_ms: Some(NOW + 2),
        rotated_ms: Some(NOW + 3),
        snapshotted_ms: Some(NOW + 4),
        ..rows::sandbox(&parent.tenant, NOW)
    };
    child.spec.sleep.pause_after_ms = Some(1000);
    child.spec.rotate = Some(RotatePolicy { every_ms: 60_000, snapshot: snapshot.id.clone() });
    rows::store(&catalog, &child).await;
    assert_eq!(catalog.sandbox(&child.tenant, &child.id).await.unwrap(), Some(child.clone()));
    assert_eq!(catalog.children_of_snapshot(&snapshot.id).await.unwrap(), [child.id.clone()]);
    assert_eq!(catalog.rotating_to(&snapshot.id).await.unwrap(), [child.id.clone()]);
    assert!(catalog.children_of_snapshot(&SnapshotId::generate()).await.unwrap().is_empty());

    let change = SandboxChange {
        state: Some(State::Stopped),
        stop_reason: Some(Some(StopReason::Idle)),
        dump: Some(None),
        origin: Some(None),
        active_ms: Some(Some(NOW + 11)),
        slept_ms: Some(None),
        rotated_ms: Some(Some(NOW + 13)),
        snapshotted_ms: Some(Some(NOW + 14)),
        ..SandboxChange::at(NOW + 20)
    };
    catalog.update_sandbox(&child.id, change, None).await.unwrap();
    let expected = SandboxRow {
        state: State::Stopped,
        stop_reason: Some(StopReason::Idle),
        dump: None,
        origin: None,
        active_ms: Some(NOW + 11),
        slept_ms: None,
        rotated_ms: Some(NOW + 13),
        snapshotted_ms: Some(NOW + 14),
        updated_ms: NOW + 20,
        ..child.clone()
    };
    assert_eq!(catalog.sandbox(&child.tenant, &child.id).await.unwrap(), Some(expected));
    assert!(catalog.children_of_snapshot(&snapshot.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_lineage_is_a_tenants_sandboxes_and_snapshots_oldest_first_without_builds() {
    // In a file: reads then use their own connections.
    let directory = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&directory.path().join("catalog.db")).unwrap();
    let parent = sandbox(&catalog).await;
    let older = rows::snapshot(&parent, NOW + 1);
    let newer = Snapshot { parent: Some(older.id.clone()), ..rows::snapshot(&parent, NOW + 2) };
    for snapshot in [&newer, &older] {
        rows::begin(&catalog, &parent, snapshot).await;
    }
    for snapshot in [&newer, &older] {
        catalog.finish_snapshot(snapshot.clone(), None).await.unwrap();
    }
    let child = rows::sandbox(&parent.tenant, NOW + 3);
    rows::store(&catalog, &child).await;
    let mut build = rows::sandbox(&parent.tenant, NOW + 4);
    build.spec.labels = BTreeMap::from([(burrow_model::BUILD_LABEL.to_owned(), "x".to_owned())]);
    rows::store(&catalog, &build).await;
    let lineage = catalog.lineage(&parent.tenant).await.unwrap();
    assert_eq!(lineage.sandboxes, [parent, child]);
    assert_eq!(lineage.snapshots.iter().map(|row| &row.id).collect::<Vec<_>>(), [&older.id, &newer.id]);
    assert!(!lineage.cut);
}

#[tokio::test]
async fn a_catalog_from_a_backup_names_nothing_that_the_backup_does_not_hold() {
    let catalog = Catalog::in_memory().unwrap();
    let row = sandbox(&catalog).await;
    let dump = Some(DumpId::generate());
    let root = Snapshot { dump: dump.clone(), ram_bytes: 7, ..rows::snapshot(&row, NOW) };
    let lost = Snapshot { parent: Some(root.id.clone()), ..rows::snapshot(&row, NOW + 1) };
    let leaf = Snapshot { parent: Some(lost.id.clone()), ..rows::snapshot(&row, NOW + 2) };
    for snapshot in [&root, &lost, &leaf] {
        rows::take(&catalog, &row, snapshot).await;
    }
    rows::begin(&catalog, &row, &rows::snapshot(&row, NOW + 3)).await;
    let mut asleep = SandboxRow {
        state: State::Hibernated,
        dump: dump.clone(),
        slept_ms: Some(NOW + 9),
        ..rows::sandbox(&row.tenant, NOW)
    };
    asleep.spec.rotate = Some(RotatePolicy { every_ms: 60_000, snapshot: lost.id.clone() });
    rows::store(&catalog, &asleep).await;
    let mut waking = SandboxRow { state: State::Waking, dump, ..rows::sandbox(&row.tenant, NOW) };
    waking.spec.rotate = Some(RotatePolicy { every_ms: 60_000, snapshot: root.id.clone() });
    let under_way = [rows::operation(&waking, "wake"), rows::operation(&row, "stop")];
    catalog.insert_sandbox_with_operation(waking.clone(), under_way[0].clone(), None).await.unwrap();
    catalog.begin_operation(under_way[1].clone(), None).await.unwrap();

    let kept = [root.id.clone(), leaf.id.clone(), SnapshotId::generate()].into();
    assert_eq!(catalog.settle_backup(kept, vec!["wake", "snapshot"]).await.unwrap(), 2);
    let left = catalog.all_snapshots().await.unwrap();
    assert_eq!(left.iter().map(|row| &row.snapshot.id).collect::<Vec<_>>(), [&root.id, &leaf.id]);
    assert_eq!((left[0].snapshot.dump.as_ref(), left[0].snapshot.ram_bytes), (None, 0));
    assert_eq!(left[1].snapshot.parent, Some(root.id.clone()));
    let asleep = catalog.sandbox(&row.tenant, &asleep.id).await.unwrap().unwrap();
    assert_eq!((asleep.state, asleep.stop_reason), (State::Stopped, Some(StopReason::HostRestarted)));
    assert_eq!((asleep.dump, asleep.slept_ms, asleep.stopped_ms), (None, None, Some(NOW + 9)));
    assert_eq!(asleep.spec.rotate, None);
    let woken = catalog.sandbox(&row.tenant, &waking.id).await.unwrap().unwrap();
    assert_eq!((woken.state, woken.dump, woken.spec), (State::Stopped, None, waking.spec));
    assert_eq!(catalog.sandbox(&row.tenant, &row.id).await.unwrap(), Some(row), "what ran is as it was");
    let open = catalog.open_operations().await.unwrap();
    assert_eq!(open.iter().map(|row| &row.id).collect::<Vec<_>>(), [&under_way[1].id]);
}

#[tokio::test]
async fn a_kind_is_stored_as_it_is_shown() {
    for kind in SnapshotKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
    }
}
