//! Applies sandboxes' network policies: when they start, when they change, when a secret they name changes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use burrow_catalog::SandboxRow;
use burrow_egress::{Directives, EgressError, Policy};
use burrow_model::{Name, SandboxId};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;

use super::secret_changes::SecretChanged;
use super::secrets;
use crate::EngineError;
use crate::actor::command::Command;
use crate::guest::own_listener;
use crate::shared::Shared;

/// Opens a sandbox's listeners, before its machine boots.
pub(crate) async fn attach(shared: &Shared, row: &SandboxRow) -> Result<(), EngineError> {
    let _lock = shared.egress.lock_policy(&row.id).await;
    let policy = policy_of(shared, row).await;
    shared.egress.watch(row, shared.now_ms());
    own_listener::open(shared, row).await?;
    match shared.seams.egress.attach(&row.id, &policy).await {
        Ok(()) => Ok(()),
        // The egress process is restarting. Until then the sandbox has no network, which is no reason to refuse its start.
        Err(error @ (EgressError::Down | EgressError::Silent)) => {
            tracing::warn!(sandbox = %row.id, %error, "a sandbox starts without a network until the egress process is back");
            shared.egress.mark_due(&row.id);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Attaches a sandbox that runs already, with its connections if they are still served.
pub(crate) async fn adopt(shared: &Shared, row: &SandboxRow) {
    let _lock = shared.egress.lock_policy(&row.id).await;
    let policy = policy_of(shared, row).await;
    shared.egress.watch(row, shared.now_ms());
    match shared.seams.egress.adopt(&row.id, &policy).await {
        Ok(()) => shared.egress.settle(&row.id),
        Err(error) => {
            if shared.egress.mark_due(&row.id) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(sandbox = %row.id, error, "a sandbox has no network until its policy is applied");
            }
        }
    }
}

/// Applies a change that is durable already. An error means that it is not applied yet, but will be.
pub(crate) async fn follow(shared: &Shared, row: &SandboxRow) -> Result<(), EngineError> {
    let _lock = shared.egress.lock_policy(&row.id).await;
    let policy = policy_of(shared, row).await;
    match shared.seams.egress.set_policy(&row.id, &policy).await {
        Ok(()) => Ok(()),
        Err(EgressError::NotAttached { .. } | EgressError::Down) => {
            // Until then no traffic is allowed, so none that the new policy would deny.
            shared.egress.mark_due(&row.id);
            Ok(())
        }
        Err(error) => {
            shared.egress.mark_due(&row.id);
            Err(error.into())
        }
    }
}

/// Closes a sandbox's listeners, before its network is removed.
pub(crate) async fn detach(shared: &Shared, id: &SandboxId) -> Result<(), EngineError> {
    shared.egress.settle(id);
    own_listener::close(shared, id);
    match shared.seams.egress.detach(id).await {
        // A process that does not run holds no listeners.
        Ok(()) | Err(EgressError::Down) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A sandbox's policy with the secrets that its rules name. It is passed on and dropped: no copy is kept here.
async fn policy_of(shared: &Shared, row: &SandboxRow) -> Policy {
    let in_force = shared.policy.egress.in_force(&row.tenant, &row.spec.network);
    if !in_force.missing.is_empty() {
        let sets = in_force.missing.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
        tracing::warn!(sandbox = %row.id, sets, "a sandbox uses host sets that the configuration no longer contains");
    }
    let generation = shared.egress.next_generation(shared.now_ms());
    match secrets::directives_for(shared, row, generation).await {
        Ok(None) => in_force.policy,
        Ok(Some(directives)) => {
            shared.egress.withhold(&row.id, withheld(&directives));
            in_force.policy.with_directives(directives)
        }
        Err(error) => {
            // Its rules apply without an authority and without secrets: requests that need a secret are denied.
            let cause = &error as &dyn std::error::Error;
            tracing::error!(sandbox = %row.id, error = cause, "the secrets of a sandbox cannot be decrypted; requests that need one are denied");
            let all = secrets::named_by(&row.spec.network.requests);
            let reason = |name: Name| (name, format!("it cannot be decrypted: {error}"));
            shared.egress.withhold(&row.id, all.into_iter().map(reason).collect());
            in_force.policy
        }
    }
}

/// Secrets that rules name but that are not granted.
fn withheld(directives: &Directives) -> HashMap<Name, String> {
    let granted = |name: &Name| directives.grants.iter().any(|grant| grant.name == *name);
    let named = secrets::named_by(&directives.rules).into_iter();
    let reason = "it does not exist or cannot be decrypted; see the daemon's log";
    named.filter(|name| !granted(name)).map(|name| (name, reason.to_owned())).collect()
}

// === Following changes ===

/// Applies policies again when a secret they name changes, and when a new egress process starts: that process received its policies
/// without secrets, since no copy of them is kept. Runs until the engine is dropped.
pub(crate) fn spawn(shared: &Arc<Shared>) {
    let (changes, process) = (shared.secrets.subscribe(), shared.seams.egress.epoch());
    let following = PolicyFollower { shared: Arc::downgrade(shared), changes, process };
    // Not stopped earlier: a secret may change until the last request is served.
    drop(tokio::spawn(following.run()));
}

struct PolicyFollower {
    shared: Weak<Shared>,
    changes: broadcast::Receiver<SecretChanged>,
    process: watch::Receiver<u64>,
}

impl PolicyFollower {
    async fn run(mut self) {
        loop {
            let due = tokio::select! {
                change = self.changes.recv() => match change {
                    Ok(change) => DuePolicies::Of(change),
                    Err(broadcast::error::RecvError::Lagged(_)) => DuePolicies::All,
                    Err(broadcast::error::RecvError::Closed) => return,
                },
                raised = self.process.changed() => match raised {
                    Ok(()) => DuePolicies::All,
                    Err(_) => return,
                },
            };
            let Some(shared) = self.shared.upgrade() else { return };
            mark_all_due(&shared, &due).await;
            if let DuePolicies::Of(change) = &due {
                apply_at_once(&shared, change).await;
            }
            apply_due_policies(&shared);
        }
    }
}

enum DuePolicies {
    Of(SecretChanged),
    All,
}

async fn mark_all_due(shared: &Shared, due: &DuePolicies) {
    let users = match due {
        DuePolicies::Of(change) => shared.seams.catalog.users_of_secrets(&change.tenant).await,
        DuePolicies::All => Ok(Vec::new()),
    };
    match (due, users) {
        (DuePolicies::Of(change), Ok(users)) => {
            for (_, id, _) in users.into_iter().filter(|(secret, _, _)| *secret == change.name) {
                shared.egress.mark_due(&id);
            }
        }
        // The affected sandboxes are among them.
        (DuePolicies::Of(_) | DuePolicies::All, _) => {
            for actor in shared.registry.all() {
                shared.egress.mark_due(actor.id());
            }
        }
    }
}

/// Applies a secret's change without waiting for the actors of its sandboxes, which may take long. A policy that cannot be applied
/// remains due.
async fn apply_at_once(shared: &Arc<Shared>, change: &SecretChanged) {
    let mut on_its_way = JoinSet::new();
    for id in shared.egress.due_policies() {
        let (shared, tenant) = (shared.clone(), change.tenant.clone());
        on_its_way.spawn(async move {
            let _lock = shared.egress.lock_policy(&id).await;
            // Read under the lock: a change that is stored later is also passed on later.
            let Ok(Some(row)) = shared.seams.catalog.sandbox(&tenant, &id).await else { return };
            let policy = policy_of(&shared, &row).await;
            if shared.seams.egress.set_policy(&id, &policy).await.is_ok() {
                shared.egress.settle(&id);
            }
        });
    }
    on_its_way.join_all().await;
}

/// Asks the actors to apply all policies that are due.
pub(crate) fn apply_due_policies(shared: &Shared) {
    for id in shared.egress.due_policies() {
        if let Some(actor) = shared.registry.get(&id) {
            actor.tell(Command::ApplyPolicy);
        }
    }
}
