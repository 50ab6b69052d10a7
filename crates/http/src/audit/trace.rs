//! Collects the facts about a call for its audit event.
//!
//! The layer around all routes inserts an empty trace into the request; authentication, look-ups and handlers fill it
//! in.

use std::sync::{Arc, Mutex, PoisonError};

use burrow_audit::{Action, Text};
use burrow_catalog::KeyRow;
use burrow_model::{ExecId, SandboxId, TenantId, VolumeId};

/// Shared by the layer and the code that handles the call.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<CallFacts>>);

#[derive(Clone, Debug, Default)]
pub struct CallFacts {
    /// `None` if the client was not authenticated.
    pub tenant: Option<TenantId>,
    pub actor: Option<Text>,
    pub sandbox: Option<SandboxId>,
    /// The id of the object it concerns, besides the sandbox.
    pub target: Option<Text>,
    /// A more specific action than that of the route.
    pub action: Option<Action>,
    /// The start of the exec was recorded.
    pub exec_began: bool,
    /// How it ended, if the call waited for the end.
    pub exec_ended: Option<Text>,
}

impl Trace {
    pub fn facts(&self) -> CallFacts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update(&self, change: impl FnOnce(&mut CallFacts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn asked_by(&self, key: &KeyRow) {
        self.update(|facts| {
            facts.tenant = Some(key.tenant.clone());
            facts.actor = Some(Text::new(&format!("{} {}", key.id, key.name)));
        });
    }

    /// How the client was authenticated, in addition to the key.
    pub fn by_way_of(&self, way: &str) {
        self.update(|facts| {
            facts.actor = facts.actor.take().map(|actor| Text::new(&format!("{} by {way}", actor.as_str())));
        });
    }

    /// Authenticated by a token of the sandbox, or by the key that was recorded before.
    pub fn asked_inside(&self, tenant: &TenantId, sandbox: &SandboxId, by_token: bool) {
        self.update(|facts| {
            if by_token {
                facts.tenant = Some(tenant.clone());
                facts.actor = Some(Text::new(&format!("token of {sandbox}")));
            }
            facts.sandbox = Some(sandbox.clone());
        });
    }

    /// Authenticated by a token of a volume.
    pub fn asked_by_volume(&self, tenant: &TenantId, volume: &VolumeId) {
        self.update(|facts| {
            facts.tenant = Some(tenant.clone());
            facts.actor = Some(Text::new(&format!("token of {volume}")));
            facts.target = Some(Text::new(volume.as_str()));
        });
    }

    /// Records the first sandbox that was looked up as the one that the call concerns.
    pub fn about(&self, sandbox: &SandboxId) {
        self.update(|facts| {
            facts.sandbox.get_or_insert_with(|| sandbox.clone());
        });
    }

    /// Records the other object: a key, a snapshot, an exec, the sandbox that was merged.
    pub fn target(&self, id: &str) {
        self.update(|facts| facts.target = Some(Text::new(id)));
    }

    /// Overrides the action of the route.
    pub fn is(&self, action: Action) {
        self.update(|facts| facts.action = Some(action));
    }

    pub fn exec_began(&self, exec: &ExecId) {
        self.target(exec.as_str());
        self.update(|facts| facts.exec_began = true);
    }

    pub fn exec_ended(&self, how: Text) {
        self.update(|facts| facts.exec_ended = Some(how));
    }
}
