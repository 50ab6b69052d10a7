//! Events: numbered, read from any number on; followers are woken.

use burrow_catalog::Catalog;
use burrow_model::{ExecId, SandboxId};

use crate::rows;

#[tokio::test]
async fn events_are_read_from_any_number_on() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let mut numbers = Vec::new();
    for kind in ["one", "two", "three"] {
        let mut event = rows::event(&tenant, kind);
        event.sandbox = Some(SandboxId::generate());
        event.exec = Some(ExecId::generate());
        numbers.push(catalog.append_event(event.clone()).await.unwrap());
        let stored = catalog.events_since(&tenant, 0, 100).await.unwrap().pop().unwrap();
        assert_eq!((stored.kind, stored.sandbox, stored.exec), (event.kind, event.sandbox, event.exec));
        assert_eq!(stored.detail, event.detail);
    }
    let rest = catalog.events_since(&tenant, numbers[0], 100).await.unwrap();
    assert_eq!(rest.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["two", "three"]);
    assert_eq!(catalog.events_since(&tenant, 0, 2).await.unwrap().len(), 2);
    assert!(catalog.events_since(&tenant, numbers[2], 100).await.unwrap().is_empty());
    assert!(catalog.events_since(&tenant, u64::MAX, 100).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_follower_wakes_and_misses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&directory.path().join("catalog.db")).unwrap();
    let tenant = catalog.default_tenant();
    let follower = {
        let (catalog, tenant) = (catalog.clone(), tenant.clone());
        let mut news = catalog.follow_events();
        tokio::spawn(async move {
            let (mut seen, mut last) = (Vec::new(), 0);
            while seen.len() < 50 {
                let events = catalog.events_since(&tenant, last, 7).await.unwrap();
                let Some(newest) = events.last() else {
                    news.changed().await.unwrap();
                    continue;
                };
                last = newest.seq;
                seen.extend(events.into_iter().map(|event| event.kind));
            }
            seen
        })
    };
    for number in 0..50 {
        catalog.append_event(rows::event(&tenant, &number.to_string())).await.unwrap();
    }
    let expected: Vec<_> = (0..50).map(|number| number.to_string()).collect();
    assert_eq!(follower.await.unwrap(), expected);
    let newest = *catalog.follow_events().borrow();
    drop(catalog);
    let catalog = Catalog::open(&directory.path().join("catalog.db")).unwrap();
    assert_eq!(*catalog.follow_events().borrow(), newest);
}
