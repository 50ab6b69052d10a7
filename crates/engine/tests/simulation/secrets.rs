//! Secrets on their way to the egress process: granted by rules, renewed when they change, revived by nothing.

use std::time::Duration;

use burrow_egress::Grant;
use burrow_engine::{Engine, NetworkChange, UpdateOptions};
use burrow_model::network::{RequestRule, RequestScope, RuleMode};
use burrow_model::{Format, SandboxId, SecretBytes, SecretSpec, Slot};

use crate::egress::no_network_change;
use crate::sleep::{fork, manual};
use crate::world::{World, create, name, no_change};

fn rule(host: &str, secret: &str) -> RequestRule {
    RequestRule {
        scope: RequestScope::of(host.parse().unwrap()),
        mode: RuleMode::Intercept,
        secret: Some(name(secret)),
        budget: None,
        approve: None,
    }
}

fn change(rules: Vec<RequestRule>) -> UpdateOptions {
    let network = NetworkChange { requests: Some(rules), ..no_network_change() };
    UpdateOptions { network: Some(network), ..no_change() }
}

async fn set(world: &World, engine: &Engine, secret: &str, value: &str) {
    let spec = SecretSpec {
        name: name(secret),
        allow: vec![RequestScope::of("api.example.com".parse().unwrap())],
        slot: Slot::Header { name: "authorization".parse().unwrap(), format: Format::plain() },
        placeholder: None,
    };
    engine.set_secret(&world.tenant, spec, bytes(value)).await.unwrap();
}

fn bytes(value: &str) -> SecretBytes {
    SecretBytes::new(value.as_bytes().to_vec())
}

/// What the egress process was given for a sandbox: names and values.
fn given(world: &World, id: &SandboxId) -> Vec<(String, String)> {
    let policy = world.egress.inner.policy(id).expect("it is attached");
    let grants = policy.directives().map(|directives| directives.grants.clone()).unwrap_or_default();
    let shown =
        |grant: Grant| (grant.name.to_string(), String::from_utf8(grant.value.expose().to_vec()).unwrap());
    grants.into_iter().map(shown).collect()
}

async fn becomes(world: &World, id: &SandboxId, expected: &[(&str, &str)]) {
    let expected: Vec<_> =
        expected.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let wait = async {
        while given(world, id) != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    waited.unwrap_or_else(|_| panic!("{:?} instead of {expected:?}", given(world, id)));
}

#[tokio::test]
async fn rules_bring_their_secrets_and_changes_reach_who_runs() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    assert_eq!(world.egress.inner.policy(&id).unwrap().directives(), None, "nobody asked for any");
    set(&world, &engine, "key", "first-value").await;
    engine.update(&world.tenant, &id, change(vec![rule("api.example.com", "key")])).await.unwrap();
    assert_eq!(given(&world, &id), [("key".to_owned(), "first-value".to_owned())]);
    let before = world.egress.inner.policy(&id).unwrap().directives().unwrap().clone();
    assert!(before.authority.is_some(), "it is decrypted");

    engine.rotate_secret(&world.tenant, &name("key"), bytes("second-value")).await.unwrap();
    becomes(&world, &id, &[("key", "second-value")]).await;
    let after = world.egress.inner.policy(&id).unwrap().directives().unwrap().clone();
    assert!(after.generation > before.generation);
    assert_eq!(after.authority, before.authority, "programs go on trusting it");

    // Another process was told what to serve without a secret, and is given them again.
    world.egress.inner.be_replaced();
    becomes(&world, &id, &[("key", "second-value")]).await;

    engine.delete_secret(&world.tenant, &name("key"), true).await.unwrap();
    becomes(&world, &id, &[]).await;
    assert!(engine.egress_problems(&id).contains_key(&name("key")), "it is told");
    set(&world, &engine, "key", "third-value").await;
    becomes(&world, &id, &[("key", "third-value")]).await;
    assert!(engine.egress_problems(&id).is_empty());
}

#[tokio::test]
async fn going_back_revives_no_secret_and_a_fork_has_the_policy_of_now() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    set(&world, &engine, "key", "first-value").await;
    engine.update(&world.tenant, &id, change(vec![rule("api.example.com", "key")])).await.unwrap();
    let snapshot = engine.snapshot(&world.tenant, &id, manual(false)).await.unwrap();
    let child = engine.fork(&world.tenant, &id, fork(1)).await.unwrap().children.remove(0).unwrap();
    assert_eq!(given(&world, &child.id), [("key".to_owned(), "first-value".to_owned())]);

    engine.update(&world.tenant, &id, change(Vec::new())).await.unwrap();
    assert_eq!(given(&world, &id), []);
    assert_eq!(given(&world, &child.id).len(), 1, "a child's policy is its own");
    engine.restore(&world.tenant, &id, &snapshot.id, false).await.unwrap();
    assert_eq!(given(&world, &id), [], "invariant 14");
    assert_eq!(engine.get(&world.tenant, &id).await.unwrap().spec.network.requests, []);
}

#[tokio::test]
async fn two_rules_about_one_request_are_refused_and_change_nothing() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    let two = vec![rule("api.example.com", "one"), rule("*.example.com", "two")];
    let error = engine.update(&world.tenant, &id, change(two)).await.unwrap_err();
    let expected = "`https://*.example.com with two` covers requests that `https://api.example.com with one` covers too, \
                    and treats them differently or counts them again";
    assert_eq!(error.to_string(), expected);
    assert_eq!(engine.get(&world.tenant, &id).await.unwrap().spec.network.requests, []);
}
