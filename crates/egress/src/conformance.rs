//! What every driver must do, `sim` included: that keeps the fake honest.
//!
//! A driver's tests give a [`Fixture`] and run [`all`]. The functions assert, and their names are the promises of
//! [`Egress`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use burrow_model::{NetworkMode, NetworkPolicy, SandboxId};

use crate::{Egress, EgressError, Policy};

/// A driver, and what the suite needs around it.
#[async_trait]
pub trait Fixture: Send + Sync {
    fn egress(&self) -> &dyn Egress;

    /// A sandbox with a network, not attached.
    async fn sandbox(&self) -> SandboxId;

    /// The driver as the next daemon opens it, on the same host.
    async fn reopen(&self) -> Box<dyn Fixture>;
}

/// Runs the whole suite.
pub async fn all(fixture: &dyn Fixture) {
    attaching_twice_or_detaching_what_never_was_is_fine(fixture).await;
    what_is_not_attached_has_no_policy_counters_or_trial(fixture).await;
    a_trial_is_judged_by_the_policy_of_now(fixture).await;
    nothing_waits_that_was_not_asked_for(fixture).await;
    the_log_has_one_reader(fixture).await;
    the_next_daemon_finds_what_was_attached(fixture).await;
}

async fn attaching_twice_or_detaching_what_never_was_is_fine(fixture: &dyn Fixture) {
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

async fn what_is_not_attached_has_no_policy_counters_or_trial(fixture: &dyn Fixture) {
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

async fn a_trial_is_judged_by_the_policy_of_now(fixture: &dyn Fixture) {
    let egress = fixture.egress();
    let id = fixture.sandbox().await;
    // A documentation address: allowed by the rule, and refused before anything is dialled.
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

async fn nothing_waits_that_was_not_asked_for(fixture: &dyn Fixture) {
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

async fn the_next_daemon_finds_what_was_attached(fixture: &dyn Fixture) {
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
    // What nobody attached is attached by adopting it: its process died with it.
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
