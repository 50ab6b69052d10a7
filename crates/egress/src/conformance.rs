//! The conformance suite that every driver must pass, including `sim`, so that the simulation behaves like the real
//! driver.
//!
//! A driver's tests implement [`Fixture`] and call [`all`]. The names of the functions state the guarantees of
//! [`Egress`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use burrow_model::{NetworkMode, NetworkPolicy, SandboxId};

use crate::{Egress, EgressError, Policy};

/// A driver and its environment in the tests.
#[async_trait]
pub trait Fixture: Send + Sync {
    fn egress(&self) -> &dyn Egress;

    /// Creates a sandbox with a network that is not attached.
    async fn sandbox(&self) -> SandboxId;

    /// Opens the driver again on the same host, as the next daemon would.
    async fn reopen(&self) -> Box<dyn Fixture>;
}

/// Runs the whole suite.
pub async fn all(fixture: &dyn Fixture) {
    attach_and_detach_are_idempotent(fixture).await;
    a_sandbox_that_is_not_attached_has_no_policy_counters_or_trial(fixture).await;
    a_trial_uses_the_current_policy(fixture).await;
    a_new_sandbox_has_no_approvals_and_no_budgets(fixture).await;
    the_log_has_one_reader(fixture).await;
    the_next_daemon_finds_attached_sandboxes(fixture).await;
}

async fn attach_and_detach_are_idempotent(fixture: &dyn Fixture) {
    let egress = fixture.egress();
    egress.detach(&SandboxId::generate()).await.expect("nothing to do");
    let id = fixture.sandbox().await;
    egress.attach(&id, &Policy::closed()).await.expect("attach");
    egress.attach(&id, &Policy::closed()).await.expect("attach again");
    assert!(egress.attached().await.expect("list").contains(&id));
    egress.detach(&id).await.expect("detach");
    egress.detach(&id).await.expect("detach again");
    assert!(!egress.attached().await.expect("list").contains(&id));
}

async fn a_sandbox_that_is_not_attached_has_no_policy_counters_or_trial(fixture: &dyn Fixture) {
    let egress = fixture.egress();
    let id = SandboxId::generate();
    let target = "https://example.com".parse().expect("a target");
    let answers = [
        egress.set_policy(&id, &Policy::closed()).await.err(),
        egress.counters(&id).await.err(),
        egress.trial(&id, &target).await.err(),
        egress.approvals(&id).await.err(),
        egress.decide(&id, 1, true).await.err(),
        egress.budgets(&id).await.err(),
    ];
    for answer in answers {
        assert!(matches!(answer, Some(EgressError::NotAttached { .. })), "{answer:?}");
    }
}

async fn a_trial_uses_the_current_policy(fixture: &dyn Fixture) {
    let egress = fixture.egress();
    let id = fixture.sandbox().await;
    // A documentation address: the rule allows it, but it is refused before a connection is attempted.
    let target = "https://192.0.2.7".parse().expect("a target");
    egress.attach(&id, &Policy::closed()).await.expect("attach");
    let trial = egress.trial(&id, &target).await.expect("try");
    assert!(!trial.reachable && !trial.steps[0].ok, "{trial:?}");
    assert_eq!(trial.steps[0].detail, "no rule allows `192.0.2.7`");
    egress.set_policy(&id, &allowing("192.0.2.7")).await.expect("set the policy");
    let trial = egress.trial(&id, &target).await.expect("try again");
    assert!(trial.steps[0].ok, "{trial:?}");
    assert_eq!(trial.steps[0].detail, "allowed by `192.0.2.7`");
    egress.counters(&id).await.expect("it is attached");
    egress.detach(&id).await.expect("detach");
}

async fn a_new_sandbox_has_no_approvals_and_no_budgets(fixture: &dyn Fixture) {
    let egress = fixture.egress();
    let id = fixture.sandbox().await;
    egress.attach(&id, &Policy::closed()).await.expect("attach");
    assert_eq!(egress.approvals(&id).await.expect("list"), []);
    assert_eq!(egress.budgets(&id).await.expect("list"), []);
    let answer = egress.decide(&id, 1, true).await;
    assert!(matches!(answer, Err(EgressError::NotWaiting { number: 1, .. })), "{answer:?}");
    egress.detach(&id).await.expect("detach");
}

async fn the_log_has_one_reader(fixture: &dyn Fixture) {
    assert!(fixture.egress().log().is_some());
    assert!(fixture.egress().log().is_none());
}

async fn the_next_daemon_finds_attached_sandboxes(fixture: &dyn Fixture) {
    let id = fixture.sandbox().await;
    fixture.egress().attach(&id, &Policy::closed()).await.expect("attach");
    fixture.egress().shutdown().await;
    let next = fixture.reopen().await;
    let egress = next.egress();
    assert!(egress.attached().await.expect("list").contains(&id));
    egress.adopt(&id, &allowing("192.0.2.7")).await.expect("adopt");
    let target = "https://192.0.2.7".parse().expect("a target");
    assert!(egress.trial(&id, &target).await.expect("try").steps[0].ok);
    egress.detach(&id).await.expect("detach");
    assert!(!egress.attached().await.expect("list").contains(&id));
    // Adopting a sandbox that is not attached attaches it: its egress process ended with it.
    let other = next.sandbox().await;
    egress.adopt(&other, &Policy::closed()).await.expect("adopt what is not there");
    assert!(egress.attached().await.expect("list").contains(&other));
    egress.detach(&other).await.expect("detach");
}

/// A policy with one rule.
fn allowing(rule: &str) -> Policy {
    let rules = vec![rule.parse().expect("a rule")];
    let policy = NetworkPolicy { mode: NetworkMode::Allowlist, rules, ..NetworkPolicy::closed() };
    Policy::new(&policy, &BTreeMap::new(), &[]).expect("a policy")
}
