//! The egress log: pages, followers, spans of time, and pruning.

use burrow_catalog::{
    Catalog, EGRESS_KEPT, EGRESS_KEPT_MS, EgressFilter, EgressKind, EgressRow, EgressVerdict,
};
use burrow_catalog::{CatalogError, PageRequest, SandboxRow};

use crate::rows::{self, NOW};

fn row(sandbox: &SandboxRow, at_ms: u64, verdict: EgressVerdict) -> EgressRow {
    EgressRow {
        seq: 0,
        tenant: sandbox.tenant.clone(),
        sandbox: sandbox.id.clone(),
        at_ms,
        kind: EgressKind::Tls,
        verdict,
        host: "example.com".to_owned(),
        port: Some(443),
        rule: None,
        reason: Some("no rule names it".to_owned()),
        address: None,
        sent_bytes: Some(7),
        received_bytes: None,
        duration_ms: None,
        times: 1,
    }
}

async fn world() -> (Catalog, SandboxRow) {
    let catalog = Catalog::in_memory().unwrap();
    let sandbox = rows::sandbox(&catalog.default_tenant(), NOW);
    rows::store(&catalog, &sandbox).await;
    (catalog, sandbox)
}

async fn list(
    catalog: &Catalog,
    sandbox: &SandboxRow,
    filter: EgressFilter,
    page: PageRequest,
) -> (Vec<u64>, Option<String>) {
    let page = catalog.list_egress(&sandbox.tenant, &sandbox.id, filter, page).await.unwrap();
    (page.rows.iter().map(|row| row.at_ms).collect(), page.next_cursor)
}

#[tokio::test]
async fn a_row_reads_back_as_it_was_written() {
    let (catalog, sandbox) = world().await;
    let written = row(&sandbox, NOW, EgressVerdict::Denied);
    catalog.append_egress(vec![written.clone()]).await.unwrap();
    let read = catalog.egress_since(&sandbox.tenant, &sandbox.id, 0, 10).await.unwrap();
    assert_eq!(read, [EgressRow { seq: read[0].seq, ..written }]);
}

#[tokio::test]
async fn the_log_is_paged_newest_first_and_can_show_denials_only() {
    let (catalog, sandbox) = world().await;
    let verdicts =
        [EgressVerdict::Allowed, EgressVerdict::Denied, EgressVerdict::Failed, EgressVerdict::Denied];
    let rows = (0..).zip(verdicts).map(|(at, verdict)| row(&sandbox, at, verdict)).collect();
    catalog.append_egress(rows).await.unwrap();
    let (first, cursor) = list(&catalog, &sandbox, EgressFilter::All, rows::page(3)).await;
    assert_eq!(first, [3, 2, 1]);
    let next = PageRequest { cursor, limit: 3 };
    assert_eq!(list(&catalog, &sandbox, EgressFilter::All, next).await, (vec![0], None));
    assert_eq!(list(&catalog, &sandbox, EgressFilter::Denied, rows::page(9)).await, (vec![3, 1], None));
    let foreign = PageRequest { cursor: Some("MTcuc2J4".to_owned()), limit: 1 };
    let error = catalog.list_egress(&sandbox.tenant, &sandbox.id, EgressFilter::All, foreign).await;
    assert!(matches!(error, Err(CatalogError::BadCursor)));
}

#[tokio::test]
async fn denials_are_found_by_the_time_an_exec_ran() {
    let (catalog, sandbox) = world().await;
    let rows = (0..10).map(|at| {
        row(&sandbox, at, if at % 2 == 0 { EgressVerdict::Denied } else { EgressVerdict::Allowed })
    });
    catalog.append_egress(rows.collect()).await.unwrap();
    let found = catalog.egress_denied(&sandbox.tenant, &sandbox.id, 2, 7, 2).await.unwrap();
    assert_eq!(found.iter().map(|row| row.at_ms).collect::<Vec<_>>(), [2, 4]);
}

#[tokio::test]
async fn a_follower_is_woken_and_another_tenant_sees_nothing() {
    let (catalog, sandbox) = world().await;
    let mut newest = catalog.follow_egress();
    catalog.append_egress(vec![row(&sandbox, NOW, EgressVerdict::Allowed)]).await.unwrap();
    assert!(newest.has_changed().unwrap());
    assert!(*newest.borrow_and_update() > 0);
    let stranger = rows::stranger(&catalog).await;
    assert_eq!(catalog.egress_since(&stranger, &sandbox.id, 0, 10).await.unwrap(), []);
    let mut forged = row(&sandbox, NOW, EgressVerdict::Allowed);
    forged.tenant = stranger.clone();
    catalog.append_egress(vec![forged]).await.unwrap();
    assert_eq!(catalog.egress_since(&stranger, &sandbox.id, 0, 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_sandboxs_log_is_bounded_ages_and_goes_with_it() {
    let (catalog, sandbox) = world().await;
    let many = u64::from(EGRESS_KEPT) + 50;
    let rows = (0..many).map(|at| row(&sandbox, NOW + at, EgressVerdict::Allowed)).collect();
    catalog.append_egress(rows).await.unwrap();
    catalog.prune_egress_of(&sandbox.id).await.unwrap();
    let oldest = catalog.egress_since(&sandbox.tenant, &sandbox.id, 0, 1).await.unwrap();
    assert_eq!(oldest[0].at_ms, NOW + 50);

    catalog.prune_egress(NOW + EGRESS_KEPT_MS + 100).await.unwrap();
    let oldest = catalog.egress_since(&sandbox.tenant, &sandbox.id, 0, 1).await.unwrap();
    assert_eq!(oldest[0].at_ms, NOW + 100);

    catalog.delete_sandbox(&sandbox.id, None, NOW).await.unwrap();
    assert_eq!(catalog.egress_since(&sandbox.tenant, &sandbox.id, 0, 1).await.unwrap(), []);
    // A late row of a deleted sandbox is not an error.
    catalog.append_egress(vec![row(&sandbox, NOW, EgressVerdict::Allowed)]).await.unwrap();
    catalog.integrity_check().await.unwrap();
}
