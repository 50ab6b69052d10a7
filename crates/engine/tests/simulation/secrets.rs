//! Secrets in the egress process: granted by rules, applied again when they change, never restored from a snapshot.

use std::time::Duration;

use burrow_catalog::FORMER_KEPT_MS;
use burrow_egress::Grant;
use burrow_engine::{Engine, NetworkChange, UpdateOptions};
use burrow_model::network::{HeaderTransform, RequestRule, RequestScope, RuleMode, TransformHeader};
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

/// The secrets that the egress process received for a sandbox: names and values.
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
async fn rules_grant_secrets_and_changes_reach_running_sandboxes() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    assert_eq!(world.egress.inner.policy(&id).unwrap().directives(), None, "no rule needs any");
    set(&world, &engine, "key", "first-value").await;
    engine.update(&world.tenant, &id, change(vec![rule("api.example.com", "key")])).await.unwrap();
    assert_eq!(given(&world, &id), [("key".to_owned(), "first-value".to_owned())]);
    let before = world.egress.inner.policy(&id).unwrap().directives().unwrap().clone();
    assert!(before.authority.is_some(), "it is decrypted");

    engine.rotate_secret(&world.tenant, &name("key"), bytes("second-value")).await.unwrap();
    becomes(&world, &id, &[("key", "second-value")]).await;
    let after = world.egress.inner.policy(&id).unwrap().directives().unwrap().clone();
    assert!(after.generation > before.generation);
    assert_eq!(after.authority, before.authority, "programs continue to trust it");

    // A new process received its policies without secrets, and receives the secrets again.
    world.egress.inner.be_replaced();
    becomes(&world, &id, &[("key", "second-value")]).await;

    engine.delete_secret(&world.tenant, &name("key"), true).await.unwrap();
    becomes(&world, &id, &[]).await;
    assert!(engine.egress_problems(&id).contains_key(&name("key")), "it is reported");
    set(&world, &engine, "key", "third-value").await;
    becomes(&world, &id, &[("key", "third-value")]).await;
    assert!(engine.egress_problems(&id).is_empty());
}

/// The former values that the egress process received for a sandbox's only secret.
fn former(world: &World, id: &SandboxId) -> Vec<String> {
    let policy = world.egress.inner.policy(id).expect("it is attached");
    let grants = policy.directives().map(|directives| directives.grants.clone()).unwrap_or_default();
    let text = |value: &SecretBytes| String::from_utf8(value.expose().to_vec()).unwrap();
    grants.iter().flat_map(|grant| grant.former.iter().map(text)).collect()
}

#[tokio::test]
async fn replaced_values_are_passed_on_for_scrubbing_until_they_expire() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    set(&world, &engine, "key", "the-value-1").await;
    engine.update(&world.tenant, &id, change(vec![rule("api.example.com", "key")])).await.unwrap();
    assert!(former(&world, &id).is_empty());
    let rotate = async |value: &str| {
        engine.rotate_secret(&world.tenant, &name("key"), bytes(value)).await.unwrap();
        becomes(&world, &id, &[("key", value)]).await;
    };
    rotate("the-value-2").await;
    assert_eq!(former(&world, &id), ["the-value-1"]);
    set(&world, &engine, "key", "the-value-3").await;
    becomes(&world, &id, &[("key", "the-value-3")]).await;
    assert_eq!(former(&world, &id), ["the-value-2", "the-value-1"]);
    // The present value and a repeated one are passed on once.
    rotate("the-value-1").await;
    assert_eq!(former(&world, &id), ["the-value-3", "the-value-2"]);
    rotate("the-value-4").await;
    assert_eq!(former(&world, &id), ["the-value-1", "the-value-3", "the-value-2"]);
    rotate("the-value-5").await;
    assert_eq!(former(&world, &id), ["the-value-4", "the-value-1", "the-value-3"]);

    world.clock.advance(FORMER_KEPT_MS + 1);
    rotate("the-value-6").await;
    assert_eq!(former(&world, &id), ["the-value-5"]);
    engine.delete_secret(&world.tenant, &name("key"), true).await.unwrap();
    becomes(&world, &id, &[]).await;
    set(&world, &engine, "key", "the-value-7").await;
    becomes(&world, &id, &[("key", "the-value-7")]).await;
    assert!(former(&world, &id).is_empty(), "they were removed with the secret");
}

#[tokio::test]
async fn a_restore_restores_no_secret_and_a_fork_has_the_present_policy() {
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

fn headers(host: &str, value: &str) -> HeaderTransform {
    let header = TransformHeader { name: "Authorization".parse().unwrap(), value: bytes(value) };
    HeaderTransform { host: host.parse().unwrap(), headers: vec![header] }
}

fn set_headers(world: &World, id: &SandboxId) -> Vec<HeaderTransform> {
    let policy = world.egress.inner.policy(id).expect("it is attached");
    policy.directives().map(|directives| directives.transforms.clone()).unwrap_or_default()
}

#[tokio::test]
async fn headers_are_encrypted_at_rest_and_reach_the_egress_process_of_every_child() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    let change = async |given: &[HeaderTransform]| {
        let transforms = engine.seal_transforms(&world.tenant, given).await.unwrap();
        let network = NetworkChange { transforms: Some(transforms), ..no_network_change() };
        let options = UpdateOptions { network: Some(network), ..no_change() };
        engine.update(&world.tenant, &id, options).await.unwrap()
    };
    let first = [headers("api.example.com", "Bearer sk-canary-1")];
    let row = change(&first).await;
    assert_eq!(engine.transforms(&row).await.unwrap(), first);
    let plain = serde_json::to_string(&first).unwrap();
    let value = plain.split('"').rev().nth(1).unwrap();
    assert!(!serde_json::to_string(&row.spec).unwrap().contains(value), "{value} is stored in clear");
    assert_eq!(set_headers(&world, &id), first);
    let directives = world.egress.inner.policy(&id).unwrap().directives().unwrap().clone();
    assert!(directives.authority.is_some(), "it is decrypted");

    let snapshot = engine.snapshot(&world.tenant, &id, manual(false)).await.unwrap();
    let child = engine.fork(&world.tenant, &id, fork(1)).await.unwrap().children.remove(0).unwrap();
    assert_eq!(set_headers(&world, &child.id), first);

    let second = [headers("*.example.com", "Bearer sk-canary-2")];
    change(&second).await;
    assert_eq!((set_headers(&world, &id), set_headers(&world, &child.id)), (second.to_vec(), first.to_vec()));
    engine.restore(&world.tenant, &id, &snapshot.id, false).await.unwrap();
    assert_eq!(set_headers(&world, &id), second, "a restore brings no policy back");

    // A new process receives them again.
    world.egress.inner.be_replaced();
    let wait = async {
        while set_headers(&world, &id) != second {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("they are passed on again");

    change(&[]).await;
    assert_eq!(world.egress.inner.policy(&id).unwrap().directives(), None);
}

#[tokio::test]
async fn two_rules_for_the_same_request_are_refused_and_change_nothing() {
    let world = World::new().await;
    let engine = world.engine().await;
    let id = engine.create(&world.tenant, create(Some("alpha"))).await.unwrap().row.id;
    let two = vec![rule("api.example.com", "one"), rule("*.example.com", "two")];
    let error = engine.update(&world.tenant, &id, change(two)).await.unwrap_err();
    let expected = "rules `https://api.example.com with one` and `https://*.example.com with two` cover the same requests, \
                    but treat them differently or count them twice";
    assert_eq!(error.to_string(), expected);
    assert_eq!(engine.get(&world.tenant, &id).await.unwrap().spec.network.requests, []);
}
