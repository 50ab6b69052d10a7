//! Changes of secrets, for those that pass secrets on.

use burrow_model::{Name, TenantId};
use tokio::sync::broadcast;

/// Changes that a subscriber may lag behind; one that lags further applies everything again.
const CHANGES_MAX: usize = 256;

/// A secret was changed, created or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretChanged {
    pub tenant: TenantId,
    pub name: Name,
}

/// Notifies subscribers of changes.
#[derive(Debug)]
pub(crate) struct SecretChanges(broadcast::Sender<SecretChanged>);

impl SecretChanges {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(CHANGES_MAX).0)
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<SecretChanged> {
        self.0.subscribe()
    }

    pub(crate) fn tell(&self, tenant: &TenantId, name: &Name) {
        // No subscribers is fine: a new subscriber reads the present state first.
        let _ = self.0.send(SecretChanged { tenant: tenant.clone(), name: name.clone() });
    }
}
