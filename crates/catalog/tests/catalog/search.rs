//! Resolving the text that users type, and filtered lists.

use burrow_catalog::{Catalog, CatalogError, SandboxFilter, SandboxRow};
use burrow_model::{Label, State};

use crate::rows::{self, NOW};

async fn stored(catalog: &Catalog, id: &str, name: Option<&str>) -> SandboxRow {
    let mut row = rows::sandbox(&catalog.default_tenant(), NOW);
    row.id = id.parse().unwrap();
    row.name = name.map(|name| name.parse().unwrap());
    rows::store(catalog, &row).await;
    row
}

#[tokio::test]
async fn a_sandbox_is_found_by_id_name_and_unique_beginnings() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let one = stored(&catalog, "sbxaaaabbbbccccddddeeee", Some("web")).await;
    let two = stored(&catalog, "sbxaaaacbbbccccddddeeee", Some("aaaab")).await;
    let three = stored(&catalog, "sbxzaaacbbbccccddddeeee", None).await;
    for (text, expected) in [
        (one.id.as_str(), Some(&one)),
        ("web", Some(&one)),
        ("sbxaaaab", Some(&one)),
        ("aaaac", Some(&two)),
        // A name has priority over a prefix of an id.
        ("aaaab", Some(&two)),
        ("sbxz", Some(&three)),
        ("zaaa", Some(&three)),
        // Too short for a prefix of an id, and not a name.
        ("zaa", None),
        ("sbx", None),
        ("s", None),
        ("", None),
        ("we", None),
        ("sbxaaaad", None),
        ("sbxaaaabbbbccccddddeeeee", None),
        ("SBXZ", None),
        ("sbx%", None),
        ("sbx~", None),
        ("\u{1b}[0m", None),
    ] {
        assert_eq!(catalog.resolve_sandbox(&tenant, text).await.unwrap().as_ref(), expected, "{text:?}");
    }
}

#[tokio::test]
async fn an_ambiguous_beginning_is_answered_with_some_candidates() {
    let catalog = Catalog::in_memory().unwrap();
    for letter in ["a", "b", "c", "d", "e", "f", "g"] {
        stored(&catalog, &format!("sbxaaaa{letter}bbbccccddddeeee"), None).await;
    }
    for text in ["sbxa", "sbxaaaa", "aaaa"] {
        let error = catalog.resolve_sandbox(&catalog.default_tenant(), text).await.unwrap_err();
        assert!(error.to_string().contains("sbxaaaaabbbccccddddeeee, sbxaaaab"), "{error}");
        assert!(matches!(error, CatalogError::Ambiguous { candidates } if candidates.len() == 5));
    }
}

#[tokio::test]
async fn a_list_shows_what_fulfils_all_of_the_filter() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let kinds = [
        ("web-1", State::Running, vec![("team", "a"), ("tier", "front")]),
        ("web-2", State::Stopped, vec![("team", "a")]),
        ("db-1", State::Running, vec![("team", "b"), ("tier", "a")]),
    ];
    for (number, (name, state, labels)) in (0..).zip(kinds) {
        let mut row = rows::sandbox(&tenant, NOW + number);
        row.name = Some(name.parse().unwrap());
        row.state = state;
        row.spec.labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        rows::store(&catalog, &row).await;
    }
    let label = |key: &str, value: &str| Label::new(key, value).unwrap();
    let filter = |labels: Vec<Label>, states: Vec<State>, prefix: Option<&str>| SandboxFilter {
        labels,
        states,
        name_prefix: prefix.map(str::to_owned),
    };
    for (filter, expected) in [
        (SandboxFilter::default(), vec!["db-1", "web-2", "web-1"]),
        (filter(vec![label("team", "a")], vec![], None), vec!["web-2", "web-1"]),
        (filter(vec![label("team", "a"), label("tier", "front")], vec![], None), vec!["web-1"]),
        (filter(vec![label("team", "front")], vec![], None), vec![]),
        (filter(vec![], vec![State::Running], None), vec!["db-1", "web-1"]),
        (filter(vec![], vec![State::Running, State::Stopped], Some("web")), vec!["web-2", "web-1"]),
        (filter(vec![label("team", "a")], vec![State::Running], Some("w")), vec!["web-1"]),
        (filter(vec![], vec![], Some("%")), vec![]),
    ] {
        let shown = catalog.list_sandboxes(&tenant, filter.clone(), rows::page(10)).await.unwrap();
        let names: Vec<_> = shown.rows.iter().map(|row| row.name.as_ref().unwrap().as_str()).collect();
        assert_eq!(names, expected, "{filter:?}");
        assert_eq!(shown.next_cursor, None);
    }
}

#[tokio::test]
async fn a_relabelled_sandbox_is_found_by_its_new_labels_only() {
    let catalog = Catalog::in_memory().unwrap();
    let mut row = rows::sandbox(&catalog.default_tenant(), NOW);
    row.spec.labels.insert("team".to_owned(), "a".to_owned());
    rows::store(&catalog, &row).await;
    row.spec.labels.insert("team".to_owned(), "b".to_owned());
    let change = burrow_catalog::SandboxChange {
        spec: Some(row.spec.clone()),
        ..burrow_catalog::SandboxChange::at(NOW)
    };
    catalog.update_sandbox(&row.id, change, None).await.unwrap();
    for (value, found) in [("a", 0), ("b", 1)] {
        let filter = SandboxFilter { labels: vec![Label::new("team", value).unwrap()], ..Default::default() };
        let shown = catalog.list_sandboxes(&row.tenant, filter, rows::page(10)).await.unwrap();
        assert_eq!(shown.rows.len(), found, "{value}");
    }
}
