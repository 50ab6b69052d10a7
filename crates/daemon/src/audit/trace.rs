//! What is learnt about a call on its way, for the event that tells of it.
//!
//! The layer around all routes puts an empty one into the request; authentication, look-ups and handlers fill it in.

use std::sync::{Arc, Mutex, PoisonError};

use burrow_audit::{Action, Text};
use burrow_catalog::KeyRow;
use burrow_model::{SandboxId, ShelfId, TenantId};

/// Shared by the layer and whoever knows something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Arc<Mutex<Told>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// `None` where nobody was recognised.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) actor: Option<Text>,
    pub(crate) sandbox: Option<SandboxId>,
    /// The id of what else it is about.
    pub(crate) target: Option<Text>,
    /// A more telling word than its route gives.
    pub(crate) action: Option<Action>,
    /// The exec has begun, and that was recorded.
    pub(crate) exec_began: bool,
    /// How it ended, where the call waited for that.
    pub(crate) exec_ended: Option<Text>,
}

impl Trace {
    pub(crate) fn told(&self) -> Told {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn asked_by(&self, key: &KeyRow) {
        self.tell(|told| {
            told.tenant = Some(key.tenant.clone());
            told.actor = Some(Text::new(&format!("{} {}", key.id, key.name)));
        });
    }

    /// Beside the key: how its owner was recognised.
    pub(crate) fn by_way_of(&self, way: &str) {
        self.tell(|told| {
            told.actor = told.actor.take().map(|actor| Text::new(&format!("{} by {way}", actor.as_str())));
        });
    }

    /// By a token of the sandbox's own, or by whichever key was told already.
    pub(crate) fn asked_inside(&self, tenant: &TenantId, sandbox: &SandboxId, by_token: bool) {
        self.tell(|told| {
            if by_token {
                told.tenant = Some(tenant.clone());
                told.actor = Some(Text::new(&format!("token of {sandbox}")));
            }
            told.sandbox = Some(sandbox.clone());
        });
    }

    /// By a token of a volume's own.
    pub(crate) fn asked_by_volume(&self, tenant: &TenantId, volume: &ShelfId) {
        self.tell(|told| {
            told.tenant = Some(tenant.clone());
            told.actor = Some(Text::new(&format!("token of {volume}")));
            told.target = Some(Text::new(volume.as_str()));
        });
    }

    /// The first sandbox that was looked up is the one it is about.
    pub(crate) fn about(&self, sandbox: &SandboxId) {
        self.tell(|told| {
            told.sandbox.get_or_insert_with(|| sandbox.clone());
        });
    }

    /// What else it is about: a key, a snapshot, an exec, the sandbox that was merged.
    pub(crate) fn target(&self, id: &str) {
        self.tell(|told| told.target = Some(Text::new(id)));
    }

    /// It is this, whatever its route says.
    pub(crate) fn is(&self, action: Action) {
        self.tell(|told| told.action = Some(action));
    }

    pub(crate) fn exec_began(&self) {
        self.tell(|told| told.exec_began = true);
    }

    pub(crate) fn exec_ended(&self, how: &str) {
        self.tell(|told| told.exec_ended = Some(Text::new(how)));
    }
}
