//! Pagination against a model: whatever is inserted and deleted between pages, every remaining row is shown exactly once.

use burrow_catalog::{Catalog, CatalogError, PageRequest, SandboxFilter};
use burrow_model::SandboxId;
use proptest::prelude::*;

use crate::rows::{self, NOW};

/// What happens between two pages.
#[derive(Clone, Debug)]
enum InterleavedChange {
    /// A sandbox is created, this many milliseconds after the newest: often in the same one.
    Insert {
        later_ms: u64,
    },
    Delete {
        which: prop::sample::Index,
    },
    Nothing,
}

fn meanwhile() -> impl Strategy<Value = InterleavedChange> {
    prop_oneof![
        (0..3u64).prop_map(|later_ms| InterleavedChange::Insert { later_ms }),
        any::<prop::sample::Index>().prop_map(|which| InterleavedChange::Delete { which }),
        Just(InterleavedChange::Nothing),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sandbox_that_stays_is_listed_once_and_newest_first(
        steps in prop::collection::vec(0..3u64, 0..40),
        limit in 1..12u32,
        between in prop::collection::vec(meanwhile(), 40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(walk(&steps, limit, between))?;
    }
}

async fn walk(steps: &[u64], limit: u32, between: Vec<InterleavedChange>) -> Result<(), TestCaseError> {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let mut newest_ms = NOW;
    let mut stays: Vec<SandboxId> = Vec::new();
    for later_ms in steps {
        newest_ms += later_ms;
        let row = rows::sandbox(&tenant, newest_ms);
        rows::store(&catalog, &row).await;
        stays.push(row.id);
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    for event in between {
        let page = PageRequest { cursor, limit };
        let page = catalog.list_sandboxes(&tenant, SandboxFilter::default(), page).await.unwrap();
        prop_assert!(page.rows.len() <= limit as usize);
        seen.extend(page.rows.into_iter().map(|row| (row.created_ms, row.id)));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
        match event {
            InterleavedChange::Insert { later_ms } => {
                newest_ms += later_ms;
                rows::store(&catalog, &rows::sandbox(&tenant, newest_ms)).await;
            }
            InterleavedChange::Delete { which } => {
                let gone = stays.remove(which.index(stays.len()));
                catalog.delete_sandbox(&gone, None, NOW).await.unwrap();
                if stays.is_empty() {
                    break;
                }
            }
            InterleavedChange::Nothing => {}
        }
    }
    prop_assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "newest first, nothing twice: {seen:?}");
    if cursor.is_none() {
        for id in stays {
            prop_assert!(seen.iter().any(|(_, seen)| *seen == id), "{id} is missing");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_cursor_that_no_list_gave_out_is_refused() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let bad = || PageRequest { cursor: Some("nonsense".to_owned()), limit: 10 };
    let sandboxes = catalog.list_sandboxes(&tenant, SandboxFilter::default(), bad()).await;
    assert!(matches!(sandboxes, Err(CatalogError::BadCursor)));
    assert!(matches!(catalog.list_keys(&tenant, bad()).await, Err(CatalogError::BadCursor)));
    let execs = catalog.list_execs(&tenant, &SandboxId::generate(), bad()).await;
    assert!(matches!(execs, Err(CatalogError::BadCursor)));
}
