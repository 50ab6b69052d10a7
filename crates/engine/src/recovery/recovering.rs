//! Which sandboxes are still being recovered.

use std::collections::HashMap;

use burrow_catalog::SandboxRow;
use burrow_model::{SandboxId, TenantId};
use tokio::sync::watch;

/// Sandboxes that are still being recovered, and why.
#[derive(Debug, Default)]
pub(crate) struct RecoveringSandboxes {
    sandboxes: watch::Sender<HashMap<SandboxId, (TenantId, String)>>,
    /// How many other tasks of the start still run in the background.
    works: watch::Sender<usize>,
}

impl RecoveringSandboxes {
    pub(crate) fn reason(&self, id: &SandboxId) -> Option<String> {
        self.sandboxes.borrow().get(id).map(|(_, reason)| reason.clone())
    }

    pub(crate) fn owner(&self, id: &SandboxId) -> Option<TenantId> {
        self.sandboxes.borrow().get(id).map(|(tenant, _)| tenant.clone())
    }

    pub(crate) fn ids(&self) -> Vec<SandboxId> {
        self.sandboxes.borrow().keys().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.sandboxes.borrow().len()
    }

    /// Waits until a sandbox is recovered, or could not be recovered.
    pub(crate) async fn wait_for(&self, id: &SandboxId) {
        // `self` holds the sender, so this cannot fail.
        let _ = self.sandboxes.subscribe().wait_for(|sandboxes| !sandboxes.contains_key(id)).await;
    }

    /// The same for all sandboxes.
    pub(crate) async fn wait_for_all(&self) {
        let _ = self.sandboxes.subscribe().wait_for(HashMap::is_empty).await;
    }

    /// Waits until all work of the start is done.
    pub(crate) async fn wait_for_start(&self) {
        self.wait_for_all().await;
        let _ = self.works.subscribe().wait_for(|works| *works == 0).await;
    }

    pub(super) fn begin(&self, row: &SandboxRow, reason: String) {
        let entry = (row.tenant.clone(), reason);
        self.sandboxes.send_modify(|sandboxes| drop(sandboxes.insert(row.id.clone(), entry)));
    }
    pub(super) fn end(&self, id: &SandboxId) {
        self.sandboxes.send_modify(|sandboxes| drop(sandboxes.remove(id)));
    }

    pub(super) fn begin_work(&self) {
        self.works.send_modify(|works| *works += 1);
    }

    pub(super) fn end_work(&self) {
        self.works.send_modify(|works| *works -= 1);
    }
}
