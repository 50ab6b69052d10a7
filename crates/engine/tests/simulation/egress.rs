//! Network policies follow the rows of their sandboxes, and denied traffic is logged.

use burrow_catalog::{EgressFilter, EgressVerdict, PageRequest};
use burrow_egress::{DetectedProtocol, LogEntry, LogKind, Verdict};
use burrow_engine::{Engine, EngineError, NetworkChange, UpdateOptions};
use burrow_model::{NetworkMode, NetworkPolicy, SandboxId};

use crate::world::{GRACE, World, create, name, no_change};

pub(crate) fn no_network_change() -> NetworkChange {
    NetworkChange {
        mode: None,
        rules: None,
        sets: None,
        add: Vec::new(),
        remove: Vec::new(),
        add_sets: Vec::new(),
        remove_sets: Vec::new(),
        requests: None,
        add_requests: Vec::new(),
        deny: None,
        add_deny: Vec::new(),
        remove_deny: Vec::new(),
        transforms: None,
    }
}

fn change(network: NetworkChange) -> UpdateOptions {
    UpdateOptions { network: Some(network), ..no_change() }
}

/// The rules of a sandbox in the egress process.
fn rules(world: &World, id: &SandboxId) -> Vec<String> {
    let policy = world.egress.inner.policy(id).expect("it is attached");
    policy.rules().iter().map(ToString::to_string).collect()
}

async fn sandbox(world: &World, engine: &Engine) -> SandboxId {
    engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id
}

fn denied(id: &SandboxId, at_ms: u64, host: &str) -> LogEntry {
    LogEntry {
        sandbox: id.clone(),
        at_ms,
        last_ms: at_ms,
        kind: LogKind::Tcp,
        host: host.to_owned(),
        port: 443,
        protocol: Some(DetectedProtocol::Tls),
        verdict: Verdict::Deny,
        rule: None,
        reason: Some("no rule allows it".to_owned()),
        address: None,
        bytes_in: 0,
        bytes_out: 0,
        duration_ms: None,
        count: 1,
    }
}

#[tokio::test]
async fn a_policy_applies_from_the_start_and_follows_every_change() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = sandbox(&world, &engine).await;
    assert_eq!(rules(&world, &id), [""; 0], "closed by default");
    let add = NetworkChange {
        add: vec!["example.org".parse().unwrap()],
        add_sets: vec![name("ours")],
        ..no_network_change()
    };
    let row = engine.update(&world.tenant, &id, change(add)).await.unwrap();
    assert_eq!(row.spec.network.rules.len(), 1);
    assert_eq!(rules(&world, &id), ["example.org", "*.example.com"]);
    let open = NetworkChange { mode: Some(NetworkMode::Open), ..no_network_change() };
    engine.update(&world.tenant, &id, change(open)).await.unwrap();
    assert_eq!(world.egress.inner.policy(&id).unwrap().mode(), NetworkMode::Open);
    engine.stop_sandbox(&world.tenant, &id, GRACE).await.unwrap();
    assert_eq!(world.egress.inner.live(), []);
    let none = NetworkChange { mode: Some(NetworkMode::None), ..no_network_change() };
    engine.update(&world.tenant, &id, change(none)).await.unwrap();
    engine.start_sandbox(&world.tenant, &id).await.unwrap();
    assert_eq!(world.egress.inner.policy(&id).unwrap().mode(), NetworkMode::None, "also of a stopped one");
}

#[tokio::test]
async fn an_unknown_host_set_is_refused_and_changes_nothing() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = sandbox(&world, &engine).await;
    let unknown = NetworkChange { add_sets: vec![name("theirs")], ..no_network_change() };
    let error = engine.update(&world.tenant, &id, change(unknown)).await.unwrap_err();
    assert_eq!(error.to_string(), "unknown host set `theirs`; known host sets: `ours`");
    let network = NetworkPolicy { sets: vec![name("theirs")], ..NetworkPolicy::closed() };
    let mut options = create(Some("beta"));
    options.network = Some(network);
    assert!(matches!(
        engine.create(&world.tenant, options).await.unwrap_err(),
        EngineError::SetUnknown { .. }
    ));
    assert_eq!(engine.get(&world.tenant, &id).await.unwrap().spec.network, NetworkPolicy::closed());
    world.check(&world.rows().await, "after refused policies");
}

