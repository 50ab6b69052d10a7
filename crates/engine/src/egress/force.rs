//! Puts sandboxes' policies in force: when they start, when they change, when a secret they name changes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use burrow_catalog::SandboxRow;
use burrow_egress::{Directives, EgressError, Policy};
use burrow_model::{Name, SandboxId};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;

use crate::actor::Command;
use crate::secrets::{self, SecretChanged};
use crate::shared::Shared;
use crate::{EngineError, own};

/// Opens a sandbox's doors, before its machine boots.
pub(crate) async fn attach(shared: &Shared, row: &SandboxRow) -> Result<(), EngineError> {
    let _turn = shared.egress.turn(&row.id).await;
    let policy = policy_of(shared, row).await;
    shared.egress.watch(row, shared.now_ms());
    own::open(shared, row).await?;
    match shared.seams.egress.attach(&row.id, &policy).await {
        Ok(()) => Ok(()),
        // It is being started again. Until then the sandbox reaches nothing, which is no reason not to have it.
        Err(error @ (EgressError::Down | EgressError::Silent)) => {
            tracing::warn!(sandbox = %row.id, %error, "a sandbox starts without a network for now");
            shared.egress.owe(&row.id);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes up a sandbox that runs already, with its flows if they are still served.
pub(crate) async fn adopt(shared: &Shared, row: &SandboxRow) {
    let _turn = shared.egress.turn(&row.id).await;
    let policy = policy_of(shared, row).await;
    shared.egress.watch(row, shared.now_ms());
    match shared.seams.egress.adopt(&row.id, &policy).await {
        Ok(()) => shared.egress.settle(&row.id),
        Err(error) => {
            if shared.egress.owe(&row.id) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(sandbox = %row.id, error, "a sandbox has no network for now");
            }
        }
    }
}

/// Follows a change that is durable already. An error means that it is not in force yet, and will be.
pub(crate) async fn follow(shared: &Shared, row: &SandboxRow) -> Result<(), EngineError> {
    let _turn = shared.egress.turn(&row.id).await;
    let policy = policy_of(shared, row).await;
    match shared.seams.egress.set_policy(&row.id, &policy).await {
        Ok(()) => Ok(()),
        Err(EgressError::NotAttached { .. } | EgressError::Down) => {
            // Nothing is let through meanwhile, so nothing is that the new policy would not allow.
            shared.egress.owe(&row.id);
            Ok(())
        }
        Err(error) => {
            shared.egress.owe(&row.id);
            Err(error.into())
        }
    }
}

/// Closes a sandbox's doors, before its network goes.
pub(crate) async fn detach(shared: &Shared, id: &SandboxId) -> Result<(), EngineError> {
    shared.egress.settle(id);
    own::close(shared, id);
    match shared.seams.egress.detach(id).await {
        // A process that is not there holds no doors.
        Ok(()) | Err(EgressError::Down) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A sandbox's policy with the secrets its rules name. It is handed over and dropped: nothing here keeps it.
async fn policy_of(shared: &Shared, row: &SandboxRow) -> Policy {
    let in_force = shared.policy.egress.in_force(&row.tenant, &row.spec.network);
    if !in_force.missing.is_empty() {
        let sets = in_force.missing.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
        tracing::warn!(sandbox = %row.id, sets, "a sandbox names host sets that the configuration does not have any more");
    }
    let generation = shared.egress.next_generation(shared.now_ms());
    match secrets::directives_for(shared, row, generation).await {
        Ok(None) => in_force.policy,
        Ok(Some(directives)) => {
            shared.egress.withhold(&row.id, withheld(&directives));
            in_force.policy.with_directives(directives)
        }
        Err(error) => {
            // Its rules are in force without an authority and without a secret: what needs one is refused.
            let cause = &error as &dyn std::error::Error;
            tracing::error!(sandbox = %row.id, error = cause, "a sandbox's secrets cannot be opened; what needs one is refused");
            let all = secrets::named_by(&row.spec.network.requests);
            let reason = |name: Name| (name, format!("it cannot be opened: {error}"));
            shared.egress.withhold(&row.id, all.into_iter().map(reason).collect());
            in_force.policy
        }
    }
}

/// Secrets that rules name and that are not granted.
fn withheld(directives: &Directives) -> HashMap<Name, String> {
    let granted = |name: &Name| directives.grants.iter().any(|grant| grant.name == *name);
    let named = secrets::named_by(&directives.rules).into_iter();
    let reason = "it is not there, or cannot be opened; the daemon's log says more";
    named.filter(|name| !granted(name)).map(|name| (name, reason.to_owned())).collect()
}

// === Following ===

/// Puts policies in force again when a secret they name changes, and when another egress process serves: it was told
/// what to serve without secrets, since nobody keeps them. Runs until the engine is gone.
pub(crate) fn spawn(shared: &Arc<Shared>) {
    let (changes, process) = (shared.secrets.subscribe(), shared.seams.egress.epoch());
    let following = Following { shared: Arc::downgrade(shared), changes, process };
    tokio::spawn(following.run());
}

struct Following {
    shared: Weak<Shared>,
    changes: broadcast::Receiver<SecretChanged>,
    process: watch::Receiver<u64>,
}

impl Following {
    async fn run(mut self) {
        loop {
            let due = tokio::select! {
                change = self.changes.recv() => match change {
                    Ok(change) => Due::Of(change),
                    Err(broadcast::error::RecvError::Lagged(_)) => Due::All,
                    Err(broadcast::error::RecvError::Closed) => return,
                },
                raised = self.process.changed() => match raised {
                    Ok(()) => Due::All,
                    Err(_) => return,
                },
            };
            let Some(shared) = self.shared.upgrade() else { return };
            owe_all(&shared, &due).await;
            if let Due::Of(change) = &due {
                hand_over_at_once(&shared, change).await;
            }
            put_in_force(&shared);
        }
    }
}

enum Due {
    Of(SecretChanged),
    All,
}

async fn owe_all(shared: &Shared, due: &Due) {
    let users = match due {
        Due::Of(change) => shared.seams.catalog.users_of_secrets(&change.tenant).await,
        Due::All => Ok(Vec::new()),
    };
    match (due, users) {
        (Due::Of(change), Ok(users)) => {
            for (_, id, _) in users.into_iter().filter(|(secret, _, _)| *secret == change.name) {
                shared.egress.owe(&id);
            }
        }
        // Whoever it is about is among them.
        (Due::Of(_) | Due::All, _) => {
            for actor in shared.registry.all() {
                shared.egress.owe(actor.id());
            }
        }
    }
}

/// A secret's change does not wait for what its sandboxes' actors are at, which may take long. What fails here stays owed.
async fn hand_over_at_once(shared: &Arc<Shared>, change: &SecretChanged) {
    let mut on_its_way = JoinSet::new();
    for id in shared.egress.owed() {
        let (shared, tenant) = (shared.clone(), change.tenant.clone());
        on_its_way.spawn(async move {
            let _turn = shared.egress.turn(&id).await;
            // Read in its turn: what is stored later is handed over later.
            let Ok(Some(row)) = shared.seams.catalog.sandbox(&tenant, &id).await else { return };
            let policy = policy_of(&shared, &row).await;
            if shared.seams.egress.set_policy(&id, &policy).await.is_ok() {
                shared.egress.settle(&id);
            }
        });
    }
    on_its_way.join_all().await;
}

/// Has policies put in force that are due.
pub(crate) fn put_in_force(shared: &Shared) {
    for id in shared.egress.owed() {
        if let Some(actor) = shared.registry.get(&id) {
            actor.tell(Command::PutInForce);
        }
    }
}