#[tokio::test]
async fn p_a5_a_sandbox_with_another_network_policy_is_not_returned_by_name() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = sandbox(&world, &engine).await;
    let mut options = create(Some("alpha"));
    options.if_not_exists = true;
    let same = engine.create(&world.tenant, options.clone()).await.unwrap();
    assert_eq!((same.row.id, same.fresh), (id.clone(), false));
    options.network = Some(NetworkPolicy { mode: NetworkMode::None, ..NetworkPolicy::closed() });
    let error = engine.create(&world.tenant, options).await.unwrap_err();
    assert!(matches!(error, EngineError::NetworkDiffers { id: differs } if differs == id));
}

#[tokio::test]
async fn a_restarted_daemon_adopts_listeners_and_closes_those_of_unknown_sandboxes() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = sandbox(&world, &engine).await;
    let add = NetworkChange { add: vec!["example.org".parse().unwrap()], ..no_network_change() };
    engine.update(&world.tenant, &id, change(add)).await.unwrap();
    engine.shutdown().await;
    // The process lost its state, and serves a sandbox that the catalog does not list.
    world.egress.inner.die();
    let stranger = SandboxId::generate();
    burrow_egress::Egress::attach(&*world.egress, &stranger, &burrow_egress::Policy::closed()).await.unwrap();
    let _engine = world.engine().await;
    assert_eq!(world.egress.inner.live(), std::slice::from_ref(&id));
    assert_eq!(rules(&world, &id), ["example.org"]);
}

#[tokio::test]
async fn a_policy_that_could_not_be_applied_is_applied_as_soon_as_possible() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = sandbox(&world, &engine).await;
    world.egress.inner.die();
    let add = NetworkChange { add: vec!["example.org".parse().unwrap()], ..no_network_change() };
    engine.update(&world.tenant, &id, change(add)).await.unwrap();
    let told = async {
        while world.egress.inner.policy(&id).is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), told).await.expect("it is applied again");
    assert_eq!(rules(&world, &id), ["example.org"]);
}

#[tokio::test]
async fn denials_are_reported_with_the_exec_and_logged() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = sandbox(&world, &engine).await;
    for (at_ms, host) in [
        (2_000_000, "early.example"),
        (2_000_010, "a.example"),
        (2_000_010, "a.example"),
        (2_000_020, "b.example"),
        (2_000_099, "late.example"),
    ] {
        assert!(world.egress.inner.happened(denied(&id, at_ms, host)));
    }
    let during = |from, to| engine.denied_during(&world.tenant, &id, from, to, true);
    let hosts =
        |found: Vec<burrow_engine::DeniedTraffic>| found.into_iter().map(|d| d.host).collect::<Vec<_>>();
    assert_eq!(hosts(during(2_000_005, 2_000_030).await), ["a.example", "b.example"], "each once");
    assert_eq!(engine.egress_totals().denied, 5);
    // Several equal denials that are reported together, late: an exec that began after the last of them is not blamed.
    world.clock.advance(2_000_000);
    let folded = LogEntry { count: 3, last_ms: 2_650_000, ..denied(&id, 2_500_000, "folded.example") };
    assert!(world.egress.inner.happened(folded));
    assert_eq!(hosts(during(2_600_000, 2_700_000).await), ["folded.example"]);
    assert_eq!(hosts(during(2_650_001, 2_700_000).await), [""; 0]);
    engine.shutdown().await;
    let page = PageRequest { cursor: None, limit: 10 };
    let log = world.catalog.list_egress(&world.tenant, &id, EgressFilter::All, page).await.unwrap();
    assert_eq!(log.rows.len(), 6);
    assert!(log.rows.iter().all(|row| row.verdict == EgressVerdict::Denied && row.port == Some(443)));
    // A later daemon has none of them in RAM, and finds them in the log.
    world.clock.advance(2_000_000);
    let engine = world.engine().await;
    let found = engine.denied_during(&world.tenant, &id, 2_000_005, 2_000_030, true).await;
    assert_eq!(hosts(found), ["a.example", "b.example"]);
}
